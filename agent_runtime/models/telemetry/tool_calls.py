"""The span of a tool call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from agent_runtime.messages import ToolCall, ToolResult
from agent_runtime.models.telemetry import conventions as names
from agent_runtime.models.telemetry.contents import shown, shown_json
from agent_runtime.models.telemetry.spans import fail, shows_contents, span, tracer


async def execute_tool(call: ToolCall, work: Callable[[], Awaitable[Any]]) -> Any:
    """Return what `work` returns, in a span that is current while the tool runs."""
    if tracer() is None:
        return await work()
    attributes = {
        names.OPERATION: "execute_tool",
        names.TOOL_NAME: call.name,
        names.TOOL_CALL_ID: call.id,
        names.TOOL_TYPE: "function",
    }
    with span(f"execute_tool {call.name}", attributes) as current:
        if current is not None and shows_contents():
            current.set_attribute(names.TOOL_ARGUMENTS, shown_json(call.arguments))
        result = await work()
        if current is not None and isinstance(result, ToolResult):
            current.set_attribute(names.OUTCOME, result.outcome)
            # A refused call did what it should, so its span is no failure.
            if result.outcome in ("error", "interrupted"):
                fail(current, result.outcome)
            if shows_contents():
                current.set_attribute(names.TOOL_RESULT, shown(result.text))
        return result
