"""The driver protocol: everything the store asks of a database.

Two verbs.  `read` answers one query; `batch` runs a list of statements in one transaction, each
with the number of rows it must affect, and a statement that misses aborts the whole batch.  No
transaction stays open across an await.  A batch is one job of a writer thread for a file, one
conditional request for libSQL, and one pipeline for Postgres.

Batches that share a lock run one after another, and each sees the one before; over a file all do.
`signals` notifies listeners of changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from agent_runtime_storage.drivers.signals import Signals
from agent_runtime_storage.sql.loader import SqlDialect

Value = str | int | float | bytes | None
Row = tuple[Any, ...]
Announce = Callable[[list[list[Row]]], None]
"""Tells others the rows of a batch that is durable."""


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement of a batch.

    Attributes:
        sql: the text, with `:name` placeholders in every dialect.
        params: the values, by name.
        rows: the number of rows it must affect (or return, if it has RETURNING); None for any.
        miss: the label that `BatchMissed` carries if the number of rows differs.
    """

    sql: str
    params: Mapping[str, Value]
    rows: int | None = None
    miss: str = ""


class BatchMissed(Exception):
    """A statement affected the wrong number of rows; the batch was rolled back."""

    def __init__(self, label: str, index: int) -> None:
        super().__init__(label)
        self.label = label
        self.index = index


class ConstraintFailed(Exception):
    """A statement broke a constraint of the schema; the batch was rolled back."""


class Driver(Protocol):
    """A database: reads, and batches.

    Errors of the database's client are mapped to `StoreError`; a statement that breaks a constraint
    raises `ConstraintFailed`.  A driver waits a while for a server that is down, then raises
    `StoreUnavailable`.

    Cancellation: a read is abandoned.  A batch that has not started is withdrawn; one that has
    started is awaited under a shield, so cancelling a caller never leaves it in doubt.
    """

    dialect: SqlDialect
    signals: Signals

    async def read(self, sql: str, params: Mapping[str, Value], *, owner: str | None) -> list[Row]:
        """Answer one query from a consistent snapshot of what is committed.

        Args:
            owner: whose rows the database shows; None for work over all owners (migrations,
                sweeps).  Only a database with row-level security uses it; the SQL names the owner
                as well.
        """
        ...

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

        Args:
            owner: as for `read`.
            locks: names that no other batch of this owner holds meanwhile.
            repeatable: whether running it twice has the same effect as once.  Then it is run again
                if the connection broke and the outcome is unknown.
            announce: called on the event loop with the rows as soon as the batch is durable; a
                driver that answers many callers at once calls it before the caller's turn.

        Raises:
            BatchMissed: a statement missed its row count; nothing was written.
            ConstraintFailed: a statement broke a constraint; nothing was written.
            StoreInDoubt: the connection broke during a batch that is not repeatable.
        """
        ...

    async def close(self) -> None:
        """Finish accepted work, then release everything; safe to call twice."""
        ...


@runtime_checkable
class Purging(Protocol):
    """A driver that can delete rows without searching for references to each of them.

    Rows that refer to runs have no index by run, as that would slow down every append; without
    this, deleting a run scans the owner's log.
    """

    async def purge(
        self, statements: Sequence[Statement], *, owner: str | None, locks: Sequence[str] = ()
    ) -> list[list[Row]]:
        """Run a batch as `Driver.batch` does, without foreign key checks and actions.

        For deleting whole threads: the batch deletes everything that refers to their rows.
        """
        ...


@runtime_checkable
class Measuring(Protocol):
    """A driver of the dialect `sqlite` whose database may lack sqlite-vec."""

    @property
    def vector_function(self) -> str | None:
        """The SQL function for the cosine distance of two float32 blobs; None if it has none."""
        ...


@runtime_checkable
class LimitedValues(Protocol):
    """A driver whose database takes no large values.

    Attributes:
        part_bytes: the most bytes of a value.
    """

    part_bytes: int


@runtime_checkable
class Scrubbing(Protocol):
    """A driver whose database retains deleted data for a while and can erase it on request."""

    async def scrub(self) -> bool:
        """Erase the remains of deleted rows; return False if something was in the way."""
        ...


@runtime_checkable
class Vacuuming(Protocol):
    """A driver that can reclaim the space of deleted rows."""

    async def vacuum(self) -> None:
        """Reclaim the space in every table; takes as long as reading all of them."""
        ...


@runtime_checkable
class Patient(Protocol):
    """A driver whose reads have a limit of time."""

    async def read_patiently(
        self, sql: str, params: Mapping[str, Value], *, owner: str | None
    ) -> list[Row]:
        """Answer a query as `read` does, which may read whole tables: within an hour."""
        ...


@runtime_checkable
class Joining(Protocol):
    """A driver that can run a batch in a transaction of the caller's own connection."""

    async def join(
        self,
        connection: Any,
        statements: Sequence[Statement],
        *,
        owner: str,
        locks: Sequence[str] = (),
    ) -> None:
        """Run the batch in the connection's transaction, which stays open.

        Raises:
            BatchMissed, ConstraintFailed: as `Driver.batch`; the transaction is as before.
            StoreError: the connection has no transaction, or is none of this database's client.
        """
        ...
