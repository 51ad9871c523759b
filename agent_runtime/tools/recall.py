"""Opening a message or a tool result of the thread again, whole, page by page."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from agent_runtime.errors import NotFound, ToolError
from agent_runtime.messages import (
    AssistantMessage,
    call_id,
    call_place,
    decode_message,
    decode_result,
)
from agent_runtime_storage.records import Node

from .base import ToolContext, tool

BAD_HANDLE = (
    "Handles look like c0000001a; the line that marks what is left out of a result names its own. "
    "A number opens the node of that number, as observations name nodes."
)


@tool(idempotent=True)
async def recall(
    context: ToolContext,
    handle: str,
    offset: Annotated[int, Field(ge=0)] = 0,
    limit: Annotated[int, Field(ge=1, le=100_000)] = 8000,
) -> str:
    """Open an earlier message or tool result again: what was cut, or is not shown any more.

    Args:
        handle: of a result, as the line names it that marks what is left out; or a node's number.
        offset: how many characters to skip.
        limit: how many characters to show.
    """
    if handle.strip().isdecimal():
        about, text = await _node(context, int(handle))
    else:
        about, text = await _result(context, handle)
    page = text[offset : offset + limit]
    end = offset + len(page)
    shown = f"characters {offset} to {end} follow" if page else f"nothing lies after {offset}"
    more = f"; next: offset={end}" if page and end < len(text) else ""
    return f"{about}: {len(text)} characters; {shown}{more}.\n{page}"


async def _result(context: ToolContext, handle: str) -> tuple[str, str]:
    """Return what a result is, and its text."""
    try:
        node, index = call_place(handle.strip())
    except ValueError:
        raise ToolError(f"{handle!r} is no handle of a tool result.", cure=BAD_HANDLE) from None
    try:
        call = await context.store.call(context.thread_id, node, index)
    except NotFound:
        raise ToolError(
            f"This thread has no tool result with the handle {handle!r}.", cure=BAD_HANDLE
        ) from None
    if call.status != "done":
        raise ToolError(f"The call {handle} of {call.tool} has no result yet.")
    return f"{call.tool} ({call.outcome})", decode_result(call.body).text


async def _node(context: ToolContext, number: int) -> tuple[str, str]:
    """Return whose message a node is, and its text, with the handles of its results."""
    try:
        node = await context.store.node(context.thread_id, number)
    except NotFound:
        raise ToolError(f"This thread has no node {number}.", cure=BAD_HANDLE) from None
    message = decode_message(node.body)
    speaker = {"user": "user", "assistant": "agent", "note": "runtime"}[message.type]
    lines = [message.text] if message.text else []
    if isinstance(message, AssistantMessage):
        lines += [_called(node, index) for index in range(len(message.calls))]
    return f"Node {number}, of the {speaker}", "\n".join(lines)


def _called(node: Node, index: int) -> str:
    call = node.calls[index]
    outcome = f" ({call.outcome})" if call.outcome else ""
    return f"called {call.tool}{outcome}; recall(handle={call_id(node.seq, index)!r}) opens it"
