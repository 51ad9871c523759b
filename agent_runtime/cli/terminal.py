"""Write texts of models and tools to the terminal safely, and shorten values."""

from __future__ import annotations

import json
import sys
from typing import Any

import click


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


def write_json(value: object) -> None:
    """Write one JSON value on one line to stdout."""
    import orjson

    text = orjson.dumps(value, default=str).decode()
    # Escapes are valid JSON, and cannot control a terminal.
    click.echo(text if text.isprintable() else "".join(map(_escaped, text)))


def _escaped(one: str) -> str:
    return one if one.isprintable() else json.dumps(one)[1:-1]


def say(text: str) -> None:
    """Write a line for the user to stderr."""
    click.echo(printable(text), err=True)
