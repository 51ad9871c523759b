"""Counts the work of a database: instructions of SQLite's virtual machine, pages of Postgres."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import anyio
import apsw
import psycopg

from agent_runtime_storage import Store
from agent_runtime_storage.urls import backend_of

_SETTLE_SECONDS = 1.1
"""After this time a connection of Postgres reports with its next transaction."""
_TOUCHED = 16
"""Reads at once, so that each connection of the pool has another transaction."""
_PAGES = "SELECT blks_hit + blks_read FROM pg_stat_database WHERE datname = current_database()"
_steps = [0]


@contextmanager
def sqlite_instructions() -> Generator[None]:
    """Count the instructions of connections that are opened meanwhile."""

    before = dict[tuple[int, str], tuple[int, int]]()

    def ended(event: dict[str, Any]) -> None:
        status = event["stmt_status"]
        runs, steps = status["SQLITE_STMTSTATUS_RUN"], status["SQLITE_STMTSTATUS_VM_STEP"]
        which = id(event["connection"]), str(event["sql"])
        last = before.get(which, (0, 0))
        before[which] = runs, steps
        # apsw counts from zero in each run; what the full-text index runs inside counts on.
        _steps[0] += steps - last[1] if runs == last[0] + 1 and runs > 1 else steps

    def opened(connection: Any) -> None:
        connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, ended)

    apsw.connection_hooks.append(opened)
    try:
        yield
    finally:
        apsw.connection_hooks.remove(opened)


class WorkMeter:
    """Counts the work between `start` and `stop`."""

    def __init__(self, store: Store, connection: psycopg.AsyncConnection[Any] | None) -> None:
        self._store = store
        self._connection = connection
        self._began = 0

    @classmethod
    async def open(cls, url: str, store: Store) -> WorkMeter:
        """Connect to a database of Postgres, if it is one."""
        if backend_of(url) != "postgres":
            return cls(store, None)
        return cls(store, await psycopg.AsyncConnection.connect(url, autocommit=True))

    @property
    def instructions(self) -> int:
        """Return how many SQLite has run; 0 for Postgres."""
        return 0 if self._connection is not None else _steps[0]

    async def start(self) -> None:
        """Begin to count."""
        self._began = await self._count()

    async def stop(self) -> int:
        """Return the work since then."""
        return await self._count() - self._began

    async def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            await self._connection.close()

    async def _count(self) -> int:
        if self._connection is None:
            return _steps[0]
        await anyio.sleep(_SETTLE_SECONDS)
        async with anyio.create_task_group() as group:
            for number in range(_TOUCHED):
                group.start_soon(self._store.of(f"nobody{number}").queue.list)
        await anyio.sleep(0.05)
        row = await (await self._connection.execute(_PAGES)).fetchone()
        return int(row[0]) if row else 0
