"""Write to the terminal, and shorten values.

Everything that the command line writes goes through this module (`ruff` forbids other ways), so no
text of a model, a tool, a file or another user can control the terminal.
"""

from __future__ import annotations

import codecs
import io
import json
import logging
import os
import re
import shutil
import sys
import traceback
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, TYPE_CHECKING, Any, TextIO

import click

if TYPE_CHECKING:
    from rich.console import Console

    from agent_runtime_config.errors import AgentRuntimeError

SUBSTITUTES = {
    "…": "...", "·": "-", "✓": "+", "✗": "x", "●": "*", "│": "|", "→": "->", "−": "-", "↵": "\\n",
    "•": "*", "▌": "|", "─": "-", "━": "=", "“": '"', "”": '"', "‘": "'", "’": "'", "–": "-",
    "—": "-",
}  # fmt: skip
"""What is written for characters that the terminal's encoding lacks; a `?` for others."""
_WORDS = re.compile(r"(\s*)(\S+)")
HANGING = 2
"""Columns before the further rows of a line, which so never begin like a line of ours."""


def printable(text: str, *, lines: bool = True) -> str:
    """Return the text without control characters, which could control the terminal.

    Args:
        lines: keep line ends and tabs; otherwise they become spaces, too.
    """
    kept = "\n\t" if lines else ""
    return "".join(one if one.isprintable() or one in kept else " " for one in text)


def shorten(text: str, width: int) -> str:
    """Return the text on one line, at most `width` characters long."""
    line = printable(" ".join(text.split()), lines=False)
    return line if len(line) <= width else line[: width - 1] + "…"


def cells(text: str) -> int:
    """Return how many columns a text takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def wrap(line: str, width: int, *, indent: int = 0) -> Iterator[str]:
    """Yield the rows of a line, broken at blanks; only a longer word is broken itself.

    Args:
        indent: columns before each row but the first, in addition to the line's own.
    """
    line = line.expandtabs(4).rstrip()
    if cells(line) <= width:
        yield line
        return
    own = len(line) - len(line.lstrip())
    before = " " * min(own + indent, width // 2)
    row = " " * min(own, width // 2)
    empty = True
    # Several blanks stay several: they align columns.
    for blanks, word in _WORDS.findall(line.lstrip()):
        for piece in _pieces(word, max(2, width - len(before))):
            between = "" if empty else blanks or " "
            if not empty and cells(row) + len(between) + cells(piece) > width:
                yield row
                row, empty, between = before, True, ""
            row += between + piece
            empty = False
    yield row


def break_line(line: str, width: int) -> list[str]:
    """Return the rows of a line, broken after blanks where they are; no character is lost."""
    from rich.cells import chop_cells

    rows: list[str] = []
    at = 0
    # Only a part is looked at, since arguments of calls may be long.
    while cells(part := line[at : at + 4 * width]) > width:
        row = chop_cells(part, width)[0]
        place = row.rfind(" ") + 1
        # A long word may be broken, or there would be rows with hardly anything.
        row = row[:place] if place > len(row) // 3 else row
        rows.append(row)
        at += len(row)
    return [*rows, line[at:]]


def _pieces(word: str, width: int) -> Sequence[str]:
    if cells(word) <= width:
        return [word]
    from rich.cells import chop_cells

    return chop_cells(word, width)


def short_arguments(arguments: dict[str, Any], width: int = 80) -> str:
    """Return a tool's arguments on one line: `path="a.py" limit=20`."""
    parts = (
        f"{name}={shorten(json.dumps(value, ensure_ascii=False, default=str), 48)}"
        for name, value in arguments.items()
    )
    return shorten(" ".join(parts), width)


def short_number(tokens: int) -> str:
    """Return a number in a few characters: `950`, `3.6K`, `30K`."""
    if tokens < 1000:
        return str(tokens)
    return f"{tokens / 1000:.1f}".removesuffix(".0") + "K"


def time_text(seconds: float) -> str:
    """Return a time in local time; a question mark if it is out of range."""
    import datetime

    try:
        return datetime.datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return "?"


def write_output(text: str) -> None:
    """Write a result to stdout: unchanged to a pipe or file, printable on a terminal."""
    # A model's text may hold escape sequences, which act on a terminal only.
    _to_stdout(printable(text) if sys.stdout.isatty() else text)


