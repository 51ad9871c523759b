"""A connection in libpq's pipeline mode: a list of commands is one round trip, one transaction.

This uses libpq (`psycopg.pq`) directly: psycopg's pipeline returns to the event loop for every
command, builds errors that hold values of other rows (DETAIL), and does not report whether a
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

# More than the store has statements, in all variants of their value types.
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
        connection: open, in autocommit mode; the session owns it from now on.
        silence: seconds without a byte from the server after which the connection is abandoned.
    """

    def __init__(self, connection: psycopg.AsyncConnection[tuple[object, ...]], silence: float):
        self._connection = connection
        self._pgconn: PGconn = connection.pgconn
        self._silence = silence
        self._prepared: OrderedDict[tuple[bytes, tuple[int, ...]], bytes] = OrderedDict()
        self._numbers = itertools.count()
        self.born = self.used = time.monotonic()
        # Of the server process; a pooler tells a number of its own, until `settled` is called.
        self.pid = connection.info.backend_pid
        self.pooled = False
        self._pgconn.enter_pipeline_mode()

    def settled(self, pid: int) -> None:
        """Take over what the server says is the id of its process."""
        self.pooled = pid != self.pid
        self.pid = pid

    @property
    def usable(self) -> bool:
        """Whether the last run left it in a clean state."""
        return (
            self._pgconn.status == ConnStatus.OK
            and self._pgconn.transaction_status == TransactionStatus.IDLE
        )

    def alive(self) -> bool:
        """Return whether the connection is open, as far as this side can see.

        Without this check every batch after a restart of the server would be in doubt, although it
        went into a connection that was closed long ago.
        """
        # Not `select.select`, which takes no descriptor above 1023.
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
        """Close the connection; the server rolls back an open transaction."""
        self._pgconn.finish()

    def forget_prepared(self) -> None:
        """Forget the prepared statements: the server has lost them."""
        self._prepared.clear()

    async def run(
        self, commands: Sequence[PipelineCommand], *, patient: bool = False
    ) -> list[PGresult]:
        """Run the commands in one transaction and return their results once it is committed.

        Cancelling it cancels the transaction on the server, waits for that, and leaves the
        connection clean.

        Args:
            patient: wait for the server even if it is silent for long.

        Raises:
            ServerError: a command was refused; nothing was written.
            ConnectionLost: the connection broke and is unusable.
        """
        silence = None if patient else self._silence
        self.used = time.monotonic()
        try:
            expected = self._send(commands)
        except psycopg.Error as error:
            self.discard()
            # libpq may have sent everything up to the commit before it failed.
            raise ConnectionLost(str(error), doubtful=True) from None
        try:
            return await self._collect(expected, silence)
        except asyncio.CancelledError:
            await self._abandon()
            raise

    def _send(
        self, commands: Sequence[PipelineCommand]
    ) -> list[tuple[bytes, tuple[int, ...]] | None]:
        """Queue the commands; return for each expected result the statement that it prepares."""
        pgconn = self._pgconn
        expected: list[tuple[bytes, tuple[int, ...]] | None] = []
        while len(self._prepared) > _PREPARED:
            _, name = self._prepared.popitem(last=False)
            # It is answered like a command that prepares a statement, without a result.
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
        # Ends the implicit transaction: all commands since the last one commit together, or none
        # does.
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
                    # What was prepared before the error stays, although the transaction does not.
                    if prepares is not None:
                        self._prepared.pop(prepares, None)
                    if result.status == ExecStatus.FATAL_ERROR:
                        error = error or self._refusal(result)
                elif prepares is None:
                    results.append(result)
                result = await self._next(silence)
        result = await self._next(silence)
        if error is None and result is not None and result.status == ExecStatus.FATAL_ERROR:
            # The commit failed; the end of the pipeline follows.
            error = self._refusal(result)
            while result is not None and result.status != ExecStatus.PIPELINE_SYNC:
                # None stands between the results of two commands, so the second look finds the
                # next one.
                result = await self._next(silence) or await self._next(silence)
        if error is not None:
            raise error
        return results

    def _refusal(self, result: PGresult) -> ServerError:
        """Return the server's error.

        Raises:
            ConnectionLost: the server process has ended with this error.
        """
        state = result.error_field(DiagnosticField.SQLSTATE)
        primary = result.error_field(DiagnosticField.MESSAGE_PRIMARY) or b"unknown error"
        message = primary.decode("utf-8", "replace")
        if state is None:
            # libpq made this error, not the server: how far the server came is not known.
            self.discard()
            raise ConnectionLost(message, doubtful=True)
        if result.error_field(DiagnosticField.SEVERITY_NONLOCALIZED) in _FATAL:
            # The server said so instead of committing.
            self.discard()
            raise ConnectionLost(message, doubtful=False)
        return ServerError(state.decode(), message)

    async def _next(self, silence: float | None) -> PGresult | None:
        """Return the next result; None at the end of a command's results."""
        pgconn = self._pgconn
        try:
            while pgconn.is_busy():
                # Read while the rest is being sent, or both sides block on full buffers.
                await self._ready(bool(pgconn.flush()), silence)
                pgconn.consume_input()
            return pgconn.get_result()
        except psycopg.Error as error:
            self.discard()
            raise ConnectionLost(str(error), doubtful=True) from None

    async def _ready(self, sending: bool, silence: float | None) -> None:
        """Wait until the socket is readable or writable."""
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
        """Cancel the running command on the server, and restore the connection."""
        # A statement may or may not have been prepared; its name is not used again.
        self._prepared.clear()
        try:
            async with asyncio.timeout(_CANCEL_SECONDS):
                await self._connection.cancel_safe(timeout=_CANCEL_SECONDS)
                # Up to the pipeline's end, or the next run would read results of this one.
                while True:
                    result = await self._next(None)
                    if result is not None and result.status == ExecStatus.PIPELINE_SYNC:
                        return
        except (TimeoutError, psycopg.Error, ConnectionLost):
            self.discard()
        except BaseException:
            self.discard()
            raise
