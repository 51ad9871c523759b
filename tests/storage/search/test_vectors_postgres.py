"""Vectors on Postgres: when the index is created and used, and row-level security."""

from __future__ import annotations

import math
import random
from collections.abc import AsyncIterator, Sequence
from urllib.parse import urlsplit

import anyio
import orjson
import psycopg
import pytest

from agent_runtime_storage import UserStore, VectorItem, open_store
from agent_runtime_storage.drivers.postgres.driver import PostgresDriver
from agent_runtime_storage.drivers.protocol import ConstraintFailed, Row, Statement, Value
from agent_runtime_storage.queries.migrations import apply_migrations
from agent_runtime_storage.store import SqlStore
from tests.services.postgres import Logins, Postgres

MODEL = "embedder/small"
SIZE = 32
INDEXES = (
    "SELECT indexdef FROM pg_indexes"
    " WHERE tablename = 'vectors' AND indexdef LIKE '%USING hnsw%' ORDER BY indexdef"
)
NEAREST = (
    "SELECT thread_id, source_id, similarity FROM nearest_vectors(:user_id::text, :model::text,"
    " :thread_id::text, :sources::jsonb, :query::vector, :limit::integer, :exact::integer)"
    " ORDER BY similarity DESC, thread_id, source_id"
)


@pytest.fixture
async def driver(postgres_url: str) -> AsyncIterator[PostgresDriver]:
    """An open database with the schema."""
    opened = await PostgresDriver.open(postgres_url)
    await apply_migrations(opened)
    yield opened
    await opened.close()


@pytest.fixture
def user(driver: PostgresDriver) -> UserStore:
    return SqlStore(driver).of("ann")


