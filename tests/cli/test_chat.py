"""`agent-runtime chat` at a real terminal: history, commands, steering and interruption."""

from __future__ import annotations

import json
import os
import stat
from typing import Any

from agent_runtime.cli import exit_codes as exits
from agent_runtime.testing.model_server import Reply
from tests.cli.screen import Screen, at_terminal
from tests.cli.test_runs import HELLO, Machine, machine

__all__ = ["machine"]

ENTER, CTRL_C, CTRL_D, UP, ALT_ENTER, ESC = "\r", "\x03", "\x04", "\x1b[A", "\x1b\r", "\x1b"
# pyte answers no request for the cursor's position.
EDITOR = {"PROMPT_TOOLKIT_NO_CPR": "1"}


def _keys(screen: Screen, *keys: str) -> None:
    for one in keys:
        os.write(screen.master, one.encode())


def _asked(machine: Machine) -> list[str]:
    """Return the user's messages of the last request."""
    messages: list[dict[str, Any]] = machine.server.requests[-1].json["messages"]
    return [str(one["content"]) for one in messages if one["role"] == "user"]


def test_lines_are_edited_and_remembered_across_chats(machine: Machine) -> None:
    state = machine.folder / "state"
    environ = machine.environ | EDITOR | {"XDG_STATE_HOME": str(state)}
    with at_terminal(machine.folder, environ, "chat", "--thread", "t") as screen:
        screen.until("Thread t. /help lists the commands", ">")
        _keys(screen, "First", ALT_ENTER, "second", ENTER)
        screen.until("Done after 1 step")
        assert _asked(machine) == ["First\nsecond"]
        # Many pasted lines are one message.
        _keys(screen, "\x1b[200~one\rtwo\rthree\x1b[201~", ENTER)
        machine.wait_for_requests(2)
        assert _asked(machine)[-1] == "one\ntwo\nthree"
        while sum("Done after 1 step" in row for row in screen.rows) < 2:
            screen.until("Done")
            screen.read()
        # Between two lines nothing reads the keys.
        while [row for row in screen.rows if row][-1] != ">":
            screen.read()
        screen.until("Continue with: agent-runtime", keys=CTRL_D)
        assert screen.process.wait(timeout=60) == exits.SUCCESS
    history = state / "agent-runtime" / "chat_history"
    assert stat.S_IMODE(history.stat().st_mode) == 0o600
    with at_terminal(machine.folder, environ, "chat", "--thread", "t") as screen:
        screen.until("Thread t. /help lists the commands", ">")
        # Within an entry of three lines, Up moves through them.
        _keys(screen, UP, UP, UP, UP, ENTER)
        machine.wait_for_requests(3)
        assert _asked(machine)[-1] == "First\nsecond"


def test_commands_run_on_the_thread_and_complete(machine: Machine) -> None:
    with at_terminal(
        machine.folder, machine.environ | EDITOR, "chat", "--thread", "t", stdout=True
    ) as screen:
        screen.until(">")
        _keys(screen, "/reg")
        # A Tab while completions are being looked for would be lost.
        screen.until("answer the last message again")
        _keys(screen, "\t")
        screen.until("> /regenerate")
        _keys(screen, CTRL_C, "Hello", ENTER)
        screen.until("Done after 1 step")
        _keys(screen, "/cost", ENTER)
        screen.until("Thread t: ", "cost unknown")
        machine.script = lambda request, n: Reply(text="Another answer.")
        _keys(screen, "/regenerate", ENTER)
        screen.until("Another answer.")
        # The answer streams: until the run has ended, commands would wait.
        while sum("Done after 1 step" in row for row in screen.rows) < 2:
            screen.read()
        assert _asked(machine) == ["Hello"]
        _keys(screen, "/model openai/other", ENTER, "/nothing", ENTER)
        screen.until("The model is openai/other.", "There is no command /nothing")
        _keys(screen, "//etc is a folder", ENTER)
        machine.wait_for_requests(3)
        assert machine.server.requests[-1].json["model"] == "other"
        assert _asked(machine)[-1] == "/etc is a folder"
        _keys(screen, "/undo", ENTER)
        screen.until("Taken back, with what followed: [4] user", "Files stay as they are.")
        _keys(screen, "/quit", ENTER)
        assert screen.process.wait(timeout=60) == exits.SUCCESS


