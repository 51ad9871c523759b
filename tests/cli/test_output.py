"""Output on any terminal, in any locale, and into pipes that are closed."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from agent_runtime.cli.display.markdown import markdown_rows
from agent_runtime.cli.terminal import cells
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
    assert done.stdout.decode("latin-1") == 'Straße \\u4e2d\\u6587 "quoted" -> done ...\n'
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
    assert done.stderr == ""
    refused = machine.invoke("run", "Go.", "--quiet", "--verbose")
    assert refused.exit_code == 2 and "not both" in refused.stderr
    stopped = machine.invoke("run", "Go.", "--quiet", "--model", "nobody/knows-it")
    assert stopped.exit_code != 0 and "error:" in stopped.stderr


@pytest.mark.parametrize(
    ("environ", "options", "moves", "colours"),
    [
        ({}, (), True, True),
        ({"NO_COLOR": "1"}, (), True, False),
        pytest.param({}, ("--no-color",), True, False, marks=pytest.mark.slow),
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


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has /dev/full")
@pytest.mark.parametrize("options", ["", "--json"])
def test_an_answer_that_cannot_be_written_is_named_with_where_it_is(
    machine: Machine, options: str
) -> None:
    machine.script = lambda request, n: Reply(text=TEXT)
    done = in_shell(machine, f'"$@" run Go. {options} > /dev/full')
    assert done.returncode == 1
    assert "could not be written to stdout: No space left" in done.stderr
    assert "agent-runtime show last" in done.stderr
    assert "internal error" not in done.stderr and "Traceback" not in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has /dev/full")
def test_progress_that_cannot_be_written_does_not_end_the_run(machine: Machine) -> None:
    machine.script = lambda request, n: Reply(text=TEXT)
    done = in_shell(machine, '"$@" run Go. 2> /dev/full')
    assert (done.returncode, done.stdout.strip()) == (0, TEXT)


@pytest.mark.parametrize(
    "closed",
    [
        *(pytest.param(one, marks=pytest.mark.slow) for one in (">&-", "<&-", "2>&-")),
        ">&- 2>&- <&-",
    ],
)
def test_a_run_works_with_its_standard_streams_closed(machine: Machine, closed: str) -> None:
    machine.script = lambda request, n: Reply(text=TEXT)
    done = in_shell(machine, f'"$@" run Go. {closed}')
    assert done.returncode == 0, done.stderr
    assert TEXT in in_shell(machine, '"$@" show last').stdout


def in_shell(machine: Machine, line: str) -> subprocess.CompletedProcess[str]:
    """Run a line of the shell; `"$@"` is the command."""
    return subprocess.run(
        ["sh", "-c", line, "sh", *COMMAND],
        cwd=machine.folder,
        env=clean_environ(machine.environ),
        capture_output=True,
        text=True,
        timeout=100,
    )


@pytest.mark.parametrize("width", [20, 40, 80])
def test_no_cell_of_a_table_is_cut(width: int) -> None:
    texts = "長い文字" * 20, "x" * 90
    rows = markdown_rows(f"| a | b |\n|---|---|\n| {texts[0]} | {texts[1]} |", width, 2)
    written = "".join(row.text for row in rows)
    assert (written.count("字"), written.count("x")) == (20, 90)
    assert all(cells(row.text) <= width for row in rows)


WIDE = """
| file | lines | what it does | remark |
|---|---|---|---|
| `src/warehouse/invoices.py` | 1,204 | makes the invoices of all customers | too long to be read |
| `src/warehouse/boxes.py` | 96 | counts boxes | fine |
"""


@pytest.mark.parametrize("width", [59, 79, 99, 199])
def test_no_word_of_a_table_is_broken_where_it_has_room(width: int) -> None:
    rows = [row.text for row in markdown_rows(WIDE, width, indent=2)]
    assert all(cells(row) <= width for row in rows)
    words = " ".join(rows).split()
    for word in ("src/warehouse/invoices.py", "src/warehouse/boxes.py", "invoices", "customers"):
        assert word in words, rows


def test_rows_of_a_result_are_broken_between_words_on_a_terminal(
    machine: Machine,
) -> None:
    machine.invoke("run", "Say hello.", "--thread", "a-thread-that-is-called-first")
    with at_terminal(
        machine.folder, machine.environ, "usage", "--thread", "a-thread-that-is-called-first",
        columns=50, stdout=True,
    ) as screen:  # fmt: skip
        screen.until_exit()
        rows = [row for row in screen.rows if row]
    assert len(rows) > 2 and all(row.startswith(("Today", "Thread", "  ")) for row in rows)
    assert "spent," in " ".join(rows).split()


def test_a_table_with_more_columns_than_fit_is_shown_as_lines() -> None:
    names = [f"cell{number}" for number in range(30)]
    line = f"|{'|'.join(names)}|\n"
    rows = markdown_rows(f"{line}|{'---|' * 30}\n{line}", 40, 2)
    written = " ".join(row.text for row in rows).replace("|", " ").split()
    assert written == [*names, *names]
