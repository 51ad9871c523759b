"""Measure the time of retrieval among very many messages, without the embedder's time.

The messages are sentences of made-up words with Zipf-distributed frequencies, in ten threads; one
thread has half of them.  Vectors have 384 dimensions and lie around a few hundred topics.  Every
search is timed alone and while another task commits messages of the same owner.
"""

from __future__ import annotations

import functools
import itertools
import random
import sys
import time
from array import array
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, nullcontext
from statistics import median
from typing import Any

import anyio

from agent_runtime.errors import ConfigError
from agent_runtime.memory.recall.search import SearchMode, retrieve
from agent_runtime.messages import UserMessage, encode_message
from agent_runtime_storage import (
    Commit,
    Lease,
    LeaseOwner,
    NewNode,
    NewRun,
    UserStore,
    VectorItem,
    open_store,
)

OWNER = "ann"
MODEL, DIMENSIONS = "made", 384
QUERIES = 100
LARGE, WRITER, _SMALL = "large", "writer", 9
MODES: tuple[SearchMode, ...] = ("text", "vectors", "hybrid")
_WORDS, _LENGTH, _TOPICS, _NOISE = 30_000, 30, 300, 0.8
_HERE = LeaseOwner(host="here", boot="b", pid=1, started="s")
_BATCH = 500
_PAUSE = 0.02
"""Seconds between two commits of the writer."""


@functools.cache
def _shared() -> tuple[list[list[float]], list[float]]:
    """Return the topics and the noise of every world: queries are about what messages are about."""
    chance = random.Random(7)
    topics = [[chance.gauss(0, 1) for _ in range(DIMENSIONS)] for _ in range(_TOPICS)]
    return topics, [chance.gauss(0, _NOISE) for _ in range(200_000)]


class World:
    """Texts and vectors, determined by the seed."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._weights = list(itertools.accumulate(1 / rank for rank in range(1, _WORDS + 1)))
        self._topics, self._noise = _shared()

    def text(self, words: int) -> str:
        """Return a text of `words` words."""
        ranks = self._chance.choices(range(_WORDS), cum_weights=self._weights, k=words)
        return " ".join(f"w{rank:x}" for rank in ranks)

    def vector(self) -> array[float]:
        """Return a vector near a topic."""
        topic = self._chance.choice(self._topics)
        start = self._chance.randrange(len(self._noise) - DIMENSIONS)
        noise = self._noise[start : start + DIMENSIONS]
        return array("f", [one + more for one, more in zip(topic, noise, strict=True)])


async def measure_latency(
    databases: Mapping[str, str], count: int, queries: int = QUERIES
) -> list[dict[str, Any]]:
    """Return the times of searches among `count` messages, in milliseconds.

    The CPU time is that of this process: without that of a server, and with that of the writer.

    Args:
        databases: URLs by name.  An empty one is filled; one that this function has filled with as
            many messages is used as it is.
    """
    rows: list[dict[str, Any]] = []
    for name, url in databases.items():
        store = await open_store(url, synchronous="normal")
        try:
            user = store.of(OWNER)
            print(f"{name}, {count} messages: {await _prepare(user, count)}", file=sys.stderr)
            for writes in (False, True):
                for row in await _measure(user, queries, writes=writes):
                    rows.append({"database": name, "messages": count, "writer": writes, **row})
                    print(rows[-1], file=sys.stderr)
        finally:
            await store.close()
    return rows


async def _prepare(user: UserStore, count: int) -> str:
    """Write the messages unless they are there."""
    if threads := await user.threads.list(limit=1 + _SMALL):
        heads = {thread.id: thread.head for thread in threads}
        if heads.get(LARGE) != count // 2 or len(heads) != 1 + _SMALL:
            raise ConfigError(
                f"The database holds something else than {count} messages of this benchmark.",
                cure="Name an empty database, or the number of messages that it was filled with.",
            )
        return "written before"
    began = time.perf_counter()
    world = World(7)
    await _fill(user, LARGE, count // 2, world)
    for number in range(_SMALL):
        await _fill(user, f"small {number}", count // 2 // _SMALL, world)
    return f"written in {time.perf_counter() - began:.0f} s"


async def _measure(user: UserStore, queries: int, *, writes: bool) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for scope in (LARGE, None):
        for mode in MODES:
            async with _writer(user) if writes else nullcontext():
                times = await _times(user, scope, mode, queries)
            rows.append({"scope": scope or "user", "mode": mode, **times})
    return rows


@asynccontextmanager
async def _writer(user: UserStore) -> AsyncGenerator[None]:
    """Commit messages to a thread of the same owner; it is deleted at the end."""
    world = World(9)
    await user.threads.ensure(WRITER)
    lease = await _begin(user, WRITER, world)

    async def write() -> None:
        for seq in itertools.count(2):
            node = _node(seq, world.text(_LENGTH))
            await user.runs.commit(lease, Commit(nodes=(node,), head=seq))
            await anyio.sleep(_PAUSE)

    async with anyio.create_task_group() as group:
        group.start_soon(write)
        try:
            yield
        finally:
            group.cancel_scope.cancel()
    await user.runs.renew_lease(lease, seconds=-1.0)
    await user.upkeep.delete_thread(WRITER)


async def _begin(user: UserStore, thread: str, world: World) -> Lease:
    first = _node(1, world.text(_LENGTH))
    run = NewRun(thread, thread, "a", 1, {}, _HERE, 1e6, None, 0, (first,))
    lease, _ = await user.runs.begin(run)
    return lease


async def _fill(user: UserStore, thread: str, count: int, world: World) -> None:
    await user.threads.ensure(thread)
    lease = await _begin(user, thread, world)
    for first in range(1, count + 1, _BATCH):
        some = range(first, min(first + _BATCH, count + 1))
        nodes = tuple(_node(seq, world.text(_LENGTH)) for seq in some if seq > 1)
        await user.runs.commit(lease, Commit(nodes=nodes, head=some[-1]))
        items = [VectorItem(thread, "message", seq, world.vector()) for seq in some]
        await user.vectors.upsert(MODEL, items)


def _node(seq: int, text: str) -> NewNode:
    body = encode_message(UserMessage(text))
    return NewNode(seq, seq - 1 or None, "message", "user", body, _LENGTH, 0, text=text)


async def _times(
    user: UserStore, scope: str | None, mode: SearchMode, queries: int
) -> dict[str, float]:
    world = World(8)
    times: list[float] = []
    cpu = 0.0
    for _ in range(queries):
        query, vector = world.text(8), world.vector()
        cpu -= time.process_time()
        start = time.perf_counter()
        await retrieve(user, query, vector=vector, model=MODEL, mode=mode, thread_id=scope)
        times.append(1000 * (time.perf_counter() - start))
        cpu += time.process_time()
    times.sort()
    return {
        "p50 ms": median(times),
        "p95 ms": times[int(0.95 * len(times))],
        "max ms": times[-1],
        "CPU ms": 1000 * cpu / queries,
    }
