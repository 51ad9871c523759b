"""Outages of Postgres: which calls wait, which are repeated, and which are in doubt."""

from __future__ import annotations

import gc
from contextlib import suppress

import anyio
import anyio.to_thread
import psutil
import pytest
from anyio.abc import SocketAttribute, SocketStream

from agent_runtime_storage import StoreInDoubt, StoreUnavailable
from agent_runtime_storage.drivers.postgres.driver import PostgresDriver
from agent_runtime_storage.drivers.protocol import Statement
from tests.services.fixtures import StartPostgres
from tests.services.postgres import PASSWORD, PostgresServer
from tests.storage.drivers.postgres_drivers import (
    IDS,
    ids,
    insert,
    open_items,
    other_client,
    touch,
    until_waiting,
)


@pytest.fixture
def server(start_postgres: StartPostgres) -> PostgresServer:
    return start_postgres()


async def kill(server: PostgresServer) -> None:
    await anyio.to_thread.run_sync(server.kill)


async def start(server: PostgresServer) -> None:
    await anyio.to_thread.run_sync(server.start)


async def test_connections_that_died_while_idle_leave_nothing_in_doubt(
    server: PostgresServer,
) -> None:
    async with open_items(server.url()) as driver:
        async with anyio.create_task_group() as group:
            for number in range(8):
                group.start_soon(lambda n=number: driver.batch([insert(n)], owner=None))
        await kill(server)
        await start(server)

        async with anyio.create_task_group() as group:
            for number in range(8, 16):
                group.start_soon(lambda n=number: driver.batch([insert(n)], owner=None))

        assert await ids(driver) == list(range(16))


async def test_calls_during_an_outage_wait_for_the_server(server: PostgresServer) -> None:
    seen: list[list[int]] = []

    async def read(driver: PostgresDriver) -> None:
        seen.append(await ids(driver))

    async with open_items(server.url()) as driver:
        await driver.batch([insert(1)], owner=None)
        await kill(server)
        async with anyio.create_task_group() as group:
            group.start_soon(read, driver)
            group.start_soon(lambda: driver.batch([insert(2)], owner=None))
            await anyio.wait_all_tasks_blocked()
            assert seen == []
            await start(server)

        assert seen in ([[1]], [[1, 2]])
        assert await ids(driver) == [1, 2]


async def test_a_running_batch_is_in_doubt_or_repeated(server: PostgresServer) -> None:
    lost: list[str] = []

    async def write(driver: PostgresDriver, number: int, *, repeatable: bool) -> None:
        try:
            await driver.batch([insert(number), touch(1)], owner=None, repeatable=repeatable)
        except StoreInDoubt as error:
            lost.append(str(error))

    async with open_items(server.url()) as driver:
        await driver.batch([insert(1)], owner=None)
        async with other_client(server.url()) as other, anyio.create_task_group() as group:
            await other.run("SELECT 1 FROM items FOR UPDATE")
            group.start_soon(lambda: write(driver, 2, repeatable=False))
            group.start_soon(lambda: write(driver, 3, repeatable=True))
            await until_waiting(server.url(), 2)
            await kill(server)
            await start(server)

        assert len(lost) == 1 and PASSWORD not in lost[0]
        assert await ids(driver) == [1, 3]


async def test_a_running_read_is_repeated(server: PostgresServer) -> None:
    seen: list[list[int]] = []

    async def read(driver: PostgresDriver) -> None:
        seen.append(await ids(driver))

    async with open_items(server.url()) as driver:
        await driver.batch([insert(1)], owner=None)
        async with other_client(server.url()) as other, anyio.create_task_group() as group:
            await other.run("LOCK TABLE items")
            group.start_soon(read, driver)
            await until_waiting(server.url())
            await kill(server)
            await start(server)

        assert seen == [[1]]


async def test_a_terminated_backend_leaves_nothing_in_doubt(
    server: PostgresServer,
) -> None:
    async with open_items(server.url()) as driver, other_client(server.url()) as other:
        await driver.batch([insert(1)], owner=None)
        await other.run("SELECT 1 FROM items FOR UPDATE")
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: driver.batch([insert(2), touch(1)], owner=None))
            [pid] = await until_waiting(server.url())
            await other.run("SELECT pg_terminate_backend(%s)", pid)
            assert await until_waiting(server.url()) != [pid]
            await other.end()

        rows = await driver.read("SELECT id, body FROM items ORDER BY id", {}, owner=None)
        assert rows == [(1, b"\x01"), (2, b"")]


async def test_a_silent_server_is_given_up(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent_runtime_storage.drivers.postgres.driver.CONNECT_SECONDS", 0.1)
    async with open_items(server.url(), connections=1, statement_seconds=0.1) as driver:
        [(pid,)] = await driver.read("SELECT pg_backend_pid()", {}, owner=None)
        process = psutil.Process(pid)
        process.suspend()
        try:
            with pytest.raises(StoreInDoubt, match="silent"):
                await driver.batch([insert(1)], owner=None)
            assert await driver.read("SELECT pg_backend_pid() <> :pid", {"pid": pid}, owner=None)
        finally:
            process.resume()


async def test_waiting_ends_with_the_patience(server: PostgresServer) -> None:
    async with open_items(server.url(), patience=0.1) as driver:
        await driver.batch([insert(1)], owner=None)
        await kill(server)

        for attempt in (
            driver.read(IDS, {}, owner=None),
            driver.batch([insert(2)], owner=None),
            driver.batch([insert(3)], owner=None, repeatable=True),
        ):
            with pytest.raises(StoreUnavailable) as raised:
                await attempt
            assert raised.value.cure and not isinstance(raised.value, StoreInDoubt)
            assert PASSWORD not in str(raised.value)
        await start(server)
        assert await ids(driver) == [1]


async def test_a_wait_for_the_server_can_be_cancelled(server: PostgresServer) -> None:
    async with open_items(server.url(), patience=10_000) as driver:
        await kill(server)
        async with anyio.create_task_group() as group:
            group.start_soon(ids, driver)
            group.start_soon(lambda: driver.batch([insert(1)], owner=None))
            await anyio.wait_all_tasks_blocked()
            group.cancel_scope.cancel()

        # Closing ends the waiting calls.
        async with anyio.create_task_group() as group:
            group.start_soon(check_refused, driver)
            await anyio.wait_all_tasks_blocked()
            await driver.close()


async def test_a_cancelled_attempt_to_connect_leaves_no_connection() -> None:
    """The server accepts the connection and never answers."""
    requested, disconnected = anyio.Event(), anyio.Event()

    async def serve(stream: SocketStream) -> None:
        async with stream:
            await stream.receive()
            requested.set()
            with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                await stream.receive()
            disconnected.set()

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(SocketAttribute.local_port)
    url = f"postgresql://ann@127.0.0.1:{port}/x?sslmode=disable"
    # Otherwise the garbage collection could close the connection.
    gc.disable()
    try:
        with anyio.fail_after(30):
            async with listener, anyio.create_task_group() as servers:
                servers.start_soon(listener.serve, serve)
                async with anyio.create_task_group() as group:
                    group.start_soon(PostgresDriver.open, url)
                    await requested.wait()
                    group.cancel_scope.cancel()
                await disconnected.wait()
                servers.cancel_scope.cancel()
    finally:
        gc.enable()


async def check_refused(driver: PostgresDriver) -> None:
    with pytest.raises(StoreUnavailable):
        await driver.batch([Statement("SELECT 1", {})], owner=None)
