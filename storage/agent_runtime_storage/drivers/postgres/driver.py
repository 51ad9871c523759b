"""The driver for a Postgres server: a pool of connections, one round trip for a read or a batch."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import random
import time
import traceback
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import anyio
import orjson
import psycopg

from agent_runtime_config.urls import redact_url
from agent_runtime_storage.drivers.postgres.connection_work import ConnectionWork, run_commands
from agent_runtime_storage.drivers.postgres.conninfo import CONNECT_SECONDS, parse_url
from agent_runtime_storage.drivers.postgres.error_mapping import (
    READ_ONLY_STATE,
    RETRYABLE_STATES,
    STALE_STATEMENT_STATES,
    Unreachable,
    doubt_error,
    lost_error,
    map_connect,
    map_refusal,
    postgres_closed_error,
)
from agent_runtime_storage.drivers.postgres.joining import run_joined
from agent_runtime_storage.drivers.postgres.notifications import (
    NOTIFY,
    NOTIFY_OF_WORK,
    AnyConnection,
    PostgresSignals,
)
from agent_runtime_storage.drivers.postgres.pipeline import (
    ConnectionLost,
    PipelineSession,
    ServerError,
)
from agent_runtime_storage.drivers.postgres.pool import ConnectionPool
from agent_runtime_storage.drivers.postgres.pooling import require_own_connections
from agent_runtime_storage.drivers.postgres.results import Rows
from agent_runtime_storage.drivers.postgres.setup import (
    APP_ROLE,
    Isolation,
    Prepared,
    Setup,
    setup_queries,
)
from agent_runtime_storage.drivers.postgres.translation import (
    PipelineCommand,
    batch_command,
    missed_statement_index,
    query_command,
)
from agent_runtime_storage.drivers.protocol import (
    Announce,
    BatchMissed,
    Row,
    SqlDialect,
    Statement,
    Value,
)
from agent_runtime_storage.drivers.shielding import wait_shielded
from agent_runtime_storage.drivers.signals import WORK, Signals
from agent_runtime_storage.sql.loader import load_queries

# Random waits of at most 2.5 seconds in all; what clashes for longer is reported as busy.
_CLASH_TRIES = 8
_SHORTEST_WAIT = 0.05
_LONGEST_WAIT = 1.0
# While opening, a wrong host or port is more likely than a server that restarts.
_OPENING_SECONDS = 5.0
_MIGRATIONS = "migrations"
# A migration may build an index over all rows, or wait for another process that does.
_PATIENT_SECONDS = 3600
_READ = "set_config('transaction_read_only', 'on', true)"
_PLANNED = "set_config('plan_cache_mode', 'force_generic_plan', true)"
"""Plans the statements of batches once for a connection, which takes longer than to run them.

