"""The bytes that `agent-runtime run` sends with a key, and the places the key never reaches."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from agent_runtime.cli import exit_codes as exits
from agent_runtime.testing.model_server import Reply
from tests.cli.test_runs import HELLO, KEY, Machine
from tests.cli.test_runs import machine as machine

TASK = ("delegate", {"role": "reader", "instructions": "Read a.txt.", "task_key": "read"})

SHELL = ("bash", {"command": "echo done > mark"})
INSTRUCTED = (
    "make a plan first",
    "`delegate`",
    "before you call it done",
    "Never make up",
    "what is left open",
    "You cannot ask anybody",
    "Your workspace is a folder",
)


def names(request: dict[str, Any]) -> set[str]:
    """Return the tools that a request offers."""
    return {tool["function"]["name"] for tool in request["tools"]}


def is_child(request: dict[str, Any]) -> bool:
    """Return whether a request is a sub-agent's."""
    return "You are a sub-agent." in request["messages"][0]["content"]


def is_first(request: dict[str, Any]) -> bool:
    """Return whether a request is the first of its run."""
    return not any(one["role"] == "assistant" for one in request["messages"])


def run_to_resume(stderr: str) -> str:
    """Return the run that a command says how to resume."""
    match = re.search(r"agent-runtime resume (\S+)", stderr)
    assert match is not None, stderr
    return match[1]


@pytest.fixture
def worked(machine: Machine) -> Machine:
    """A machine on which a sub-agent has read a file and the agent has answered."""
    (machine.folder / "work").mkdir()
    (machine.folder / "work" / "a.txt").write_text("The sea is blue.")

    def script(request: dict[str, Any], n: int) -> Reply:
        begins = is_first(request)
        if is_child(request):
            return Reply(calls=(("read_file", {"path": "a.txt"}),)) if begins else HELLO
        return Reply(calls=(TASK,)) if begins else HELLO

    machine.script = script
    done = machine.invoke("--debug", "run", "What colour is the sea?", "--workspace", "work")
    assert done.exit_code == 0, done.output
    (machine.folder / "output").write_text(done.output)
    return machine


def test_the_agent_gets_its_instructions_and_the_tools_for_real_work(worked: Machine) -> None:
    first = worked.server.requests[0].json
    system, place, task = first["messages"]
    assert [one["role"] for one in first["messages"]] == ["system", "user", "user"]
    assert f"Workspace: {worked.folder.resolve() / 'work'}" in place["content"]
    for phrase in INSTRUCTED:
        assert phrase in system["content"], phrase
    assert len(system["content"]) < 5000
    assert "What colour is the sea?" in task["content"]
    assert names(first) == {
        "glob", "read_file", "search", "write_file", "edit_file",
        "plan", "delegate", "tasks", "open_artifact", "recall",
    }  # fmt: skip


def test_a_sub_agent_gets_its_briefing_and_only_the_file_tools(worked: Machine) -> None:
    child = next(request.json for request in worked.server.requests if is_child(request.json))
    sent = json.dumps(child["messages"])
    assert "Read a.txt." in sent and "Workspace: " in sent
    assert "What colour is the sea?" not in sent and "autonomous agent" not in sent
    assert names(child) == {
        "glob", "read_file", "search", "write_file", "edit_file", "recall"
    }  # fmt: skip


def test_the_key_is_only_in_its_header(worked: Machine) -> None:
    for request in worked.server.requests:
        assert request.headers["authorization"] == f"Bearer {KEY}"
        assert KEY.encode() not in request.body
    files = [path for path in worked.folder.rglob("*") if path.is_file()]
    assert any(path.name == "agent_runtime.db" for path in files)
    assert [path for path in files if KEY.encode() in path.read_bytes()] == []


def test_threads_of_sub_agents_are_listed_only_with_all(worked: Machine) -> None:
    (own,) = worked.invoke("threads", "--json").stdout.splitlines()
    every = worked.invoke("threads", "--all", "--json").stdout.splitlines()
    assert own in every and len(every) == 2


