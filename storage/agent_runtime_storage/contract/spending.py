"""Usage and spending, by run, thread and day.

A commit books what it settles in the same transaction: on the root of its run tree, and on the
current day (UTC, by the database's clock).  A thread's spending is that of the trees whose roots
are on it.  A reservation that names limits is written only if it fits them together with everything
that all processes have spent and reserved.  A dead run keeps its reservation until a takeover or a
deletion; then the reservation counts as spent, on that day.

Deleting a thread subtracts nothing from a day.  An imported thread has the spending of its runs,
and counts on no day.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from agent_runtime_storage.contract.records.log import Lease
from agent_runtime_storage.contract.records.spending import UNCHANGED, Spending, Unchanged
from agent_runtime_storage.contract.records.usage import Usage, UsageTotal


class SpendingStore(Protocol):
    """The usage and spending of one owner."""

    async def record_late(self, lease: Lease, usage: Sequence[Usage]) -> None:
        """Record usage for a run whose lease has ended or was taken over.

        No budget changes: the end of the lease counted the possible cost as spent.

        Raises:
            NotFound: the thread or the run was deleted.
        """
        ...

    async def usage_total(
        self,
        *,
        root_run_id: str | None = None,
        run_id: str | None = None,
        thread_id: str | None = None,
    ) -> UsageTotal:
        """Sum the usage of a run tree, of one run, or of a thread (exactly one is given)."""
        ...

    async def usage_by_purpose(
        self,
        *,
        root_run_id: str | None = None,
        run_id: str | None = None,
        thread_id: str | None = None,
    ) -> dict[str, UsageTotal]:
        """Sum as `usage_total`, by purpose (`step`, `embed` and others)."""
        ...

    async def usage_by_run(self, root_run_id: str) -> dict[str, UsageTotal]:
        """Sum the usage of each run of a tree; runs without usage are left out."""
        ...

    async def unpriced_calls(
        self, *, root_run_id: str | None = None, thread_id: str | None = None
    ) -> int:
        """Return how many calls have no known price: of a run tree, of the run trees whose root is
        on a thread, or of the owner on the current day (at most one is given).
        """
        ...

    async def recent_usage(self, model: str, *, limit: int = 20) -> list[Usage]:
        """Return the newest reported usage of a model, newest first."""
        ...

    async def of_day(self) -> Spending:
        """Return the spending of the current day, and what all runs of the owner have reserved."""
        ...

    async def of_thread(self, thread_id: str) -> Spending:
        """Return the spending of the run trees whose root is on the thread."""
        ...

    async def set_budget(
        self,
        run_id: str,
        *,
        tokens: int | Unchanged | None = UNCHANGED,
        cost: int | Unchanged | None = UNCHANGED,
    ) -> None:
        """Set limits of a run tree's budget; they include what the tree has spent already.

        None lifts a limit.  A running tree obeys the budget from its next reservation on.

        Args:
            cost: in nanodollars.

        Raises:
            NotFound: there is no such run.
            Conflict: the run has a parent, or has succeeded.
        """
        ...

    async def reserving_runs(self) -> list[str]:
        """Return the ids of running runs, live or dead, that hold a reservation."""
        ...
