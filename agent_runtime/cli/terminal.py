"""Write to the terminal, and shorten values.

Everything that the command line writes goes through this module (`ruff` forbids other ways), so no
text of a model, a tool, a file or another user can control the terminal.
"""

from __future__ import annotations

import io
import json
import logging
import sys
import traceback
import warnings
from typing import IO, TYPE_CHECKING, Any, TextIO

import click

if TYPE_CHECKING:
    from rich.console import Console


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
    click.echo(printable(text) if sys.stdout.isatty() else text)


def write_row(text: str) -> None:
    """Write a result of one line to stdout, which stays one line whatever it holds."""
    click.echo(printable(text, lines=False))


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
    # Escapes are valid JSON, and cannot control a terminal.
    click.echo(text if text.isprintable() else "".join(map(_escaped, text)))


def _escaped(one: str) -> str:
    return one if one.isprintable() else json.dumps(one)[1:-1]


def say(text: str, *, end: str = "\n") -> None:
    """Write a line for the user to stderr."""
    click.echo(printable(text) + end, nl=False, err=True)


def error_stream() -> TextIO:
    """Return stderr for a library that edits lines on it."""
    return sys.stderr


def is_terminal() -> bool:
    """Return whether stderr, where progress and questions go, is a terminal."""
    return sys.stderr.isatty()


def terminal_columns() -> int:
    """Return the width of the terminal, not the one that the environment may hold since long ago.

    A row that the terminal wraps by itself could begin with anything.
    """
    import os
    import shutil

    try:
        columns = os.get_terminal_size(sys.stderr.fileno()).columns
    except (OSError, ValueError):
        columns = 0
    return columns or shutil.get_terminal_size().columns


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
    # Not on stdout, which may be a pipe that takes the result.
    click.confirm(printable(question), abort=True, err=True)


def rich_console() -> Console:
    """Return a rich console on stderr; give it `Text` of `printable` text only."""
    from rich.console import Console

    return Console(stderr=True, highlight=False)


def leave_stdout() -> None:
    """Close stdout, whose reader has ended, so that Python does not complain at exit."""
    sys.stdout = None


def guard_messages() -> None:
    """Make what libraries log or warn of printable as well, and no text an error to write."""
    for stream in (sys.stdout, sys.stderr):
        # An answer in another encoding than UTF-8 is kept, with escapes for what that lacks.
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_PrintableFormatter())
    warnings.showwarning = _show_warning


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
