"""Questions, approvals, pausing and steering from the command line."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest

from agent_runtime import Question, Runtime, Settings
from agent_runtime.cli import answer_prompt
from agent_runtime.cli import exit_codes as exits
from agent_runtime.cli.display.short_ids import short_id
from agent_runtime.delegation.assignment import PROTOCOL
from agent_runtime.testing.model_server import Reply
from tests.cli.test_runs import HELLO, STALL, Machine, machine
from tests.support.command import COMMAND, clean_environ

__all__ = ["machine"]

LIST = Reply(calls=(("glob", {}),))
APPROVE = {"AGENT_RUNTIME_APPROVE": "glob"}
ASK = {"question": "Which colour?", "kind": "single", "choices": ["red", "blue"]}


def _question(stderr: str) -> str:
    match = re.search(r"agent-runtime answer (\S+)", stderr)
    assert match is not None, stderr
    return match[1]


def _suspended(machine: Machine) -> tuple[str, str]:
    """Return the question and the run of a call that awaits approval."""
    machine.script = lambda request, n: HELLO if n else LIST
    result = machine.invoke("run", "List.", "--workspace", ".", **APPROVE)
    assert result.exit_code == exits.SUSPENDED, result.stderr
    assert "The agent wants to call glob" in result.stderr
    [run] = re.findall(r"Then resume it with: agent-runtime resume (\S+)", result.stderr)
    return _question(result.stderr), run


def test_without_a_terminal_a_run_suspends_and_another_command_answers(
    machine: Machine,
) -> None:
    question, run = _suspended(machine)
    listed = machine.invoke("questions", "--json")
    early = machine.invoke("resume", run)
    wrong = machine.invoke("answer", question, "perhaps")
    right = machine.invoke("answer", question, "yes")
    late = machine.invoke("answer", question, "no")
    waits = machine.invoke("runs").stdout, machine.invoke("doctor", "--live").stdout
    done = machine.invoke("resume", run)

    assert json.loads(listed.stdout)["id"] == question
    assert early.exit_code == exits.SUSPENDED and question in early.stderr
    # It is an answer at the prompt only.
    assert "or later" not in early.stderr
    assert wrong.exit_code == exits.USAGE and "y: yes, n: no, n REASON: no" in wrong.stderr
    assert right.exit_code == 0 and f"agent-runtime resume {run}" in right.stderr
    assert late.exit_code == exits.NOTHING and "answered before" in late.stderr
    assert (
        f"no question is open any more; resume it with: agent-runtime resume {run[-8:]}" in waits[0]
    )
    assert "1 run suspended although no question is open any more" in waits[1]
    assert done.exit_code == 0 and done.stdout == "Hello from the model.\n"
    assert machine.invoke("questions").stdout == ""


def test_standing_approvals_are_listed_and_revoked(machine: Machine) -> None:
    question, _ = _suspended(machine)
    thread = json.loads(machine.invoke("questions", "--json").stdout)["thread_id"]
    assert machine.invoke("answer", question, "always").exit_code == 0

    allowed = json.loads(machine.invoke("approvals", thread, "--json").stdout)
    assert allowed["tool"] == "glob"
    taken = machine.invoke("approvals", thread, "--forget", allowed["id"])

    assert taken.exit_code == 0 and "Nothing is allowed" in taken.stderr


def test_a_sub_agents_question_names_it_and_resumes_its_root(machine: Machine) -> None:
    order = {"role": "reader", "instructions": "List.", "task_key": "part one"}

    def script(request: dict[str, Any], n: int) -> Reply:
        messages = request["messages"]
        if PROTOCOL.splitlines()[0] in messages[0]["content"]:
            return Reply(text="Listed.") if messages[-1]["role"] == "tool" else LIST
        delegate = Reply(calls=(("delegate", order),))
        return HELLO if messages[-1]["role"] == "tool" else delegate

    machine.script = script
    stopped = machine.invoke("run", "List.", "--workspace", ".", **APPROVE)
    assert stopped.exit_code == exits.SUSPENDED, stopped.stderr
    [run] = re.findall(r"Then resume it with: agent-runtime resume (\S+)", stopped.stderr)
    thread = json.loads(machine.invoke("runs", "--json").stdout.splitlines()[-1])["thread_id"]
    listed = machine.invoke("questions", "--thread", thread).stdout
    tree = machine.invoke("runs", "tree", run)
    question = _question(stopped.stderr)
    answered = machine.invoke("answer", question, "always")
    done = machine.invoke("resume", run)

    assert "The sub-agent reader [part one] wants to call glob" in stopped.stderr
    assert listed.startswith(short_id(question)) and "sub-agent reader [part one]: glob" in listed
    assert tree.stdout.count("suspended (awaiting_user)") == 2
    assert f"Run {run} is not active; it waits for an answer" in tree.stderr
    assert f"agent-runtime resume {run}" in answered.stderr
    assert "glob" in machine.invoke("approvals", thread).stdout
    assert done.exit_code == 0 and done.stdout == "Hello from the model.\n", done.stderr


def test_a_background_tasks_question_outlives_the_command(machine: Machine) -> None:
    order = {"role": "reader", "instructions": "List.", "task_key": "one", "background": True}

    def script(request: dict[str, Any], n: int) -> Reply:
        messages = request["messages"]
        if PROTOCOL.splitlines()[0] in messages[0]["content"]:
            return Reply(text="Listed.") if messages[-1]["role"] == "tool" else LIST
        delegate = Reply(calls=(("delegate", order),))
        return HELLO if messages[-1]["role"] == "tool" else delegate

    machine.script = script
    began = machine.invoke("run", "List.", "--workspace", ".", "--thread", "t", **APPROVE)
    assert began.exit_code == 0 and began.stdout == "Hello from the model.\n", began.stderr
    [question] = [
        json.loads(line) for line in machine.invoke("questions", "--json").stdout.splitlines()
    ]
    assert (question["tool"], question["role"]) == ("glob", "reader")
    assert "waiting" in machine.invoke("tasks", "list", "t").stdout
    answered = machine.invoke("answer", question["id"], "yes")
    # Not its root, which is over.
    assert f"agent-runtime resume {question['run_id']}" in answered.stderr
    done = machine.invoke("resume", question["run_id"], **APPROVE)
    assert done.exit_code == 0 and done.stdout == "Listed.\n", done.stderr
    assert "succeeded" in machine.invoke("tasks", "list", "t").stdout
    again = machine.invoke("run", "And?", "--workspace", ".", "--thread", "t", **APPROVE)
    assert again.exit_code == 0
    assert "Listed." in json.dumps(machine.server.requests[-1].json)


def test_a_refusal_reaches_the_model_with_its_reason(machine: Machine) -> None:
    question, run = _suspended(machine)
    assert machine.invoke("answer", question, "no it is private").exit_code == 0

    machine.invoke("resume", run)

    [*_, result] = machine.server.requests[-1].json["messages"]
    assert "it is private" in result["content"]


def test_a_working_run_is_steered_and_paused(machine: Machine) -> None:
    machine.script = lambda request, n: STALL if n else LIST
    with machine.process("run", "List.", "--workspace", ".") as process:
        machine.wait_for_requests(2)
        assert process.stderr is not None
        run = next(
            match[1] for line in process.stderr if (match := re.search(r"run (\S+) s", line))
        )
        assert machine.invoke("steer", run, "Look into it.").exit_code == 0
        paused = machine.invoke("pause", run)
    assert paused.exit_code == 0 and f"agent-runtime resume {run}" in paused.stderr
    machine.script = lambda request, n: HELLO

    over = machine.invoke("resume", run)

    assert over.exit_code == 0
    assert "Look into it." in str(machine.server.requests[-1].json["messages"])
    again = machine.invoke("pause", run)
    assert again.exit_code == exits.NOTHING and "is over" in again.stderr
    assert machine.invoke("steer", run, " ").exit_code == exits.USAGE


class Terminal:
    """A command at a terminal of its own."""

    def __init__(self, master: int, process: subprocess.Popen[bytes]) -> None:
        self.master = master
        self.process = process
        self.said = ""

    def expect(self, text: str) -> None:
        """Wait until this text was written, after the last text expected."""
        deadline = time.monotonic() + 60
        while text not in self.said:
            assert time.monotonic() < deadline, self.said
            if select.select([self.master], [], [], 1)[0]:
                self.said += os.read(self.master, 10_000).decode(errors="replace")
        self.said = self.said.partition(text)[2]

    def type(self, line: str) -> None:
        """Type a line."""
        os.write(self.master, f"{line}\n".encode())


@contextmanager
def _terminal(machine: Machine, *arguments: str, **environ: str) -> Generator[Terminal]:
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, *arguments],
        cwd=machine.folder,
        env=clean_environ(machine.environ | environ),
        stdin=slave,
        stdout=subprocess.PIPE,
        stderr=slave,
    )
    try:
        yield Terminal(master, process)
    finally:
        process.kill()
        process.communicate()
        os.close(master)
        os.close(slave)


def test_questions_are_asked_at_the_terminal(machine: Machine) -> None:
    replies = {0: Reply(calls=(("ask_user", ASK),)), 1: LIST}
    machine.script = lambda request, n: replies.get(n, HELLO)

    with _terminal(machine, "run", "Go.", "--workspace", ".", **APPROVE) as terminal:
        terminal.expect("Which colour?")
        terminal.expect("2) blue")
        terminal.expect("> ")
        terminal.type("3")
        terminal.expect("not among the")
        terminal.expect("> ")
        terminal.type("2")
        terminal.expect("The agent wants to call glob")
        terminal.expect("> ")
        terminal.type("y")
        output, _ = terminal.process.communicate(timeout=60)

    assert terminal.process.returncode == 0 and output == b"Hello from the model.\n"
    answers = [message["content"] for message in machine.server.requests[-1].json["messages"]]
    assert "blue" in answers


def test_a_question_at_a_terminal_can_be_deferred(machine: Machine) -> None:
    machine.script = lambda request, n: HELLO if n else Reply(calls=(("ask_user", ASK),))

    with _terminal(machine, "run", "Go.") as terminal:
        terminal.expect("> ")
        terminal.type("later")
        terminal.process.wait(timeout=60)

    assert terminal.process.returncode == exits.SUSPENDED
    question = json.loads(machine.invoke("questions", "--json").stdout)["id"]
    with _terminal(machine, "answer", question) as terminal:
        terminal.expect("Which colour?")
        terminal.expect("> ")
        terminal.type("red")
        terminal.process.wait(timeout=60)
    assert terminal.process.returncode == 0


async def test_the_end_of_the_input_ends_the_row_of_the_prompt(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def ended() -> str:
        return ""

    monkeypatch.setattr(answer_prompt, "read_line", ended)
    question = Question(
        "q", "thread", "run", "text", "c", "Which colour?", (), "", {}, {}, "", "open", {}, 0, 0
    )
    async with Runtime.open(Settings()) as runtime:
        assert not await answer_prompt.ask_all(runtime, [question])
    assert capsys.readouterr().err.endswith("> \n")


def test_an_unknown_run_question_or_rule_is_reported(machine: Machine) -> None:
    for command in (["answer", "q", "x"], ["pause", "r"], ["steer", "r", "x"], ["approvals", "t"]):
        assert machine.invoke(*command).exit_code == exits.NOTHING, command
    assert machine.invoke("questions", "--thread", "t").exit_code == exits.NOTHING
