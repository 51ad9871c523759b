"""Vectors on SQLite: the distance function, the index, and constraints of the schema."""

from __future__ import annotations

import random
import re
import struct
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import orjson
import pytest

from agent_runtime_storage import (
    DimensionMismatch,
    StoreError,
    UserStore,
    VectorHit,
    VectorItem,
    open_store,
)
from agent_runtime_storage.drivers.libsql.http import HttpDriver
from agent_runtime_storage.drivers.protocol import ConstraintFailed, Statement
from agent_runtime_storage.drivers.sqlite.driver import SqliteDriver
from agent_runtime_storage.queries.migrations import apply_migrations
from agent_runtime_storage.search import signs
from agent_runtime_storage.search import vectors as search
from agent_runtime_storage.sql.loader import load_queries
from agent_runtime_storage.store import SqlStore
from tests.services.fixtures import StartLibsql
from tests.services.libsql import LibsqlServer

MODEL = "embedder/small"


class WithoutVectorFunction(SqliteDriver):
    """A database without a function that compares vectors."""

    vector_function = None


@pytest.fixture
async def migrated(path: Path) -> AsyncIterator[SqliteDriver]:
    """An open file with the schema."""
    driver = await SqliteDriver.open(path)
    await apply_migrations(driver)
    yield driver
    await driver.close()


async def ranked(user: UserStore) -> list[VectorHit]:
    """Write 200 vectors and search them."""
    draw = random.Random(11)
    for thread in ("t1", "t2"):
        await user.threads.ensure(thread)
    vectors = [[draw.gauss(0, 1) for _ in range(96)] for _ in range(201)]
    items = [VectorItem(f"t{1 + n % 2}", "message", n, v) for n, v in enumerate(vectors[1:])]
    await user.vectors.upsert(MODEL, items)
    return await user.vectors.nearest(MODEL, vectors[0], limit=200)


async def test_servers_with_and_without_sqlite_vec_rank_as_a_file_does(
    path: Path, libsql_with_vec: LibsqlServer, start_libsql: StartLibsql
) -> None:
    plain = start_libsql()
    rankings: list[list[VectorHit]] = []
    functions: list[str | None] = []
    for url in (libsql_with_vec.http_url, plain.http_url):
        driver = await HttpDriver.open(url)
        functions.append(driver.vector_function)
        await driver.close()
    for url in (f"file:{path}", libsql_with_vec.http_url, plain.http_url):
        store = await open_store(url)
        rankings.append(await ranked(store.of("ann")))
        await store.close()

    assert functions == ["vec_distance_cosine", "vector_distance_cos"]
    for hits in rankings[1:]:
        assert [hit.source_id for hit in hits] == [hit.source_id for hit in rankings[0]]
        assert [hit.similarity for hit in hits] == pytest.approx(
            [hit.similarity for hit in rankings[0]], abs=1e-6
        )


async def test_a_database_without_a_distance_function_is_an_error(path: Path) -> None:
    driver = await WithoutVectorFunction.open(path)
    await apply_migrations(driver)
    user = SqlStore(driver).of("ann")
    await user.threads.ensure("t1")
    await user.vectors.upsert(MODEL, [VectorItem("t1", "message", 1, [1.0])])

    with pytest.raises(StoreError, match="cannot compare") as raised:
        await user.vectors.nearest(MODEL, [1.0])

    assert "sqlite-vec" in raised.value.cure
    await driver.close()


@pytest.mark.parametrize(
    "name",
    ["search_vectors_of_thread", "delete_vectors", "purge_vectors"],
)
async def test_queries_of_a_threads_vectors_use_the_index(
    migrated: SqliteDriver, name: str
) -> None:
    sql = load_queries("sqlite")[name]
    values = dict.fromkeys(re.findall(r":([a-z_]+)", sql))
    rows = await migrated.read(f"EXPLAIN QUERY PLAN {sql}", values)

    plan = [str(row[3]) for row in rows]
    assert any("vectors USING" in step and "thread_id=?" in step for step in plan), plan


