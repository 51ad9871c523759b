"""The product's own statements on a database in memory, whose clock and faults are simulated.

Every world runs in one transaction, which is rolled back at its end, so that the schema and the
prepared statements stay.  A batch is atomic, as every driver promises, and batches run one after
another.  What SKIP LOCKED does for batches that run at the same time is not simulated.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import apsw

from agent_runtime_storage.contract.errors import StoreInDoubt, StoreUnavailable
from agent_runtime_storage.drivers.protocol import (
    Announce,
    BatchMissed,
    ConstraintFailed,
    Row,
    Statement,
    Value,
)
from agent_runtime_storage.drivers.signals import WORK, Signals
from agent_runtime_storage.drivers.sqlite.connection import (
    SqliteConnection,
    keep_plans,
    map_sqlite_error,
    run_query,
    run_statements,
)
from agent_runtime_storage.queries.migrations import apply_migrations
from agent_runtime_storage.sql.loader import SqlDialect
from benchmarks.proof.simulated.scheduler import Pause, Process, Scheduler, Waiter

PATIENCE = 60.0
"""How long a driver waits for a server that is down."""
LATEST = 0.4
"""Within this time a batch of a connection that broke is written, or never; no step is shorter."""
_NOWHERE = Path("memory")

Seen = Callable[[Process, Sequence[Statement], list[list[Row]]], None]
"""Called with each batch that was written."""


@dataclass(frozen=True, slots=True)
class Faults:
    """Probabilities, of each call of the database.

    Attributes:
        slow: that it takes some seconds.
        lost: that a batch is not written, and its caller is in doubt.
        late: the same, but it is written some seconds later.
        unheard: that it is written, and its caller is in doubt.
        signal: that a word of new work is lost.
    """

    slow: float = 0.0
    lost: float = 0.0
    late: float = 0.0
    unheard: float = 0.0
    signal: float = 0.0


class SimulatedDatabase:
    """One database that all processes of a world share.

    Attributes:
        ahead: how far the database's clock is ahead of the true time, in seconds.
        down_until: when it can be reached again.
    """

    def __init__(self) -> None:
        connection: Any = apsw.Connection(":memory:", statementcachesize=512)
        # Of the same arguments, so that the planner treats it as it does the built-in function.
        for count in (0, 1):
            connection.create_scalar_function(
                "unixepoch", self._clock, numargs=count, deterministic=True
            )
        self._connection = cast("SqliteConnection", connection)
        keep_plans(self._connection)
        self._connection.pragma("foreign_keys", True)
        self.begin(Scheduler(0.0, Process("setup", "setup")), random.Random(0), Faults())
        setup = SimulatedDriver(self, self._scheduler.current)
        finish_now(apply_migrations(setup))
        self._connection.execute("COMMIT")

    def begin(self, scheduler: Scheduler, chance: random.Random, faults: Faults) -> None:
        """Begin a world on an empty database."""
        self._scheduler, self._chance = scheduler, chance
        self.faults = faults
        self.ahead = self.down_until = 0.0
        self.batches = 0
        self.waiters: dict[str, Waiter] = {}
        self.before: Seen | None = None
        self.seen: Seen | None = None
        self.announced: Callable[[Process], None] | None = None
        self._connection.execute("BEGIN")

    def rollback(self) -> None:
        """End the world."""
        self._connection.execute("ROLLBACK")

    def _clock(self, *_: object) -> float:
        # No two batches at the same instant, so that no order is left to the database.
        return self._scheduler.now + self.ahead + self.batches * 1e-6

    @property
    def now(self) -> float:
        """The time by the database's clock."""
        return self._clock()

    def query(self, sql: str, params: Mapping[str, Value] | None = None) -> list[Row]:
        """Answer a query at once."""
        return run_query(self._connection, sql, params or {})

    def write(self, process: Process, statements: Sequence[Statement]) -> list[list[Row]]:
        """Run a batch at once. Raises `BatchMissed` or `ConstraintFailed`."""
        if self.before is not None:
            self.before(process, statements, [])
        connection = self._connection
        connection.execute("SAVEPOINT job")
        try:
            rows = run_statements(connection, statements)
        except (BatchMissed, apsw.Error) as error:
            connection.execute("ROLLBACK TO job")
            connection.execute("RELEASE job")
            raise map_sqlite_error(error, _NOWHERE) from error
        connection.execute("RELEASE job")
        self.batches += 1
        if self.seen is not None:
            self.seen(process, statements, rows)
        return rows

    async def reach(self) -> None:
        """Wait until the database can be reached. Raises `StoreUnavailable` after a minute."""
        if self.faults.slow and self._chance.random() < self.faults.slow:
            await Pause(self._chance.uniform(0.0, 8.0))
        if (wait := self.down_until - self._scheduler.now) > 0:
            await Pause(min(wait, PATIENCE))
            if wait > PATIENCE:
                raise StoreUnavailable("It is down.", cure="Wait.")

    async def call(
        self, process: Process, statements: Sequence[Statement], *, repeatable: bool
    ) -> list[list[Row]]:
        """Run a batch, with what the world has in store for it."""
        await self.reach()
        luck, faults = self._chance.random(), self.faults
        if luck >= faults.lost + faults.late + faults.unheard:
            return self.write(process, statements)
        if luck >= faults.lost + faults.late:
            rows = self.write(process, statements)
            # A driver runs it again, and its effect must be that of once.
            if repeatable:
                return self.write(process, statements)
            del rows
        elif luck >= faults.lost:
            # The server does it, whatever becomes of the process; some after a second try.
            late = self._chance.uniform(0.0, LATEST)
            self._scheduler.spawn(_SERVER, self._write_late(process, statements), late)
            await Pause(late * self._chance.random())
            if repeatable:
                return self.write(process, statements)
        elif repeatable:
            return self.write(process, statements)
        raise StoreInDoubt("The connection broke.", cure="Look.")

    async def _write_late(self, process: Process, statements: Sequence[Statement]) -> None:
        try:
            self.write(process, statements)
        except (BatchMissed, ConstraintFailed):
            # Nobody is left who would hear of it.
            return

    def waiter_of(self, process: Process) -> Waiter:
        """Return what a worker waits on."""
        return self.waiters.setdefault(process.name, Waiter(self._scheduler))

    def announce(self, process: Process) -> None:
        """Bring the word of new work to the workers."""
        if self.announced is not None and self._chance.random() >= self.faults.signal:
            self.announced(process)


