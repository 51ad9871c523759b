"""The drivers for libSQL on a real server: values, row counts, atomicity, concurrency."""

from __future__ import annotations

import re
import struct
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from random import Random

import anyio
import httpx
import pytest

from agent_runtime_storage import StoreError, StoreReadOnly, StoreUnavailable, open_store
from agent_runtime_storage.drivers.libsql.hrana import plan_batch
from agent_runtime_storage.drivers.libsql.remote import RemoteDriver
from agent_runtime_storage.drivers.protocol import (
    BatchMissed,
    ConstraintFailed,
    Driver,
    Statement,
    Value,
)
from agent_runtime_storage.drivers.sqlite.driver import SqliteDriver
from agent_runtime_storage.queries.migrations import apply_migrations
from agent_runtime_storage.sql.loader import load_migrations, load_queries
from tests.services.fixtures import StartLibsql
from tests.services.libsql import Libsql
from tests.storage.drivers.libsql_drivers import KINDS, Kind, connected, ids, url_of
from tests.storage.helpers import CREATE_A_THREAD
from tests.storage.items import CREATE, insert
from tests.storage.sql_blocks import whole_queries

SCHEMA = (
    CREATE,
    "CREATE TABLE parts (id INTEGER PRIMARY KEY, item INTEGER REFERENCES items (id) "
    "ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED) STRICT",
    "CREATE TABLE seen (id INTEGER) STRICT",
    "CREATE TRIGGER see AFTER UPDATE ON items BEGIN INSERT INTO seen VALUES (new.id), (0); END",
)
FILLED = (
    "INSERT INTO items VALUES (1, x'01'), (2, x'02'), (3, x'03')",
    "INSERT INTO parts VALUES (10, 1), (11, 1), (12, 2)",
)


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    """The kind of driver."""
    return request.param


@pytest.fixture
async def remote(kind: Kind, libsql: Libsql) -> AsyncIterator[RemoteDriver]:
    """A driver on a server with a few empty tables."""
    async with connected(kind, libsql.http_url) as driver:
        await driver.batch([Statement(sql, {}) for sql in SCHEMA])
        yield driver


def some_floats() -> list[float]:
    random = Random(7)
    patterns = (struct.unpack("<d", random.randbytes(8))[0] for _ in range(200))
    finite = [number for number in patterns if abs(number) < float("inf")]
    return [*finite, 0.0, 0.1, 5.0, 1e16, 2.0**63, 1795268113.583, 5e-324, sys.float_info.max]


async def test_values_are_read_as_they_were_written(remote: RemoteDriver) -> None:
    values: list[Value] = [None, 0, -1, 2**53 + 1, 2**63 - 1, -(2**63), "", "é\U0001f600", "a\0b"]
    values += ["'; DROP TABLE items; --", ":id", b"", b"\0", b"\xff\xfe", bytes(range(256))]
    values += some_floats()
    names = [f"v{place}" for place in range(len(values))]
    sql = "SELECT " + ", ".join(f":{name}" for name in names)

    [row] = await remote.read(sql, dict(zip(names, values, strict=True)))

    assert list(map(repr, row)) == list(map(repr, values))
    [[[minus, yes, nan]]] = await remote.batch(
        [Statement("SELECT :a, :b, :c", {"a": -0.0, "b": True, "c": float("nan")})]
    )
    assert (repr(minus), repr(yes), nan) == ("-0.0", "1", None)


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, "\ud800", float("inf")])
async def test_values_that_cannot_be_stored_are_refused(remote: RemoteDriver, value: Value) -> None:
    with pytest.raises(StoreError, match="cannot be stored"):
        await remote.batch([insert(1), insert(2, value)])
    with pytest.raises(StoreError, match="cannot be stored"):
        await remote.read("SELECT :a", {"a": value})

    assert await ids(remote) == []


async def test_an_infinite_result_is_an_error_and_not_null(remote: RemoteDriver) -> None:
    with pytest.raises(StoreError, match="cannot carry"):
        await remote.read("SELECT 9e999", {})