def test_commands_are_offered_only_if_allowed(machine: Machine) -> None:
    machine.invoke("run", "Go.", "--workspace", ".")
    machine.invoke("run", "Go.", "--workspace", ".", "--allow-shell")
    offered = ["bash" in names(request.json) for request in machine.server.requests]
    assert offered == [False, True]


def test_with_ask_shell_a_command_waits_for_an_answer_from_any_process(machine: Machine) -> None:
    def script(request: dict[str, Any], n: int) -> Reply:
        return Reply(calls=(SHELL,)) if not n else HELLO

    machine.script = script
    suspended = machine.invoke("run", "Go.", "--workspace", ".", "--ask-shell")
    assert suspended.exit_code == exits.SUSPENDED, suspended.stderr
    mark = machine.folder / "mark"
    assert not mark.exists()
    question = re.search(r"agent-runtime answer (\S+)", suspended.stderr)
    assert question is not None
    assert machine.invoke("answer", question[1], "yes").exit_code == 0
    resumed = machine.invoke("resume")
    assert resumed.exit_code == 0, resumed.stderr
    assert mark.read_text() == "done\n"


def test_limits_are_shown_at_the_start_and_enforced(machine: Machine) -> None:
    free = machine.invoke("run", "Go.")
    assert "no budget (--budget-usd sets one)" in free.stderr
    assert "no time limit (--timeout sets one)" in free.stderr
    prices = {"AGENT_RUNTIME_PRICE_INPUT": "3000", "AGENT_RUNTIME_PRICE_OUTPUT": "15000"}
    poor = machine.invoke("run", "Go.", "--budget-usd", "0.01", "--timeout", "60", **prices)
    assert "$0.01 for this run; 60 s." in poor.stderr
    assert poor.exit_code == exits.STOPPED and "Stopped (budget)" in poor.stderr
    assert len(machine.server.requests) == 1


def test_a_sub_agents_command_waits_as_well(machine: Machine) -> None:
    def script(request: dict[str, Any], n: int) -> Reply:
        if not is_first(request):
            return HELLO
        return Reply(calls=(SHELL if is_child(request) else TASK,))

    machine.script = script
    suspended = machine.invoke("run", "Go.", "--workspace", ".", "--ask-shell")
    assert suspended.exit_code == exits.SUSPENDED, suspended.stderr
    assert "reader [read]" in suspended.stderr and not (machine.folder / "mark").exists()
    question = re.search(r"agent-runtime answer (\S+)", suspended.stderr)
    assert question is not None
    assert machine.invoke("answer", question[1], "yes").exit_code == 0
    resumed = machine.invoke("resume", run_to_resume(suspended.stderr))
    assert resumed.exit_code == 0, resumed.stderr
    assert (machine.folder / "mark").read_text() == "done\n"


@pytest.mark.parametrize("option", ["--budget-usd", "--timeout"])
@pytest.mark.parametrize("value", ["0", "-1", "much"])
def test_an_invalid_limit_is_refused(machine: Machine, option: str, value: str) -> None:
    refused = machine.invoke("run", "Go.", option, value)
    assert refused.exit_code == exits.USAGE and option in refused.stderr
    assert machine.server.requests == []


def test_a_shell_needs_a_workspace(machine: Machine) -> None:
    refused = machine.invoke("run", "Go.", "--ask-shell")
    assert refused.exit_code == exits.USAGE and "--ask-shell needs --workspace" in refused.stderr


def test_a_time_limit_stops_a_hanging_run(machine: Machine, tmp_path: Path) -> None:
    machine.script = lambda request, n: Reply(stall_after=0)
    stopped = machine.invoke("run", "Go.", "--timeout", "0.5")
    assert stopped.exit_code == exits.STOPPED and "Stopped (timeout)" in stopped.stderr