def test_what_is_typed_while_the_agent_works_is_told_at_its_next_step(machine: Machine) -> None:
    (machine.folder / "go").unlink(missing_ok=True)
    wait = "while [ ! -e go ]; do sleep 0.05; done"
    first = Reply(calls=(("bash", {"command": wait}),))
    machine.script = lambda request, n: HELLO if n else first
    options = ("chat", "--thread", "t", "--workspace", ".", "--allow-shell")
    environ = machine.environ | EDITOR
    with at_terminal(machine.folder, environ, *options, stdout=True) as screen:
        screen.until(">")
        # The second line arrives before the run has begun, which takes a while.
        _keys(screen, "Work.", ENTER, "Be brief", ENTER)
        screen.until("bash", "Ctrl-C interrupts it", "> Be brief")
        _keys(screen, "Use tabs", ENTER)
        screen.until("> Use tabs")
        _keys(screen, "/cost", ENTER, "half a li")
        screen.until("/cost waits until the agent has finished.", "half a li")
        (machine.folder / "go").touch()
        # What was typed and not sent is in the next line.
        screen.until("Done after 2 steps", "Thread t: ", "> half a li")
    [_, second] = machine.server.requests
    sent = json.dumps(second.json["messages"])
    assert "Be brief" in sent and "Use tabs" in sent


def test_ctrl_c_interrupts_to_tell_it_something_and_twice_stops_it(machine: Machine) -> None:
    wait = "while [ ! -e go ]; do sleep 0.05; done"
    call = Reply(calls=(("bash", {"command": wait}),))
    machine.script = lambda request, n: call if n in (0, 2) else HELLO
    options = ("chat", "--thread", "t", "--workspace", ".", "--allow-shell")
    with at_terminal(machine.folder, machine.environ | EDITOR, *options) as screen:
        screen.until(">")
        _keys(screen, "Work.", ENTER)
        screen.until("bash", "Ctrl-C interrupts it")
        _keys(screen, CTRL_C)
        screen.until("It stops after this step.")
        _keys(screen, "Use tabs", ENTER)
        screen.until("> Use tabs")
        (machine.folder / "go").touch()
        screen.until("resumes: model", "Done after 2 steps")
        assert "Use tabs" in json.dumps(machine.server.requests[-1].json["messages"])
        (machine.folder / "go").unlink()
        _keys(screen, "Again.", ENTER)
        machine.wait_for_requests(3)
        screen.until("step 1/", "Ctrl-C interrupts it")
        _keys(screen, CTRL_C)
        while sum("It stops after this step." in row for row in screen.rows) < 2:
            screen.read()
        _keys(screen, CTRL_C)
        screen.until("Stopped (cancelled)", "Continue it with /resume, or type what to do instead.")
        _keys(screen, "/quit", ENTER)
        assert screen.process.wait(timeout=60) == exits.SUCCESS


def test_esc_interrupts_and_the_end_names_the_options(machine: Machine) -> None:
    call = Reply(calls=(("bash", {"command": "while [ ! -e go ]; do sleep 0.05; done"}),))
    machine.script = lambda request, n: call if n == 0 else HELLO
    options = ("chat", "--workspace", ".", "--allow-shell", "--thread", "t", "--model=openai/m")
    with at_terminal(machine.folder, machine.environ | EDITOR, *options) as screen:
        screen.until(">")
        _keys(screen, "Work.", ENTER)
        screen.until("bash", "Esc or Ctrl-C interrupts it")
        _keys(screen, ESC)
        screen.until("It stops after this step.")
        (machine.folder / "go").touch()
        screen.until("Paused after 1 step", "Type a message to continue with, or /resume.", ">")
        _keys(screen, "Go on.", ENTER)
        screen.until("Done after 2 steps", ">")
        _keys(screen, "/undo", ENTER)
        screen.until(
            "Taken back, with what followed: [", "user", "Work.", "Files stay as they are."
        )
        rest = "--workspace . --allow-shell --model=openai/m"
        screen.until(f"Continue with: agent-runtime chat --thread t {rest}", keys=CTRL_D)


