"""The MCP servers of a run: the options that choose them, and whether the user trusts them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from agent_runtime.cli.agents import Spec, server_entries, servers_of
from agent_runtime.cli.answer_prompt import can_ask
from agent_runtime.cli.display.view import remark
from agent_runtime.cli.terminal import say

if TYPE_CHECKING:
    from agent_runtime.tools.mcp.config import ServerEntry


@dataclasses.dataclass(frozen=True, slots=True)
class McpChoice:
    """What the options say."""

    config: str | None = None
    none: bool = False

    def on(self, spec: Spec) -> Spec:
        """Return a run's spec with the choice; ask about servers that are not trusted yet.

        Raises:
            click.UsageError: the options contradict each other.
            ConfigError: a definition is not usable, or not trusted, and nobody can be asked.
        """
        if self.none and self.config is not None:
            raise click.UsageError("Give either --mcp-config or --no-mcp.")
        if self.none or not spec.model or (spec.read_only and self.config is None):
            # The offline model calls no such tools; what a server changes cannot be known.
            return dataclasses.replace(spec, mcp=False, mcp_config="")
        entries = server_entries(spec.workspace, self.config or "")
        for one in entries:
            if not one.disabled and not one.trusted and can_ask():
                one.check()
                approve(one)
        named = [one.name for one in entries if not one.disabled]
        if named:
            remark(f"MCP servers: {', '.join(named)}; they run with your rights, in no sandbox.")
        chosen = dataclasses.replace(spec, mcp=bool(named), mcp_config=self.config or "")
        # Before anything begins: untrusted servers and missing variables end the command here.
        servers_of(chosen)
        return chosen


MCP_PARAMETERS: tuple[Callable[[Any], Any], ...] = (
    click.option(
        "--mcp-config",
        type=click.Path(exists=True, dir_okay=False, resolve_path=True),
        help="A file of MCP servers, in addition to those of `agent-runtime mcp list`.",
    ),
    click.option("--no-mcp", is_flag=True, help="Start no MCP servers."),
)


def approve(entry: ServerEntry) -> None:
    """Show a definition, and ask whether it is trusted; end the command if not."""
    from agent_runtime.cli import terminal

    show(entry)
    terminal.confirm(f"Start {entry.name} now and whenever it is defined like this?")
    entry.trust()


def show(entry: ServerEntry) -> None:
    """Write a definition, so that no text in it can hide or forge anything."""
    from agent_runtime.human.display import escape_invisible, shown_value

    say(f"The MCP server {entry.name} is defined by {escape_invisible(str(entry.file))}:")
    for name, value in entry.definition.items():
        say(f"  {escape_invisible(str(name))}: {shown_value(value)}")
