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
from benchmarks.peers import trial
from benchmarks.peers.environments import PEERS, RUNNERS, Environments, Missing, Peer
from benchmarks.peers.peers import OURS, choose
from benchmarks.peers.plots import bars, lines


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
    ]
    with pytest.raises(ConfigError, match="no peer 'nothing'"):
        choose(["nothing"])


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
