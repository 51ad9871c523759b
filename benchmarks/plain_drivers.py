"""The plain drivers that the store is compared with: they run its statements and check nothing.

The statements are the same that the store sends for a commit, recorded beforehand, so only their
execution is timed.
"""

from __future__ import annotations

import base64
import itertools
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, LiteralString, cast

import aiosqlite
import anyio
import httpx
from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool

from agent_runtime_storage.drivers.protocol import Announce, Row, SqlDialect, Statement, Value
from agent_runtime_storage.drivers.signals import Signals

Batch = Sequence[Statement]

CONNECTIONS = 16
# Not `::`, Postgres' cast.
_PLACEHOLDER = re.compile(r"(?<!:):([a-z_]+)")


class Recorder:
    """A driver that records the statements and writes nothing."""

    def __init__(self, dialect: SqlDialect) -> None:
        self.dialect: SqlDialect = dialect
        self.signals = Signals()
        self.batches: list[Batch] = []

    async def read(self, sql: str, params: Mapping[str, Value], *, owner: str | None) -> list[Row]:
        raise AssertionError(f"a commit reads nothing: {sql}")

    async def batch(
        self,
        statements: Batch,
        *,
        owner: str | None,
        locks: Sequence[str] = (),
        repeatable: bool = False,
        announce: Announce | None = None,
    ) -> list[list[Row]]:
        self.batches.append(statements)
        return [[(0,)] for _ in statements]

    async def close(self) -> None:
        """Do nothing."""


class Plain(ABC):
    """A plain driver, opened and closed by the benchmark."""

    @abstractmethod
    async def write(self, batch: Batch) -> None:
        """Run the statements in one transaction."""

    @abstractmethod
    async def read(self, sql: str, params: Mapping[str, Value]) -> list[Any]:
        """Run one query."""

    @abstractmethod
    async def close(self) -> None:
        """Release everything."""


class Aiosqlite(Plain):
    """aiosqlite with one connection, behind a lock, with the store's pragmas."""

    def __init__(self, connection: aiosqlite.Connection) -> None:
        self._connection = connection
        self._lock = anyio.Lock()

    @classmethod
    async def open(cls, path: Path) -> Aiosqlite:
        """Open the file."""
        connection = await aiosqlite.connect(path, isolation_level=None, cached_statements=256)
        for pragma in ("journal_mode = wal", "synchronous = full", "foreign_keys = on"):
            await connection.execute(f"PRAGMA {pragma}")
        return cls(connection)

    async def write(self, batch: Batch) -> None:
        async with self._lock:
            await self._connection.execute("BEGIN IMMEDIATE")
            for statement in batch:
                cursor = await self._connection.execute(
                    _for_old_sqlite(statement.sql), statement.params
                )
                await cursor.fetchall()
            await self._connection.commit()

    async def read(self, sql: str, params: Mapping[str, Value]) -> list[Any]:
        cursor = await self._connection.execute(_for_old_sqlite(sql), params)
        return list(await cursor.fetchall())

    async def close(self) -> None:
        await self._connection.close()


def _for_old_sqlite(sql: str) -> str:
    # Python's own SQLite may be older than the one bundled with the store.
    return sql.replace("unixepoch('subsec')", "(julianday('now') - 2440587.5) * 86400.0")


class Psycopg(Plain):
    """psycopg with a pool; each batch is one pipeline in one transaction."""

    def __init__(self, pool: AsyncConnectionPool[AsyncConnection[Any]]) -> None:
        self._pool = pool

    @classmethod
    async def open(cls, url: str) -> Psycopg:
        """Connect."""

        async def configure(connection: AsyncConnection[Any]) -> None:
            await connection.set_autocommit(True)
            await connection.execute("SET search_path = agent_runtime, public")

        pool: AsyncConnectionPool[AsyncConnection[Any]] = AsyncConnectionPool(
            url, min_size=CONNECTIONS, max_size=CONNECTIONS, configure=configure, open=False
        )
        await pool.open(wait=True)
        return cls(pool)

    async def write(self, batch: Batch) -> None:
        async with (
            self._pool.connection() as connection,
            connection.pipeline(),
            connection.transaction(),
        ):
            for statement in batch:
                sql = cast("LiteralString", _for_psycopg(statement.sql))
                await connection.execute(sql, statement.params)

    async def read(self, sql: str, params: Mapping[str, Value]) -> list[Any]:
        async with self._pool.connection() as connection:
            cursor = await connection.execute(cast("LiteralString", _for_psycopg(sql)), params)
            return await cursor.fetchall()

    async def close(self) -> None:
        await self._pool.close()


def _for_psycopg(sql: str) -> str:
    return _PLACEHOLDER.sub(r"%(\1)s", sql.replace("%", "%%"))


class Hrana(Plain):
    """httpx that posts each batch as one pipeline of statements, without conditions."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    @classmethod
    async def open(cls, url: str) -> Hrana:
        """Create the client."""
        # With more than two connections the writers lock each other out for seconds.
        limits = httpx.Limits(max_connections=2)
        return cls(httpx.AsyncClient(base_url=url, limits=limits, timeout=None))

    async def write(self, batch: Batch) -> None:
        begin, commit = Statement("BEGIN IMMEDIATE", {}), Statement("COMMIT", {})
        await self._run([begin, *batch, commit])

    async def read(self, sql: str, params: Mapping[str, Value]) -> list[Any]:
        [rows] = await self._run([Statement(sql, params)])
        return rows

    async def close(self) -> None:
        await self._client.aclose()

    async def _run(self, batch: Batch) -> list[list[Any]]:
        requests = [
            {
                "type": "execute",
                "stmt": {
                    "sql": statement.sql,
                    "named_args": [
                        {"name": name, "value": _encode(value)}
                        for name, value in statement.params.items()
                    ],
                },
            }
            for statement in batch
        ]
        answer = await self._client.post(
            "/v2/pipeline", json={"requests": [*requests, {"type": "close"}]}
        )
        results = answer.raise_for_status().json()["results"][: len(batch)]
        for result in results:
            if result["type"] != "ok":
                raise RuntimeError(result["error"]["message"])
        return [result["response"]["result"]["rows"] for result in results]


def _encode(value: Value) -> dict[str, Any]:
    match value:
        case None:
            return {"type": "null"}
        case int():
            return {"type": "integer", "value": str(value)}
        case float():
            return {"type": "float", "value": value}
        case str():
            return {"type": "text", "value": value}
        case bytes():
            return {"type": "blob", "base64": base64.b64encode(value).decode()}


def shares(items: Sequence[Batch], tasks: int) -> list[list[Batch]]:
    """Distribute the batches among `tasks` tasks."""
    return [list(itertools.islice(items, start, None, tasks)) for start in range(tasks)]
