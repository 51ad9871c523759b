"""Two tools instead of many: one finds the tools of servers, one calls them.

A prompt's tool schemas are fixed by its activation, so a tool that is found cannot be added to
them: every prompt is an extension of the one before.  Its schema comes as the result of
`mcp_find`, and calls go through `mcp_call`, which never changes.  Rules, approvals and crashes see
the tool behind it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, cast

import orjson

from agent_runtime.messages import ToolResult, ToolSpec
from agent_runtime.tools.base import Tool
from agent_runtime.tools.context import ToolContext

FIND, CALL = "mcp_find", "mcp_call"
MOST = 8
"""How many tools are described at once."""
NAMED_CHARS = 1500
"""How many characters of names the description of `mcp_find` may have."""
_WORD = re.compile(r"[^\W_]+")


def loaded_lazily(tools: Sequence[Tool], most_bytes: int) -> list[Tool]:
    """Return the tools; if their schemas are too large, the two that find and call them."""
    specs = ({"name": one.name, "description": one.description, "parameters": one.spec.parameters}
             for one in tools)  # fmt: skip
    if sum(len(orjson.dumps(one)) for one in specs) <= most_bytes:
        return list(tools)
    return [McpFindTool(tools), McpCallTool(tools)]


class McpFindTool(Tool):
    """The tool that finds tools of servers, and returns their schemas."""

    inherited = False

    def __init__(self, tools: Sequence[Tool]) -> None:
        self._tools = {one.name: one for one in tools}
        counts = Counter(name.partition("__")[0] for name in self._tools)
        servers = ", ".join(f"{name} ({count})" for name, count in counts.items())
        names = ", ".join(self._tools)
        listed = f" Their names: {names}." if len(names) <= NAMED_CHARS else ""
        text = (
            f"Find tools of these servers, with how many each has: {servers}. Returns names, "
            f"descriptions and schemas of those that fit best; call them by {CALL}.{listed}"
        )
        properties = {"query": {"type": "string", "description": "Names, or words; none lists all"}}
        spec = ToolSpec(FIND, text, {"type": "object", "properties": properties})
        super().__init__(name=FIND, description=text, spec=spec, idempotent=True)

    def _held(self) -> tuple[str, ...]:
        return tuple(self._tools)

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """Return the tools that fit a query."""
        query = arguments.get("query")
        if not isinstance(query, str) or not query.strip():
            return ToolResult("\n".join(f"{one.name}: {_first(one)}" for one in self._all()))
        found = self._matching(query)
        if not found:
            return ToolResult(f"No tool fits {query!r}. Without a query all are listed.")
        shown = [
            {"tool": one.name, "description": one.description, "arguments": one.spec.parameters}
            for one in found
        ]
        return ToolResult("\n".join(orjson.dumps(one).decode() for one in shown))

    def _all(self) -> list[Tool]:
        return list(self._tools.values())

    def _matching(self, query: str) -> list[Tool]:
        named = [self._tools[name] for name in re.split(r"[\s,]+", query) if name in self._tools]
        wanted = set(_words(query))
        scores = {one.name: _score(one, wanted) for one in self._all() if one not in named}
        # The sort is stable, so that equal scores keep the order of the names.
        best = sorted((name for name in scores if scores[name]), key=lambda name: -scores[name])
        return [*named, *(self._tools[name] for name in best)][: max(MOST, len(named))]


class McpCallTool(Tool):
    """The tool that calls any tool of the servers; see `target`."""

    inherited = False

    def __init__(self, tools: Sequence[Tool]) -> None:
        self._tools = {one.name: one for one in tools}
        for one in tools:
            # A rule for this tool is one for all that it calls.
            one.also = (CALL,)
        text = f"Call a tool that {FIND} has shown, with arguments that fit its schema."
        properties = {
            "tool": {"type": "string"},
            "arguments": {"type": "object", "additionalProperties": True},
        }
        schema = {"type": "object", "properties": properties, "required": ["tool", "arguments"]}
        super().__init__(name=CALL, description=text, spec=ToolSpec(CALL, text, schema))

    def _held(self) -> tuple[str, ...]:
        return tuple(one.binding() for one in self._tools.values())

    def reaches(self) -> Sequence[Tool]:
        """Return the tools that its calls may be of."""
        return list(self._tools.values())

    def target(self, arguments: dict[str, Any]) -> tuple[Tool, dict[str, Any]] | None:
        """Return the tool that a call is of, and its arguments; None if they are not valid."""
        tool, inner = arguments.get("tool"), arguments.get("arguments", {})
        found = self._tools.get(tool) if isinstance(tool, str) else None
        if isinstance(inner, str):
            # Some models write an object within an object as a text.
            try:
                inner = orjson.loads(inner or "{}")
            except ValueError:
                return None
        if found is None or not isinstance(inner, dict):
            return None
        return found, cast("dict[str, Any]", inner)

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """Say what is wrong with a call that is of no tool."""
        tool = arguments.get("tool")
        if tool in self._tools:
            return ToolResult("`arguments` is not an object. Nothing was called.", outcome="error")
        text = f"There is no tool {str(tool)[:100]!r}; {FIND} lists them. Nothing was called."
        return ToolResult(text, outcome="error")


def _first(tool: Tool) -> str:
    line = " ".join(tool.description.split())
    return line if len(line) <= 100 else f"{line[:100]} …"


def _words(text: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(text)]


def _score(tool: Tool, wanted: set[str]) -> int:
    name, text = set(_words(tool.name)), set(_words(tool.description))
    # A word of the name says more of a tool than one of its text.
    return 3 * len(wanted & name) + len(wanted & text)
