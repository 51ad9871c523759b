"""The part of the store's contract that is about spending, by thread and day.

What a commit settles is booked in the same transaction: on the root of its tree, and on the day
(UTC, by the database's clock) on which it is written.  A thread has what the trees have whose roots
are on it.  A reservation that names limits is written only if it keeps to them together with all
that is spent and reserved, by whatever process.  A run that dies keeps its reservation until
somebody takes it over or deletes it; then it counts as spent, on that day.

Deleting a thread gives nothing of a day back.  An imported thread has what its runs had spent, and
counts on no day.
"""

from __future__ import annotations

from typing import Protocol

from agent_runtime_storage.contract.spending_records import Budget, Spending


class SpendingContract(Protocol):
    """What `UserStore` has for what was spent."""

    async def day_spending(self) -> Spending:
        """Return what was booked on this day, and what all runs of the owner have reserved."""
        ...

    async def thread_spending(self, thread_id: str) -> Spending:
        """Return what the run trees have spent whose root is on the thread; nothing if none is."""
        ...

    async def set_budget(self, run_id: str, budget: Budget) -> None:
        """Let a run and those below it spend so much in all, with what they have spent already.

        What the budget does not limit stays as it is.  Who is at work keeps to it from the next
        reservation on.  Raises `NotFound`, and `Conflict` if the run is below another, has
        succeeded, or is running and the budget limits what was not limited before.
        """
        ...

    async def tree_steps(self, root_run_id: str) -> int:
        """Return how many steps the runs of a tree have made together; 0 if it is not there."""
        ...

    async def holders(self) -> list[str]:
        """Return the runs that are at work, or died at it, and have something reserved."""
        ...

    async def worked_seconds(self, run_id: str) -> float:
        """Return how long a run was at work, in seconds; 0 if it is not there.

        Neither counts the time for which it was suspended, nor that between its process's death,
        as far as that is known, and its being taken over.
        """
        ...
