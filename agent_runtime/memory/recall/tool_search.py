"""How `recall` searches: what is on the run's branch, by the same search as semantic recall."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from agent_runtime.memory.recall.excerpts import excerpt, words_of
from agent_runtime.memory.recall.open import NodeLocator, Opened, OpenedPart, marked, written_when
from agent_runtime.memory.recall.search import SearchHit, retrieve
from agent_runtime.messages import Note, call_id, decode_message, decode_result, searchable
from agent_runtime_storage.contract.records import Node

if TYPE_CHECKING:
    from agent_runtime.memory.recall.retriever import Retriever

HITS = 10
"""How many places a search shows."""
ASKED = 60
"""How many it looks at: some repeat what `recall` has shown before."""


async def search_thread(
    where: NodeLocator, query: str, recalling: Retriever | None = None
) -> Opened:
    """Return excerpts of what bears on a query, the best first.

    It is what holds words of the query on the run's branch; with semantic recall also what means
    alike, and, if that is its scope, what the user's other threads hold.
    """
    words = words_of(query)
    shown = repr(query if len(query) <= 80 else f"{query[:79]}…")
    if recalling is not None:
        found = await recalling.find(query, limit=ASKED)
    else:
        found = await retrieve(
            where.store, query, mode="text", thread_id=where.thread_id, limit=ASKED
        )
    places = {where.thread_id: where}
    pieces: list[OpenedPart] = []
    left_out = 0
    for hit in found:
        if hit.thread_id not in places:
            places[hit.thread_id] = await NodeLocator.of(where.store, hit.thread_id)
        node = await where.store.node(hit.thread_id, hit.node)
        if _by_recall(node, hit):
            continue
        if len(pieces) == HITS:
            left_out = 1
            break
        pieces.append(_piece(places[hit.thread_id], node, hit, words, own=where.thread_id))
    kind = "words of" if recalling is None or recalling.embedding is None else "anything like"
    if not pieces:
        hint = "Try other words: names, paths, numbers or error texts as they were written."
        return Opened(f"Nothing on this branch holds {kind} {shown}", "", hint)
    hint, text = marked(pieces)
    more = " More places have such words; rarer words find fewer." if left_out else ""
    count = f"{len(pieces)} place{'s' if len(pieces) > 1 else ''}"
    hint = f"{hint} What each line names first is the handle that opens the place.{more}"
    return Opened(f"{count} with {kind} {shown}, the best first", text, hint)


def _by_recall(node: Node, hit: SearchHit) -> bool:
    """Return whether the place only repeats others: it is `recall` at work."""
    calls = node.calls if hit.call is None else node.calls[hit.call : hit.call + 1]
    return bool(calls) and all(call.tool == "recall" for call in calls)


def _piece(
    where: NodeLocator, node: Node, hit: SearchHit, words: Sequence[str], *, own: str
) -> OpenedPart:
    if hit.call is None:
        message = decode_message(node.body)
        speaker = {"user": "user", "assistant": "agent", "note": "runtime"}[message.type]
        if isinstance(message, Note):
            speaker = "user, to the agent at work" if message.source == "steer" else "runtime note"
        handle, text = str(node.seq), searchable(message)
        place = speaker
    else:
        call = node.calls[hit.call]
        handle, text = call_id(node.seq, hit.call), decode_result(call.body).text
        place = f"node {node.seq} | tool {call.tool} ({call.outcome})"
    start, shown = excerpt(text, words)
    if where.thread_id == own:
        parts = [handle, place, f"{written_when(node)}", where.of_node(node.seq)]
    else:
        parts = [f"{handle}@{where.thread_id}", place, f"{written_when(node)}", "in another thread"]
    if start and hit.call is not None:
        parts.append(f"from offset {start}")
    return OpenedPart(" | ".join(parts), shown)
