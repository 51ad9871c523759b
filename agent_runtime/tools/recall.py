"""Opening a tool result of the thread again, whole, page by page."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from agent_runtime.errors import NotFound, ToolError
from agent_runtime.messages import call_place, decode_result

from .base import ToolContext, tool

BAD_HANDLE = (
    "Handles look like c0000001a; the line that marks what is left out of a result names its own."
)


@tool(idempotent=True)
async def recall(
    context: ToolContext,
    handle: str,
    offset: Annotated[int, Field(ge=0)] = 0,
    limit: Annotated[int, Field(ge=1, le=100_000)] = 8000,
) -> str:
    """Open the result of an earlier tool call again: what was cut, or is not shown any more.

    Args:
        handle: of the result, as the line names it that marks what is left out.
        offset: how many characters to skip.
        limit: how many characters to show.
    """
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
    text = decode_result(call.body).text
    page = text[offset : offset + limit]
    end = offset + len(page)
    shown = f"characters {offset} to {end} follow" if page else f"nothing lies after {offset}"
    more = f"; next: offset={end}" if page and end < len(text) else ""
    return f"{call.tool} ({call.outcome}): {len(text)} characters; {shown}{more}.\n{page}"
