"""Output on any terminal, in any locale, and into pipes that are closed."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping

import pytest

from agent_runtime.testing.model_server import Reply
from tests.cli.screen import at_terminal
from tests.cli.test_runs import HELLO, Machine, machine
from tests.support.command import COMMAND, clean_environ

__all__ = ["machine"]

TEXT = "Straße 中文 “quoted” → done …"


def run(
    machine: Machine, *options: str, environ: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run a task in a process of its own."""
    return subprocess.run(
        [*COMMAND, "run", "Go.", *options],
        cwd=machine.folder,
        env=clean_environ({**machine.environ, **(environ or {})}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=100,
    )


def test_no_character_is_an_error_in_any_encoding(machine: Machine) -> None:
    machine.script = lambda request, n: Reply(text=TEXT)
    latin = {"PYTHONIOENCODING": "latin-1"}
    done = run(machine, environ=latin)
    assert done.returncode == 0, done.stderr
    assert done.stdout.decode("latin-1") == 'Straße ?? "quoted" -> done ...\n'
    done = run(machine, "--json", environ=latin)
    # JSON can say it in any encoding.
    assert json.loads(done.stdout.decode("latin-1"))["output"] == TEXT


def test_a_closed_pipe_for_progress_does_not_end_the_run(machine: Machine) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    process = subprocess.Popen(
        [*COMMAND, "run", "Go."],
        cwd=machine.folder,
        env=clean_environ(machine.environ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=writer,
    )
    os.close(writer)
    with process:
        assert process.communicate(timeout=100)[0] == b"Hello from the model.\n"
    assert process.returncode == 0


def test_quiet_shows_the_answer_and_failures_only(machine: Machine) -> None:
    done = machine.invoke("run", "Go.", "--quiet")
    assert (done.exit_code, done.stdout) == (0, "Hello from the model.\n")
    assert "run " not in done.stderr and "Done after" not in done.stderr
    refused = machine.invoke("run", "Go.", "--quiet", "--verbose")
    assert refused.exit_code == 2 and "not both" in refused.stderr
    stopped = machine.invoke("run", "Go.", "--quiet", "--model", "nobody/knows-it")
    assert stopped.exit_code != 0 and "error:" in stopped.stderr


@pytest.mark.parametrize(
    ("environ", "options", "moves", "colours"),
    [
        ({}, (), True, True),
        ({"NO_COLOR": "1"}, (), True, False),
        ({}, ("--no-color",), True, False),
        ({"TERM": "dumb"}, (), False, False),
    ],
)
def test_colours_and_movements_are_only_where_they_are_wanted(
    machine: Machine,
    environ: Mapping[str, str],
    options: tuple[str, ...],
    moves: bool,
    colours: bool,
) -> None:
    machine.script = lambda request, n: HELLO if n else Reply(calls=(("list_files", {}),))
    given = ("run", "Go.", "--workspace", ".", *options)
    with at_terminal(machine.folder, {**machine.environ, **environ}, *given, stdout=True) as screen:
        assert screen.until_exit() == 0, screen.rows
        assert "list_files" in "\n".join(screen.rows)
        # Once, whether it was shown as it arrived or at the end.
        assert sum("Hello from the model." in row for row in screen.rows) == 1, screen.rows
        written = screen.written
    assert (b"\x1b[J" in written) is moves
    assert (b"\x1b[32m" in written) is colours
    if not moves:
        assert b"\x1b" not in written
