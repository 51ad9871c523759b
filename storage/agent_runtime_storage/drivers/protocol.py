"""The driver protocol: all that a database has to offer the store.

Two verbs.  `read` answers one query; `batch` runs a list of statements in one transaction, each
with the number of rows it must affect, and a statement that misses aborts the whole batch.  No
transaction is ever held open across an await, so one implementation is a job of a writer thread,
another one conditional batch over HTTP, another one pipeline.

Batches that share a lock run one after another, each seeing all of the one before; over a file
all do.  `signals` carries word of what has changed to whoever waits for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

from agent_runtime_storage.drivers.signals import Signals

Value = str | int | float | bytes | None
Row = tuple[Any, ...]
SqlDialect = Literal["sqlite", "postgres"]


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement of a batch.

    Attributes:
        sql: the text, with `:name` placeholders in every dialect.
        params: the values, by name.
        rows: how many rows it must affect (or return, if it has RETURNING); None for any number.
        miss: the label that `BatchMissed` carries if the number differs.
    """

    sql: str
    params: Mapping[str, Value]
    rows: int | None = None
    miss: str = ""


class BatchMissed(Exception):
    """A statement affected another number of rows than it had to; the batch was rolled back."""

    def __init__(self, label: str, index: int) -> None:
        super().__init__(label)
        self.label = label
        self.index = index


class ConstraintFailed(Exception):
    """A statement broke a constraint of the schema; the batch was rolled back."""


class Driver(Protocol):
    """A database: reads, and batches.

    Every error of the database's own client is mapped to a `StoreError`; a statement that breaks
    a constraint raises `ConstraintFailed`.  A server that went away is waited for, for a while;
    then it is `StoreUnavailable`.

    Cancellation: a read is abandoned; a batch that has not begun is withdrawn, one that has begun
    is awaited to its end under a shield, so a caller that is cancelled never leaves it in doubt.
    """

    dialect: SqlDialect
    signals: Signals

    async def read(self, sql: str, params: Mapping[str, Value], *, owner: str | None) -> list[Row]:
        """Answer one query from a consistent snapshot of what is committed.

        Args:
            owner: whose rows the database is to show; None for the runtime's own work over all
                owners (migrations, sweeps).  Only a database with a wall of its own (row-level
                security) heeds it; the SQL names the owner besides.
        """
        ...

    async def batch(
        self,
        statements: Sequence[Statement],
        *,
        owner: str | None,
        locks: Sequence[str] = (),
        repeatable: bool = False,
    ) -> list[list[Row]]:
        """Run the statements in one transaction and return the rows of each, once it is durable.

        Args:
            owner: as for `read`.
            locks: names, within the owner's, that no other batch holds meanwhile.
            repeatable: whether running it twice does the same as once.  Then it is run again if
                the connection broke and nobody knows whether it was committed.

        Raises:
            BatchMissed: a statement missed its row count; nothing was written.
            ConstraintFailed: a statement broke a constraint; nothing was written.
            StoreInDoubt: the connection broke on the way of a batch that is not repeatable.
        """
        ...

    async def close(self) -> None:
        """Finish what was accepted, then release everything; calling it twice is harmless."""
        ...


@runtime_checkable
class Purging(Protocol):
    """A driver that can delete without looking for what refers to each row.

    Where rows refer to runs there is no index by run, as it would make every append dearer; so
    the search costs a scan of the owner's log for each run.
    """

    async def purge(
        self, statements: Sequence[Statement], *, owner: str | None, locks: Sequence[str] = ()
    ) -> list[list[Row]]:
        """Run a batch as `Driver.batch` does, without checks of foreign keys or their actions.

        It is for deleting whole threads: whatever refers to their rows is deleted in the batch.
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
class Scrubbing(Protocol):
    """A driver whose database keeps what was deleted for a while, and can be told not to."""

    async def scrub(self) -> bool:
        """Remove what deleted rows left behind; return whether it could be done at once."""
        ...


@runtime_checkable
class Vacuuming(Protocol):
    """A driver that can have its database give back the space of what was deleted."""

    async def vacuum(self) -> None:
        """Rewrite or sweep every table; takes as long as reading all of them."""
        ...
