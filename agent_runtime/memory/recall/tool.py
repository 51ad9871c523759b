"""The tool that opens what left the prompt, page by page, and searches all that was logged."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import Field

from agent_runtime.errors import NotFound, ToolError
from agent_runtime.memory.recall.open import (
    NodeLocator,
    Opened,
    open_nodes,
    open_observation,
    open_result,
)
from agent_runtime.memory.recall.retriever import Retriever
from agent_runtime.memory.recall.tool_search import search_thread
from agent_runtime.tools.base import ToolContext, tool

HANDLES = (
    "A handle is c0000001a for a tool result (the line that marks what is left out names it), 17 "
    "for a node, 5-20 for the nodes 5 to 20, or o3 for an observation. To look for something, "
    "give a query instead."
)
_RESULT = re.compile(r"c[0-9a-z]{8}")
_OBSERVATION = re.compile(r"(?:observation\s*)?o?(\d{1,9})")
_NODES = re.compile(r"(?:nodes?\s*)?(\d{1,15})(?:\s*(?:-|–|to)\s*(\d{1,15}))?")


@tool(idempotent=True)
async def recall(
    context: ToolContext,
    handle: str = "",
    query: str = "",
    offset: Annotated[int, Field(ge=0)] = 0,
    limit: Annotated[int, Field(ge=1, le=100_000)] = 8000,
) -> str:
    """Open earlier messages and tool results again, or search all that this thread has seen.

    Args:
        handle: what to open: a result (c0000001a), a node (17), nodes (5-20), an observation (o3).
        query: words to search for, instead of a handle.
        offset: how many characters to skip.
        limit: how many characters to show.
    """
    handle, query = handle.strip(" \t\n\"'<>"), query.strip()
    if bool(handle) == bool(query):
        raise ToolError("Give either a handle or a query.", cure=HANDLES)
    if query:
        where = await NodeLocator.of(context.store, context.thread_id)
        found = await search_thread(where, query, context.service(Retriever))
    else:
        found = await _open(context, handle)
    return page(found, offset, limit)


async def _open(context: ToolContext, handle: str) -> Opened:
    name, elsewhere, thread_id = handle.partition("@")
    where = await _elsewhere(context, thread_id) if elsewhere else None
    if where is None:
        where = await NodeLocator.of(context.store, context.thread_id)
    name = name.lower()
    if _RESULT.fullmatch(name):
        return await open_result(where, name, HANDLES)
    if match := _NODES.fullmatch(name):
        first = int(match[1])
        return await open_nodes(where, first, int(match[2] or first), HANDLES)
    if match := _OBSERVATION.fullmatch(name):
        return await open_observation(where, int(match[1]), HANDLES)
    raise ToolError(f"{handle[:80]!r} is no handle.", cure=HANDLES)


async def _elsewhere(context: ToolContext, thread_id: str) -> NodeLocator:
    """Return where the nodes of another thread are. Raises `ToolError`."""
    recalling = context.service(Retriever)
    if thread_id != context.thread_id and (recalling is None or recalling.policy.scope != "user"):
        raise ToolError("You can open only what is in your own thread.", cure=HANDLES)
    try:
        return await NodeLocator.of(context.store, thread_id)
    except NotFound:
        raise ToolError(f"There is no thread {thread_id[:80]!r}.", cure=HANDLES) from None


def page(found: Opened, offset: int, limit: int) -> str:
    """Return a part of what was opened, and how to open the next."""
    part = found.text[offset : offset + limit]
    end = offset + len(part)
    if part:
        shown = f"characters {offset} to {end} follow"
    else:
        shown = f"nothing lies after {offset}" if found.text else "nothing follows"
    more = f"; next: offset={end}" if part and end < len(found.text) else ""
    text = f"{found.about}: {len(found.text)} characters; {shown}{more}."
    return "\n".join(one for one in (text, found.hint, part) if one)
