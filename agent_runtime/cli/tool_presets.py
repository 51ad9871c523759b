"""The option that says which tools an agent gets for its workspace."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import click

from agent_runtime.cli.agents import Spec

if TYPE_CHECKING:
    from agent_runtime_config import Settings

tools_option = click.option(
    "--tools",
    metavar="coding|reading|minimal",
    help="Which tools the agent gets: `coding`; `reading`, which cannot write; `minimal`, the "
    "shell alone; or names with commas between them, as in `coding,apply_patch`. By default "
    "AGENT_RUNTIME_TOOLS, coding.",
)


def with_tools(spec: Spec, tools: str | None, settings: Settings) -> Spec:
    """Return a run's spec with its preset of tools.

    Stored with the run, so that a resume elsewhere gives the same tools.

    Raises:
        click.UsageError: there is no workspace, or no tool is left.
        ConfigError: there is no such preset.
    """
    from agent_runtime.tools.workspace.presets import READING, tools_of_preset

    if tools is not None and spec.workspace is None:
        raise click.UsageError("--tools needs --workspace, the folder that they are for.")
    chosen = tools or settings.tools
    wanted = tools_of_preset(chosen)
    if spec.read_only:
        wanted &= tools_of_preset(READING)
    if spec.workspace is not None and not wanted and not spec.allow_shell:
        raise click.UsageError(
            f"The tools {chosen!r} are the shell alone; allow it by --allow-shell or --ask-shell."
        )
    return dataclasses.replace(spec, tools=chosen)
