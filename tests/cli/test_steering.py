"""Ctrl-C at a terminal: a message to the agent; a second one stops the run."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_runtime.cli import exit_codes as exits
from agent_runtime.testing.model_server import Reply
from tests.cli.screen import at_terminal
from tests.cli.test_runs import HELLO, Machine, machine

__all__ = ["machine"]

CTRL_C = "\x03"
PROMPT = "Message to the agent (Enter sends it, empty goes on; Ctrl-C again stops the run):"
WAIT = "while [ ! -e go ]; do sleep 0.05; done"
OPTIONS = ("run", "Go.", "--workspace", ".", "--allow-shell")


def waits_for_a_file(machine: Machine) -> None:
    """Let the agent run a command that ends when the file `go` exists."""
    command = Reply(calls=(("bash", {"command": WAIT}),))
    machine.script = lambda request, n: HELLO if n else command


def let_go(folder: Path) -> None:
    """Let that command end."""
    (folder / "go").touch()


def test_ctrl_c_sends_a_message_to_the_agent_at_work(machine: Machine) -> None:
    waits_for_a_file(machine)
    with at_terminal(machine.folder, machine.environ, *OPTIONS) as screen:
        screen.until("bash while", "step 1/")
        screen.type(CTRL_C, end="")
        screen.until(PROMPT, ">")
        screen.type("Only the tests, please.")
        screen.until("Sent: the agent reads it at its next step.", "step 1/")
        let_go(machine.folder)
        assert screen.until_exit() == 0, screen.rows
        rows = [screen.row(text) for text in ("> Only the tests", "Sent:", "✓ 1", "Done after")]
        assert -1 not in rows and rows == sorted(rows), screen.rows
    last = machine.server.requests[-1].json["messages"]
    assert "Only the tests, please." in str(last[-1]["content"])


def test_an_empty_message_goes_on_and_nothing_is_lost_meanwhile(machine: Machine) -> None:
    waits_for_a_file(machine)
    with at_terminal(machine.folder, machine.environ, *OPTIONS) as screen:
        screen.until("bash while", "step 1/")
        screen.type(CTRL_C, end="")
        screen.until(PROMPT)
        screen.type("")
        let_go(machine.folder)
        assert screen.until_exit() == 0, screen.rows
        assert screen.row("✓ 1 bash") > screen.row(PROMPT), screen.rows
    assert "Sent:" not in "\n".join(screen.rows)


def test_a_run_that_ends_meanwhile_takes_no_message(machine: Machine) -> None:
    waits_for_a_file(machine)
    with at_terminal(machine.folder, machine.environ, *OPTIONS) as screen:
        screen.until("bash while", "step 1/")
        screen.type(CTRL_C, end="")
        screen.until(PROMPT)
        screen.type("not yet", end="")
        let_go(machine.folder)
        assert screen.until_exit() == 0, screen.rows
        assert screen.row("No message was sent.") > screen.row("> not yet") >= 0
        assert screen.row("✓ 1 bash") > screen.row(PROMPT), screen.rows


@pytest.mark.parametrize("typed", ["", "half a mess"])
def test_a_second_ctrl_c_stops_the_run(machine: Machine, typed: str) -> None:
    waits_for_a_file(machine)
    with at_terminal(machine.folder, machine.environ, *OPTIONS) as screen:
        screen.until("bash while", "step 1/")
        screen.type(CTRL_C, end="")
        screen.until(PROMPT)
        screen.type(typed + CTRL_C, end="")
        assert screen.until_exit() == exits.INTERRUPTED, screen.rows
        assert screen.row("Stopping: recording what was done.") > screen.row(PROMPT)
        assert "agent-runtime resume" in "\n".join(screen.rows)
        assert not [row for row in screen.rows if "Warning" in row or "Traceback" in row]