async def test_the_schema_enforces_a_models_dimensions(
    migrated: SqliteDriver,
) -> None:
    user = SqlStore(migrated).of("ann")
    await user.threads.ensure("t1")
    await user.vectors.upsert(MODEL, [VectorItem("t1", "message", 1, [1.0, 2.0])])
    insert = (
        "INSERT INTO vectors"
        " VALUES ('ann', 't1', :model, 'message', 2, 0, :size, zeroblob(12), '', x'')"
    )
    for size in (2, 3):
        statement = Statement(insert, {"model": MODEL, "size": size})
        with pytest.raises(ConstraintFailed):
            await migrated.batch([statement])


async def test_hidden_threads_are_not_searched(migrated: SqliteDriver) -> None:
    user = SqlStore(migrated).of("ann")
    await ranked(user)
    hide = "UPDATE threads SET hidden = 'import x' WHERE user_id = 'ann' AND id = 't1'"
    await migrated.batch([Statement(hide, {}, rows=1)])

    hits = await user.vectors.nearest(MODEL, [1.0] * 96, limit=200)

    assert {hit.thread_id for hit in hits} == {"t2"}
    assert {key.thread_id for key in await user.vectors.missing("new", limit=200)} == {"t2"}


def _clustered(draw: random.Random, count: int) -> list[list[float]]:
    topics = [[draw.gauss(0, 1) for _ in range(128)] for _ in range(20)]
    return [[one + draw.gauss(0, 1) for one in draw.choice(topics)] for _ in range(count)]


async def _write_and_search(
    driver: SqliteDriver, monkeypatch: pytest.MonkeyPatch
) -> tuple[UserStore, list[float], list[VectorHit]]:
    """Write 600 vectors, fewer of which are candidates; return the exact hits of a query, too."""
    user = SqlStore(driver).of("ann")
    for thread in ("t1", "t2"):
        await user.threads.ensure(thread)
    query, *vectors = _clustered(random.Random(5), 601)
    items = [VectorItem(f"t{1 + n % 2}", "message", n, v) for n, v in enumerate(vectors)]
    await user.vectors.upsert(MODEL, items)
    exact = await user.vectors.nearest(MODEL, query, limit=600)
    assert len(exact) == 600
    monkeypatch.setattr(search, "_LEAST_CANDIDATES", 100)
    return user, query, exact