UPSERT = "INSERT INTO items VALUES (:id, x'') ON CONFLICT (id) DO "
COUNTED: list[tuple[str, dict[str, Value], int]] = [
    ("UPDATE items SET body = x'09'", {}, 3),
    ("UPDATE items SET body = x'09' WHERE id = :id", {"id": 2}, 1),
    ("UPDATE items SET body = x'09' WHERE id = :id", {"id": 9}, 0),
    ("UPDATE items SET body = x'09' WHERE id > 1 RETURNING id", {}, 2),
    ("UPDATE items SET body = x'09' WHERE id > 9 RETURNING id", {}, 0),
    (f"{UPSERT}NOTHING", {"id": 1}, 0),
    (f"{UPSERT}NOTHING", {"id": 9}, 1),
    (f"{UPSERT}NOTHING RETURNING id", {"id": 1}, 0),
    (f"{UPSERT}UPDATE SET body = x'08'", {"id": 1}, 1),
    ("INSERT INTO seen SELECT id FROM items WHERE id > 9", {}, 0),
    ("INSERT INTO seen SELECT id FROM items", {}, 3),
    ("DELETE FROM items WHERE id = 1", {}, 1),
    ("DELETE FROM parts", {}, 3),
    ("delete from parts where item = 1 returning id", {}, 2),
    ("WITH few AS (SELECT 1 AS id) UPDATE items SET body = x'' WHERE id IN few", {}, 1),
    ("WITH few (id) AS (VALUES (1), (2)) DELETE FROM items WHERE id IN few RETURNING id", {}, 2),
    ("SELECT id FROM items", {}, 3),
    ("-- UPDATE\n SELECT id, id FROM items WHERE body <> 'DELETE' ORDER BY id LIMIT 2", {}, 2),
    ("SELECT id FROM items WHERE id = :id", {"id": 9}, 0),
    ("WITH few (id) AS (SELECT 1) SELECT * FROM few", {}, 1),
    ("VALUES (1), (2)", {}, 2),
]


@pytest.mark.parametrize(("sql", "params", "rows"), COUNTED)
async def test_rows_are_counted_as_on_a_file(
    remote: RemoteDriver, driver: SqliteDriver, sql: str, params: dict[str, Value], rows: int
) -> None:
    await driver.batch([Statement(sql_text, {}) for sql_text in SCHEMA[1:]])
    filled = [Statement(sql_text, {}) for sql_text in FILLED]
    # The count of this statement must not be taken for the next one's.
    before = Statement("INSERT INTO seen VALUES (5), (5), (5), (5), (5)", {}, rows=5)

    async def outcome(target: Driver, expected: int) -> object:
        batch = [*filled, before, Statement(sql, params, expected, "label")]
        undo = Statement("UPDATE items SET body = NULL", {})
        try:
            await target.batch([*batch, undo], owner=None)
        except BatchMissed as error:
            return error.label, error.index
        except ConstraintFailed:
            return (
                (await target.read(sql, params, owner=None)) if sql.startswith("SELECT") else "met"
            )
        return "not undone"

    for expected in (rows, rows + 1, rows + 5):
        remote_outcome = await outcome(remote, expected)
        assert remote_outcome == await outcome(driver, expected)
        assert (remote_outcome == ("label", 3)) == (expected != rows)
    assert await ids(remote) == []


async def test_the_rows_of_each_statement_are_returned(remote: RemoteDriver) -> None:
    rows = await remote.batch(
        [
            insert(1, b"one"),
            Statement("SELECT id, body FROM items", {}, rows=1),
            Statement("DELETE FROM items RETURNING body", {}, rows=1),
            Statement("SELECT id FROM items", {}),
        ]
    )

    assert rows == [[], [(1, b"one")], [(b"one",)], []]
    assert await remote.batch([]) == []


FAILING: list[tuple[Sequence[Statement], type[Exception], str]] = [
    ([Statement("UPDATE items SET body = x'' WHERE id = 9", {}, 1, "gone")], BatchMissed, "gone"),
    ([insert(1)], ConstraintFailed, "UNIQUE"),
    ([insert(8, None)], ConstraintFailed, "NOT NULL"),
    ([Statement("INSERT INTO parts VALUES (1, 99)", {})], ConstraintFailed, "FOREIGN KEY"),
    ([Statement("SELECT * FROM absent", {})], StoreError, "no such table"),
    ([Statement("SELECT nonsense(", {})], StoreError, "refused"),
]


@pytest.mark.parametrize(("failing", "error", "match"), FAILING)
async def test_a_failed_batch_leaves_nothing(
    remote: RemoteDriver, failing: Sequence[Statement], error: type[Exception], match: str
) -> None:
    await remote.batch([insert(1)])

    for _ in range(2):
        with pytest.raises(error, match=match):
            await remote.batch([insert(2), *failing, insert(3)])
    await remote.batch([insert(4)])

    assert await ids(remote) == [1, 4]


async def test_a_failed_batch_does_not_affect_its_neighbours(remote: RemoteDriver) -> None:
    await remote.batch([insert(0)])

    async def fail(number: int) -> None:
        with pytest.raises((BatchMissed, ConstraintFailed)):
            await remote.batch([insert(1000 + number), insert(0)])

    async with anyio.create_task_group() as group:
        for number in range(1, 41):
            group.start_soon(remote.batch, [insert(number)])
            group.start_soon(fail, number)

    assert await ids(remote) == list(range(41))