class World:
    """Texts on a few dozen topics; each thread is about some of them."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)
        self._topics = [self._vector() for _ in range(40)]

    def _vector(self) -> list[float]:
        return [self._draw.gauss(0, 1) for _ in range(SIZE)]

    def about(self, topic: int) -> list[float]:
        return [a + 0.6 * b for a, b in zip(self._topics[topic % 40], self._vector(), strict=True)]

    def item(self, number: int) -> VectorItem:
        thread = number % 10
        values = self.about(thread * 4 + self._draw.randrange(8))
        source = "observation" if number % 7 == 0 else "message"
        return VectorItem(f"t{thread}", source, number, values)

    def topic(self) -> int:
        return self._draw.randrange(40)


async def fill(user: UserStore, world: World, count: int) -> None:
    for thread in range(10):
        await user.threads.ensure(f"t{thread}")
    for start in range(0, count, 500):
        items = [world.item(number) for number in range(start, min(start + 500, count))]
        await user.vectors.upsert(MODEL, items)


async def create_index(driver: PostgresDriver, model: str = MODEL) -> None:
    sql = "SELECT index_vectors(id, dimensions) FROM embedders WHERE model = :model"
    await driver.batch([Statement(sql, {"model": model})], owner=None)


async def write_many(driver: PostgresDriver, user: UserStore, model: str, count: int) -> None:
    """Write many two-dimensional vectors past the store."""
    await user.threads.ensure("t1")
    await user.vectors.upsert(model, [VectorItem("t1", "message", 0, [1.0, 2.0])])
    insert = (
        "INSERT INTO vectors SELECT user_id, 't1', model, 'message', n, 0, id, 2,"
        " ('[' || n || ',1]')::vector FROM embedders, generate_series(1, :count::integer) AS n"
        " WHERE user_id = :user_id AND model = :model"
    )
    params = {"user_id": user.user_id, "model": model, "count": count - 1}
    await driver.batch([Statement(insert, params)], owner=user.user_id)


def arguments(
    query: Sequence[float],
    *,
    exact_rows: int,
    thread: str | None = None,
    sources: Sequence[str] | None = None,
    owner: str = "ann",
    limit: int = 10,
) -> dict[str, Value]:
    """Return the parameters of `NEAREST`; above `exact_rows` candidates it uses the index."""
    return {
        "user_id": owner,
        "model": MODEL,
        "thread_id": thread,
        "sources": None if sources is None else orjson.dumps(list(sources)).decode(),
        "query": str(list(query)),
        "limit": limit,
        "exact": exact_rows,
    }


async def nearest(
    driver: PostgresDriver,
    query: Sequence[float],
    *,
    exact_rows: int,
    thread: str | None = None,
    sources: Sequence[str] | None = None,
    owner: str = "ann",
    limit: int = 10,
) -> list[Row]:
    params = arguments(
        query, exact_rows=exact_rows, thread=thread, sources=sources, owner=owner, limit=limit
    )
    return await driver.read(NEAREST, params, owner=owner)


async def indexes(driver: PostgresDriver) -> list[str]:
    return [str(text) for (text,) in await driver.read(INDEXES, {}, owner=None)]


async def test_the_index_finds_nearly_all_that_an_exact_search_finds(
    driver: PostgresDriver, user: UserStore
) -> None:
    world = World(1)
    await fill(user, world, 4000)
    await create_index(driver)
    filters: list[tuple[str | None, list[str] | None]] = [
        (None, None),
        ("t3", None),
        (None, ["observation"]),
        ("t3", ["observation"]),
    ]
    for thread, sources in filters:
        matching = expected = 0
        for _ in range(15):
            query = world.about(world.topic())
            exact = await nearest(driver, query, exact_rows=10_000, thread=thread, sources=sources)
            by_index = await nearest(driver, query, exact_rows=0, thread=thread, sources=sources)
            assert len(by_index) == len(exact) == 10
            expected += len(exact)
            matching += len({row[:2] for row in exact} & {row[:2] for row in by_index})
        assert matching / expected >= 0.95, (thread, sources)


async def test_a_selective_filter_loses_no_hit(driver: PostgresDriver, user: UserStore) -> None:
    world = World(2)
    await fill(user, world, 2000)
    await create_index(driver)
    rare = [VectorItem("t5", "rare", number, world.about(number)) for number in range(3)]
    await user.vectors.upsert(MODEL, rare)

    hits = await nearest(driver, world.about(30), exact_rows=0, sources=["rare"])

    assert sorted(row[1] for row in hits) == [0, 1, 2]


@pytest.mark.parametrize(("exact_rows", "scans"), [(0, 1), (10_000, 0)])
async def test_large_searches_use_the_index_despite_row_level_security(
    driver: PostgresDriver, user: UserStore, exact_rows: int, scans: int
) -> None:
    world = World(3)
    await fill(user, world, 1000)
    await create_index(driver)
    sql = (
        f"WITH hits AS MATERIALIZED ({NEAREST}) SELECT (SELECT count(*) FROM hits),"
        " pg_stat_get_xact_numscans((SELECT c.oid FROM pg_class AS c"
        " JOIN pg_index AS i ON i.indexrelid = c.oid JOIN pg_am AS a ON a.oid = c.relam"
        " WHERE i.indrelid = 'vectors'::regclass AND a.amname = 'hnsw'))"
    )

    rows = await driver.read(sql, arguments(world.about(1), exact_rows=exact_rows), owner="ann")

    assert rows == [(10, scans)]


async def test_row_level_security_limits_a_search_for_another_owner(
    driver: PostgresDriver, user: UserStore
) -> None:
    stranger = SqlStore(driver).of("bob")
    world = World(4)
    await fill(user, world, 50)
    await fill(stranger, world, 60)
    await create_index(driver)

    for table in ("vectors", "embedders"):
        sql = f"SELECT DISTINCT user_id FROM {table}"
        assert await driver.read(sql, {}, owner="ann") == [("ann",)]
    for exact_rows in (0, 1000):
        params = arguments(world.about(1), exact_rows=exact_rows, owner="bob")
        hits = await driver.read(NEAREST, params, owner="ann")
        assert hits == []


async def test_the_index_is_created_when_an_owner_has_enough_vectors(
    driver: PostgresDriver, user: UserStore
) -> None:
    item = VectorItem("t1", "message", 0, [1.0, 2.0])
    stranger = SqlStore(driver).of("bob")
    # Vectors are counted for each model and each owner separately.
    await write_many(driver, stranger, "a", 15_000)
    await write_many(driver, user, "a", 10_000)
    await write_many(driver, user, "b", 20_000)
    await user.vectors.upsert("a", [item])
    await user.vectors.upsert("b", [item])
    assert await indexes(driver) == []

    await user.vectors.upsert("b", [VectorItem("t1", "observation", 1, [1.0, 2.0])])

    assert len(await indexes(driver)) == 1
    hits = await user.vectors.nearest("b", [1.0, 2.0], limit=2)
    assert [(hit.source, hit.source_id) for hit in hits] == [("message", 0), ("observation", 1)]


async def test_the_dimensions_decide_the_type_of_the_index(
    driver: PostgresDriver, user: UserStore
) -> None:
    await user.threads.ensure("t1")
    kinds: list[str] = []
    for size in (3, 2000, 2001, 4000, 4001):
        model = f"m@{size}"
        before = await indexes(driver)
        await user.vectors.upsert(model, [VectorItem("t1", "message", 1, [1.0] * size)])
        await create_index(driver, model)
        await create_index(driver, model)
        created = [text for text in await indexes(driver) if text not in before]
        kinds.append(" ".join("halfvec" if "halfvec" in text else "vector" for text in created))

    assert kinds == ["vector", "vector", "halfvec", "halfvec", ""]


async def test_a_model_can_change_its_dimensions_despite_an_index(
    driver: PostgresDriver, user: UserStore
) -> None:
    await user.threads.ensure("t1")
    for size in (3, 5, 3):
        await user.vectors.upsert(MODEL, [VectorItem("t1", "message", 1, [1.0] * size)])
        await create_index(driver)
        for exact_rows in (0, 10):
            assert len(await nearest(driver, [1.0] * size, exact_rows=exact_rows)) == 1
        await user.vectors.delete("t1")

    assert len(await indexes(driver)) == 2


async def test_long_vectors_are_ranked_in_full_precision(
    driver: PostgresDriver, user: UserStore
) -> None:
    await user.threads.ensure("t1")
    size = 2100
    angles = [number * 1e-4 for number in range(12)]
    # So similar that half precision cannot distinguish them.
    items = [
        VectorItem("t1", "message", n, [math.cos(a), math.sin(a), *[0.0] * (size - 2)])
        for n, a in enumerate(angles)
    ]
    await user.vectors.upsert(MODEL, items)
    await create_index(driver)

    for exact_rows in (0, 100):
        hits = await nearest(driver, items[0].values, exact_rows=exact_rows, limit=12)
        assert [row[1] for row in hits] == list(range(12))


async def test_concurrent_writers_create_one_index(
    postgres_url: str,
    driver: PostgresDriver,
    user: UserStore,
    caplog: pytest.LogCaptureFixture,
) -> None:
    await write_many(driver, user, MODEL, 20_001)
    stores = [await open_store(postgres_url) for _ in range(3)]

    async def write(user: UserStore, number: int) -> None:
        await user.threads.ensure(f"t{number}")
        item = VectorItem(f"t{number}", "message", number, [1.0, 2.0])
        await user.vectors.upsert(MODEL, [item])

    async with anyio.create_task_group() as group:
        for number in range(12):
            group.start_soon(write, stores[number % 3].of("ann"), number)

    for store in stores:
        await store.close()
    assert len(await indexes(driver)) == 1
    assert [embedder.vectors for embedder in await user.vectors.models()] == [20_012]
    assert caplog.records == []


async def test_a_login_without_createrole_has_an_index_too(postgres_logins: Logins) -> None:
    driver = await PostgresDriver.open(postgres_logins.plain)
    await apply_migrations(driver)
    user = SqlStore(driver).of("ann")
    await write_many(driver, user, MODEL, 20_000)

    await user.vectors.upsert(MODEL, [VectorItem("t1", "observation", 1, [1.0, 2.0])])

    hits = await user.vectors.nearest(MODEL, [1.0, 2.0], sources=["observation"])
    assert [hit.source_id for hit in hits] == [1]
    assert len(await indexes(driver)) == 1
    await driver.close()


async def test_vectors_are_written_if_the_index_cannot_be_created(
    postgres: Postgres,
    postgres_url: str,
    driver: PostgresDriver,
    user: UserStore,
    caplog: pytest.LogCaptureFixture,
) -> None:
    await write_many(driver, user, MODEL, 20_000)
    name = urlsplit(postgres_url).path.removeprefix("/")
    with psycopg.connect(postgres.url(name), autocommit=True) as connection:
        # Now it has the rights of a role that owns no table.
        connection.execute("GRANT CREATE ON SCHEMA agent_runtime TO agent_runtime_app")
        connection.execute("ALTER FUNCTION agent_runtime.index_vectors OWNER TO agent_runtime_app")

    await user.vectors.upsert(MODEL, [VectorItem("t1", "observation", 1, [1.0, 2.0])])

    hits = await user.vectors.nearest(MODEL, [1.0, 2.0], limit=2)
    assert [(hit.source, hit.source_id) for hit in hits] == [("message", 0), ("observation", 1)]
    assert await indexes(driver) == []
    [record] = caplog.records
    assert MODEL in record.getMessage()


async def test_the_schema_enforces_a_models_dimensions(
    driver: PostgresDriver, user: UserStore
) -> None:
    await user.threads.ensure("t1")
    await user.vectors.upsert(MODEL, [VectorItem("t1", "message", 1, [1.0, 2.0])])
    insert = (
        "INSERT INTO vectors SELECT"
        " 'ann', 't1', :model, 'message', 2, 0, id, :dimensions, '[1,2,3]'::vector FROM embedders"
    )
    for dimensions in (2, 3):
        statement = Statement(insert, {"model": MODEL, "dimensions": dimensions})
        with pytest.raises(ConstraintFailed):
            await driver.batch([statement], owner="ann")


async def test_hidden_threads_are_not_searched(driver: PostgresDriver, user: UserStore) -> None:
    world = World(6)
    await fill(user, world, 60)
    await create_index(driver)
    hide = "UPDATE threads SET hidden = 'import x' WHERE user_id = 'ann' AND id = 't1'"
    await driver.batch([Statement(hide, {}, rows=1)], owner="ann")

    for exact_rows in (0, 1000):
        hits = await nearest(driver, world.about(1), exact_rows=exact_rows, limit=100)
        assert {row[0] for row in hits} == {f"t{n}" for n in range(10) if n != 1}
    assert all(key.thread_id != "t1" for key in await user.vectors.missing("new"))
