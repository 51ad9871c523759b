"""Vectors on SQLite: the distance function, the index, and constraints of the schema."""

from __future__ import annotations

import random
import re
from collections.abc import AsyncIterator
from pathlib import Path

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
