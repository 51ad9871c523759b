"""`agent-runtime config`: the settings, without secrets."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

import click

from agent_runtime.cli.parameters.env_file import env_file_option
from agent_runtime.cli.terminal import say, terminal_columns, write_json, write_output, write_row
from agent_runtime_config.counted import counted
from agent_runtime_config.names import PREFIX

if TYPE_CHECKING:
    from agent_runtime_config import SettingRow

VALUES = 16
"""Columns for values; what follows a longer value moves to the right."""
ALL = "`agent-runtime config` lists all."


@click.command()
@click.argument("names", metavar="[NAME]...", nargs=-1)
@env_file_option
@click.option("--json", "as_json", is_flag=True, help="One JSON array, with the meanings.")
@click.option("--explain", is_flag=True, help="Add what each setting means.")
@click.option("--path", "show_path", is_flag=True, help="Print where your configuration file is.")
def config(names: tuple[str, ...], as_json: bool, explain: bool, show_path: bool) -> None:
    """Show the settings, their values and their origin.

    Each value comes from the first of these that gives one: the environment, the file of
    --env-file or AGENT_RUNTIME_ENV_FILE, your configuration file, the default.
    """
    import dataclasses

    from agent_runtime_config import describe_settings
    from agent_runtime_config.environment import settings_of
    from agent_runtime_config.sources import read_sources

    if show_path:
        write_row(_path())
        return
    sources = read_sources()
    rows = _chosen(describe_settings(settings_of(sources)), names)
    for path, count in sources.ignored.items():
        say(f"Not read from {path}: {counted(count, 'variable')}, neither a setting nor a key.")
    if as_json:
        write_json([dataclasses.asdict(row) for row in rows])
        return
    width = max(len(row.variable) for row in rows)
    # A long value must not push the origins of all others off the screen.
    values = min(VALUES, max(len(row.value) for row in rows))
    for row in rows:
        write_row(f"{row.variable:<{width}}  {row.value:<{values}}  {row.origin}")
        if explain:
            columns = min(100, terminal_columns())
            write_output(click.wrap_text(row.meaning, columns - 1, "    ", "    "))
    for name, given in sorted(sources.keys.items()):
        if not names:
            write_row(f"{name:<{width}}  {'***':<{values}}  {given.origin}")


def _chosen(rows: list[SettingRow], names: tuple[str, ...]) -> list[SettingRow]:
    """Return the rows of the named settings, or all rows; the prefix of a name is optional."""
    wanted = [PREFIX + name.upper().removeprefix(PREFIX) for name in names]
    by_name = {row.variable: row for row in rows}
    for given, name in zip(names, wanted, strict=True):
        if name not in by_name:
            plain = {one.removeprefix(PREFIX): one for one in sorted(by_name)}
            near = difflib.get_close_matches(name.removeprefix(PREFIX), plain, n=1, cutoff=0.7)
            hint = f"Did you mean {plain[near[0]]}?" if near else ALL
            raise click.UsageError(f"{given} is not a setting. {hint}")
    return [by_name[name] for name in wanted] if names else rows


def _path() -> str:
    from agent_runtime_config import ConfigError
    from agent_runtime_config.sources import config_path

    if (path := config_path()) is None:
        raise ConfigError(
            "No configuration file is read.",
            cure="Unset AGENT_RUNTIME_CONFIG_FILE, and set HOME if this user has none.",
        )
    return str(path)