async def test_batches_of_many_tasks_are_all_written(remote: RemoteDriver) -> None:
    counted: list[int] = []

    async def write(first: int) -> None:
        for number in range(first, first + 10):
            await remote.batch([insert(number)])
            [[count]] = await remote.read(
                "SELECT count(*) FROM items WHERE id <= :id", {"id": number}
            )
            counted.append(count)

    async with anyio.create_task_group() as group:
        for task in range(64):
            group.start_soon(write, task * 10)

    assert await ids(remote) == list(range(640))
    assert len(counted) == 640 and all(counted)


async def test_large_batches_and_large_values(remote: RemoteDriver) -> None:
    bodies = {number: Random(number).randbytes(10**6) for number in range(3)}
    await remote.batch([insert(number, body) for number, body in bodies.items()])
    await remote.batch([insert(number) for number in range(100, 600)])

    for number, body in bodies.items():
        assert await remote.read("SELECT body FROM items WHERE id = :id", {"id": number}) == [
            (body,)
        ]
    assert len(await ids(remote)) == 503
    with pytest.raises(StoreError, match="larger than the server takes"):
        await remote.batch([insert(700), insert(701, bytes(6 * 10**6))])
    assert len(await ids(remote)) == 503


async def test_a_large_answer_is_read_or_refused(kind: Kind, remote: RemoteDriver) -> None:
    sql = "SELECT zeroblob(1000000) FROM generate_series(1, 20)"

    if kind == "http":
        assert await remote.read(sql, {}) == [(bytes(10**6),)] * 20
    else:
        with pytest.raises(StoreError, match="answer is larger"):
            await remote.read(sql, {})
    with pytest.raises(StoreError, match="answer is larger"):
        await remote.batch([insert(1), Statement(sql, {})])
    assert await ids(remote) == []


async def test_a_batch_too_large_for_a_websocket_does_not_break_it(libsql: Libsql) -> None:
    async with connected("ws", libsql.http_url) as driver:
        await driver.batch([Statement(CREATE, {})])

        await driver.batch([insert(number, bytes(4 * 10**6)) for number in range(2)])
        with pytest.raises(StoreError, match="over a WebSocket"):
            await driver.batch([insert(number, bytes(4 * 10**6)) for number in range(10, 14)])

        assert await ids(driver) == [0, 1]


async def test_a_read_cannot_write(remote: RemoteDriver) -> None:
    await remote.batch([insert(1)])

    for sql in ("DELETE FROM items", "WITH n AS (SELECT 1) DELETE FROM items", "DROP TABLE items"):
        with pytest.raises(StoreReadOnly):
            await remote.read(sql, {})

    assert await ids(remote) == [1]


async def test_another_writers_transaction_is_waited_for(
    remote: RemoteDriver, libsql: Libsql
) -> None:
    async with (
        httpx.AsyncClient(base_url=libsql.http_url) as client,
        anyio.create_task_group() as g,
    ):
        hold = ["BEGIN IMMEDIATE", "INSERT INTO items VALUES (1, x'')"]
        requests = [{"type": "execute", "stmt": {"sql": sql}} for sql in hold]
        answer = (await client.post("/v2/pipeline", json={"requests": requests})).json()
        g.start_soon(remote.batch, [insert(2)])
        assert await ids(remote) == []
        commit = {"type": "execute", "stmt": {"sql": "COMMIT"}}
        await client.post("/v2/pipeline", json={"baton": answer["baton"], "requests": [commit]})

    assert await ids(remote) == [1, 2]


async def test_concurrent_drivers_lose_no_update(remote: RemoteDriver, libsql: Libsql) -> None:
    async def count_up(driver: RemoteDriver) -> None:
        for _ in range(25):
            await driver.batch([Statement("UPDATE seen SET id = id + 1", {}, rows=1)])

    await remote.batch([Statement("INSERT INTO seen VALUES (0)", {})])
    async with (
        connected("http", libsql.http_url) as first,
        connected("ws", libsql.http_url) as second,
        anyio.create_task_group() as group,
    ):
        for driver in (remote, first, second, remote):
            group.start_soon(count_up, driver)

    assert await remote.read("SELECT id FROM seen", {}) == [(100,)]


@pytest.mark.parametrize(
    ("vec", "function"), [(False, "vector_distance_cos"), (True, "vec_distance_cosine")]
)
async def test_features_of_the_server_are_detected(
    kind: Kind, start_libsql: StartLibsql, vec: bool, function: str
) -> None:
    async with connected(kind, start_libsql(vec=vec).http_url) as driver:
        assert driver.vector_function == driver.features.vector_function == function
        assert driver.features.fts5
        vector, other = struct.pack("<2f", 1, 0), struct.pack("<2f", 0, 1)
        [[distance]] = await driver.read(f"SELECT {function}(:a, :b)", {"a": vector, "b": other})
        assert distance == pytest.approx(1)


