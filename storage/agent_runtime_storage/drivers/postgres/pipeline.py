"""A connection in libpq's pipeline mode: a list of commands is one round trip, one transaction.

This talks to libpq (`psycopg.pq`) itself: psycopg's own pipeline goes to the event loop for every
command, builds errors that hold other rows' values (DETAIL), and does not tell whether a
transaction may have been committed when the connection broke.
"""

from __future__ import annotations

import asyncio
import itertools
import select
import time
from collections import OrderedDict
from collections.abc import Sequence

import psycopg
from psycopg.pq import ConnStatus, DiagnosticField, ExecStatus, TransactionStatus
from psycopg.pq.abc import PGconn, PGresult

from agent_runtime_storage.drivers.postgres.translation import PipelineCommand

# More than the store's statements in all variants of their values' types.
_PREPARED = 400
_CANCEL_SECONDS = 5.0
_FATAL = (b"FATAL", b"PANIC")


class ServerError(Exception):
    """The server refused a command; the transaction was rolled back.

    Attributes:
        sqlstate: the five characters that name the error.
    """

    def __init__(self, sqlstate: str, message: str) -> None:
        super().__init__(message)
        self.sqlstate = sqlstate
        self.message = message


class ConnectionLost(Exception):
    """The connection broke.

    Attributes:
        doubtful: whether the transaction may have been committed.
    """

    def __init__(self, message: str, *, doubtful: bool) -> None:
        super().__init__(message)
        self.doubtful = doubtful