def write_styled(rows: Iterable[str]) -> None:
    """Write rows with styles of our own to stdout, a terminal; their texts must be printable."""
    for row in rows:
        _to_stdout(row)


def write_row(text: str) -> None:
    """Write a result of one line to stdout, which stays one line whatever it holds.

    On a terminal a line that is too long is broken between words.
    """
    line = printable(text, lines=False)
    if sys.stdout is not None and sys.stdout.isatty():
        line = "\n".join(wrap(line, terminal_columns() - 1, indent=HANGING))
    _to_stdout(line)


def output_stream() -> IO[bytes]:
    """Return stdout for bytes that are written as they are.

    Raises:
        click.UsageError: stdout is a terminal.
    """
    if sys.stdout.isatty():
        raise click.UsageError("Give -o FILE, or redirect the output.")
    return sys.stdout.buffer


def write_json(value: object) -> None:
    """Write one JSON value on one line to stdout."""
    import orjson

    text = orjson.dumps(value, default=str).decode()
    # Escapes are valid JSON, cannot control a terminal, and fit any encoding.
    known = codecs.lookup(sys.stdout.encoding or "utf-8").name == "utf-8"
    if text.isprintable() and (known or text.isascii()):
        _to_stdout(text)
        return
    fits = (one.isprintable() and (known or one.isascii()) for one in text)
    _to_stdout("".join(one if fit else _escaped(one) for one, fit in zip(text, fits, strict=True)))


def _escaped(one: str) -> str:
    return json.dumps(one)[1:-1]


def say(text: str, *, end: str = "\n") -> None:
    """Write a line for the user to stderr; on a terminal it is broken between words."""
    shown = printable(text)
    if is_terminal():
        # One column less: some terminals wrap a row that fills all of them.
        room = terminal_columns() - 1
        rows = [row for line in shown.split("\n") for row in wrap(line, room, indent=HANGING)]
        # A prompt keeps the blank after it, where the person types.
        shown = "\n".join(rows) + (" " if not end and shown.endswith(" ") else "")
    _to_stderr(shown + end)


def say_step(text: str) -> None:
    """Write what can be done next; a command at its end that does not fit gets a row of its own.

    A command that is broken over rows is copied as several.
    """
    words, found, rest = text.partition(": agent-runtime ")
    if found and is_terminal() and cells(text) >= terminal_columns():
        say(f"{words}:")
        text = f"  agent-runtime {rest}"
    say(text)


def write_frame(text: str) -> None:
    """Write rows with control sequences of our own to stderr, at once.

    Everything in it that is not ours must have been made `printable`.
    """
    _to_stderr(text)


def _to_stdout(text: str) -> None:
    # Not by `click.echo`, which takes styles out of a pipe's text and encodes ASCII as UTF-8.
    if sys.stdout is None:
        return
    try:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise stdout_failed(error) from None


def stdout_failed(error: OSError) -> AgentRuntimeError:
    """Close stdout, which cannot be written to; return the error that says so."""
    from agent_runtime_config.errors import AgentRuntimeError

    # What it still holds would fail again at exit.
    leave_stdout()
    return AgentRuntimeError(
        f"The result could not be written to stdout: {error.strerror}.",
        cure="Write it elsewhere. What runs did is recorded: `agent-runtime show last` shows the "
        "answer.",
    )


def _to_stderr(text: str) -> None:
    if sys.stderr is None:
        return
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:
        # As by `2>&1 | head`, or on a full disk.  The run goes on: nobody asked to stop it.
        _discard(2)


def _discard(number: int) -> None:
    """Let what is written to a file descriptor from now on go nowhere."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, number)
    os.close(null)


def error_stream() -> TextIO:
    """Return stderr for a library that edits lines on it."""
    return sys.stderr


def is_terminal() -> bool:
    """Return whether stderr, where progress and questions go, is a terminal."""
    # It is None where the process was started with it closed.
    return sys.stderr is not None and sys.stderr.isatty()


def can_write(text: str) -> bool:
    """Return whether stderr's encoding has these characters."""
    try:
        text.encode((sys.stderr and sys.stderr.encoding) or "utf-8")
    except UnicodeEncodeError:
        return False
    return True


