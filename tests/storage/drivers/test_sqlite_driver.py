"""The SQLite driver: group commit, cancellation, backpressure, and a full disk."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path
from typing import Any

import anyio
import pytest

from agent_runtime_storage import (
    StoreBusy,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)
from agent_runtime_storage.drivers.protocol import BatchMissed, ConstraintFailed, Statement
from agent_runtime_storage.drivers.sqlite import writer
from agent_runtime_storage.drivers.sqlite.driver import SqliteDriver
from tests.storage.items import CREATE, IDS, Blocker, ids, insert


async def test_batches_of_many_tasks_are_all_written(driver: SqliteDriver) -> None:
    async def write(first: int) -> None:
        for number in range(first, first + 10):
            await driver.batch([insert(number)])

    async with anyio.create_task_group() as group:
        for task in range(50):
            group.start_soon(write, task * 10)

    assert await ids(driver) == list(range(500))


async def test_waiting_batches_share_a_transaction(driver: SqliteDriver, path: Path) -> None:
    blocker = Blocker(path)
    seen: list[int] = []

    async def write(number: int) -> None:
        count = Statement("SELECT count(*) FROM items", {})
        [_, [(rows,)]] = await driver.batch([insert(number), count])
        # Each sees earlier ones of its transaction; none is acknowledged before the commit of all.
        assert len(await ids(driver)) == 20
        seen.append(rows)

    async with anyio.create_task_group() as group:
        for number in range(20):
            group.start_soon(write, number)
        await anyio.wait_all_tasks_blocked()
        blocker.release()

    # The first may begin its transaction before the others are queued.
    assert sorted(seen) == list(range(1, 21))


async def test_a_failed_batch_does_not_affect_its_neighbours(driver: SqliteDriver) -> None:
    missed: list[str] = []

    async def miss(number: int) -> None:
        update = Statement("UPDATE items SET body = x'00' WHERE id = -1", {}, 1, "gone")
        with pytest.raises(BatchMissed) as raised:
            await driver.batch([insert(1000 + number), update])
        assert raised.value.index == 1
        missed.append(raised.value.label)

    async def break_rule(number: int) -> None:
        with pytest.raises(ConstraintFailed):
            await driver.batch([insert(2000 + number), insert(3000, None)])

    async def refuse(number: int) -> None:
        with pytest.raises(StoreError, match="cannot be stored"):
            await driver.batch([insert(4000 + number), insert(2**70)])

    async def misspell() -> None:
        with pytest.raises(StoreError, match="no such table"):
            await driver.batch([insert(5000), Statement("SELECT * FROM absent", {})])

    async with anyio.create_task_group() as group:
        for number in range(20):
            group.start_soon(driver.batch, [insert(number)])
            group.start_soon(miss, number)
            group.start_soon(break_rule, number)
            group.start_soon(refuse, number)
        group.start_soon(misspell)

    assert missed == ["gone"] * 20
    assert await ids(driver) == list(range(20))


async def test_rows_are_counted_for_queries_changes_and_returning(driver: SqliteDriver) -> None:
    await driver.batch([insert(1), insert(2)])
    all_ids = "SELECT id FROM items"

    rows = await driver.batch(
        [
            Statement("UPDATE items SET body = x'01'", {}, rows=2),
            Statement(all_ids, {}, rows=2),
            Statement("SELECT id FROM items WHERE id > 5", {}, rows=0),
            Statement("DELETE FROM items WHERE id = 1 RETURNING id", {}, rows=1),
            Statement("DELETE FROM items WHERE id = 1", {}, rows=0),
        ]
    )

    assert rows == [[], [(1,), (2,)], [], [(1,)], []]


async def test_a_queued_batch_is_withdrawn(driver: SqliteDriver, path: Path) -> None:
    blocker = Blocker(path)
    async with anyio.create_task_group() as group:
        group.start_soon(driver.batch, [insert(1)])
        # The writer must take the first batch before the second is queued.
        await anyio.wait_all_tasks_blocked()
        while driver.waiting:
            await anyio.lowlevel.checkpoint()
        async with anyio.create_task_group() as withdrawn:
            withdrawn.start_soon(driver.batch, [insert(2)])
            await anyio.wait_all_tasks_blocked()
            withdrawn.cancel_scope.cancel()
        blocker.release()

    assert await ids(driver) == [1]


async def test_a_running_batch_is_completed_before_the_cancellation_continues(
    driver: SqliteDriver, path: Path
) -> None:
    blocker = Blocker(path)
    after: list[list[int]] = []

    async def write() -> None:
        try:
            await driver.batch([insert(1)])
        finally:
            with anyio.CancelScope(shield=True):
                after.append(await ids(driver))

    async with anyio.create_task_group() as group, anyio.create_task_group() as cancelled:
        cancelled.start_soon(write)
        await anyio.wait_all_tasks_blocked()
        while driver.waiting:
            await anyio.lowlevel.checkpoint()
        cancelled.cancel_scope.cancel()
        group.start_soon(anyio.to_thread.run_sync, blocker.release)

    assert after == [[1]]


async def test_a_cancelled_read_is_abandoned(driver: SqliteDriver) -> None:
    await driver.batch([insert(1)])
    forever = "WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT 3000000) "

    with anyio.move_on_after(0) as scope:
        await driver.read(forever + "SELECT count(*) FROM n", {})

    assert scope.cancelled_caught
    assert await ids(driver) == [1]


async def test_writers_wait_while_the_queue_is_full(path: Path) -> None:
    driver = await SqliteDriver.open(path, queue_bytes=3000)
    await driver.batch([Statement(CREATE, {})])
    blocker = Blocker(path)
    async with anyio.create_task_group() as group:
        for number in range(10):
            group.start_soon(driver.batch, [insert(number, b"x" * 1000)])
        await anyio.wait_all_tasks_blocked()
        assert driver.held_back == 8
        with anyio.move_on_after(0):
            await driver.batch([insert(99, b"x" * 1000)])
        assert driver.held_back == 8
        blocker.release()

    assert await ids(driver) == list(range(10))
    await driver.batch([insert(10, b"x" * 9000)])
    assert driver.held_back == 0
    await driver.close()


async def test_a_full_disk_fails_only_batches_that_do_not_fit(path: Path) -> None:
    driver = await SqliteDriver.open(path, max_bytes=256 * 1024, patience=0.05)
    await driver.batch([Statement(CREATE, {})])
    blocker = Blocker(path)
    full: list[int] = []

    async def write(number: int, size: int) -> None:
        try:
            await driver.batch([insert(number, b"x" * 100), insert(1000 + number, b"x" * size)])
        except StoreFull:
            full.append(number)

    async with anyio.create_task_group() as group:
        for number in range(40):
            group.start_soon(write, number, 500_000 if number == 20 else 100)
        await anyio.wait_all_tasks_blocked()
        blocker.release()

    assert full == [20]
    good = [number for number in range(40) if number != 20]
    assert await ids(driver) == [*good, *(1000 + number for number in good)]
    await driver.batch([insert(5000)])
    await driver.close()


async def test_another_process_that_keeps_the_lock_makes_the_store_busy(path: Path) -> None:
    driver = await SqliteDriver.open(path, patience=0.05)
    await driver.batch([Statement(CREATE, {})])
    blocker = Blocker(path)

    with pytest.raises(StoreBusy, match="lock"):
        await driver.batch([insert(1)])
    assert await ids(driver) == []

    blocker.release()
    await driver.batch([insert(1)])
    await driver.close()


async def test_a_write_outlasts_a_lock_that_is_held_for_several_tries(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "_TRY_SECONDS", 0.001)
    tries, real = threading.Semaphore(0), writer.Writer.wait_to_retry

    def wait(self: Any, jobs: Any, error: Exception) -> Any:
        tries.release()
        return real(self, jobs, error)

    monkeypatch.setattr(writer.Writer, "wait_to_retry", wait)
    driver = await SqliteDriver.open(path)
    await driver.batch([Statement(CREATE, {})])
    blocker, leaving = Blocker(path), anyio.CancelScope()
    async with anyio.create_task_group() as group:
        group.start_soon(driver.batch, [insert(1)])

        async def leave() -> None:
            with leaving:
                await driver.batch([insert(2)])

        group.start_soon(leave)
        for _ in range(3):
            assert await anyio.to_thread.run_sync(lambda: tries.acquire(timeout=30))
        # A batch that waits for the lock is not written, so its caller may leave.
        leaving.cancel()
        with anyio.fail_after(30):
            while not leaving.cancelled_caught:  # noqa: ASYNC110
                await anyio.sleep(0.01)
        blocker.release()

    assert leaving.cancelled_caught
    assert await ids(driver) == [1]
    await driver.close()


async def test_closing_completes_accepted_batches_and_can_be_repeated(
    driver: SqliteDriver, path: Path
) -> None:
    blocker = Blocker(path)
    async with anyio.create_task_group() as group:
        for number in range(5):
            group.start_soon(driver.batch, [insert(number)])
        await anyio.wait_all_tasks_blocked()
        group.start_soon(driver.close)
        await anyio.wait_all_tasks_blocked()
        blocker.release()

    await driver.close()
    for attempt in (driver.batch([insert(9)]), driver.read(IDS, {})):
        with pytest.raises(StoreUnavailable, match="closed"):
            await attempt
    assert not path.with_name(path.name + "-wal").exists()
    with sqlite3.connect(path) as connection:
        assert connection.execute(IDS).fetchall() == [(number,) for number in range(5)]
    connection.close()


async def test_connections_have_their_pragmas_and_functions(driver: SqliteDriver) -> None:
    async def pragma(name: str) -> object:
        return (await driver.read(f"SELECT * FROM pragma_{name}", {}))[0][0]

    assert await pragma("journal_mode") == "wal"
    assert await pragma("foreign_keys") == 1
    [[[distance]]] = await driver.batch(
        [Statement("SELECT vec_distance_cosine(:a, :b)", {"a": "[1, 0]", "b": "[1, 0]"})]
    )
    assert distance == pytest.approx(0)
    with pytest.raises(StoreReadOnly):
        await driver.read("DELETE FROM items", {})


@pytest.mark.parametrize(("setting", "value"), [("full", 2), ("normal", 1)])
async def test_synchronous_can_be_chosen(path: Path, setting: str, value: int) -> None:
    assert setting in ("full", "normal")
    driver = await SqliteDriver.open(path, synchronous="full" if setting == "full" else "normal")
    [[(actual,)]] = await driver.batch([Statement("SELECT * FROM pragma_synchronous", {})])
    await driver.close()

    assert actual == value
