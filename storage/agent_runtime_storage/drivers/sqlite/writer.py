"""The writer thread of the database file, with group commit.

The thread takes all queued batches (up to a limit), runs each under a savepoint of one transaction,
and acknowledges them after COMMIT.  One sync of the disk then serves all concurrent writers, and a
lone writer does not wait for others.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import math
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

import apsw

from agent_runtime_storage.drivers.protocol import BatchMissed, Row, Statement
from agent_runtime_storage.drivers.shielding import wait_shielded
from agent_runtime_storage.drivers.sqlite.connection import (
    SqliteConnection,
    Synchronous,
    map_sqlite_error,
    open_connection,
    run_statements,
    sqlite_closed_error,
)
from agent_runtime_storage.drivers.sqlite.database_file import OpenDatabaseFile
from agent_runtime_storage.drivers.turns import Turns

_Result: TypeAlias = list[list[Row]]
_Kind: TypeAlias = Literal["batch", "purge", "scrub", "vacuum", "version"]
"""A purge is a batch without checks of foreign keys; a scrub empties the write-ahead log; a version
changes when another connection has committed."""

# More batches in one transaction save no more syncs, but the first of them waits for the last.
_GROUP = 256
# SQLite checkpoints by itself as the log grows, but only a truncating checkpoint shrinks the file.
_CHECKPOINT_SECONDS = 30.0
# How long a scrub waits for readers, which hold the log open; all writes wait with it.
_SCRUB_SECONDS = 2.0
# How long SQLite waits for a lock in one try, and the pause between two.
_TRY_SECONDS = 1.0
_PAUSE_SECONDS = 0.05
# While opening and closing: nobody wants to wait for a minute then.
_OPENING_SECONDS = 5.0
# The size of a statement without its values.
_STATEMENT_BYTES = 256


_log = logging.getLogger(__name__)


class _Job:
    """A queued batch; `started` and `withdrawn` change under the writer's lock."""

    __slots__ = (
        "announce",
        "deadline",
        "future",
        "kind",
        "result",
        "size",
        "started",
        "statements",
        "withdrawn",
    )  # fmt: skip

    def __init__(
        self,
        statements: Sequence[Statement],
        size: int,
        future: asyncio.Future[_Result],
        kind: _Kind,
        deadline: float,
        announce: Callable[[_Result], None] | None,
    ) -> None:
        self.kind = kind
        self.announce = announce
        self.deadline = deadline
        self.statements = statements
        self.size = size
        self.future = future
        self.result: _Result | Exception | None = None
        self.started = False
        self.withdrawn = False