def stdout_is_terminal() -> bool:
    """Return whether stdout, where results go, is a terminal that shows styles."""
    if sys.stdout is None or not sys.stdout.isatty():
        return False
    return os.environ.get("TERM", "") not in ("", "dumb")


def moves_cursor() -> bool:
    """Return whether stderr is a terminal on which the cursor can be moved."""
    return is_terminal() and os.environ.get("TERM", "") not in ("", "dumb")


def terminal_size() -> tuple[int, int]:
    """Return the columns and rows of the terminal.

    The terminal is asked, not the variables COLUMNS and LINES, which may be out of date: a row that
    the terminal wraps by itself could begin with anything.
    """
    try:
        size = os.get_terminal_size(sys.stderr.fileno())
    except (OSError, ValueError):
        size = os.terminal_size((0, 0))
    # Some terminals, such as serial lines, report zeros.
    fallback = shutil.get_terminal_size()
    return size.columns or fallback.columns, size.lines or fallback.lines


def terminal_columns() -> int:
    """Return the width of the terminal."""
    return terminal_size()[0]


def flush_typed() -> None:
    """Discard what was typed before it was asked for, so that it cannot answer a question."""
    import termios

    if sys.stdin.isatty():
        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)


def say_usage_error(error: click.ClickException) -> None:
    """Write an error as click does, with the usage."""
    written = io.StringIO()
    error.show(file=written)
    say(written.getvalue(), end="")


def say_traceback(error: BaseException) -> None:
    """Write an error's traceback to stderr."""
    say("".join(traceback.format_exception(error)), end="")


def confirm(question: str) -> None:
    """Ask a question on stderr; end the command if the answer is no."""
    # What was typed before it was shown answers no question.
    flush_typed()
    # Not on stdout, which may be a pipe that takes the result.
    click.confirm(printable(question), abort=True, err=True)


def rendering_console(width: int) -> Console:
    """Return a rich console that renders at a width; it writes nowhere."""
    from rich.console import Console

    return Console(
        file=io.StringIO(), width=width, force_terminal=True, highlight=False, legacy_windows=False
    )


def leave_stdout() -> None:
    """Close stdout, whose reader has ended, so that Python does not complain at exit."""
    sys.stdout = None


def prepare_output() -> None:
    """Make output fit any terminal and locale.

    What libraries log or warn of becomes printable, too.  No character is an error: what an
    encoding lacks is replaced.  Python's warnings are for developers, so only `-W` and
    `PYTHONWARNINGS` show them.
    """
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_PrintableFormatter())
    # A run shows the event that says the same.
    logging.getLogger("agent_runtime.prompt.attachments").setLevel(logging.ERROR)
    warnings.showwarning = _show_warning
    if not sys.warnoptions:
        # A run that is interrupted early may leave coroutines of libraries that never began.
        warnings.filterwarnings("ignore", r"coroutine '.*' was never awaited", RuntimeWarning)
    codecs.register_error("substitute", _substitute)
    codecs.register_error("escape", _escape)
    _open_closed()
    # Nothing of a result is lost on stdout; on stderr rows keep their width.
    for stream, errors in ((sys.stdout, "escape"), (sys.stderr, "substitute")):
        # In tests it may be something else, which takes any character.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=errors)


def _open_closed() -> None:
    """Let the standard streams with which the process began closed (`>&-`) lead nowhere.

    A file that is opened later, such as the database, would take their place.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is not None:
            continue
        try:
            os.fstat(number)
        except OSError:
            null = os.open(os.devnull, os.O_RDWR)
            if null != number:
                os.dup2(null, number)
                os.close(null)
        setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115


def _substitute(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    return "".join(SUBSTITUTES.get(one, "?") for one in lacking), error.end


def _escape(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    escaped = (one.encode("ascii", "backslashreplace").decode() for one in lacking)
    return "".join(map(SUBSTITUTES.get, lacking, escaped)), error.end


class _PrintableFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: object = None,
    line: str | None = None,
) -> None:
    if issubclass(category, RuntimeWarning) and "OpenAIChatCompletion" in str(message):
        # litellm drops a coroutine when a call is cancelled early; nobody can do anything about it.
        return
    say(warnings.formatwarning(message, category, filename, lineno, line), end="")