_SERVER = Process("server", "server")


class _Signals(Signals):
    def __init__(self, database: SimulatedDatabase, process: Process) -> None:
        super().__init__()
        self._database, self._process = database, process

    def announce(self, topic: str, news: Callable[[], Sequence[object]] | None = None) -> None:
        """Forward only the word of new work: nobody follows a thread here."""
        del news
        if topic == WORK:
            self._database.announce(self._process)

    @contextmanager
    def listen(self, topic: str, listener: Any = None) -> Generator[Any]:
        """Wait in virtual time."""
        del topic, listener
        yield self._database.waiter_of(self._process)


class SimulatedDriver:
    """A process's connection to the database; see `Driver`."""

    dialect: SqlDialect = "sqlite"

    def __init__(self, database: SimulatedDatabase, process: Process) -> None:
        self._database, self._process = database, process
        self.signals: Signals = _Signals(database, process)

    async def read(self, sql: str, params: Mapping[str, Value], *, owner: str | None) -> list[Row]:
        """Answer one query."""
        del owner
        await self._database.reach()
        return self._database.query(sql, params)

    async def batch(
        self,
        statements: Sequence[Statement],
        *,
        owner: str | None,
        locks: Sequence[str] = (),
        repeatable: bool = False,
        announce: Announce | None = None,
    ) -> list[list[Row]]:
        """Run a batch; no batch needs `locks`, because they run one after another."""
        del owner, locks
        rows = await self._database.call(self._process, statements, repeatable=repeatable)
        if announce is not None:
            announce(rows)
        return rows

    async def close(self) -> None:
        """Do nothing."""


def finish_now(work: Coroutine[Any, Any, Any]) -> Any:
    """Return the result of a coroutine that never waits."""
    try:
        work.send(None)
    except StopIteration as stop:
        return stop.value
    raise RuntimeError("it waits")
