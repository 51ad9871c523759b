"""A small table for tests of the Postgres driver, and other clients of the server."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, LiteralString

import anyio
import psycopg
from psycopg.sql import Composed

from agent_runtime_storage.drivers.postgres.driver import PostgresDriver
from agent_runtime_storage.drivers.protocol import Statement, Value

CREATE = "CREATE TABLE IF NOT EXISTS items (id bigint PRIMARY KEY, body bytea NOT NULL)"
INSERT = "INSERT INTO items (id, body) VALUES (:id, :body)"
TOUCH = "UPDATE items SET body = body || '\\x01' WHERE id = :id"
IDS = "SELECT id FROM items ORDER BY id"
DEADLINE = 60.0
"""Seconds after which a test fails that waits for an expected event."""


def insert(number: int | None, body: Value = b"") -> Statement:
    """Return the statement that adds an item."""
    return Statement(INSERT, {"id": number, "body": body}, rows=1)


def touch(number: int) -> Statement:
    """Return the statement that changes an item; it waits for a lock on it."""
    return Statement(TOUCH, {"id": number}, rows=1)


async def ids(driver: PostgresDriver) -> list[int]:
    """Return the ids of all items, ascending."""
    return [row[0] for row in await driver.read(IDS, {}, owner=None)]


@asynccontextmanager
async def open_items(url: str, **options: Any) -> AsyncGenerator[PostgresDriver]:
    """Open a driver on a database with a table of items."""
    driver = await PostgresDriver.open(url, **options)
    try:
        await driver.batch([Statement(CREATE, {})], owner=None)
        yield driver
    finally:
        with anyio.CancelScope(shield=True):
            await driver.close()


class Other:
    """Another client of the database."""

    def __init__(self, connection: psycopg.AsyncConnection[tuple[Any, ...]]) -> None:
        self._connection = connection

    async def run(self, sql: LiteralString | Composed, *values: object) -> list[tuple[Any, ...]]:
        """Run a statement; the first one after `end` begins a transaction."""
        cursor = await self._connection.execute(sql, values)
        return await cursor.fetchall() if cursor.description else []

    async def end(self) -> None:
        """Commit the transaction, which frees its locks."""
        await self._connection.commit()


@asynccontextmanager
async def other_client(url: str) -> AsyncGenerator[Other]:
    """Open another client, which begins and ends its transactions itself."""
    connection = await psycopg.AsyncConnection.connect(url)
    try:
        await connection.execute("SET search_path TO agent_runtime, public")
        await connection.commit()
        yield Other(connection)
    finally:
        with anyio.CancelScope(shield=True):
            await connection.close()


async def until_waiting(url: str, count: int = 1) -> list[int]:
    """Wait until `count` server processes of the database wait for a lock; return their pids."""
    query = (
        "SELECT pid FROM pg_stat_activity"
        " WHERE datname = current_database() AND wait_event_type = 'Lock' ORDER BY pid"
    )
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        with anyio.fail_after(DEADLINE):
            while True:
                rows = await (await connection.execute(query)).fetchall()
                if len(rows) >= count:
                    return [pid for (pid,) in rows]
                await anyio.sleep(0.01)
