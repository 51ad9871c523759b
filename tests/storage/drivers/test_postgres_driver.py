"""The Postgres driver: row counts, values, locks, errors and cancellation."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio
import pytest
from psycopg import sql

from agent_runtime_storage import StoreBusy, StoreError, StoreReadOnly, StoreUnavailable
from agent_runtime_storage.drivers.postgres.driver import PostgresDriver
from agent_runtime_storage.drivers.protocol import BatchMissed, ConstraintFailed, Statement
from tests.storage.drivers.postgres_drivers import (
    DEADLINE,
    IDS,
    ids,
    insert,
    open_items,
    other_client,
    touch,
    until_waiting,
)


@pytest.fixture
def url(empty_postgres_url: str) -> str:
    return empty_postgres_url


@pytest.fixture
async def driver(url: str) -> AsyncIterator[PostgresDriver]:
    async with open_items(url) as opened:
        yield opened


async def test_rows_are_counted_for_queries_changes_and_returning(driver: PostgresDriver) -> None:
    await driver.batch([insert(1), insert(2)], owner=None)

    rows = await driver.batch(
        [
            Statement("UPDATE items SET body = '\\x01'", {}, rows=2),
            Statement(IDS, {}, rows=2),
            Statement("SELECT id FROM items WHERE id > 5", {}, rows=0),
            Statement("DELETE FROM items WHERE id = 1 RETURNING id, body", {}, rows=1),
            Statement("DELETE FROM items WHERE id = 1 RETURNING id", {}, rows=0),
            Statement("UPDATE items SET body = '' WHERE id = 1", {}, rows=0),
            Statement("UPDATE items SET body = body", {}),
            Statement("WITH n AS (SELECT 7 AS id) SELECT id FROM n", {}),
        ],
        owner=None,
    )

    assert rows == [[], [(1,), (2,)], [], [(1, b"\x01")], [], [], [], [(7,)]]


async def test_a_missed_row_count_names_its_statement_and_writes_nothing(
    driver: PostgresDriver,
) -> None:
    for missing in (
        Statement("UPDATE items SET body = '' WHERE id = -1", {}, 1, "gone"),
        Statement("SELECT 1 FROM items WHERE id = -1", {}, 1, "gone"),
        Statement("DELETE FROM items RETURNING id", {}, 5, "gone"),
        Statement("SELECT id FROM items", {}, 0, "gone"),
    ):
        with pytest.raises(BatchMissed, match="gone") as raised:
            await driver.batch([insert(1), missing, insert(2)], owner=None)
        assert raised.value.index == 1

    assert await ids(driver) == []


async def test_failed_batches_do_not_affect_their_neighbours(driver: PostgresDriver) -> None:
    async def break_rule(number: int) -> None:
        with pytest.raises(ConstraintFailed):
            await driver.batch([insert(1000 + number), insert(3000, None)], owner=None)

    async def misspell(number: int) -> None:
        with pytest.raises(StoreError, match="absent"):
            absent = Statement("SELECT * FROM absent", {})
            await driver.batch([insert(2000 + number), absent], owner=None)

    async def write(number: int) -> None:
        await driver.batch([insert(number)], owner=None)

    async with anyio.create_task_group() as group:
        for number in range(30):
            group.start_soon(write, number)
            group.start_soon(break_rule, number)
            group.start_soon(misspell, number)

    assert await ids(driver) == list(range(30))


async def test_a_violated_constraint_is_reported_without_the_rows_values(
    driver: PostgresDriver,
) -> None:
    await driver.batch([insert(4711)], owner=None)

    with pytest.raises(ConstraintFailed, match="items_pkey") as raised:
        await driver.batch([insert(4711)], owner=None)

    assert "4711" not in str(raised.value)
    assert raised.value.__cause__ is None and raised.value.__suppress_context__


async def test_values_are_read_as_from_sqlite(driver: PostgresDriver) -> None:
    values = {
        "text": "ä % \\ 'q' \"z\" 🦉",
        "whole": 2**63 - 1,
        "real": 0.1,
        "bytes": bytes(range(256)),
        "none": None,
    }
    [row] = await driver.read(
        "SELECT :text::text, :whole, :real, :bytes, :none::text, true, false,"
        """ '{"b": 1, "a": 1.50}'::json, '{"b":1}'::jsonb, (1 = 1)::int4""",
        values,
        owner=None,
    )

    assert row[:5] == tuple(values.values())
    assert row[5:] == (1, 0, '{"b": 1, "a": 1.50}', '{"b": 1}', 1)
    assert [type(value) for value in row[:7]] == [str, int, float, bytes, type(None), int, int]


async def test_many_rows_do_not_block_the_event_loop(driver: PostgresDriver) -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await anyio.lowlevel.checkpoint()
            turns += 1

    async with anyio.create_task_group() as group:
        group.start_soon(count)
        before = turns
        rows = await driver.read("SELECT generate_series(1, 50000)", {}, owner=None)
        assert turns - before >= 49
        assert [row[0] for row in rows] == list(range(1, 50001))
        group.cancel_scope.cancel()


async def test_values_that_postgres_cannot_store_are_refused_without_harm(
    driver: PostgresDriver,
) -> None:
    for value in ("a\0b", "\ud800", 2**70):
        with pytest.raises(StoreError, match="cannot be stored"):
            await driver.read("SELECT :value::text", {"value": value}, owner=None)

    assert await driver.read("SELECT 1", {}, owner=None) == [(1,)]


async def test_a_read_cannot_write(driver: PostgresDriver) -> None:
    with pytest.raises(StoreReadOnly):
        await driver.read("DELETE FROM items RETURNING 1", {}, owner=None)


async def test_a_connection_to_a_server_that_is_no_primary_any_more_is_given_up(url: str) -> None:
    async with open_items(url) as driver, other_client(url) as other:
        [(pid,)] = await driver.read("SELECT pg_backend_pid()", {}, owner=None)
        # New connections are read-only, as those to a standby are.
        database = sql.Identifier(url.rpartition("/")[2].partition("?")[0])
        switch = sql.SQL("ALTER DATABASE {} SET default_transaction_read_only = {}")
        await other.run(switch.format(database, sql.Literal("on")))
        await other.run("SELECT pg_terminate_backend(%s, 5000)", pid)
        await other.end()
        assert await ids(driver) == []

        async with anyio.create_task_group() as group:
            group.start_soon(lambda: driver.batch([insert(1)], owner=None))
            await anyio.sleep(0.1)
            await other.run("SET transaction_read_only = off")
            await other.run(switch.format(database, sql.Literal("off")))
            await other.end()

        assert await ids(driver) == [1]


async def test_a_database_that_was_never_writable_is_refused_at_once(
    driver: PostgresDriver, url: str
) -> None:
    options = "options=-c%20default_transaction_read_only%3Don"
    reader = await PostgresDriver.open(f"{url}{'&' if '?' in url else '?'}{options}", patience=600)
    with anyio.fail_after(DEADLINE), pytest.raises(StoreReadOnly):
        await reader.batch([insert(1)], owner=None)
    await reader.close()
    assert await ids(driver) == []


async def test_prepared_statements_are_bounded_and_prepared_again_when_lost(url: str) -> None:
    async with open_items(url, connections=1) as driver:
        for number in range(420):
            assert await driver.read(f"SELECT {number}", {}, owner=None) == [(number,)]
        prepared = "SELECT count(*) FROM pg_prepared_statements"
        [(count,)] = await driver.read(prepared, {}, owner=None)
        assert 300 < count <= 410

        await driver.batch([Statement("DEALLOCATE ALL", {})], owner=None)
        await driver.batch([insert(1)], owner=None)
        assert await ids(driver) == [1]


async def test_batches_with_the_same_lock_see_each_other(driver: PostgresDriver) -> None:
    following = Statement(
        "INSERT INTO items (id, body) SELECT coalesce(max(id), 0) + 1, '' FROM items", {}, rows=1
    )

    async def append() -> None:
        for _ in range(5):
            await driver.batch([following], owner="ann", locks=["thread 1", "tree 1"])

    # The role for an owner's statements has no rights on a table without a policy.
    grant = Statement("GRANT ALL ON items TO agent_runtime_app", {})
    schema = Statement("GRANT USAGE ON SCHEMA agent_runtime TO agent_runtime_app", {})
    await driver.batch([grant, schema], owner=None)
    async with anyio.create_task_group() as group:
        for _ in range(12):
            group.start_soon(append)

    assert await ids(driver) == list(range(1, 61))


async def test_a_lock_is_waited_for_by_owner_and_name(driver: PostgresDriver, url: str) -> None:
    await driver.batch([insert(1)], owner=None)
    select = Statement("SELECT 1", {})
    order: list[str] = []

    async def hold() -> None:
        await driver.batch([touch(1)], owner=None, locks=["b", "a"])
        order.append("first")

    async def wait() -> None:
        await driver.batch([select], owner=None, locks=["a"])
        order.append("second")

    async with other_client(url) as other, anyio.create_task_group() as group:
        await other.run("SELECT 1 FROM items FOR UPDATE")
        group.start_soon(hold)
        await until_waiting(url)
        group.start_soon(wait)
        await until_waiting(url, 2)
        await driver.batch([select], owner=None, locks=["c"])
        await driver.batch([select], owner="ann", locks=["a", "b"])
        assert order == []
        await other.end()

    # The second waits until the first has committed; which task resumes first is chance.
    assert sorted(order) == ["first", "second"]


async def test_a_long_wait_for_a_lock_is_store_busy(url: str) -> None:
    async with open_items(url, statement_seconds=0.2) as driver, other_client(url) as other:
        await driver.batch([insert(1)], owner=None)
        await other.run("SELECT 1 FROM items FOR UPDATE")

        with pytest.raises(StoreBusy, match="lock"):
            await driver.batch([insert(2), touch(1)], owner=None)
        with pytest.raises(StoreBusy, match="cancelled"):
            await driver.read("SELECT pg_sleep(60)", {}, owner=None)

        assert await ids(driver) == [1]


async def test_sizes_and_checks_may_take_longer_than_other_reads(url: str) -> None:
    async with open_items(url, connections=1, statement_seconds=0.2) as driver:
        slow = "SELECT pg_sleep(0.5)::text, 7"
        assert await driver.read_patiently(slow, {}, owner=None) == [("", 7)]
        # The same connection.
        with pytest.raises(StoreBusy, match="cancelled"):
            await driver.read(slow, {}, owner=None)


async def test_batches_are_planned_once_and_reads_each_time(url: str) -> None:
    async with open_items(url, connections=1) as driver:
        for number in range(8):
            await driver.batch([insert(number)], owner=None)
            await driver.read("SELECT id FROM items WHERE id = :id", {"id": number}, owner=None)
        planned = await driver.read(
            "SELECT DISTINCT generic_plans > 0, custom_plans > 0 FROM pg_prepared_statements "
            "WHERE statement LIKE :like AND statement NOT LIKE '%pg_prepared%' ORDER BY 1",
            {"like": "%items%"}, owner=None,
        )  # fmt: skip

    assert planned == [(0, 1), (1, 0)]


async def test_the_victim_of_a_deadlock_is_retried(driver: PostgresDriver, url: str) -> None:
    await driver.batch([insert(1), insert(2)], owner=None)
    async with other_client(url) as other, anyio.create_task_group() as group:
        # Makes the server choose the batch as its victim.
        await other.run("SET deadlock_timeout = '1h'")
        await other.run("UPDATE items SET body = '\\x09' WHERE id = 2")
        group.start_soon(lambda: driver.batch([touch(1), touch(2)], owner=None))
        await until_waiting(url)
        await other.run("UPDATE items SET body = '\\x09' WHERE id = 1")
        await other.end()

    rows = await driver.read("SELECT body FROM items ORDER BY id", {}, owner=None)
    assert rows == [(b"\x09\x01",), (b"\x09\x01",)]


async def test_a_cancelled_read_is_cancelled_on_the_server(url: str) -> None:
    async with open_items(url, connections=1) as driver, other_client(url) as other:
        [(pid,)] = await driver.read("SELECT pg_backend_pid()", {}, owner=None)
        await other.run("LOCK TABLE items")
        async with anyio.create_task_group() as group:
            group.start_soon(ids, driver)
            assert await until_waiting(url) == [pid]
            group.cancel_scope.cancel()

        # The lock is still held, so only a cancel request has ended the query on the server.
        active = "SELECT state FROM pg_stat_activity WHERE pid = %s"
        assert await other.run(active, pid) == [("idle",)]
        assert await driver.read("SELECT pg_backend_pid()", {}, owner=None) == [(pid,)]
        await other.end()
        assert await ids(driver) == []


async def test_a_running_batch_is_completed_before_the_cancellation_continues(
    driver: PostgresDriver, url: str
) -> None:
    await driver.batch([insert(1)], owner=None)
    after: list[list[int]] = []

    async def write() -> None:
        try:
            await driver.batch([insert(2), touch(1)], owner=None)
        finally:
            with anyio.CancelScope(shield=True):
                after.append(await ids(driver))

    async with other_client(url) as other:
        await other.run("SELECT 1 FROM items FOR UPDATE")
        async with anyio.create_task_group() as outer, anyio.create_task_group() as cancelled:
            cancelled.start_soon(write)
            await until_waiting(url)
            cancelled.cancel_scope.cancel()
            assert after == []
            outer.start_soon(other.end)

    assert after == [[1, 2]]


async def test_a_batch_that_waits_for_a_connection_is_withdrawn(url: str) -> None:
    async with open_items(url, connections=1) as driver, other_client(url) as other:
        await driver.batch([insert(1)], owner=None)
        await other.run("SELECT 1 FROM items FOR UPDATE")
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: driver.batch([touch(1)], owner=None))
            await until_waiting(url)
            with anyio.fail_after(DEADLINE):
                async with anyio.create_task_group() as withdrawn:
                    withdrawn.start_soon(lambda: driver.batch([insert(2)], owner=None))
                    await anyio.wait_all_tasks_blocked()
                    withdrawn.cancel_scope.cancel()
            await other.end()

        assert await ids(driver) == [1]


async def test_closing_completes_accepted_batches_and_can_be_repeated(url: str) -> None:
    async with open_items(url) as driver, other_client(url) as other:
        await driver.batch([insert(1)], owner=None)
        await other.run("SELECT 1 FROM items FOR UPDATE")
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: driver.batch([touch(1), insert(2)], owner=None))
            await until_waiting(url)
            group.start_soon(driver.close)
            await anyio.wait_all_tasks_blocked()
            await other.end()

        await driver.close()
        for attempt in (driver.batch([insert(9)], owner=None), driver.read(IDS, {}, owner=None)):
            with pytest.raises(StoreUnavailable, match="closed"):
                await attempt
        assert await other.run("SELECT id FROM items ORDER BY id") == [(1,), (2,)]
