"""Decide whether what a search found fits the query at all; a search always finds something.

Two signs count, and one is enough:

- coverage: a hit holds a third of the query's content words, in any of their forms;
- nearness: a hit is as near to the query as the thread's messages are to each other.  Measured is
  how near some of them are to their nearest neighbours; a query that lies beyond three standard
  deviations of that is about something else (as novelty detection by nearest neighbours does).
  So no threshold depends on the embedder, whose similarities have ranges of their own.

Measured with MiniLM on LoCoMo: of the questions about a conversation whose evidence was found 0.99
fit, of tasks about other things 0.03.  Small talk is recognised before (see `small_talk`).
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterable, Sequence

import anyio

from agent_runtime.memory.recall.passages import MESSAGE, SOURCES, node_and_call_of
from agent_runtime.messages import decode_message, decode_result, searchable
from agent_runtime_storage.contract.records.search import VectorKey
from agent_runtime_storage.contract.store import UserStore
from agent_runtime_storage.search.query_groups import WEAK, query_groups
from agent_runtime_storage.search.tokenizer import terms_of

COVERED = 1 / 3
"""The share of the query's content words that a hit has to hold."""
ENOUGH_WORDS = 4
"""A hit that holds this many fits; of a long message none may hold a third."""
READ = 10
"""How many hits are read for that, from the best."""
LONGEST = 20_000
"""Characters read of each."""
SAMPLE = 24
"""How many messages are asked for their nearest neighbours."""
FEWEST = 8
"""With fewer messages nothing is known of their nearness."""
DEVIATIONS = 3.0
KEPT_SECONDS = 600.0
"""How long a measured nearness holds."""

# Any will do: these terms are not stored.
_KEY = b""

Place = tuple[str, int, int | None]
"""A thread, one of its nodes, and the index of a call or None."""


async def is_covered(store: UserStore, query: str, places: Iterable[Place]) -> bool:
    """Return whether one of the places holds enough of the query's words."""
    wanted = [group.terms for group in query_groups(query, _KEY) if group.weight > WEAK]
    if not wanted:
        return False
    needed = min(COVERED * len(wanted), ENOUGH_WORDS)
    for place, _ in zip(places, range(READ), strict=False):
        text = await _text(store, place)
        held = (await terms_of(text[:LONGEST], _KEY)).times
        if sum(any(term in held for term in terms) for terms in wanted) >= needed:
            return True
    return False


async def _text(store: UserStore, place: Place) -> str:
    thread_id, number, index = place
    node = await store.log.node(thread_id, number)
    if index is None:
        return searchable(decode_message(node.body))
    call = node.calls[index]
    return searchable(decode_result(call.body), call.tool)


class Nearness:
    """How near the messages of threads are to each other, by an embedder; shared by its runs."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._known: dict[tuple[str, str], tuple[float, float | None]] = {}

    async def least(self, store: UserStore, thread_id: str) -> float | None:
        """Return the similarity from which a message belongs to a thread; None if unknown.

        Raises `StoreError`.
        """
        key, now = (store.user_id, thread_id), anyio.current_time()
        known = self._known.get(key)
        if known is None or known[0] < now:
            known = now + KEPT_SECONDS, await self._measured(store, thread_id)
            if len(self._known) > 1000:
                self._known.clear()
            if known[1] is not None:
                # A short thread grows: look again next time.
                self._known[key] = known
        return known[1]

    async def _measured(self, store: UserStore, thread_id: str) -> float | None:
        head = (await store.threads.get(thread_id)).head
        if head is None:
            return None
        # Seeded, so that a repetition on the same thread gives the same answer.
        draw = random.Random(head)
        starts = draw.sample(range(head), min(SAMPLE, head))
        found: dict[int, float] = {}
        for start in starts:
            key = VectorKey(thread_id, MESSAGE, start, 0)
            page = await store.vectors.of_thread(thread_id, after=(self._model, key), limit=1)
            if not page or page[0][0] != self._model or page[0][1].source != MESSAGE:
                continue
            item = page[0][1]
            if item.source_id not in found:
                near = await self._nearest(store, thread_id, item.source_id, item.values)
                if near is not None:
                    found[item.source_id] = near
        return lower_bound(list(found.values()))

    async def _nearest(
        self, store: UserStore, thread_id: str, node: int, vector: Sequence[float]
    ) -> float | None:
        """Return the similarity of a message and the one most like it."""
        hits = await store.vectors.nearest(
            self._model, vector, limit=10, thread_id=thread_id, sources=SOURCES
        )
        others = (
            hit.similarity for hit in hits if node_and_call_of(hit.source, hit.source_id)[0] != node
        )
        return max(others, default=None)


def lower_bound(similarities: Sequence[float]) -> float | None:
    """Return the similarity below which a message lies outside; None with too few of them.

    From the median and the median deviation, so that a few outliers change nothing.
    """
    if len(similarities) < FEWEST:
        return None
    middle = statistics.median(similarities)
    deviation = 1.4826 * statistics.median(abs(one - middle) for one in similarities)
    return middle - DEVIATIONS * deviation
