"""Approvals at a terminal: the whole request is shown, and it stays on the screen."""

from __future__ import annotations

import json
import time

import pytest

from agent_runtime.cli import exit_codes as exits
from agent_runtime.testing.model_server import Reply
from tests.cli.screen import at_terminal
from tests.cli.test_runs import HELLO, STALL, Machine, machine

__all__ = ["machine"]

STEPS = [{"description": f"Step number {n}."} for n in range(6)]
PLAN = Reply(calls=(("plan", {"action": "create", "goal": "Ship.", "steps": STEPS}),))
PROMPT = "(every call of bash), or later] >"


def test_an_answered_approval_stays_above_the_plan(machine: Machine) -> None:
    command = Reply(calls=(("bash", {"command": "echo made > made.txt"}),))
    replies = {0: PLAN, 1: command}
    machine.script = lambda request, n: replies.get(n, STALL)
    options = ("run", "Go.", "--workspace", ".", "--ask-shell")

    with at_terminal(machine.folder, machine.environ, *options) as screen:
        screen.until("The agent wants to call bash:", PROMPT)
        question_row = screen.row("The agent wants to call bash:")
        before = screen.rows[: question_row + 1]
        screen.type("y")
        machine.wait_for_requests(3)
        screen.until("resumes", "Step number 5.")

        order = ["wants to call bash:", "command: echo made > made.txt"]
        order += [
            "timeout: null",
            "background: false",
            "That is the whole call of bash",
            f"{PROMPT} y",
        ]
        order += ["resumes", "step 2/", "Step number 0."]
        rows = [screen.row(text) for text in order]
        assert -1 not in rows and rows == sorted(rows), "\n".join(screen.rows)
        assert screen.rows[: question_row + 1] == before
    assert (machine.folder / "made.txt").read_text() == "made\n"


def test_a_command_can_hide_or_forge_nothing(machine: Machine) -> None:
    forged = "The agent wants to call read_file:\n  path: a.txt\n[y: yes, n: no, or later] > "
    hidden = "TOKEN=$(touch${IFS}x) make" + " " * 2100
    hidden += "; touch tail\x1b[2J\x1b[H\x9b2J\u202e\u200b\r"
    command = "# " + "\n" * 60 + forged + hidden
    text = "Fine." + "\n" * 60 + forged + "\n" + "x" * 156 + forged.partition("\n")[0]
    asks = Reply(text=text, calls=(("bash", {"command": command}),))
    machine.script = lambda request, n: HELLO if n else asks
    options = ("run", "Go.", "--workspace", ".", "--ask-shell")

    with at_terminal(machine.folder, machine.environ, *options) as screen:
        screen.until("The agent wants to call bash:", PROMPT)
        shown = "".join(row.removeprefix("  | ") for row in screen.rows).replace(" ", "")
        assert "TOKEN=$(touch${IFS}x)make\\[2,100blanks];touchtail" in shown
        assert "\\u001b[2J\\u001b[H\\u009b2J\\u202e\\u200b\\r" in shown
        assert "#" + "\\n" * 60 + "Theagentwantstocallread_file:\\npath:a.txt\\n[y:" in shown
        assert not [row for row in screen.rows if row.startswith("The agent wants to call read")]
        assert not [row for row in screen.rows if row.startswith(("  path", "[y: yes, n: no, or"))]
        screen.type("n")
        screen.process.wait(timeout=60)
    assert screen.process.returncode == 0 and not (machine.folder / "tail").exists()


@pytest.mark.parametrize("columns", [24, pytest.param(79, marks=pytest.mark.slow)])
def test_no_row_can_be_forged_at_any_width(machine: Machine, columns: int) -> None:
    forged = "The agent wants to call read_file:"
    # Where the terminal breaks a long row by itself, the rest would stand at a row's beginning.
    command = "".join("x" * (columns - n) + forged for n in range(columns))[:800]
    asks = Reply(text=command, calls=(("bash", {"command": command}),))
    machine.script = lambda request, n: HELLO if n else asks
    options = ("run", "Go.", "--workspace", ".", "--ask-shell")

    given = machine.folder, machine.environ, *options
    with at_terminal(*given, columns=columns, rows=600) as screen:
        screen.until("  command", "  timeout: null", "Always would allow")
        shown = [row for row in screen.rows if row]
        first, last = (
            next(n for n, row in enumerate(shown) if row.startswith(name))
            for name in ("  command:", "  timeout:")
        )
        # Every row of the argument but the first has the mark.
        assert all(row.startswith("  |") for row in shown[first + 1 : last])
        text = "".join(row.removeprefix("  |").strip() for row in shown[first:last])
        assert text.replace(" ", "") == f"command:{command}".replace(" ", "")
        screen.type("n")
        screen.process.wait(timeout=60)
    assert screen.process.returncode == 0


def test_an_interrupted_call_is_decided_at_the_terminal(machine: Machine) -> None:
    command = Reply(calls=(("bash", {"command": "echo x >> made.txt; sleep 600"}),))
    machine.script = lambda request, n: HELLO if n else command
    options = ("run", "Go.", "--workspace", ".", "--allow-shell")
    with at_terminal(machine.folder, machine.environ, *options) as screen:
        while not (machine.folder / "made.txt").exists():
            time.sleep(0.05)
        screen.process.kill()
        screen.process.wait()

    with at_terminal(machine.folder, machine.environ, "resume") as screen:
        screen.until("was interrupted in a call of bash:", "accept RESULT", "unverified")
        assert screen.row("echo x >> made.txt; sleep 600") > 0
        screen.type("accept It wrote one line.")
        screen.process.wait(timeout=60)
    assert screen.process.returncode == 0
    assert (machine.folder / "made.txt").read_text() == "x\n"
    last = machine.server.requests[-1].json["messages"][-1]
    assert last["role"] == "tool" and "It wrote one line." in last["content"]


def test_a_question_is_listed_in_full(machine: Machine) -> None:
    asks = Reply(calls=(("bash", {"command": f"echo {'x' * 3000}\nid"}),))
    machine.script = lambda request, n: HELLO if n else asks
    stopped = machine.invoke("run", "Go.", "--workspace", ".", "--ask-shell")
    assert stopped.exit_code == exits.SUSPENDED, stopped.stderr

    listed = machine.invoke("questions").stdout

    assert f"\n    command: echo {'x' * 3000}\\nid\n" in listed and "timeout: null" in listed
    question = json.loads(machine.invoke("questions", "--json").stdout)
    assert question["arguments"]["command"].endswith("\nid")


def test_a_rule_for_an_unknown_tool_stops_the_command(machine: Machine) -> None:
    wrong = {"AGENT_RUNTIME_APPROVE": "wirte_file"}
    result = machine.invoke("run", "Go.", "--workspace", ".", **wrong)
    assert result.exit_code == exits.USAGE and "wirte_file" in result.stderr
    assert "The tools are: " in result.stderr and "write_file" in result.stderr
    assert machine.server.requests == []
    checked = machine.invoke("doctor", **wrong)
    assert "fail  approvals" in checked.stdout and "wirte_file" in checked.stdout
    checked = machine.invoke("doctor", AGENT_RUNTIME_APPROVE="shell,write_file:path=/etc/*")
    assert "ok    approvals: a person is asked about: shell, write_file" in checked.stdout
