"""Measure the time of retrieval among very many messages, without the embedder's time.

The messages are sentences of made-up words with Zipf-distributed frequencies, in ten threads; one
thread has half of them.  Vectors have 384 dimensions and lie around a few hundred topics.
"""

from __future__ import annotations

import itertools
import random
import sys
import time
from collections.abc import Sequence
from statistics import median
from typing import Any

from agent_runtime.memory.recall.search import SearchMode, retrieve
from agent_runtime.messages import UserMessage, encode_message
from agent_runtime_storage import (
    Commit,
    LeaseOwner,
    NewNode,
    NewRun,
    UserStore,
    VectorItem,
    open_store,
)
from agent_runtime_storage.urls import Backend
from benchmarks.backends import empty_databases
from benchmarks.retrieval.minilm import MiniLM

MODEL, DIMENSIONS = "made", 384
QUERIES = 100
LARGE, _SMALL = "large", 9
MODES: tuple[SearchMode, ...] = ("text", "vectors", "hybrid")
_WORDS, _LENGTH, _TOPICS, _NOISE = 30_000, 30, 300, 0.8
_OWNER = LeaseOwner(host="here", boot="b", pid=1, started="s")
_BATCH = 500


class World:
    """Texts and vectors, determined by the seed."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._weights = list(itertools.accumulate(1 / rank for rank in range(1, _WORDS + 1)))
        self._topics = [self._point() for _ in range(_TOPICS)]

    def text(self, words: int) -> str:
        """Return a text of `words` words."""
        ranks = self._chance.choices(range(_WORDS), cum_weights=self._weights, k=words)
        return " ".join(f"w{rank:x}" for rank in ranks)

    def vector(self) -> list[float]:
        """Return a vector near a topic."""
        topic = self._chance.choice(self._topics)
        return [one + _NOISE * more for one, more in zip(topic, self._point(), strict=True)]

    def _point(self) -> list[float]:
        return [self._chance.gauss(0, 1) for _ in range(DIMENSIONS)]


async def measure_latency(
    backends: Sequence[Backend], count: int, model: MiniLM
) -> list[dict[str, Any]]:
    """Return the times of searches among `count` messages, in milliseconds.

    Args:
        model: an embedder; its time for the queries is the first row.
    """
    rows: list[dict[str, Any]] = [{"mode": f"to embed by {model.name}", **_embedding(model)}]
    for backend in backends:
        with empty_databases() as make:
            store = await open_store(make(backend), synchronous="normal")
            try:
                print(f"{backend}: writing {count} messages", file=sys.stderr)
                measured = await _measure(store.of("ann"), count)
            finally:
                await store.close()
        rows += [{"backend": backend, **row} for row in measured]
    return rows


async def _measure(user: UserStore, count: int) -> list[dict[str, Any]]:
    world = World(7)
    await _fill(user, LARGE, count // 2, world)
    for number in range(_SMALL):
        await _fill(user, f"small {number}", count // 2 // _SMALL, world)
    return [
        {"scope": scope or "user", "mode": mode, **await _times(user, scope, mode)}
        for scope in (LARGE, None)
        for mode in MODES
    ]


async def _fill(user: UserStore, thread: str, count: int, world: World) -> None:
    await user.threads.ensure(thread)
    nodes = [_node(seq, world.text(_LENGTH)) for seq in range(1, count + 1)]
    run = NewRun(thread, thread, "a", 1, {}, _OWNER, 1e6, None, 0, (nodes[0],))
    lease, _ = await user.runs.begin(run)
    for first in range(1, count, _BATCH):
        some = tuple(nodes[first : first + _BATCH])
        await user.runs.commit(lease, Commit(nodes=some, head=some[-1].seq))
    for first in range(0, count, _BATCH):
        some = [node.seq for node in nodes[first : first + _BATCH]]
        items = [VectorItem(thread, "message", seq, world.vector()) for seq in some]
        await user.vectors.upsert(MODEL, items)


def _node(seq: int, text: str) -> NewNode:
    body = encode_message(UserMessage(text))
    return NewNode(seq, seq - 1 or None, "message", "user", body, _LENGTH, 0, text=text)


def _embedding(model: MiniLM) -> dict[str, float]:
    world = World(8)
    times: list[float] = []
    for _ in range(QUERIES):
        query = world.text(8)
        start = time.perf_counter()
        model.embed([query])
        times.append(1000 * (time.perf_counter() - start))
    return _told(times)


async def _times(user: UserStore, scope: str | None, mode: SearchMode) -> dict[str, float]:
    world = World(8)
    times: list[float] = []
    for _ in range(QUERIES):
        query, vector = world.text(8), world.vector()
        start = time.perf_counter()
        await retrieve(user, query, vector=vector, model=MODEL, mode=mode, thread_id=scope)
        times.append(1000 * (time.perf_counter() - start))
    return _told(times)


def _told(times: list[float]) -> dict[str, float]:
    times.sort()
    return {"p50 ms": median(times), "p95 ms": times[int(0.95 * len(times))], "max ms": times[-1]}