async def test_signs_choose_candidates_that_are_ranked_exactly(
    migrated: SqliteDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    user, query, exact = await _write_and_search(migrated, monkeypatch)

    hits = await user.vectors.nearest(MODEL, query, limit=5)

    assert hits == exact[:5]
    of_thread = [hit for hit in exact if hit.thread_id == "t2"]
    assert await user.vectors.nearest(MODEL, query, limit=5, thread_id="t2") == of_thread[:5]
    assert await user.vectors.nearest(MODEL, query, sources=["other"]) == []
    assert await user.vectors.nearest(MODEL, query, limit=2**63) == exact
    # Only candidates are compared: a wrong sign hides a vector, and a new vector has new signs.
    flip = (
        "UPDATE vectors SET signs = (SELECT signs FROM vectors WHERE source_id = :far)"
        " WHERE source_id = :near"
    )
    ids = {"near": exact[0].source_id, "far": exact[-1].source_id}
    await migrated.batch([Statement(flip, ids, rows=1)])
    assert await user.vectors.nearest(MODEL, query, limit=4) == exact[1:5]
    item = VectorItem(exact[0].thread_id, "message", exact[0].source_id, query)
    await user.vectors.upsert(MODEL, [item])
    [first] = await user.vectors.nearest(MODEL, query, limit=1)
    assert (first.source_id, first.similarity) == (exact[0].source_id, pytest.approx(1))


async def _in_blocks_and_waiting(driver: SqliteDriver) -> tuple[list[tuple[str, int, int]], int]:
    """Return the vectors in blocks, and how many wait; check that both together are all, once."""
    stored = {
        (str(thread), int(source_id), int(part)): bytes(signs)
        for thread, source_id, part, signs in await driver.read(
            "SELECT thread_id, source_id, part, signs FROM vectors", {}
        )
    }
    rows = await driver.read(
        "SELECT thread_id, keys, signs, first, last FROM vector_blocks ORDER BY thread_id, first",
        {},
    )
    held: dict[tuple[str, int, int], bytes] = {}
    ends: dict[str, int] = {}
    for thread, keys, signs_, first, last in rows:
        assert first > ends.get(thread, -1)
        ends[thread] = last
        for number, (source_id, part) in enumerate(struct.iter_unpack(">qi", keys)):
            assert first <= source_id <= last
            assert (thread, source_id, part) not in held
            held[thread, source_id, part] = signs_[16 * number : 16 * number + 16]
    waiting = {
        (str(thread), int(source_id), int(part)): bytes(signs_)
        for thread, source_id, part, signs_ in await driver.read(
            "SELECT thread_id, source_id, part, signs FROM waiting_vectors", {}
        )
    }
    assert not held.keys() & waiting.keys()
    assert held | waiting == stored
    return list(held), len(waiting)


async def test_each_vector_is_in_one_block_or_waits_whatever_is_written(
    migrated: SqliteDriver,
) -> None:
    user, draw = SqlStore(migrated).of("ann"), random.Random(3)
    vectors = _clustered(draw, 60)
    for thread in ("t1", "t2"):
        await user.threads.ensure(thread)
    largest, seen = 0, 0
    for step in range(12):
        thread = draw.choice(("t1", "t1", "t2"))
        first = draw.choice((seen, seen, seen, draw.randrange(seen + 1)))
        items = [
            VectorItem(thread, "message", first + n // 3, draw.choice(vectors), n % 3)
            for n in range(draw.choice((6, 90, 300)))
        ]
        await user.vectors.upsert(MODEL, items)
        seen = max(seen, first + len(items) // 3)
        if step % 4 == 3:
            gone = [draw.randrange(seen) for _ in range(3)]
            await user.vectors.delete(thread, source="message", source_ids=gone)
        held, _ = await _in_blocks_and_waiting(migrated)
        largest = max(largest, len(held))
        hits = await user.vectors.nearest(MODEL, vectors[0], limit=10_000, thread_id=thread)
        [(number,)] = await migrated.read(
            "SELECT count(*) FROM vectors WHERE thread_id = :thread", {"thread": thread}
        )
        assert len(hits) == number
    assert largest > 300


async def test_blocks_of_a_deleted_thread_are_gone(migrated: SqliteDriver) -> None:
    user = SqlStore(migrated).of("ann")
    await user.threads.ensure("t1")
    items = [
        VectorItem("t1", "message", n, v) for n, v in enumerate(_clustered(random.Random(4), 70))
    ]
    await user.vectors.upsert(MODEL, items)
    assert (await _in_blocks_and_waiting(migrated))[1] == 0

    await user.upkeep.delete_thread("t1")

    assert await _in_blocks_and_waiting(migrated) == ([], 0)


@pytest.mark.parametrize("numpy", [True, False])
def test_signs_in_blocks_rank_as_one_by_one(numpy: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not numpy:
        monkeypatch.setitem(sys.modules, "numpy", None)
    draw = random.Random(6)
    query = draw.randbytes(16)
    rows: list[tuple[object, ...]] = []
    distances: dict[tuple[str, int], int] = {}
    for block in range(9):
        held = [draw.randbytes(16) for _ in range(draw.randrange(1, 90))]
        keys = b"".join(struct.pack(">qi", 100 * block + n, 0) for n in range(len(held)))
        rows.append((f"t{block % 2}", "message", keys, b"".join(held), None))
        for n, one in enumerate(held):
            distances[f"t{block % 2}", 100 * block + n] = _differing(one, query)
    for n in range(30):
        one = draw.randbytes(16)
        distances["t0", 5000 + n] = _differing(one, query)
        rows.append(("t0", "message", 5000 + n, 0, distances["t0", 5000 + n]))
    rows.append(("t1", "message", 9000, 2, None))
    wanted = sorted(distances.values())

    for most in (1, 20, 100):
        found = orjson.loads(signs.Candidates(rows).likeliest(query, most))

        assert ["t1", "message", 2, [9000]] in found
        likely = {(t, n) for t, _, part, ids in found for n in ids if part == 0}
        limit = wanted[most - 1]
        nearer = {key for key, distance in distances.items() if distance < limit}
        assert nearer <= likely <= {key for key, distance in distances.items() if distance <= limit}
        assert most <= len(likely) <= 2 * most


def test_the_least_numbers_come_with_their_equals_unless_they_are_many() -> None:
    assert signs.least([5, 2, 9, 2, 7], 1) == [1, 3]
    assert signs.least([5, 2, 9, 2, 7], 3) == [0, 1, 3]
    assert signs.least([1, 4, 4, 4, 4, 4, 4], 2) == [0, 1]
    assert signs.least([1, 2], 9) == [0, 1]


def _differing(one: bytes, other: bytes) -> int:
    return (int.from_bytes(one) ^ int.from_bytes(other)).bit_count()


async def test_vectors_without_signs_are_found_and_get_them(
    migrated: SqliteDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    user, query, exact = await _write_and_search(migrated, monkeypatch)
    [written] = await migrated.read("SELECT group_concat(hex(signs)) FROM vectors", {})
    await migrated.batch([Statement("UPDATE vectors SET signs = NULL", {})])

    assert await user.vectors.nearest(MODEL, query, limit=5) == exact[:5]
    item = VectorItem("t1", "other", 1, query)
    await user.vectors.upsert(MODEL, [item])

    [filled] = await migrated.read(
        "SELECT group_concat(hex(signs)) FROM vectors WHERE source = 'message'", {}
    )
    assert filled == written


@pytest.mark.parametrize("thread_id", [None, "t1"])
async def test_a_query_with_signs_of_another_length_is_a_mismatch(
    migrated: SqliteDriver, thread_id: str | None
) -> None:
    user = SqlStore(migrated).of("ann")
    await user.threads.ensure("t1")
    await user.vectors.upsert(MODEL, [VectorItem("t1", "message", 1, [1.0] * 256)])

    with pytest.raises(DimensionMismatch, match="has 128"):
        await user.vectors.nearest(MODEL, [1.0] * 128, thread_id=thread_id)


@pytest.mark.parametrize("dimensions", [signs.LEAST_SIGNS - 8, signs.LEAST_SIGNS + 1])
async def test_vectors_that_signs_do_not_tell_apart_are_compared_exactly(
    migrated: SqliteDriver, monkeypatch: pytest.MonkeyPatch, dimensions: int
) -> None:
    monkeypatch.setattr(search, "_LEAST_CANDIDATES", 1)
    monkeypatch.setattr(search, "_OVERSAMPLING", 1)
    user = SqlStore(migrated).of("ann")
    await user.threads.ensure("t1")
    # All have the same signs.
    near = [[1.0] * (dimensions - 1) + [1.0 + n] for n in range(9)]
    items = [VectorItem("t1", "message", n, values) for n, values in enumerate(near)]
    await user.vectors.upsert(MODEL, items)

    hits = await user.vectors.nearest(MODEL, near[7], limit=3)

    assert [hit.source_id for hit in hits] == [7, 8, 6]
    assert await migrated.read("SELECT count(*) FROM vectors WHERE signs IS NULL", {}) == [(0,)]
