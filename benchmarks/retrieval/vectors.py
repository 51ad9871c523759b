"""Measure the recall and speed of vector search on each backend, and of the plain drivers.

Texts are about topics, and each thread is about a few: one thread has a tenth of the vectors,
ninety have a hundredth each.  Half of the queries are about topics of the searched thread, half
about any.  The truth is an exact comparison with all vectors, outside of every backend.

`store` is the store's search.  `plain` is the same SQL by the plain driver, without row-level
security of owners.  `pgvector alone` is the index as installed: its default settings, with the
filter applied afterwards.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from array import array
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, cast

import anyio
import apsw
import sqlite_vec  # pyright: ignore[reportMissingTypeStubs]

from agent_runtime_storage import Store, UserStore, VectorItem, open_store
from agent_runtime_storage.drivers.protocol import Announce, Row, SqlDialect, Statement, Value
from agent_runtime_storage.drivers.signals import Signals
from agent_runtime_storage.drivers.sqlite.connection import SqliteConnection, open_connection
from agent_runtime_storage.store import SqlStore
from agent_runtime_storage.urls import Backend, file_path
from benchmarks.backends import BACKENDS, empty_databases, parse_backends
from benchmarks.frame import Report, Target, at_least
from benchmarks.plain_drivers import Hrana, Psycopg

MODEL = "embedder"
OWNER = "ann"
LIMIT = 10
LEAST_RECALL = 0.95
FILTERS: Mapping[str, str | None] = {"none": None, "10%": "t0", "1%": "t5"}

_TOPICS = 300
_OF_A_THREAD = 5
_NOISE = 0.8
_BATCH = 500

Key = tuple[str, int]
Search = Callable[[Sequence[float], str | None], Awaitable[list[Key]]]
Query = tuple[Sequence[float], str | None]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--backends", type=parse_backends, default=BACKENDS, help="such as file")
    parser.add_argument("--counts", type=_numbers, default=(10_000, 100_000), help="of vectors")
    parser.add_argument("--dimensions", type=int, default=384)
    parser.add_argument("--queries", type=int, default=40, help="with each filter")


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(sorted(int(part) for part in text.split(",")))


def run(args: argparse.Namespace) -> Report:
    """Measure every backend with every number of vectors."""
    rows: list[dict[str, Any]] = []
    for count in args.counts:
        print(f"{count} vectors: making them, and the truth", file=sys.stderr)
        world = World(count, args.dimensions, args.queries)
        for backend in args.backends:
            # One at a time: an idle server with its vectors would take memory from the next.
            with empty_databases() as make:
                rows += anyio.run(_measure, backend, make(backend), world)
    return Report("vectors", rows, _targets(rows))


def _targets(rows: Sequence[Mapping[str, Any]]) -> list[Target]:
    return [
        at_least(
            f"recall on {row['backend']}, {row['vectors']:,} vectors, filter {row['filter']}",
            row["recall"],
            LEAST_RECALL,
        )
        for row in rows
        if row["variant"] == "store"
    ]


@dataclass(frozen=True, slots=True)
class Item:
    """A vector and where it belongs."""

    thread: str
    number: int
    values: array[float]


class World:
    """Vectors, queries, and the correct results of each query."""

    def __init__(self, count: int, dimensions: int, queries: int) -> None:
        self._draw = random.Random(count)
        self._noise = [self._draw.gauss(0, _NOISE) for _ in range(1_000_000)]
        self._topics = [[self._draw.gauss(0, 1) for _ in range(dimensions)] for _ in range(_TOPICS)]
        self.threads = [f"t{number}" for number in range(91)]
        mine = {
            thread_id: self._draw.sample(range(_TOPICS), _OF_A_THREAD) for thread_id in self.threads
        }
        self.dimensions = dimensions
        self.items: list[Item] = []
        for number in range(count):
            # Of a hundred, ten belong to the first thread and one to each of the others.
            thread = f"t{max(number % 100 - 9, 0)}"
            values = self._about(self._draw.choice(mine[thread]))
            self.items.append(Item(thread, number, values))
        self.queries: dict[str, list[Query]] = {
            name: [
                (
                    self._about(
                        self._draw.choice(mine[thread or self._draw.choice(self.threads)])
                        if number % 2
                        else self._draw.randrange(_TOPICS)
                    ),
                    thread,
                )
                for number in range(queries)
            ]
            for name, thread in FILTERS.items()
        }
        self.truth = self._truth()

    def _about(self, topic: int) -> array[float]:
        start = self._draw.randrange(len(self._noise) - len(self._topics[topic]))
        noise = self._noise[start : start + len(self._topics[topic])]
        return array("f", [a + b for a, b in zip(self._topics[topic], noise, strict=True)])

    def _truth(self) -> dict[str, list[list[Key]]]:
        connection = cast("SqliteConnection", apsw.Connection(":memory:"))
        connection.enable_load_extension(True)
        connection.load_extension(sqlite_vec.loadable_path())
        connection.execute("CREATE TABLE v (thread TEXT, number INTEGER, embedding BLOB)")
        for item in self.items:
            connection.execute(
                "INSERT INTO v VALUES (:thread, :number, :embedding)",
                {
                    "thread": item.thread,
                    "number": item.number,
                    "embedding": item.values.tobytes(),
                },
            )
        sql = (
            "SELECT thread, number FROM v WHERE :thread IS NULL OR thread = :thread"
            f" ORDER BY vec_distance_cosine(embedding, :query) LIMIT {LIMIT}"
        )
        truth: dict[str, list[list[Key]]] = {}
        for name, queries in self.queries.items():
            truth[name] = [
                cast(
                    "list[Key]",
                    connection.execute(
                        sql, {"thread": thread, "query": array("f", query).tobytes()}
                    ).fetchall(),
                )
                for query, thread in queries
            ]
        connection.close()
        return truth


async def _measure(backend: Backend, url: str, world: World) -> list[dict[str, Any]]:
    def tell(what: str) -> None:
        print(f"{backend}, {len(world.items)} vectors: {what}", file=sys.stderr)

    tell("writing")
    store = await open_store(url)
    user = store.of(OWNER)
    per_second = await _fill(user, world)
    if backend == "postgres":
        await _analyze(url)
    rows: list[dict[str, Any]] = []

    async def add(variant: str, search: Search) -> None:
        tell(variant)
        for name, queries in world.queries.items():
            rows.append(
                {
                    "backend": backend,
                    "vectors": len(world.items),
                    "filter": name,
                    "variant": variant,
                    **await _search(search, queries, world.truth[name]),
                    **({"upserts_per_s": per_second} if variant == "store" else {}),
                }
            )

    await add("store", partial(_by_store, user))
    await _close_and_add_plain(backend, url, store, add)
    return rows


async def _fill(user: UserStore, world: World) -> float:
    for thread in world.threads:
        await user.threads.ensure(thread)
    items = [VectorItem(item.thread, "message", item.number, item.values) for item in world.items]
    began = time.perf_counter()
    for start in range(0, len(items), _BATCH):
        await user.vectors.upsert(MODEL, items[start : start + _BATCH])
    return len(items) / (time.perf_counter() - began)


async def _analyze(url: str) -> None:
    """Do at once what autovacuum does within a minute."""
    plain = await Psycopg.open(url)
    await plain.write([Statement("ANALYZE vectors", {})])
    await plain.close()


async def _search(
    search: Search, queries: Sequence[Query], truth: Sequence[Sequence[Key]]
) -> dict[str, float]:
    took: list[float] = []
    found = wanted = 0
    for (query, thread), true in zip(queries, truth, strict=True):
        began = time.perf_counter()
        keys = await search(query, thread)
        took.append((time.perf_counter() - began) * 1000)
        found += len({*keys} & {*true})
        wanted += len(true)
    took.sort()
    return {
        "p50_ms": median(took),
        "p95_ms": took[int(len(took) * 0.95)],
        "recall": found / wanted,
    }


async def _by_store(user: UserStore, query: Sequence[float], thread: str | None) -> list[Key]:
    hits = await user.vectors.nearest(MODEL, query, limit=LIMIT, thread_id=thread)
    return [(hit.thread_id, hit.source_id) for hit in hits]


# The plain drivers


class Capture:
    """A driver without a database: it records the search that the store would send."""

    def __init__(self, dialect: SqlDialect, function: str, dimensions: int) -> None:
        self.dialect: SqlDialect = dialect
        self.vector_function = function
        self.signals = Signals()
        self.search = Statement("", {})
        self._dimensions = dimensions

    async def read(self, sql: str, params: Mapping[str, Value], *, owner: str | None) -> list[Row]:
        if "similarity" in sql:
            self.search = Statement(sql, params)
            return []
        # After an empty result the store looks up the dimensions.
        return [(self._dimensions,)]

    async def batch(
        self,
        statements: Sequence[Statement],
        *,
        owner: str | None,
        locks: Sequence[str] = (),
        repeatable: bool = False,
        announce: Announce | None = None,
    ) -> list[list[Row]]:
        raise AssertionError("a search writes nothing")

    async def close(self) -> None:
        """Do nothing."""


class Statements:
    """The statements that the store sends for a search."""

    def __init__(self, dialect: SqlDialect, function: str, dimensions: int) -> None:
        self._capture = Capture(dialect, function, dimensions)
        self._user = SqlStore(self._capture).of(OWNER)

    async def of(self, query: Sequence[float], thread: str | None) -> Statement:
        """Return the statement of a search."""
        await self._user.vectors.nearest(MODEL, query, limit=LIMIT, thread_id=thread)
        return self._capture.search


Run = Callable[[str, Mapping[str, Value]], Awaitable[list[Any]]]


async def _close_and_add_plain(
    backend: Backend, url: str, store: Store, add: Callable[[str, Search], Awaitable[None]]
) -> None:
    """Measure the backend's plain driver, after closing the store."""
    await store.close()
    if backend == "postgres":
        plain = await Psycopg.open(url)
        await add("plain", partial(_by_plain, "postgres", "", plain.read))
        await add("pgvector alone", partial(_by_pgvector, plain.read))
        await plain.close()
    elif backend == "file":
        path = file_path(url)
        connection = open_connection(path, write=False, synchronous="full", busy_seconds=5)

        async def run(sql: str, params: Mapping[str, Value]) -> list[Any]:
            return await anyio.to_thread.run_sync(connection.execute(sql, params).fetchall)

        await add("plain", partial(_by_plain, "sqlite", "vec_distance_cosine", run))
        connection.close()
        _forget(path)
    else:
        hrana = await Hrana.open(url.replace("ws", "http", 1) if url.startswith("ws") else url)
        await add("plain", partial(_by_plain, "sqlite", "vector_distance_cos", hrana.read))
        await hrana.close()