They find their rows by whole keys.  Reads are planned each time: see `settings` in setup.sql.
"""


_T = TypeVar("_T")


class PostgresDriver:
    """A Postgres database; see `Driver`.  Bound to the event loop that opened it."""

    dialect: SqlDialect = "postgres"

    def __init__(
        self, url: str, *, connections: int, statement_seconds: float, patience: float
    ) -> None:
        self._shown = redact_url(url)
        self._conninfo = parse_url(url, self._shown)
        self._statement_seconds = statement_seconds
        self._patience = patience
        self._prepared = Prepared("agent_runtime", uses_role=False)
        self._connections = ConnectionPool(self._connect_session, connections)
        self._rows = Rows()
        self._has_written = False
        self._running: set[asyncio.Task[Any]] = set()
        self._closing: asyncio.Task[None] | None = None
        self._postgres_signals = PostgresSignals(
            connect=self._connect, send=self._notify, is_own=lambda pid: self._connections.owns(pid)
        )
        self.signals: Signals = self._postgres_signals

    def __repr__(self) -> str:
        return f"<PostgresDriver {self._shown}>"

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        connections: int = 8,
        statement_seconds: float = 30,
        patience: float = 60.0,
    ) -> PostgresDriver:
        """Open the database and create what the migrations need: schema, pgvector, roles.

        Args:
            url: `postgresql://user:password@host:port/database?parameters`, as libpq reads it.
            connections: the most connections at a time; listening takes one more.
            statement_seconds: seconds after which the server cancels a statement.
            patience: seconds to wait for a server that is down.

        Raises:
            StoreUnavailable: the server or the database cannot be reached.
            MigrationError: something is missing that the login cannot create.
            StoreError: the URL is not valid.
        """
        driver = cls(
            url,
            connections=connections,
            statement_seconds=statement_seconds,
            patience=min(patience, _OPENING_SECONDS),
        )
        try:
            await driver._prepare()
        except BaseException:
            with anyio.CancelScope(shield=True):
                await driver.close()
            raise
        driver._patience = patience
        return driver

    async def read(self, sql: str, params: Mapping[str, Value], *, owner: str | None) -> list[Row]:
        """Answer one query from a consistent snapshot of what is committed.

        Cancelling it cancels the query on the server first.
        """
        return await self._read(sql, params, owner)

    async def read_patiently(
        self, sql: str, params: Mapping[str, Value], *, owner: str | None
    ) -> list[Row]:
        """Answer a query that may read whole tables."""
        return await self._read(sql, params, owner, _patient())

    async def _read(
        self, sql: str, params: Mapping[str, Value], owner: str | None, *limits: PipelineCommand
    ) -> list[Row]:
        commands = [
            self._prologue(owner, (), _READ), *limits, query_command(sql, params)
        ]  # fmt: skip
        operation = run_commands(commands, repeatable=True, patient=bool(limits))
        try:
            results = await self._perform(operation, abandon=True)
        except ServerError as error:
            raise map_refusal(error, self._shown) from None
        return await self._rows.load(results[-1])

    async def batch(
        self,
        statements: Sequence[Statement],
        *,
        owner: str | None,
        locks: Sequence[str] = (),
        repeatable: bool = False,
        announce: Announce | None = None,
    ) -> list[list[Row]]:
        """Run the statements in one transaction and return the rows of each, once it is durable.

        Raises:
            BatchMissed: a statement missed its row count; nothing was written.
            ConstraintFailed: a statement broke a constraint; nothing was written.
            StoreInDoubt: the connection broke during a batch that is not repeatable.
        """
        migrating = _MIGRATIONS in locks
        # Before the prologue, whose wait for the lock the limits bound as well.
        prologue = [_patient()] if migrating else []
        prologue.append(self._prologue(owner, locks, "" if migrating else _PLANNED))
        own = [
            # A migration's statements run once; preparing them would only fill the cache.
            batch_command(statement, place, prepare=not migrating)
            for place, statement in enumerate(statements)
        ]
        commands = [*prologue, *own]
        operation = run_commands(commands, repeatable=repeatable, patient=migrating, writes=True)
        try:
            results = await self._perform(operation)
        except ServerError as error:
            place = missed_statement_index(error.message)
            if place is not None:
                raise BatchMissed(statements[place].miss, place) from None
            raise map_refusal(error, self._shown) from None
        self._has_written = True
        rows = [
            await self._rows.load(result) if sent.returns else []
            for sent, result in zip(own, results[len(prologue) :], strict=True)
        ]
        if announce is not None:
            announce(rows)
        return rows

    async def join(
        self,
        connection: Any,
        statements: Sequence[Statement],
        *,
        owner: str,
        locks: Sequence[str] = (),
    ) -> None:
        """Run the statements in the transaction of the caller's own connection."""
        prologue = Statement(*self._prologue_text(owner, locks, ""))
        await run_joined(connection, prologue, statements, path=self._prepared.path)

    async def vacuum(self) -> None:
        """Vacuum table by table; does not block others.

        Raises:
            StoreError: the login does not own the tables.
        """
        # VACUUM cannot run in a transaction, nor for a schema at once.
        tables = await self.read(load_queries("postgres")["schema_tables"], {}, owner=None)
        limit = round(self._statement_seconds * 1000)

        async def sweep(session: PipelineSession) -> None:
            await _run_alone(session, "SET statement_timeout = 0")
            try:
                for (name,) in tables:
                    await _run_alone(session, f'VACUUM agent_runtime."{name}"')
            finally:
                await _run_alone(session, f"SET statement_timeout = {limit}")

        try:
            await self._perform(ConnectionWork(sweep, repeatable=True))
        except ServerError as error:
            raise map_refusal(error, self._shown) from None

    async def isolation(self) -> Isolation:
        """Return how the database separates owners."""
        uses_role = self._prepared.uses_role
        operation = ConnectionWork(
            lambda session: self._setup(session).isolation(uses_role=uses_role), repeatable=True
        )
        return await self._perform(operation, abandon=True)

    async def close(self) -> None:
        """Finish accepted work, then close the connections; safe to call twice.

        Work that waits for a server that is down is abandoned.
        """
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        await wait_shielded(self._closing)
        self._closing.result()

    async def _close(self) -> None:
        while self._running:
            await asyncio.wait(self._running)
        # Before the connections, because it sends what is still pending.
        await self._postgres_signals.close()
        self._connections.close()

    # One operation

    async def _perform(self, operation: ConnectionWork[_T], *, abandon: bool = False) -> _T:
        """Run it in a separate task that outlives the caller's cancellation.

        Args:
            abandon: whether it may be cancelled while it runs; otherwise only before.
        """
        if self._closing is not None:
            raise postgres_closed_error(self._shown)
        await anyio.lowlevel.checkpoint_if_cancelled()
        # asyncio cancels a task once, which psycopg and asyncio's locks survive; an anyio scope
        # would cancel again and again and lose the connection.
        task = asyncio.create_task(self._attempts(operation))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if abandon or not operation.begun:
                task.cancel()
            try:
                await wait_shielded(task)
            finally:
                # Retrieved, or asyncio would log the error that the cancellation replaces.
                if not task.cancelled():
                    task.exception()
            raise

    async def _attempts(self, operation: ConnectionWork[_T]) -> _T:
        """Run the operation; wait for a server that is down, and retry what can be retried."""
        deadline: float | None = None
        wait = _SHORTEST_WAIT
        clashes = 0
        while True:
            try:
                return await self._attempt(operation)
            except ServerError as error:
                # Nothing was written.
                operation.begun = False
                limit = 1 if error.sqlstate in STALE_STATEMENT_STATES else _CLASH_TRIES
                if (
                    error.sqlstate not in RETRYABLE_STATES | STALE_STATEMENT_STATES
                    or clashes >= limit
                ):
                    raise
                clashes += 1
                # Random, or the batches that clashed would meet again.
                await asyncio.sleep(random.uniform(0, 0.005 * 2**clashes))
                continue
            except ConnectionLost as lost:
                if lost.doubtful and not operation.repeatable:
                    raise doubt_error(str(lost), self._shown) from None
                # A cancelled caller may drop the retry only if surely nothing was written.
                operation.begun = lost.doubtful
                failure = lost_error(str(lost), self._shown)
            except Unreachable as refused:
                failure = refused.error
                if refused.lasting:
                    raise failure from None
            now = time.monotonic()
            # From the first failure: a long wait for a connection or a lock takes nothing of it.
            deadline = now + self._patience if deadline is None else deadline
            if now >= deadline or self._closing is not None:
                raise failure
            await asyncio.sleep(min(wait * random.uniform(0.5, 1.0), deadline - now))
            wait = min(wait * 2, _LONGEST_WAIT)

    async def _attempt(self, operation: ConnectionWork[_T]) -> _T:
        session = await self._connections.take()
        try:
            operation.begun = True
            return await operation.work(session)
        except ServerError as error:
            if error.sqlstate in STALE_STATEMENT_STATES:
                session.forget_prepared()
            if error.sqlstate == READ_ONLY_STATE and operation.writes and self._has_written:
                # It is the primary server no more.  Connections to it would stay read-only.
                self._connections.renew()
                operation.begun = False
                raise Unreachable(map_refusal(error, self._shown), lasting=False) from None
            raise
        finally:
            self._connections.give(session)

    def _prologue(self, owner: str | None, locks: Sequence[str], settings: str) -> PipelineCommand:
        """Return the statement that sets the transaction's owner and takes its locks in order.

        It is separate, so that the statements after it see what was committed while it waited.
        """
        return query_command(*self._prologue_text(owner, locks, settings))

    def _prologue_text(
        self, owner: str | None, locks: Sequence[str], settings: str
    ) -> tuple[str, dict[str, Value]]:
        # All batches take their locks in one order, so none waits for another in a circle.
        keys = sorted({_lock_key(owner, name) for name in locks})
        params: dict[str, Value] = {"owner": owner or ""}
        params |= {f"key{place}": key for place, key in enumerate(keys)}
        sql = _prologue_sql(
            len(keys),
            as_app=owner is not None and self._prepared.uses_role,
            owned=owner is not None,
            settings=settings,
        )
        return sql, params

    # Connections

    async def _connect(self) -> AnyConnection:
        try:
            return await psycopg.AsyncConnection.connect(self._conninfo, autocommit=True)
        except (psycopg.Error, OSError, UnicodeError) as error:
            raise map_connect(str(error), self._shown) from None
        except BaseException as interrupted:
            # These frames keep psycopg's half-open connection alive until garbage collection, and
            # the server waits for it until then.
            traceback.clear_frames(interrupted.__traceback__)
            raise

    async def _connect_session(self) -> PipelineSession:
        connection = await self._connect()
        session = PipelineSession(connection, self._statement_seconds + CONNECT_SECONDS)
        milliseconds = round(self._statement_seconds * 1000)
        settings = {
            "path": self._prepared.path,
            "statement_timeout": str(milliseconds),
            # A lock timeout is a clearer error than a statement timeout.
            "lock_timeout": str(round(milliseconds * 0.9)),
            "idle_timeout": str(milliseconds),
        }
        try:
            setting = query_command(setup_queries()["settings"], settings, prepare=False)
            [result] = await session.run([setting])
            session.settled(int.from_bytes(result.get_value(0, 0) or b"", signed=True))
        except ConnectionLost as lost:
            raise map_connect(str(lost), self._shown) from None
        except BaseException:
            session.discard()
            raise
        return session

    async def _prepare(self) -> None:
        pooling = ConnectionWork(self._require_own_connections, repeatable=True)
        await self._perform(pooling, abandon=True)
        operation = ConnectionWork(lambda session: self._setup(session).prepare(), repeatable=True)
        self._prepared = await self._perform(operation, abandon=True)
        # The connection that ran the setup still has the old search path.
        self._connections.close()
        self._connections = ConnectionPool(self._connect_session, self._connections.limit)

    async def _require_own_connections(self, session: PipelineSession) -> None:
        if session.pooled:
            await require_own_connections(self._connect_session, self._shown)

    def _setup(self, session: PipelineSession) -> Setup:
        async def ask(sql: str, params: Mapping[str, Value]) -> list[Row]:
            [result] = await session.run([query_command(sql, params, prepare=False)])
            return await self._rows.load(result)

        return Setup(ask, self._shown)

    async def _notify(self, topics: Sequence[str]) -> None:
        sent = {"topics": orjson.dumps(list(topics)).decode()}
        sql = NOTIFY_OF_WORK if WORK in topics else NOTIFY
        # Not by `_perform`, which refuses work once the driver closes: the last topics go then.
        await self._attempt(run_commands([query_command(sql, sent)], repeatable=True))