class PipelineSession:
    """A connection of the pool; one task uses it at a time.

    Args:
        connection: open, in autocommit mode; it is the session's from now on.
        silence: after so many seconds without a byte from the server the connection is given up.
    """

    def __init__(self, connection: psycopg.AsyncConnection[tuple[object, ...]], silence: float):
        self._connection = connection
        self._pgconn: PGconn = connection.pgconn
        self._silence = silence
        self._prepared: OrderedDict[tuple[bytes, tuple[int, ...]], bytes] = OrderedDict()
        self._numbers = itertools.count()
        self.born = self.used = time.monotonic()
        self.pid = connection.info.backend_pid
        self._pgconn.enter_pipeline_mode()

    @property
    def usable(self) -> bool:
        """Whether the last run left it as it should be."""
        return (
            self._pgconn.status == ConnStatus.OK
            and self._pgconn.transaction_status == TransactionStatus.IDLE
        )

    def alive(self) -> bool:
        """Return whether the server has not closed the connection, as far as one sees from here.

        Without it every batch after a restart of the server would be in doubt, although it was
        sent into a connection that was closed long ago.
        """
        poll = select.poll()
        try:
            poll.register(self._pgconn.socket, select.POLLIN)
            while poll.poll(0):
                self._pgconn.consume_input()
                self._pgconn.is_busy()
        except psycopg.Error:
            return False
        return self.usable

    def discard(self) -> None:
        """Close the connection; the server rolls back what is open."""
        self._pgconn.finish()

    def forget_prepared(self) -> None:
        """Prepare every statement anew: the server does not know them any more."""
        self._prepared.clear()

    async def run(
        self, commands: Sequence[PipelineCommand], *, patient: bool = False
    ) -> list[PGresult]:
        """Run the commands in one transaction; return the result of each once it is committed.

        Cancelled, it has the server cancel the transaction, waits until that is done, and leaves
        the connection as it found it.

        Args:
            patient: wait for the server however long it is silent.

        Raises:
            ServerError: a command was refused; nothing was written.
            ConnectionLost: the connection broke, and cannot be used any more.
        """
        silence = None if patient else self._silence
        self.used = time.monotonic()
        try:
            expected = self._send(commands)
        except psycopg.Error as error:
            self.discard()
            raise ConnectionLost(str(error), doubtful=True) from None
        try:
            return await self._collect(expected, silence)
        except asyncio.CancelledError:
            await self._abandon()
            raise

    def _send(
        self, commands: Sequence[PipelineCommand]
    ) -> list[tuple[bytes, tuple[int, ...]] | None]:
        """Queue the commands; return for each result to come the statement that it prepares."""
        pgconn = self._pgconn
        expected: list[tuple[bytes, tuple[int, ...]] | None] = []
        while len(self._prepared) > _PREPARED:
            _, name = self._prepared.popitem(last=False)
            # It is answered like a command that prepares something, but for its result.
            pgconn.send_query_params(b"DEALLOCATE " + name, None)
            expected.append((b"", ()))
        for command in commands:
            if not command.prepare:
                pgconn.send_query_params(
                    command.sql, command.values, command.types, command.formats, 1
                )
                expected.append(None)
                continue
            key = (command.sql, command.types)
            name = self._prepared.get(key)
            if name is None:
                name = self._prepared[key] = b"s%d" % next(self._numbers)
                pgconn.send_prepare(name, command.sql, command.types)
                expected.append(key)
            else:
                self._prepared.move_to_end(key)
            pgconn.send_query_prepared(name, command.values, command.formats, 1)
            expected.append(None)
        pgconn.pipeline_sync()
        return expected

    async def _collect(
        self, expected: Sequence[tuple[bytes, tuple[int, ...]] | None], silence: float | None
    ) -> list[PGresult]:
        results: list[PGresult] = []
        error: ServerError | None = None
        for prepares in expected:
            result = await self._next(silence)
            while result is not None:
                if result.status in (ExecStatus.FATAL_ERROR, ExecStatus.PIPELINE_ABORTED):
                    if prepares is not None:
                        self._prepared.pop(prepares, None)
                    if result.status == ExecStatus.FATAL_ERROR:
                        error = error or self._refusal(result)
                elif prepares is None:
                    results.append(result)
                result = await self._next(silence)
        result = await self._next(silence)
        if error is None and result is not None and result.status == ExecStatus.FATAL_ERROR:
            # The commit itself failed; the end of the pipeline comes after it.
            error = self._refusal(result)
            while result is not None and result.status != ExecStatus.PIPELINE_SYNC:
                result = await self._next(silence) or await self._next(silence)
        if error is not None:
            raise error
        return results

    def _refusal(self, result: PGresult) -> ServerError:
        """Return the server's error.

        Raises:
            ConnectionLost: it is the last thing that this server process said.  What it says in
                place of a command's result it said before it came to the commit.
        """
        state = result.error_field(DiagnosticField.SQLSTATE)
        primary = result.error_field(DiagnosticField.MESSAGE_PRIMARY) or b"unknown error"
        message = primary.decode("utf-8", "replace")
        if state is None:
            self.discard()
            raise ConnectionLost(message, doubtful=True)
        if result.error_field(DiagnosticField.SEVERITY_NONLOCALIZED) in _FATAL:
            self.discard()
            raise ConnectionLost(message, doubtful=False)
        return ServerError(state.decode(), message)

    async def _next(self, silence: float | None) -> PGresult | None:
        """Return the next result; None where the results of a command end."""
        pgconn = self._pgconn
        try:
            while pgconn.is_busy():
                # Read while the rest is still being sent, or both sides wait for each other.
                await self._ready(bool(pgconn.flush()), silence)
                pgconn.consume_input()
            return pgconn.get_result()
        except psycopg.Error as error:
            self.discard()
            raise ConnectionLost(str(error), doubtful=True) from None

    async def _ready(self, sending: bool, silence: float | None) -> None:
        """Wait until the server has said something, or has taken something of what is sent."""
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()

        def wake() -> None:
            if not ready.done():
                ready.set_result(None)

        def give_up() -> None:
            if not ready.done():
                ready.set_exception(
                    psycopg.OperationalError(f"the server was silent for {silence} seconds")
                )

        descriptor = self._pgconn.socket
        timer = None if silence is None else loop.call_later(silence, give_up)
        loop.add_reader(descriptor, wake)
        if sending:
            loop.add_writer(descriptor, wake)
        try:
            await ready
        finally:
            loop.remove_reader(descriptor)
            if sending:
                loop.remove_writer(descriptor)
            if timer is not None:
                timer.cancel()

    async def _abandon(self) -> None:
        """Cancel on the server what runs, and bring the connection back to where it was."""
        # What was being prepared may be there or not; its names are not used again.
        self._prepared.clear()
        try:
            async with asyncio.timeout(_CANCEL_SECONDS):
                await self._connection.cancel_safe(timeout=_CANCEL_SECONDS)
                while True:
                    result = await self._next(None)
                    if result is not None and result.status == ExecStatus.PIPELINE_SYNC:
                        return
        except (TimeoutError, psycopg.Error, ConnectionLost):
            self.discard()
        except BaseException:
            self.discard()
            raise
