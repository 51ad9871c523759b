"""Vectors on SQLite: the distance function, the index, and constraints of the schema."""

from __future__ import annotations

import random
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent_runtime_storage import StoreError, UserStore, VectorHit, VectorItem, open_store
from agent_runtime_storage.drivers.libsql.http import HttpDriver
from agent_runtime_storage.drivers.protocol import ConstraintFailed, Statement
from agent_runtime_storage.drivers.sqlite.driver import SqliteDriver
from agent_runtime_storage.queries.migrations import apply_migrations
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


@pytest.mark.parametrize("name", ["search_vectors_of_thread", "delete_vectors", "purge_vectors"])
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
        "INSERT INTO vectors VALUES ('ann', 't1', :model, 'message', 2, 0, :size, zeroblob(12), '')"
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