def _lock_key(owner: str | None, name: str) -> int:
    # The length keeps owner and name apart.  Two names with one key would only wait for each other.
    named = f"{'' if owner is None else len(owner)}:{owner or ''}:{name}"
    digest = hashlib.blake2b(named.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, signed=True)


async def _run_alone(session: PipelineSession, sql: str) -> None:
    """Run a statement that cannot share a transaction."""
    await session.run([query_command(sql, {}, prepare=False)], patient=True)


def _patient() -> PipelineCommand:
    limit = str(_PATIENT_SECONDS * 1000)
    sql = (
        "SELECT set_config('statement_timeout', :limit, true), "
        "set_config('lock_timeout', :limit, true)"
    )
    return query_command(sql, {"limit": limit}, prepare=False)


@functools.cache
def _prologue_sql(locks: int, *, as_app: bool, owned: bool, settings: str) -> str:
    # `true` ends each setting with the transaction: the connection's next user has another owner.
    parts = ["set_config('agent_runtime.user_id', :owner, true)"]
    if not owned:
        parts.append("set_config('agent_runtime.system', 'on', true)")
    if as_app:
        parts.append(f"set_config('role', '{APP_ROLE}', true)")
    if settings:
        parts.append(settings)
    parts += [f"pg_advisory_xact_lock(:key{place})" for place in range(locks)]
    return f"SELECT {', '.join(parts)}"
