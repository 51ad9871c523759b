"""`Toolset`: the tools of an agent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from agent_runtime.errors import ConfigError
from agent_runtime.messages import ToolSpec
from agent_runtime.tools.base import Tool
from agent_runtime.tools.function import FunctionTool
from agent_runtime.tools.hooks import NO_HOOKS, ToolHooks
from agent_runtime.tools.mcp.server import McpServer


class Toolset:
    """The tools of an agent, by name, in the order given.

    Args:
        hooks: run around each of their calls in a run.

    Raises:
        ConfigError: two tools have the same name, or a function cannot be a tool.
    """

    def __init__(
        self,
        tools: Iterable[Tool | Callable[..., Any] | McpServer],
        hooks: ToolHooks = NO_HOOKS,
    ) -> None:
        self.hooks = hooks
        self._tools: dict[str, Tool] = {}
        for one in tools:
            if isinstance(one, McpServer):
                raise ConfigError(
                    f"The tools of the MCP server {one.name} are only known once it runs.",
                    cure="Give it to an agent, and run that by a `Runtime`.",
                )
            made = one if isinstance(one, Tool) else FunctionTool(one)
            if made.name in self._tools:
                raise ConfigError(
                    f"Two tools are called {made.name!r}.",
                    cure="Rename one: `tool(function, name=...)`.",
                )
            self._tools[made.name] = made
        self._reached = {inner.name: inner for one in self for inner in one.reaches()}
        self.specs: tuple[ToolSpec, ...] = tuple(made.spec for made in self._tools.values())

    def get(self, name: str) -> Tool | None:
        """Return the tool of this name, also one that another tool calls; None if there is none."""
        return self._tools.get(name) or self._reached.get(name)

    def every(self) -> Iterator[Tool]:
        """Yield the tools, and those that they call."""
        yield from self
        yield from self._reached.values()

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)


def names_of(tools: Iterable[Tool | Callable[..., Any] | McpServer]) -> list[str]:
    """Return the names of tools, and of the servers whose tools are not known yet."""
    given = list(tools)
    servers = [one.name for one in given if isinstance(one, McpServer)]
    return [
        tool.name for tool in Toolset(one for one in given if not isinstance(one, McpServer))
    ] + servers
