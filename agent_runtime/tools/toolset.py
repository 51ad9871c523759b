"""`Toolset`: the tools of an agent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from agent_runtime.errors import ConfigError
from agent_runtime.messages import ToolSpec
from agent_runtime.tools.base import Tool
from agent_runtime.tools.function import FunctionTool


class Toolset:
    """The tools of an agent, by name, in the order given.

    Raises:
        ConfigError: two tools have the same name, or a function cannot be a tool.
    """

    def __init__(self, tools: Iterable[Tool | Callable[..., Any]]) -> None:
        self._tools: dict[str, Tool] = {}
        for one in tools:
            made = one if isinstance(one, Tool) else FunctionTool(one)
            if made.name in self._tools:
                raise ConfigError(
                    f"Two tools are called {made.name!r}.",
                    cure="Rename one: `tool(function, name=...)`.",
                )
            self._tools[made.name] = made
        self.specs: tuple[ToolSpec, ...] = tuple(made.spec for made in self._tools.values())

    def get(self, name: str) -> Tool | None:
        """Return the tool of this name; None if there is none."""
        return self._tools.get(name)

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)
