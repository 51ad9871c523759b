"""The driver for a local database file: one writer thread, a few reader threads."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

from agent_runtime_storage.contract.errors import StoreUnavailable
from agent_runtime_storage.drivers.protected_files import OpenDatabase
from agent_runtime_storage.drivers.protocol import Announce, Row, Statement, Value
from agent_runtime_storage.drivers.signals import Signals
from agent_runtime_storage.drivers.sqlite.connection import Synchronous, open_connection
from agent_runtime_storage.drivers.sqlite.database_file import OpenDatabaseFile
from agent_runtime_storage.drivers.sqlite.file_signals import FileSignals
from agent_runtime_storage.drivers.sqlite.readers import Readers
from agent_runtime_storage.drivers.sqlite.writer import Writer
from agent_runtime_storage.drivers.turns import Turns
from agent_runtime_storage.sql.loader import SqlDialect

PATIENCE = 60.0
"""Seconds that a write waits for another process or for space, as the servers' drivers do."""
# Readers wait for another process only while it recovers or replaces the write-ahead log.
_READ_SECONDS = 5.0


class SqliteDriver:
    """A database file; see `Driver`.  It belongs to the event loop in which it was opened.

    Never open the file with another SQLite library in the same process while this is open: the
    locks of the file are the process's, and the two would write through each other.
    """

    dialect: SqlDialect = "sqlite"

    def __init__(self, files: OpenDatabase, writer: Writer, readers: Readers) -> None:
        self._files = files
        self._writer = writer
        self._readers = readers
        self._file_signals = FileSignals(self._version)
        self.signals: Signals = self._file_signals

    @property
    def waiting(self) -> bool:
        """Whether a batch waits that the writer has not started."""
        return self._writer.waiting

    @property
    def held_back(self) -> int:
        """How many batches wait for room in the queue."""
        return self._writer.held_back

    @classmethod
    async def open(
        cls,
        path: Path,
        *,
        synchronous: Synchronous = "full",
        readers: int = 3,
        patience: float | None = None,
        queue_bytes: int = 64 * 2**20,
        max_bytes: int | None = None,
    ) -> SqliteDriver:
        """Open the file; create it if it does not exist.

        Args:
            readers: the number of reader threads.
            patience: seconds that a write waits for the lock of another process, or for space on a
                full device; None for a minute.
            queue_bytes: the size of the queue; writers wait while it is full.
            max_bytes: the largest size of the file; beyond it `StoreFull` is raised.

        Raises:
            StoreUnavailable: or a subclass, if the file cannot be used.
        """
        patience = PATIENCE if patience is None else patience
        try:
            files, place = OpenDatabase(path), OpenDatabaseFile(path)
        except RuntimeError as error:
            raise StoreUnavailable(
                f"The database path {path} is a circle of symbolic links.",
                cure="Choose another path.",
            ) from error
        turns = Turns(asyncio.get_running_loop())
        writer = Writer(path, place, turns, patience=patience, queue_bytes=queue_bytes)
        try:
            await writer.open(synchronous=synchronous, max_bytes=max_bytes)
        except BaseException:
            files.closed()
            raise
        files.keep()
        place.remember()
        pool = Readers(
            path,
            place,
            turns,
            readers,
            lambda: open_connection(
                path,
                write=False,
                synchronous=synchronous,
                busy_seconds=min(patience, _READ_SECONDS),
            ),
        )
        return cls(files, writer, pool)

    async def read(
        self, sql: str, params: Mapping[str, Value], *, owner: str | None = None
    ) -> list[Row]:
        """Answer one query from a consistent snapshot of what is committed."""
        return await self._readers.read(sql, params)

    async def batch(
        self,
        statements: Sequence[Statement],
        *,
        owner: str | None = None,
        locks: Sequence[str] = (),
        repeatable: bool = False,
        announce: Announce | None = None,
    ) -> list[list[Row]]:
        """Run the statements in one transaction and return the rows of each, once it is durable.

        One thread writes for this process and SQLite's lock excludes others, so no batch needs
        `locks` and none is ever in doubt.

        Raises:
            BatchMissed: a statement missed its row count; nothing was written.
            ConstraintFailed: a statement broke a constraint; nothing was written.
        """
        return await self._writer.write(statements, announce=announce)

    async def purge(
        self, statements: Sequence[Statement], *, owner: str | None, locks: Sequence[str] = ()
    ) -> list[list[Row]]:
        """Run a batch that deletes whole threads, without checks of foreign keys.

        Raises what `batch` raises.
        """
        return await self._writer.write(statements, "purge")

    async def scrub(self) -> bool:
        """Empty the write-ahead log; False if a reader held it open for 2 seconds.

        The file has zeros where deleted rows were, but the log may still hold them.
        """
        # By the writer thread, so that no transaction of this process is open.
        [[(done,)]] = await self._writer.write([], "scrub")
        return bool(done)

    async def vacuum(self) -> None:
        """Rewrite the file without unused space; blocks all writes meanwhile."""
        await self._writer.write([], "vacuum")

    async def _version(self) -> int:
        # By the writer's connection, for which the commits of this process do not count.
        [[(version,)]] = await self._writer.write([], "version")
        return int(str(version))

    async def close(self) -> None:
        """Finish accepted work, then end the threads; safe to call twice."""
        # Close the writer last: the last connection cleans up the write-ahead log.
        try:
            await self._file_signals.close()
            await self._readers.close()
        finally:
            await self._writer.close()
            self._files.closed()
