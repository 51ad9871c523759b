"""The reference of the command line, from its own commands."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import click

from agent_runtime.cli import exit_codes, main
from docs.generate.page import table

NAME = "agent-runtime"


def page() -> str:
    """Return the list of commands, a section for each, and the exit codes."""
    context = click.Context(main, info_name=NAME)
    commands = list(_commands(main, context))
    rows = [(f"[`{name}`](#{_anchor(name)})", _short(one)) for name, one, _ in commands]
    parts = [table(("command", "what it does"), rows), "\n"]
    parts += [_section(name, command, inner) for name, command, inner in commands]
    codes = [(str(code), meaning) for code, meaning in exit_codes.MEANINGS.items()]
    parts.append(f"## Exit codes\n\n{table(('code', 'meaning'), codes)}")
    return "".join(parts)


def _commands(
    group: click.Group, context: click.Context
) -> Iterator[tuple[str, click.Command, click.Context]]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        inner = click.Context(command, info_name=name, parent=context)
        path = inner.command_path.removeprefix(f"{NAME} ")
        yield path, command, inner
        if isinstance(command, click.Group):
            yield from _commands(command, inner)


def _section(path: str, command: click.Command, context: click.Context) -> str:
    usage = " ".join([NAME, path, *command.collect_usage_pieces(context)])
    parts = [f"## {path} {{#{_anchor(path)}}}\n\n```text\n{usage}\n```\n\n", _help(command)]
    rows: list[tuple[str, str]] = []
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None and "--help" not in record[0]:
            rows.append((f"`{record[0]}`", record[1]))
    if rows:
        parts.append(table(("option", "meaning"), rows) + "\n")
    return "".join(parts)


def _help(command: click.Command) -> str:
    text = cast(Any, command).help or ""
    paragraphs = [" ".join(one.split()) for one in str(text).replace("\b", "").split("\n\n")]
    return "".join(f"{one}\n\n" for one in paragraphs)


def _short(command: click.Command) -> str:
    return _help(command).partition("\n\n")[0]


def _anchor(path: str) -> str:
    return path.replace(" ", "-")
