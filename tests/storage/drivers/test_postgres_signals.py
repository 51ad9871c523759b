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
    """Return the server process that listens, once there is one."""
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


async def test_what_one_announces_the_other_hears(
    two: tuple[PostgresDriver, PostgresDriver], empty_postgres_url: str
) -> None:
    hearer, teller = two
    with hearer.signals.listen("topic") as listener, hearer.signals.listen("quiet"):
        # It is told once that it may have missed something.
        with anyio.fail_after(DEADLINE):
            await listener.wait(FOREVER)
        await listening(empty_postgres_url)
        for _ in range(3):
            teller.signals.announce("another")
            teller.signals.announce("topic")
            with anyio.fail_after(DEADLINE):
                await listener.wait(FOREVER)


async def test_many_topics_at_once_all_arrive(
    two: tuple[PostgresDriver, PostgresDriver], empty_postgres_url: str
) -> None:
    hearer, teller = two
    with hearer.signals.listen("first") as first, hearer.signals.listen("last") as last:
        with anyio.fail_after(DEADLINE):
            await first.wait(FOREVER)
            await last.wait(FOREVER)
        await listening(empty_postgres_url)
        teller.signals.announce("first")
        for number in range(2000):
            teller.signals.announce(f"topic {number}")
        teller.signals.announce("last")
        with anyio.fail_after(DEADLINE):
            await first.wait(FOREVER)
            await last.wait(FOREVER)


async def test_a_listener_comes_back_and_says_that_it_may_have_missed_something(
    two: tuple[PostgresDriver, PostgresDriver], empty_postgres_url: str
) -> None:
    hearer, teller = two
    with hearer.signals.listen("topic") as listener:
        with anyio.fail_after(DEADLINE):
            await listener.wait(FOREVER)
        pid = await listening(empty_postgres_url)
        with psycopg.connect(empty_postgres_url, autocommit=True) as connection:
            connection.execute("SELECT pg_terminate_backend(%s)", [pid])
        with anyio.fail_after(DEADLINE):
            await listener.wait(FOREVER)

        assert await listening(empty_postgres_url) != pid
        teller.signals.announce("topic")
        with anyio.fail_after(DEADLINE):
            await listener.wait(FOREVER)


async def test_what_was_announced_before_the_close_is_still_told(
    two: tuple[PostgresDriver, PostgresDriver], empty_postgres_url: str
) -> None:
    hearer, teller = two
    with hearer.signals.listen("topic") as listener:
        with anyio.fail_after(DEADLINE):
            await listener.wait(FOREVER)
        await listening(empty_postgres_url)
        teller.signals.announce("topic")
        await teller.close()
        with anyio.fail_after(DEADLINE):
            await listener.wait(FOREVER)