async def test_foreign_keys_are_checked_if_the_server_does_not(libsql: Libsql) -> None:
    libsql.execute(*SCHEMA)
    off = {"type": "execute", "stmt": {"sql": "PRAGMA foreign_keys = OFF"}}
    orphan = [Statement("INSERT INTO parts VALUES (1, 99)", {})]

    async def commits(foreign_keys: bool | None) -> bool:
        plan = plan_batch(orphan, foreign_keys=foreign_keys)
        batch = {"type": "batch", "batch": {"steps": plan.steps}}
        async with httpx.AsyncClient(base_url=libsql.http_url) as client:
            requests = [off, batch, {"type": "close"}]
            answer = await client.post("/v3/pipeline", json={"requests": requests})
        result = answer.json()["results"][1]["response"]["result"]
        return result["step_results"][plan.commit] is not None

    assert not await commits(True)
    assert await commits(None)


async def test_only_a_purge_skips_the_check_of_foreign_keys(
    remote: RemoteDriver,
) -> None:
    await remote.batch([Statement(sql, {}) for sql in FILLED])
    delete = Statement("DELETE FROM items WHERE id = :id", {"id": 1}, rows=1)

    async def break_rule(number: int) -> None:
        with pytest.raises(ConstraintFailed, match="FOREIGN KEY"):
            await remote.batch([Statement("INSERT INTO parts VALUES (:id, 99)", {"id": number})])

    # Concurrently, so that they share requests.
    async with anyio.create_task_group() as group:
        for number in range(100, 120):
            group.start_soon(break_rule, number)

        async def purge() -> None:
            await remote.purge([delete], owner=None)
            with pytest.raises(BatchMissed):
                await remote.purge([delete], owner=None)

        group.start_soon(purge)
        for number in range(200, 220):
            group.start_soon(break_rule, number)

    # Child rows are neither an error nor deleted too.
    assert await remote.read("SELECT id FROM parts WHERE item = 1 ORDER BY id", {}) == [
        (10,),
        (11,),
    ]
    assert await ids(remote) == [2, 3]


async def test_closing_completes_accepted_batches_and_can_be_repeated(
    kind: Kind, libsql: Libsql
) -> None:
    async with connected(kind, libsql.http_url) as driver:
        await driver.batch([Statement(CREATE, {})])
        async with anyio.create_task_group() as group:
            for number in range(30):
                group.start_soon(driver.batch, [insert(number)])
            await anyio.wait_all_tasks_blocked()
            group.start_soon(driver.close)

        await driver.close()
        for attempt in (driver.batch([insert(99)]), driver.read("SELECT 1", {})):
            with pytest.raises(StoreUnavailable, match="closed"):
                await attempt

    async with connected(kind, libsql.http_url) as again:
        assert await ids(again) == list(range(30))


async def test_every_query_runs_on_the_server(remote: RemoteDriver, libsql: Libsql) -> None:
    libsql.wipe()
    await apply_migrations(remote)
    queries = whole_queries("sqlite")

    refused: list[str] = []
    for name, sql in queries.items():
        values = dict.fromkeys(re.findall(r"(?<!:):([a-z_][a-z_0-9]*)", sql))
        try:
            assert await remote.read(f"EXPLAIN {sql}", values), name
        except StoreError as error:
            refused.append(f"{name}: {error}")

    # The server lacks sqlite-vec's functions, has libSQL's own distance, and does without signs.
    assert [message for message in refused if "no such function: vec_" not in message] == []
    assert len(queries) > 40


async def test_processes_that_start_concurrently_all_open_the_store(
    kind: Kind, libsql: Libsql
) -> None:
    url = url_of(kind, libsql.http_url)
    async with anyio.create_task_group() as group:
        for number in range(4):
            group.start_soon(
                anyio.run_process, [sys.executable, "-c", CREATE_A_THREAD, url, f"t{number}"]
            )

    store = await open_store(url)
    threads = await store.of("ann").threads.list()
    await store.close()
    assert sorted(thread.id for thread in threads) == ["t0", "t1", "t2", "t3"]
    async with connected(kind, libsql.http_url) as driver:
        applied = await driver.read(load_queries("sqlite")["schema_applied"], {})
    assert [row[0] for row in applied] == [
        migration.version for migration in load_migrations("sqlite")
    ]


async def test_the_path_of_a_url_is_used(tmp_path: Path, start_libsql: StartLibsql) -> None:
    server = start_libsql()

    with pytest.raises(StoreUnavailable, match="no libSQL server"):
        async with connected("http", f"{server.http_url}/nothing/here"):
            pass