class Writer:
    """The writer thread and its queue, bound to the event loop that opened it."""

    def __init__(
        self,
        path: Path,
        place: OpenDatabaseFile,
        turns: Turns,
        *,
        patience: float,
        queue_bytes: int,
    ) -> None:
        self._path = path
        self._turns = turns
        self._place = place
        self._patience = patience
        # Short, because a batch can be withdrawn only between two tries.
        self._busy_seconds = min(patience, _TRY_SECONDS)
        # Set by `close`: then no batch waits for longer than this moment.
        self._last_try = math.inf
        self._capacity = queue_bytes
        self._loop = asyncio.get_running_loop()
        self._queue: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._used = 0
        self._unbegun = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._closed = False
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._checkpointed = time.monotonic()

    @property
    def waiting(self) -> bool:
        """Whether a batch waits that the thread has not started."""
        with self._lock:
            return self._unbegun > 0

    @property
    def held_back(self) -> int:
        """How many batches wait for room in the queue."""
        return len(self._waiting)

    async def open(self, *, synchronous: Synchronous, max_bytes: int | None) -> None:
        """Start the thread and open the file in it.  Raises the errors of `open_connection`."""
        thread = threading.Thread(
            target=self._run,
            args=(synchronous, max_bytes),
            name=f"store-writer-{self._path.name}",
            # A program that forgets to close the store can still exit.
            daemon=True,
        )
        thread.start()
        try:
            await asyncio.shield(self._opened)
        except BaseException:
            await self.close()
            if self._opened.done():
                # Retrieved, or asyncio would log it as forgotten after a cancellation.
                self._opened.exception()
            raise

    async def write(
        self,
        statements: Sequence[Statement],
        kind: _Kind = "batch",
        *,
        announce: Callable[[_Result], None] | None = None,
    ) -> _Result:
        """Run a batch and return once it is durable.

        Waits while the queue is full.  Cancelling withdraws a batch that has not started; one that
        has started is awaited first.

        Args:
            announce: called with the result once it is durable, before the caller's turn comes.
        """
        size = sum(_size(statement) for statement in statements)
        await self._admit(size)
        # It may have been closed between the admission and this task's turn.
        if self._closed:
            self._release(size)
            raise sqlite_closed_error(self._path)
        deadline = time.monotonic() + self._patience
        job = _Job(statements, size, self._loop.create_future(), kind, deadline, announce)
        with self._lock:
            self._unbegun += 1
        self._queue.put(job)
        try:
            return await asyncio.shield(job.future)
        except asyncio.CancelledError:
            # Whether it is written is decided by the thread, so its caller waits to know.
            if not self._withdraw(job):
                await wait_shielded(job.future)
                # The cancellation is raised instead of the job's error, which counts as retrieved.
                if not job.future.cancelled():
                    job.future.exception()
            raise

    async def close(self) -> None:
        """Finish accepted work and end the thread; cancellation is delayed until then."""
        if not self._closed:
            self._closed = True
            self._last_try = time.monotonic() + _OPENING_SECONDS
            while self._waiting:
                _, admitted = self._waiting.popleft()
                if not admitted.done():
                    admitted.set_exception(sqlite_closed_error(self._path))
            self._queue.put(None)
        await wait_shielded(self._ended)

    # On the event loop

    async def _admit(self, size: int) -> None:
        # In order of arrival, or small batches would keep a large one waiting; and one that is
        # larger than the whole queue is admitted to an empty one.
        if not self._waiting and (self._used == 0 or self._used + size <= self._capacity):
            self._used += size
            return
        admitted: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append((size, admitted))
        try:
            await admitted
        except asyncio.CancelledError:
            if admitted.done() and not admitted.cancelled() and admitted.exception() is None:
                # Admitted and cancelled in the same turn of the event loop.
                self._release(size)
            else:
                with contextlib.suppress(ValueError):
                    self._waiting.remove((size, admitted))
                # Those behind it may fit without it.
                self._release(0)
            raise

    def _release(self, size: int) -> None:
        self._used -= size
        while self._waiting:
            wanted, admitted = self._waiting[0]
            if self._used and self._used + wanted > self._capacity:
                return
            self._waiting.popleft()
            if not admitted.done():
                self._used += wanted
                admitted.set_result(None)

    def _withdraw(self, job: _Job) -> bool:
        with self._lock:
            # One that has started leaves if it has to be tried again.
            job.withdrawn = True
            if job.started:
                return False
        job.future.cancel()
        return True

    def _acknowledge(self, jobs: Sequence[_Job]) -> None:
        # Whoever follows what was written waits for no turn: that is little work.
        for job in jobs:
            _announce(job)
        for job in jobs:
            self._turns.call(_settle, job)
        self._release(sum(job.size for job in jobs))

    # In the thread

    def _run(self, synchronous: Synchronous, max_bytes: int | None) -> None:
        try:
            connection = open_connection(
                self._path,
                write=True,
                synchronous=synchronous,
                busy_seconds=min(self._patience, _OPENING_SECONDS),
            )
            connection.set_busy_timeout(round(self._busy_seconds * 1000))
            if max_bytes is not None:
                connection.pragma("max_page_count", max_bytes // connection.pragma("page_size"))
        except Exception as error:
            failure = map_sqlite_error(error, self._path)
            self._call(_set_exception, self._opened, failure)
            self._call(_set_done, self._ended)
            return
        self._call(_set_done, self._opened)
        try:
            while (job := self._queue.get()) is not None:
                if not self._serve(connection, job):
                    break
        finally:
            connection.close()
            self._call(_set_done, self._ended)

    def _serve(self, connection: SqliteConnection, first: _Job) -> bool:
        """Write the job and those queued behind it; return False at the end of the queue."""
        # What waits shares one transaction, and so one sync, which costs more than most batches.
        group, more = [first], True
        while len(group) < _GROUP:
            try:
                job = self._queue.get_nowait()
            except queue.Empty:
                break
            if job is None:
                more = False
                break
            group.append(job)
        with self._lock:
            self._unbegun -= len(group)
            live = [job for job in group if not job.withdrawn]
            for job in live:
                job.started = True
        # Neighbours of one kind only: the jobs run in the order in which they came.
        for kind, jobs in itertools.groupby(live, key=lambda job: job.kind):
            if kind == "batch":
                self._write_group(connection, list(jobs))
            else:
                self._write_apart(connection, kind, jobs)
        self._call(self._acknowledge, group)
        # Drop the references: the futures belong to the event loop now.
        del group, live, first
        self._checkpoint(connection)
        return more

    def _write_group(self, connection: SqliteConnection, jobs: Sequence[_Job]) -> None:
        """Write all jobs in one transaction and set their results.

        If the file is locked or its device is full, they are tried again, each to its deadline.  If
        the transaction breaks, each is retried alone, so that one bad job does not fail the others.
        """
        while True:
            try:
                self._transaction(connection, jobs)
                break
            except Exception as error:
                passing = isinstance(error, (apsw.BusyError, apsw.FullError))
                # A single large job may be what the device has no room for.
                if len(jobs) > 1 and not isinstance(error, apsw.BusyError):
                    for job in jobs:
                        self._write_group(connection, [job])
                    return
                mapped = map_sqlite_error(error, self._path)
                jobs = self.wait_to_retry(jobs, mapped) if passing else self._give_up(jobs, mapped)
                if not jobs:
                    return
        if problem := self._place.look():
            # The commit went to a file that was moved or deleted; do not retry it.
            for job in jobs:
                job.result = problem

    def _give_up(self, jobs: Sequence[_Job], error: Exception) -> Sequence[_Job]:
        for job in jobs:
            job.result = error
        return ()

    def wait_to_retry(self, jobs: Sequence[_Job], error: Exception) -> Sequence[_Job]:
        """Wait before the next try; return the jobs that are still wanted and not overdue."""
        now = time.monotonic()
        overdue = [job for job in jobs if now >= min(job.deadline, self._last_try)]
        self._give_up(overdue, error)
        kept = [job for job in jobs if job not in overdue]
        if kept:
            time.sleep(_PAUSE_SECONDS)
        with self._lock:
            left = [job for job in kept if job.withdrawn]
        # Nothing of them is written, so their callers may leave.
        for job in left:
            self._call(job.future.cancel)
        return [job for job in kept if job not in left]

    def _write_apart(self, connection: SqliteConnection, kind: str, jobs: Iterable[_Job]) -> None:
        """Run jobs that cannot share a transaction with others."""
        for job in jobs:
            try:
                if kind == "version":
                    job.result = [[(connection.pragma("data_version"),)]]
                    continue
                if kind == "vacuum":
                    connection.execute("VACUUM")
                if kind != "purge":
                    # A vacuum too: it writes the whole new database to the write-ahead log.
                    job.result = [[(self._truncate(connection, _SCRUB_SECONDS),)]]
                    continue
                # SQLite ignores this pragma inside a transaction.
                connection.pragma("foreign_keys", False)
                try:
                    self._write_group(connection, [job])
                finally:
                    connection.pragma("foreign_keys", True)
            except Exception as error:
                job.result = map_sqlite_error(error, self._path)

    def _transaction(self, connection: SqliteConnection, jobs: Sequence[_Job]) -> None:
        self._place.check()
        # A deferred transaction that reads and then writes fails at once (SQLITE_BUSY_SNAPSHOT) if
        # another process has written in between, whatever the busy timeout.
        connection.execute("BEGIN IMMEDIATE")
        try:
            for job in jobs:
                job.result = self._under_savepoint(connection, job)
            connection.execute("COMMIT")
        finally:
            # After some errors (a full disk) SQLite has already rolled back.
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    def _under_savepoint(self, connection: SqliteConnection, job: _Job) -> _Result | Exception:
        """Return the job's result, or its error after a rollback; raise if all is lost."""
        connection.execute("SAVEPOINT job")
        try:
            result: _Result | Exception = run_statements(connection, job.statements)
        except (BatchMissed, apsw.ConstraintError, apsw.SQLError) as error:
            if not connection.in_transaction:
                raise
            connection.execute("ROLLBACK TO job")
            result = map_sqlite_error(error, self._path)
        except apsw.Error:
            # A full disk or a failing device: nothing of the transaction can be trusted.
            raise
        except Exception as error:
            # A value cannot be bound: only this job fails.
            connection.execute("ROLLBACK TO job")
            result = map_sqlite_error(error, self._path)
        connection.execute("RELEASE job")
        return result

    def _checkpoint(self, connection: SqliteConnection) -> None:
        """Checkpoint the write-ahead log from time to time, when the queue is empty."""
        now = time.monotonic()
        if now - self._checkpointed < _CHECKPOINT_SECONDS or not self._queue.empty():
            return
        self._checkpointed = now
        # A failure only leaves a longer log for the next checkpoint.
        self._truncate(connection, 0.0)

    def _truncate(self, connection: SqliteConnection, patience: float) -> bool:
        """Checkpoint and truncate the write-ahead log; return False if readers were in the way."""
        connection.set_busy_timeout(round(patience * 1000))
        try:
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        except apsw.Error:
            return False
        finally:
            connection.set_busy_timeout(round(self._busy_seconds * 1000))
        return True

    def _call(self, callback: Callable[..., object], *args: object) -> None:
        # A closed loop has nobody left who waits.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback, *args)


def _size(statement: Statement) -> int:
    size = _STATEMENT_BYTES
    for value in statement.params.values():
        if isinstance(value, (bytes, str)):
            size += len(value)
    return size


def _announce(job: _Job) -> None:
    if job.announce is None or job.result is None or isinstance(job.result, Exception):
        return
    try:
        job.announce(job.result)
    except Exception:
        # It is written all the same.
        _log.exception("What was written could not be announced.")


def _settle(job: _Job) -> None:
    if not job.future.done():
        if isinstance(job.result, Exception):
            job.future.set_exception(job.result)
        elif job.result is not None:
            job.future.set_result(job.result)


def _set_done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _set_exception(future: asyncio.Future[None], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
