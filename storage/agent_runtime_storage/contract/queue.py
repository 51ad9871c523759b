"""The queue of runs: enqueued by their owners, picked by workers of all owners."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from agent_runtime_storage.contract.leases import HeldLease
from agent_runtime_storage.contract.records.log import Finish, LeaseOwner, NewEvent
from agent_runtime_storage.contract.records.queue import (
    NewQueuedRun,
    PickedRun,
    QueueLimits,
    QueueRow,
    QueueState,
)


class Waiter(Protocol):
    """A worker's wait for work."""

    def wake(self) -> None:
        """End the wait, or the next one at once."""
        ...

    async def wait(self, seconds: float) -> object:
        """Return when there may be work, or after the given seconds."""
        ...


class QueueStore(Protocol):
    """The queued runs of one owner.

    A run stays in the queue until it succeeds or is cancelled; a child run until it has ended.  The
    commit that ends or suspends a run says what becomes of it there.  A run that waits for answers
    and for child runs is `parked`; the last of these makes it wait for a worker, once.
    """

    async def enqueue(self, run: NewQueuedRun, *, connection: Any = None) -> None:
        """Create a run as `queued`, and its thread if there is none, in one transaction.

        Args:
            connection: a psycopg `AsyncConnection` to the same database, whose transaction the run
                joins; whoever commits it decides.  Postgres only.

        Raises:
            Conflict: a run has this id already, or the thread is being deleted or imported.
            LeaseLost: another process has taken over its parent.
            RunCancelled: its parent is being cancelled.
            StoreError: this database joins no transaction of a caller.
        """
        ...

    async def withdraw(self, run_id: str, finish: Finish, event: NewEvent) -> bool:
        """Cancel a run that has not begun; return False if it has."""
        ...

    async def list(
        self, *, run_id: str | None = None, state: QueueState | None = None, limit: int = 100
    ) -> list[QueueRow]:
        """Return the owner's rows in the order in which they are picked."""
        ...

    async def wake(self, run_id: str, cause: str) -> bool:
        """Let a run wait for a worker that is `dead`, `parked` or `delayed`; False if it is not."""
        ...

    async def postpone(self, run_id: str, seconds: float, cause: str) -> None:
        """Let a run that waits become due later."""
        ...

    async def drop(self, run_id: str) -> bool:
        """Forget a run that failed; the run itself stays. False if it is not `dead`."""
        ...


class WorkQueue(Protocol):
    """The queue of all owners, for workers and operators."""

    async def pick(
        self,
        slots: int,
        known: Sequence[tuple[str, str, str]],
        owner: LeaseOwner,
        *,
        seconds: float,
        limits: QueueLimits,
    ) -> list[PickedRun]:
        """Take the leases of the next due runs, by their shares' turns.

        Runs of workers whose lease has expired are due as well.  One that two workers in a row lost
        without a new step is a suspect: a process gets one, and the next when that has made a
        step or is not at work any more.  Concurrent picks never get the same run, nor two runs of
        one thread, and none waits for another.

        Args:
            slots: the most runs.
            known: program, agent and version of what this worker can run.
            seconds: how long the leases last.
        """
        ...

    async def list(self, *, state: QueueState | None = None, limit: int = 100) -> list[QueueRow]:
        """Return the rows of all owners in the order in which they are picked."""
        ...

    async def owners(self, here: LeaseOwner) -> list[tuple[HeldLease, LeaseOwner]]:
        """Return the live leases that other processes of this machine hold on queued runs."""
        ...

    async def expel(self, leases: Iterable[HeldLease]) -> None:
        """End leases whose process is known to be dead, so that the next pick takes their runs."""
        ...

    def wake(self) -> None:
        """Say that there may be work; whatever becomes of the word, the rows are what is picked.

        Within this process it arrives at once, and on Postgres in the others: as a token that one
        worker takes where workers run on Procrastinate, as a notification of all workers otherwise.
        """
        ...

    def listening(self) -> AbstractContextManager[Waiter]:
        """Return a context in which to wait for work: what is enqueued, answered or handed over.

        Start it before the first pick, or what comes in between is noticed late.
        """
        ...
