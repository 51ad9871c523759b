"""The comparison with few steps: the floors and this runtime, which need no other packages."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from agent_runtime.errors import ConfigError
from benchmarks.__main__ import main
from benchmarks.frame import Report
from benchmarks.peers import trial
from benchmarks.peers.environments import FLOOR, OURS, PEERS, RUNNERS, Environments, Missing, Peer
from benchmarks.peers.peers import choose, hopeless
from benchmarks.peers.plots import bars, lines
from benchmarks.peers.report import load, markdown
from benchmarks.peers.server import Served
from benchmarks.peers.targets import targets

OTHER_COLUMNS = ("net_ms", "peak_mb", "startup_ms", "startup_cpu_ms")


@pytest.mark.slow
def test_the_floors_and_this_runtime_are_compared(tmp_path: Path) -> None:
    report = tmp_path / "report"
    arguments = ["peers", "--only", "httpx", "--steps", "3", "--rounds", "1"]
    arguments += ["--skip", "behaviour", "--write", str(report)]

    assert main([*arguments, "--json", str(tmp_path / "a.json")]) == 0

    rows = json.loads((tmp_path / "a.json").read_bytes())["rows"]
    by = {(row["table"], row.get("peer")): row for row in rows}
    floors = ("httpx, full history", "httpx, our prompts")
    for name in (OURS, *floors):
        assert by["speed", name]["cpu_ms"] > 0 and by["speed", name]["database_mb"] > 0
        assert 0.5 < by["prompts", name]["cacheable"] < 1
    # The floor sends what this runtime sent.
    sent = by["prompts", floors[1]]["prompt_mb"]
    assert sent == pytest.approx(by["prompts", OURS]["prompt_mb"], rel=0.01)
    assert not [row for row in rows if row["table"] == "missing"]
    text = (report / "peers.md").read_text()
    assert all(f"| {name} |" in text for name in (OURS, *floors))
    for name in re.findall(r"\((\w+\.svg)\)", text):
        ElementTree.fromstring((report / name).read_text())


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_this_runtime_survives_what_the_others_are_put_through(tmp_path: Path) -> None:
    arguments = ["peers", "--only", OURS, "--steps", "3", "--rounds", "1", "--skip", "speed"]

    assert main([*arguments, "--json", str(tmp_path / "a.json")]) == 0

    rows = json.loads((tmp_path / "a.json").read_bytes())["rows"]
    trials = {row["trial"]: row for row in rows if row["table"] == "behaviour"}
    assert len(trials) == 5 and all(row["done"] for row in trials.values()), trials
    for name, kept in (("killed in a tool", 29), ("killed after a tool", 30)):
        assert (trials[name]["kept"], trials[name]["twice"]) == (kept, 0)
    assert "ThreadBusy" in trials["two at once"]["outcome"]
    assert trials["window of 32K"]["task_lost"] == 0


def test_a_peer_that_cannot_be_installed_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    peer = Peer("none", "with_agno.py", ("agno==3.1.10",))
    environments = Environments(tmp_path / "environments")

    for _ in range(2):
        with pytest.raises(Missing, match="agno"):
            environments.python(peer)


def test_a_runner_that_fails_says_what_it_wrote(tmp_path: Path) -> None:
    peer = replace(PEERS[0], runner="with_agno.py")  # Its package is missing here.
    with trial.server() as server:
        course = trial.Course(server, Environments(tmp_path), tmp_path / "none.jsonl")
        with pytest.raises(trial.Failed, match="No module named 'agno'"):
            trial.measure(course, peer, trial.Script(2))


def test_peers_are_chosen_by_a_part_of_their_name() -> None:
    assert [peer.name for peer in choose(["langgraph"])] == [
        OURS,
        "LangGraph",
        "LangGraph, summaries",
        "LangGraph, summaries of all",
    ]
    with pytest.raises(ConfigError, match="no peer 'nothing'"):
        choose(["nothing"])


def measured(wall: float) -> trial.Measured:
    """A measurement that took this long."""
    return trial.Measured(0.0, {"wall": wall}, Served(), 0)


def test_a_task_is_not_tried_that_a_shorter_one_shows_to_be_too_long() -> None:
    found = {(50, "a"): [measured(1.0)], (500, "a"): [measured(31.0), measured(30.0)]}

    assert not hopeless((2000, "a"), found, limit=120)
    assert hopeless((2000, "a"), found, limit=119) == {
        (2000, "a"): "not finished in 119 s, since 500 steps took 30 s"
    }
    assert not hopeless((2000, "b"), found, limit=1) and not hopeless((50, "a"), found, limit=1)


def test_a_runner_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    with trial.server() as server:
        course = trial.Course(server, Environments(tmp_path), tmp_path / "none.jsonl", limit=0.2)
        with pytest.raises(trial.Unfinished, match=r"not finished in 0\.2 s"):
            trial.measure(course, PEERS[0], trial.Script(2))


def speed(peer: str, cpu: float, database: float = 1.0) -> dict[str, object]:
    """A row of speed."""
    return {"table": "speed", "peer": peer, "steps": 50, "cpu_ms": cpu, "database_mb": database}


def prompts(peer: str, weighted: float, kept: int) -> dict[str, object]:
    """A row of prompts."""
    return {"table": "prompts", "peer": peer, "steps": 50, "weighted_mb": weighted, "kept": kept}


def test_the_targets_name_what_was_met() -> None:
    rows = [speed(OURS, 9.0, 3.0), speed(FLOOR, 3.0, 2.0), speed("deepagents", 20.0)]
    rows += [speed("Agno", 10.0), speed("pydantic-ai, compaction", 17.0)]
    rows += [prompts(OURS, 3.0, 50), prompts("Agno", 5.0, 50), prompts("deepagents", 2.0, 9)]
    trial_row = {"table": "behaviour", "peer": OURS, "done": True, "twice": 0, "task_lost": None}
    rows += [trial_row | {"kept": 3, "kept_of": 3}, trial_row | {"kept": 2, "kept_of": 3}]

    assert [(one.value, one.met) for one in targets(rows)] == [
        (9.0 / 17.0, False),
        (1.5, False),
        (1.5, False),
        (0.6, True),
        ("1 of 2", False),
    ]


def test_what_was_not_finished_is_listed() -> None:
    rows = [speed(OURS, 9.0) | dict.fromkeys(OTHER_COLUMNS, 1.0)]
    rows += [{"table": "unfinished", "peer": "Agno", "steps": 2000, "why": "not finished in 5 s"}]

    text = markdown(Report("peers", rows))

    assert "## Not finished" in text and "- Agno, 2000 steps: not finished in 5 s" in text


def test_parts_make_one_report_in_which_later_ones_count(tmp_path: Path) -> None:
    def part(name: str, *rows: dict[str, object]) -> Path:
        more: dict[str, object] = {"table": "conditions", "part": name}
        (tmp_path / name).write_bytes(Report("peers", [*rows, more]).to_json())
        return tmp_path / name

    long = speed("Agno", 4.0) | {"steps": 500}
    late: dict[str, object] = {
        "table": "unfinished",
        "peer": OURS,
        "steps": 50,
        "why": "not finished in 5 s",
    }
    first = part("first", long, speed("Agno", 2.0), late)
    again = part("again", speed(OURS, 3.0))

    report = load([first, again])

    rows = [(row["peer"], row["steps"], row["cpu_ms"]) for row in report.rows if "steps" in row]
    assert rows == [(OURS, 50, 3.0), ("Agno", 50, 2.0), ("Agno", 500, 4.0)]
    assert [row["part"] for row in report.rows if "part" in row] == ["first", "again"]


def test_every_peer_is_pinned_and_has_its_runner() -> None:
    for peer in PEERS:
        assert (RUNNERS / peer.runner).exists()
        assert all(re.fullmatch(r"[\w\[\]-]+==[\w.]+", package) for package in peer.packages)


def test_plots_are_valid_svg() -> None:
    drawn = lines("A & B", "ms", {"one": [(50, 1.0), (500, 9.0)], "two": [(50, 0.0)]})
    assert "A &amp; B" in drawn
    ElementTree.fromstring(drawn)
    ElementTree.fromstring(bars("Bars", "MB", {"one": 1.0, "<two>": 0.0}))
    ElementTree.fromstring(lines("Nothing", "ms", {}))


def test_the_task_of_the_server_is_the_task_of_the_runners() -> None:
    text = (RUNNERS / "protocol.py").read_text()
    assert f'MARK = "{trial.MARK}"' in text
