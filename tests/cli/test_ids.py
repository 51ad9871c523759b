"""Ids as people type them: a beginning, an end, `last`; and what lists show."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent_runtime.cli import exit_codes as exits
from agent_runtime.cli.display.short_ids import short_id
from agent_runtime.testing.model_server import Reply
from tests.cli.test_runs import HELLO, Machine
from tests.cli.test_runs import machine as machine


def _run(machine: Machine, *options: str) -> dict[str, str]:
    done = machine.invoke("run", "Say hello.", "--json", *options)
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


def test_what_lists_show_can_be_typed(machine: Machine) -> None:
    result = _run(machine)
    thread, run = result["thread_id"], result["run_id"]
    [listed] = machine.invoke("threads").stdout.splitlines()
    [ran] = machine.invoke("runs").stdout.splitlines()
    assert listed.split()[0] == short_id(thread) == thread[-8:] and ran.split()[0] == run[-8:]
    for text in (thread, thread[-8:], thread[-6:].upper(), thread[:23], "last"):
        assert "Say hello." in machine.invoke("show", text).stdout, text
        report = json.loads(machine.invoke("memory", "show", text, "--json").stdout)
        assert report["thread_id"] == thread
    for text in (run[-8:], run[:28], "last"):
        assert machine.invoke("runs", "tree", text).stdout.endswith(f"{run[-8:]}\n")
        assert machine.invoke("usage", "--run", text).exit_code == 0
    # A short id continues a thread, and does not create one of that name.
    assert _run(machine, "--thread", thread[-8:])["thread_id"] == thread
    assert _run(machine, "--thread", "last")["thread_id"] == thread
    assert "now" in machine.invoke("memory", "explain", "last", "last").stdout
    assert machine.invoke("threads", "rm", thread[-8:], "--yes").stdout == f"{thread}\n"


def test_a_name_that_is_no_id_still_creates_a_thread(machine: Machine) -> None:
    assert _run(machine, "--thread", "2024-review")["thread_id"] == "2024-review"
    for name in ("2024", "2024-r", "review", "2024-re"):
        assert _run(machine, "--thread", name)["thread_id"] == name
    # Where nothing is created, the beginning of a name is enough, and a whole name wins.
    assert "Say hello." in machine.invoke("show", "2024-rev").stdout
    assert machine.invoke("show", "2024").exit_code == 0


def test_an_ambiguous_id_lists_the_candidates(machine: Machine) -> None:
    for name in ("report-may", "report-june"):
        _run(machine, "--thread", name)
    refused = machine.invoke("show", "report")
    assert refused.exit_code == exits.USAGE and refused.stdout == ""
    assert "names several threads" in refused.stderr
    lines = [line for line in refused.stderr.splitlines() if line.startswith("  report-")]
    assert len(lines) == 2 and all(line.endswith("Say hello.") for line in lines)
    # UUIDs of one minute share their beginning.
    runs = [json.loads(one)["run_id"] for one in machine.invoke("runs", "--json").stdout.split()]
    assert "names several runs" in machine.invoke("runs", "tree", runs[0][:6]).stderr


@pytest.mark.parametrize("command", [("show", "nope"), ("runs", "tree", "nope"), ("show", "last")])
def test_what_does_not_exist_is_not_found(machine: Machine, command: tuple[str, ...]) -> None:
    missing = machine.invoke(*command)
    assert missing.exit_code == exits.NOTHING and command[-1] in missing.stderr


def test_last_is_of_this_folder(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("here", "there"):
        Path(name).mkdir()
    url = f"file:{machine.folder / 'all.db'}"
    monkeypatch.setenv("AGENT_RUNTIME_DATABASE_URL", url)
    for name in ("here", "there"):
        _run(machine, "--thread", name, "--workspace", name)
    monkeypatch.chdir("here")
    assert json.loads(machine.invoke("fork", "last", "--json").stdout)["thread_id"] == "here"


def test_questions_are_named_by_short_ids(machine: Machine) -> None:
    asks = Reply(calls=(("bash", {"command": "true"}),))
    machine.script = lambda request, n: HELLO if n else asks
    machine.invoke("run", "Go.", "--workspace", ".", "--ask-shell")
    question = json.loads(machine.invoke("questions", "--json").stdout)["id"]
    assert machine.invoke("questions").stdout.startswith(question[-8:])
    answered = machine.invoke("answer", question[-8:], "yes")
    assert answered.exit_code == 0 and "resume" in answered.stderr
    assert machine.invoke("answer", "last", "yes").exit_code == exits.NOTHING
