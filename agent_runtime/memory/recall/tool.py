"""The tool `recall`: opens what left the prompt, page by page, and searches the log."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from agent_runtime.errors import NotFound, ToolError
from agent_runtime.memory.recall.excerpts import EXCERPT, excerpt, words_of
from agent_runtime.memory.recall.open import (
    NodeLocator,
    Opened,
    OpenedPart,
    open_file,
    open_nodes,
    open_observation,
    open_result,
    with_headers,
)
from agent_runtime.memory.recall.search import NodeAddress, SearchHit, retrieve
from agent_runtime.messages import Note, call_id, decode_message, decode_result, searchable
from agent_runtime.tools.context import ToolContext
from agent_runtime.tools.function import tool
from agent_runtime.tools.parameters import Chars, Offset
from agent_runtime_config.counted import counted
from agent_runtime_storage.contract.records.log import Node
from agent_runtime_storage.contract.store import UserStore

if TYPE_CHECKING:
    from agent_runtime.memory.recall.retriever import Retriever

HITS = 20
"""The most hits that a search shows."""
FILLED = 7_000
"""Characters of hits after which no more are shown: with their headers they fill a page."""
WIDE, WIDE_EXCERPT = 3, 900
"""How many of the best hits are shown at more length, and how many characters of each."""
SHORT = 400
"""Characters of a hit above which nothing around it is shown: it says enough alone."""
SEARCHED = 60
"""How many hits it reads: those that only repeat what `recall` returned are skipped."""
NEARBY = 250
"""Characters shown of a message before or after a hit."""
HANDLES = (
    "A handle is c0000001a for a tool result (the line that marks what is left out names it), 17 "
    "for a node, 5-20 for the nodes 5 to 20, o3 for an observation, or upload:… for a text file. "
    "To look for something, give a query instead."
)
_FILE = re.compile(r"(?:upload|tool):[0-9a-f-]{36}")
_RESULT = re.compile(r"c[0-9a-z]{8}")
_OBSERVATION = re.compile(r"(?:observation\s*)?o?(\d{1,9})")
_NODES = re.compile(r"(?:nodes?\s*)?(\d{1,15})(?:\s*(?:-|–|to)\s*(\d{1,15}))?")


@tool(idempotent=True)
async def recall(
    context: ToolContext,
    handle: str = "",
    query: str = "",
    offset: Offset = 0,
    limit: Chars = 8000,
) -> str:
    """Open earlier messages and results again, or search this thread.

    Args:
        handle: c0000001a (a result), 17 or 5-20 (nodes), o3 (an observation).
        query: words to search for.
    """
    # Models copy handles with the quotes or brackets around them.
    handle, query = handle.strip(" \t\n\"'<>"), query.strip()
    if bool(handle) == bool(query):
        raise ToolError("Give either a handle or a query.", cure=HANDLES)
    opened = await (_search(context, query) if query else _open(context, handle))
    return page(opened, offset, limit)


def page(opened: Opened, offset: int, limit: int) -> str:
    """Return a part of what was opened, and how to open the next part."""
    part = opened.text[offset : offset + limit]
    end = offset + len(part)
    if part:
        shown = f"characters {offset} to {end} follow"
    else:
        shown = f"nothing lies after {offset}" if opened.text else "nothing follows"
    more = f"; next: offset={end}" if part and end < len(opened.text) else ""
    text = f"{opened.about}: {len(opened.text)} characters; {shown}{more}."
    return "\n".join(line for line in (text, opened.hint, part) if line)


# Handles


async def _open(context: ToolContext, handle: str) -> Opened:
    name, elsewhere, thread_id = handle.partition("@")
    where = await _locator(context, thread_id if elsewhere else context.thread_id)
    name = name.lower()
    if _RESULT.fullmatch(name):
        return await open_result(where, name, HANDLES)
    if _FILE.fullmatch(name):
        return await open_file(where, name, HANDLES)
    if match := _NODES.fullmatch(name):
        first = int(match[1])
        return await open_nodes(where, first, int(match[2] or first), HANDLES)
    if match := _OBSERVATION.fullmatch(name):
        return await open_observation(where, int(match[1]), HANDLES)
    raise ToolError(f"{handle[:80]!r} is no handle.", cure=HANDLES)


async def _locator(context: ToolContext, thread_id: str) -> NodeLocator:
    if thread_id == context.thread_id:
        return await NodeLocator.of(context.store, thread_id, context.timezone)
    retriever = _retriever(context)
    # Only this scope may show other threads, even to a model that guesses an id.
    if retriever is None or retriever.policy.scope != "user":
        raise ToolError("You can open only what is in your own thread.", cure=HANDLES)
    try:
        return await NodeLocator.of(context.store, thread_id, context.timezone)
    except NotFound:
        raise ToolError(f"There is no thread {thread_id[:80]!r}.", cure=HANDLES) from None


# Queries


async def _search(context: ToolContext, query: str) -> Opened:
    """Return excerpts of the best hits for a query, each with the messages around it.

    Full text of the run's branch is searched; with semantic recall vectors too, and the user's
    other threads if they are in its scope.
    """
    where = await NodeLocator.of(context.store, context.thread_id, context.timezone)
    retriever = _retriever(context)
    if retriever is not None:
        hits = await retriever.find(query, limit=SEARCHED)
    else:
        hits = await retrieve(where.store, query, thread_id=where.thread_id, limit=SEARCHED)
    found = await _found(where.store, hits)
    shown = repr(query if len(query) <= 80 else f"{query[:79]}…")
    kind = "words of" if retriever is None or retriever.indexer is None else "anything like"
    parts, count = await _places(where, found, words_of(query))
    if not parts:
        hint = "Try other words: names, paths, numbers or error texts as they were written."
        return Opened(f"Nothing on this branch holds {kind} {shown}", "", hint)
    hint, text = with_headers(parts)
    about = f"{counted(count, 'place')} with {kind} {shown}, the best first"
    if len(parts) > count:
        about += ", with the messages around them"
    # More hits are read than shown, so it is known whether there are more.
    rarer = " More places have such words; rarer words find fewer." if len(found) > count else ""
    hint = f"{hint} What each line names first is the handle that opens the place.{rarer}"
    return Opened(about, text, hint)


@dataclass(frozen=True, slots=True)
class _Place:
    """A hit with its node, and the nodes before and after it that are shown with it."""

    hit: SearchHit
    node: Node
    nearby: tuple[Node, ...] = ()


async def _found(store: UserStore, hits: Sequence[SearchHit]) -> list[_Place]:
    """Return the places of the best hits, one more than are shown."""
    outlines = await store.log.outlines({hit.address for hit in hits}, before=1, after=1)
    after = {(one.thread_id, one.parent_id): one.seq for one in outlines}
    found: list[_Place] = []
    for hit in hits:
        last = after.get((hit.thread_id, hit.node), hit.node)
        # The one before, the hit, and the one after it, if there is one.
        nodes = await store.log.branch(hit.thread_id, last, limit=2 + (last != hit.node))
        node = next(node for node in nodes if node.seq == hit.node)
        if _by_recall(node, hit):
            continue
        # A result says what it is about; a short message often answers the one before it.
        alone = hit.call is not None or len(searchable(decode_message(node.body))) > SHORT
        nearby = [] if alone else [one for one in nodes if one.seq != hit.node and _speaks(one)]
        found.append(_Place(hit, node, tuple(nearby)))
        if len(found) > HITS:
            break
    return _without_repeats(found)


def _without_repeats(found: Sequence[_Place]) -> list[_Place]:
    """Return places without the neighbours that are shown elsewhere."""
    shown = {place.hit.address for place in found}
    kept: list[_Place] = []
    for place in found:
        thread_id = place.hit.thread_id
        near = [one for one in place.nearby if NodeAddress(thread_id, one.seq) not in shown]
        shown |= {NodeAddress(thread_id, one.seq) for one in near}
        kept.append(replace(place, nearby=tuple(near)))
    return kept


def _speaks(node: Node) -> bool:
    """Return whether a node is a message of the user or an answer of the agent."""
    return node.role in ("user", "assistant") and not node.calls


async def _places(
    where: NodeLocator, found: Sequence[_Place], words: Sequence[str]
) -> tuple[list[OpenedPart], int]:
    """Return the parts of as many places as fill a page, and the number of places."""
    locators = {where.thread_id: where}
    parts: list[OpenedPart] = []
    filled = 0
    for number, place in enumerate(found[:HITS]):
        thread_id = place.hit.thread_id
        if thread_id not in locators:
            locators[thread_id] = await NodeLocator.of(where.store, thread_id, where.zone)
        locator, own = locators[thread_id], where.thread_id
        more: list[OpenedPart] = []
        for node in sorted((place.node, *place.nearby), key=lambda one: one.seq):
            hit = node.seq == place.node.seq
            size = (WIDE_EXCERPT if number < WIDE else EXCERPT) if hit else NEARBY
            call = place.hit.call if hit else None
            more.append(_part(locator, node, call, words, own=own, size=size))
        size = sum(len(part.text) + len(part.source) for part in more)
        # The first is shown whatever its size.
        if number and filled + size > FILLED:
            return parts, number
        filled += size
        parts += more
    return parts, min(len(found), HITS)


def _retriever(context: ToolContext) -> Retriever | None:
    # Not above: most runs end before anything is recalled.
    from agent_runtime.memory.recall.retriever import Retriever

    return context.service(Retriever)


def _by_recall(node: Node, hit: SearchHit) -> bool:
    """Return whether a hit is a call of `recall`, which only repeats other places."""
    calls = node.calls if hit.call is None else node.calls[hit.call : hit.call + 1]
    return bool(calls) and all(call.tool == "recall" for call in calls)


def _part(
    where: NodeLocator,
    node: Node,
    call: int | None,
    words: Sequence[str],
    *,
    own: str,
    size: int = EXCERPT,
) -> OpenedPart:
    if call is None:
        message = decode_message(node.body)
        place = {"user": "user", "assistant": "agent", "note": "runtime"}[message.type]
        if isinstance(message, Note):
            place = "user, to the agent at work" if message.source == "steer" else "runtime note"
        handle, text = str(node.seq), searchable(message)
    else:
        recorded = node.calls[call]
        handle, text = call_id(node.seq, call), decode_result(recorded.body).text
        place = f"node {node.seq} | tool {recorded.tool} ({recorded.outcome})"
    start, shown = excerpt(text, words, size)
    if where.thread_id == own:
        header = [handle, place, where.written_when(node), where.of_node(node.seq)]
    else:
        header = [
            f"{handle}@{where.thread_id}",
            place,
            where.written_when(node),
            "in another thread",
        ]
    if start and call is not None:
        header.append(f"from offset {start}")
    return OpenedPart(" | ".join(header), shown)