def test_without_a_terminal_lines_and_commands_are_plain(machine: Machine) -> None:
    lines = "/help\n/attach\nHello\n/show\n"
    done = machine.invoke("chat", "--thread", "t", stdin=lines)
    assert done.exit_code == 0, done.stderr
    assert "/regenerate" in done.stderr and "Write /attach PATH|URL." in done.stderr
    assert done.stdout.startswith("Hello from the model.\n[1] user")
    assert "\x1b" not in done.output


def test_another_model_continues_and_answers_again(machine: Machine) -> None:
    ended = Reply(calls=(("glob", {}),))
    machine.script = lambda request, n: HELLO if n else ended
    lines = "Hello\n/model openai/other\n/resume --max-steps 5\n/regenerate\n/edit -1 is less\n"
    options = ("--thread", "t", "--max-steps", "1", "--workspace", ".")
    done = machine.invoke("chat", *options, stdin=lines)
    assert "With more steps: /resume --max-steps NUMBER" in done.stderr
    assert "agent-runtime resume" not in done.stderr
    models = [one.json["model"] for one in machine.server.requests]
    assert models == ["test-model", "other", "other", "other"]
    # A text may begin as an option does.
    assert _asked(machine)[-1] == "-1 is less"


def test_nothing_is_to_be_continued_where_nothing_was_said(machine: Machine) -> None:
    assert "Continue with" not in machine.invoke("chat", stdin="/help\n").stderr
    assert "Continue with" in machine.invoke("chat", stdin="Hello\n").stderr


def test_a_dumb_terminal_gets_plain_lines(machine: Machine) -> None:
    dumb = machine.environ | {"TERM": "dumb"}
    with at_terminal(machine.folder, dumb, "chat", "--thread", "t", term="dumb") as screen:
        screen.until("/help lists the commands")
        screen.type("Hello")
        screen.until("Done after 1 step")
        screen.type("/quit")
        assert screen.process.wait(timeout=60) == exits.SUCCESS


def test_an_approval_is_asked_and_answered_in_a_chat(machine: Machine) -> None:
    call = Reply(calls=(("bash", {"command": "echo made > made.txt"}),))
    machine.script = lambda request, n: HELLO if n else call
    options = ("chat", "--thread", "t", "--workspace", ".", "--ask-shell")
    with at_terminal(machine.folder, machine.environ | EDITOR, *options) as screen:
        screen.until(">")
        _keys(screen, "Work.", ENTER)
        screen.until("The agent wants to call bash:", "or later] >")
        _keys(screen, "y", ENTER)
        screen.until("Done after 2 steps")
        assert (machine.folder / "made.txt").read_text() == "made\n"
        _keys(screen, "/quit", ENTER)
        assert screen.process.wait(timeout=60) == exits.SUCCESS


def test_an_answer_grows_as_it_comes_and_resizing_leaves_no_row_behind(machine: Machine) -> None:
    text = "First **bold** paragraph.\n\nSecond one is\n\nnever finished"
    machine.script = lambda request, n: Reply(text=text, fragments=8, stall_after=7)
    environ = machine.environ | EDITOR
    with at_terminal(machine.folder, environ, "chat", "--thread", "t", stdout=True) as screen:
        screen.until(">")
        _keys(screen, "Hello", ENTER)
        # The model has not finished, and the rows are laid out already.
        screen.until("  First bold paragraph.", "  Second one", "Ctrl-C interrupts it")
        _keys(screen, "half a line")
        screen.until("> half a line")
        # The cursor rests at the first row that is painted again: nothing above it can be left.
        assert screen.cursor_row() <= screen.row("Ctrl-C interrupts it") - 2, screen.rows
        assert sum("Ctrl-C interrupts it" in row for row in screen.rows) == 1
