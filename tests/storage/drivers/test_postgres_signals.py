"""Signals between processes on one Postgres database."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio
import psycopg
import pytest

from agent_runtime_storage.drivers.postgres.driver import PostgresDriver
from tests.storage.drivers.postgres_drivers import DEADLINE

FOREVER = 100_000.0


@pytest.fixture
async def two(empty_postgres_url: str) -> AsyncIterator[tuple[PostgresDriver, PostgresDriver]]:
    first = await PostgresDriver.open(empty_postgres_url)
    second = await PostgresDriver.open(empty_postgres_url)
    yield first, second
    await first.close()
    await second.close()


async def listening(url: str) -> int:
    """Return the pid of the server process that listens, once there is one."""
    query = (
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
        " AND query = 'LISTEN agent_runtime' AND state = 'idle'"
    )
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        with anyio.fail_after(DEADLINE):
            while True:
                rows = await (await connection.execute(query)).fetchall()
                if rows:
                    return rows[0][0]
                await anyio.sleep(0.01)


async def test_a_process_receives_signals_of_another(
    two: tuple[PostgresDriver, PostgresDriver], empty_postgres_url: str
) -> None:
    receiver, sender = two
    with receiver.signals.listen("topic") as listener, receiver.signals.listen("quiet"):
        # A new listener is woken once, because it may have missed a signal.
        with anyio.fail_after(DEADLINE):
            await listener.wait(FOREVER)
        await listening(empty_postgres_url)
        for _ in range(3):
            sender.signals.announce("another")
            sender.signals.announce("topic")
            with anyio.fail_after(DEADLINE):
                await listener.wait(FOREVER)


async def test_many_concurrent_topics_all_arrive(
    two: tuple[PostgresDriver, PostgresDriver], empty_postgres_url: str
) -> None:
    receiver, sender = two
    with receiver.signals.listen("first") as first, receiver.signals.listen("last") as last:
        with anyio.fail_after(DEADLINE):
            await first.wait(FOREVER)
            await last.wait(FOREVER)
        await listening(empty_postgres_url)
        sender.signals.announce("first")
        for number in range(2000):
            sender.signals.announce(f"topic {number}")
        sender.signals.announce("last")
        with anyio.fail_after(DEADLINE):
            await first.wait(FOREVER)
            await last.wait(FOREVER)


async def test_a_listener_reconnects_and_is_woken_once(
    two: tuple[PostgresDriver, PostgresDriver], empty_postgres_url: str
) -> None:
    receiver, sender = two
    with receiver.signals.listen("topic") as listener:
        with anyio.fail_after(DEADLINE):
            await listener.wait(FOREVER)
        pid = await listening(empty_postgres_url)
        with psycopg.connect(empty_postgres_url, autocommit=True) as connection:
            connection.execute("SELECT pg_terminate_backend(%s)", [pid])
        with anyio.fail_after(DEADLINE):
            await listener.wait(FOREVER)

        assert await listening(empty_postgres_url) != pid
        sender.signals.announce("topic")
        with anyio.fail_after(DEADLINE):
            await listener.wait(FOREVER)


async def test_signals_before_the_close_are_still_sent(
    two: tuple[PostgresDriver, PostgresDriver], empty_postgres_url: str
) -> None:
    receiver, sender = two
    with receiver.signals.listen("topic") as listener:
        with anyio.fail_after(DEADLINE):
            await listener.wait(FOREVER)
        await listening(empty_postgres_url)
        sender.signals.announce("topic")
        await sender.close()
        with anyio.fail_after(DEADLINE):
            await listener.wait(FOREVER)
