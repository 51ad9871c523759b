"""The option that says which tools an agent gets for its workspace."""

from __future__ import annotations

import click

from agent_runtime.cli.agents import Spec

tools_option = click.option(
    "--tools",
    metavar="coding|reading|minimal",
    help="Which tools the agent gets: `coding`; `reading`, which cannot write; `minimal`, the "
    "shell alone; or names with commas between them, as in `coding,apply_patch`. By default "
    "AGENT_RUNTIME_TOOLS, coding.",
)


def check_tools(spec: Spec, tools: str | None) -> None:
    """Check the preset of tools of a run.

    Args:
        tools: what the option says, if it was given.

    Raises:
        click.UsageError: there is no workspace, or no tool is left.
        ConfigError: there is no such preset.
    """
    from agent_runtime.tools.workspace.presets import READING, tools_of_preset

    if tools is not None and spec.workspace is None:
        raise click.UsageError("--tools needs --workspace, the folder that they are for.")
    wanted = tools_of_preset(spec.tools)
    if spec.read_only:
        wanted &= tools_of_preset(READING)
    if spec.workspace is not None and not wanted and not spec.allow_shell:
        raise click.UsageError(
            f"The tools {spec.tools!r} are the shell alone; allow it by --allow-shell or "
            "--ask-shell."
        )