def _forget(path: Path) -> None:
    for file in path.parent.glob(f"{path.name}*"):
        if file.is_file():
            file.unlink()


async def _by_plain(
    dialect: SqlDialect, function: str, run: Run, query: Sequence[float], thread: str | None
) -> list[Key]:
    statement = await Statements(dialect, function, len(query)).of(query, thread)
    return [_key(row) for row in await run(statement.sql, statement.params)]


def _key(row: Sequence[Any]) -> Key:
    # Hrana returns values as objects.
    thread, number = (_plain(row[place]) for place in (0, 2))
    return str(thread), int(number)


def _plain(value: Any) -> Any:
    return cast("dict[str, Any]", value)["value"] if isinstance(value, dict) else value


async def _by_pgvector(run: Run, query: Sequence[float], thread: str | None) -> list[Key]:
    size = len(query)
    # The number of the only embedder: the index is for it alone.
    sql = (
        "SELECT thread_id, source, source_id FROM vectors"
        " WHERE user_id = :user_id AND model = :model AND embedder = 1"
        f" AND dimensions = {size}"
        f" {'AND thread_id = :thread_id' if thread else ''}"
        f" ORDER BY embedding::vector({size}) <=> (:query::vector)::vector({size}) LIMIT {LIMIT}"
    )
    params = {"user_id": OWNER, "model": MODEL, "thread_id": thread, "query": str([*query])}
    return [_key(row) for row in await run(sql, params)]
