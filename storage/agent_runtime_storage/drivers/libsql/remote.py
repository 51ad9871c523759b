"""The common part of the drivers for libSQL servers: waiting, retries, features, close."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar

import anyio

from agent_runtime_storage.contract.errors import StoreError, StoreReadOnly, StoreUnavailable
from agent_runtime_storage.drivers.libsql.error_mapping import (
    TransientFailure,
    libsql_closed_error,
    retries_exhausted_error,
)
from agent_runtime_storage.drivers.libsql.hrana import (
    BatchAnswer,
    HranaBatchPlan,
    HranaStep,
    StepResult,
    batch_rows,
    decode_rows,
    encode_hrana_statement,
    estimate_step_bytes,
    plan_batch,
)
from agent_runtime_storage.drivers.libsql.sender import Sender
from agent_runtime_storage.drivers.libsql.sql_text import only_reads
from agent_runtime_storage.drivers.protocol import Announce, Row, Statement, Value
from agent_runtime_storage.drivers.shielding import wait_shielded
from agent_runtime_storage.drivers.signals import Signals
from agent_runtime_storage.sql.loader import SqlDialect

VectorFunction = Literal["vec_distance_cosine", "vector_distance_cos"]
T = TypeVar("T")

# A libSQL server does not notify its clients, so listeners poll.
_POLL_SECONDS = 0.5
# Seconds between attempts; they double up to the longest.
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 2.0
# While opening, a wrong host or port is more likely than a server that restarts.
_OPENING_SECONDS = 5.0
# It brought `unixepoch('subsec')`, the clock of all rows.
_OLDEST_SQLITE = (3, 42)
# The server writes one transaction at a time.  Two requests in flight keep it busy; more compete
# for its lock (895 commits/s with 2, 435 with 16).
_WRITE_LANES = 2
# Each batch of a request may wait for the lock, so more would need longer timeouts.
_WRITE_GROUP = 8


class Transport(Protocol):
    """A way to a server.

    Attributes:
        read_lanes: the number of concurrent read requests.
        read_group: the number of queries in one request.
    """

    read_lanes: int
    read_group: int

    async def query(self, steps: Sequence[HranaStep]) -> list[StepResult | Exception]:
        """Run queries, and return for each its rows or its error.

        Raises:
            Failure, StoreError: none of them was answered.
        """
        ...

    async def write(self, plans: Sequence[HranaBatchPlan]) -> list[BatchAnswer | Exception]:
        """Run batches in order, and return for each its answer or its error.

        Raises:
            Failure, StoreError: none of them was answered.
        """
        ...

    async def close(self) -> None:
        """Release the connections."""
        ...


@dataclass(frozen=True, slots=True)
class Features:
    """The features of a server.

    Attributes:
        sqlite: the version of its SQLite.
        vector_function: the SQL function for the cosine distance of two float32 blobs: sqlite-vec's
            if it is loaded, else libSQL's; None without either.
        fts5: whether full-text search is available.
        foreign_keys: whether it checks foreign keys by default.
    """

    sqlite: str
    vector_function: VectorFunction | None
    fts5: bool
    foreign_keys: bool


class RemoteDriver:
    """A libSQL server; see `Driver`.  It belongs to the event loop in which it was opened."""

    dialect: SqlDialect = "sqlite"
    # Servers take half of what they answer at once, which is 10 MB by default.
    part_bytes: int = 2_000_000

    def __init__(self, transport: Transport, shown: str, *, patience: float) -> None:
        self._transport = transport
        self._writes: Sender[HranaBatchPlan, BatchAnswer] = Sender(
            transport.write, lanes=_WRITE_LANES, group=_WRITE_GROUP, abandon=False
        )
        self._reads: Sender[HranaStep, StepResult] = Sender(
            transport.query,
            lanes=transport.read_lanes,
            group=transport.read_group,
            abandon=True,
        )
        self._shown = shown
        self._patience = patience
        self._active = 0
        self._closing = anyio.Event()
        self._idle: asyncio.Future[None] | None = None
        self._features: Features | None = None
        self._written = 0
        self.signals = Signals(poll_seconds=_POLL_SECONDS)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._shown}>"

    @property
    def features(self) -> Features:
        """The server's features, as of when it was opened."""
        if self._features is None:
            raise libsql_closed_error(self._shown)
        return self._features

    @property
    def vector_function(self) -> VectorFunction | None:
        """The SQL function of the cosine distance; see `Features`."""
        return self.features.vector_function

    @property
    def waiting(self) -> bool:
        """Whether a batch waits that has not been sent."""
        return self._writes.waiting > 0

    async def read(
        self, sql: str, params: Mapping[str, Value], *, owner: str | None = None
    ) -> list[Row]:
        """Answer one query from a consistent snapshot of what is committed.

        Raises:
            StoreReadOnly: the statement is no query.
            StoreUnavailable: the server stayed down; `StoreBusy`: it stayed busy.
            StoreError: it refused the query.
        """
        if not only_reads(sql):
            raise StoreReadOnly("A statement that writes was given to be read.")
        step: HranaStep = {"stmt": encode_hrana_statement(sql, params)}
        size = estimate_step_bytes(step)

        async def attempt() -> list[Row]:
            if self._written:
                # A replica answers once it has caught up with the writes of this client.
                step["stmt"]["replication_index"] = str(self._written)
            return decode_rows(await self._reads.send(step, size), self._shown)

        with self._accepted():
            return await self._insist(attempt, repeatable=True, writes=False)

    async def batch(
        self,
        statements: Sequence[Statement],
        *,
        owner: str | None = None,
        locks: Sequence[str] = (),
        repeatable: bool = False,
        announce: Announce | None = None,
    ) -> list[list[Row]]:
        """Run the statements in one transaction and return the rows of each, once it is committed.

        The server writes one transaction at a time, so no batch needs `locks`.  Cancelling
        withdraws a batch that waits for the server or for a retry; for one that was sent it awaits
        the answer.

        Raises:
            BatchMissed: a statement missed its row count; nothing was written.
            ConstraintFailed: a statement broke a constraint; nothing was written.
            StoreInDoubt: no answer came, and the batch is not repeatable.
            StoreUnavailable: the server stayed down; `StoreBusy`: it stayed busy.
            StoreError: it refused a statement.
        """
        # In each batch, because each request has a new stream, and with it the server's default.
        switch_on = self._features is not None and not self._features.foreign_keys
        foreign_keys = True if switch_on else None
        rows = await self._write(statements, foreign_keys=foreign_keys, repeatable=repeatable)
        if announce is not None:
            announce(rows)
        return rows

    async def purge(
        self, statements: Sequence[Statement], *, owner: str | None, locks: Sequence[str] = ()
    ) -> list[list[Row]]:
        """Run a batch that deletes whole threads, without checks of foreign keys.

        A server that cannot switch the checks off keeps making them, which only takes longer.
        Raises what `batch` raises.
        """
        return await self._write(statements, foreign_keys=False, repeatable=False)

    async def _write(
        self, statements: Sequence[Statement], *, foreign_keys: bool | None, repeatable: bool
    ) -> list[list[Row]]:
        if not statements:
            return []
        plan = plan_batch(statements, foreign_keys=foreign_keys)

        async def attempt() -> list[list[Row]]:
            answer = await self._writes.send(plan, plan.size)
            rows = batch_rows(plan, answer, self._shown)
            # Requests run at the same time, so an older answer may come later.
            self._written = max(self._written, int(answer.get("replication_index") or 0))
            return rows

        with self._accepted():
            return await self._insist(attempt, repeatable=repeatable, writes=True)

    async def close(self) -> None:
        """Finish accepted work, then close the connections; safe to call twice.

        Work that waits for a server that is down fails with `StoreUnavailable` instead.
        """
        self._closing.set()
        if self._active:
            if self._idle is None:
                self._idle = asyncio.get_running_loop().create_future()
            await wait_shielded(self._idle)
        with anyio.CancelScope(shield=True):
            await self._reads.close()
            await self._writes.close()
            await self._transport.close()

    async def _begin(self) -> None:
        """Read the server's features, with a short patience: the host may be wrong."""
        patience = self._patience
        self._patience = min(patience, _OPENING_SECONDS)
        try:
            self._features = await self._probe()
        except BaseException:
            await self.close()
            raise
        self._patience = patience

    async def _probe(self) -> Features:
        [[version, subseconds]] = await self.read(
            "SELECT sqlite_version(), unixepoch('subsec')", {}
        )
        if subseconds is None or _version(version) < _OLDEST_SQLITE:
            raise StoreError(
                f"The database {self._shown} runs SQLite {version}, which is too old.",
                cure="Use a server with SQLite 3.42 or newer.",
            )
        [[foreign_keys]] = await self.read("SELECT foreign_keys FROM pragma_foreign_keys", {})
        fts5 = await self.read("SELECT 1 FROM pragma_module_list WHERE name = 'fts5'", {})
        vector_function: VectorFunction | None = None
        names: tuple[VectorFunction, ...] = ("vec_distance_cosine", "vector_distance_cos")
        for name in names:
            # The blob is the float32 1.0.
            if await self._answers(f"SELECT {name}(x'0000803f', x'0000803f')"):
                vector_function = name
                break
        return Features(version, vector_function, bool(fts5), bool(foreign_keys))

    async def _answers(self, sql: str) -> bool:
        try:
            await self.read(sql, {})
        except StoreUnavailable:
            # The server gave no answer, which is not a no.
            raise
        except StoreError:
            return False
        return True

    @contextmanager
    def _accepted(self) -> Generator[None]:
        if self._closing.is_set():
            raise libsql_closed_error(self._shown)
        self._active += 1
        try:
            yield
        finally:
            self._active -= 1
            if not self._active and self._idle is not None and not self._idle.done():
                self._idle.set_result(None)

    async def _insist(
        self, attempt: Callable[[], Awaitable[T]], *, repeatable: bool, writes: bool
    ) -> T:
        """Return the result of an attempt, retried while that may help and patience lasts."""
        deadline = time.monotonic() + self._patience
        pause, in_doubt = _FIRST_PAUSE, False
        while True:
            try:
                return await attempt()
            except TransientFailure as failure:
                # For good: a later attempt that is surely unsent does not settle the doubt about
                # an earlier one.
                in_doubt = in_doubt or (writes and failure.kind == "lost")
                # Random, so that clients whose server restarted do not all return at the same
                # moment.
                wait = pause * random.uniform(0.5, 1.5)
                if (in_doubt and not repeatable) or time.monotonic() + wait > deadline:
                    raise retries_exhausted_error(
                        failure, self._shown, in_doubt=in_doubt
                    ) from failure
                # Sleep, unless the driver is closed meanwhile.
                with anyio.move_on_after(wait):
                    await self._closing.wait()
                    raise libsql_closed_error(self._shown) from failure
                pause = min(pause * 2, _LONGEST_PAUSE)


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2] if part.isdigit())
