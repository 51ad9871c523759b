"""Runs with their leases and commits, and durable jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from agent_runtime_storage.contract.records.log import (
    Commit,
    Job,
    LateObservation,
    Lease,
    LeaseOwner,
    NewRun,
    Run,
    RunStatus,
    StandingClaim,
)
from agent_runtime_storage.contract.records.spending import Budget


class RunStore(Protocol):
    """The runs of one owner."""

    async def begin(self, run: NewRun) -> tuple[Lease, int]:
        """Begin a run and make it the thread's active one; return its lease and last event id.

        Raises:
            ThreadBusy: the thread has an active run.
            Conflict: the head or the last node is not the expected one, or the id is taken.
            RunCancelled: the parent is cancelled or over.
            BudgetExceeded, NotFound.
        """
        ...

    async def commit(self, lease: Lease, commit: Commit) -> int:
        """Write one step of a run in one transaction; return the thread's last event id.

        Raises `LeaseLost`, `BudgetExceeded`, `InboxWaiting`, `Conflict`.
        """
        ...

    async def commit_late(self, lease: Lease, commit: LateObservation) -> int:
        """Write an observation whose run has ended; return the thread's last event id.

        The claim on its job permits the write; the lease only names the run.  No budget changes:
        the end of the run counted the possible cost as spent.

        Raises:
            Conflict: the claim is void, or the observation is not the next one.
            NotFound: the thread or the run was deleted.
        """
        ...

    async def get(self, run_id: str) -> Run:
        """Return the run; raise `NotFound` if there is none."""
        ...

    async def list(
        self,
        *,
        thread_id: str | None = None,
        root_run_id: str | None = None,
        parent_run_id: str | None = None,
        parent_thread_id: str | None = None,
        task_key: str | None = None,
        status: Sequence[RunStatus] | None = None,
        before: str | None = None,
        limit: int = 100,
    ) -> list[Run]:
        """Return the runs that match every given filter, the newest first.

        Args:
            before: only runs older than this one.
            parent_thread_id: only child runs of this thread's runs.
            task_key: of those, only the ones delegated under this key.
        """
        ...

    async def take_lease(
        self,
        run_id: str,
        owner: LeaseOwner,
        *,
        seconds: float,
        replaces: int,
        was: RunStatus | None = None,
    ) -> Lease:
        """Take a run over with the next epoch.

        The run becomes `running` and the thread's active run.  Its own outstanding reservation is
        counted on the root as spent (unsettled).  A requested cancel applies until the run has
        ended; a takeover after that revokes it.  The caller decides whether the former owner is
        dead.

        Args:
            replaces: the epoch that the run must still have.
            was: the status that the run must still have, for a caller that decided by the status:
                the owner may have ended the run since without a change of the epoch.

        Raises:
            ThreadBusy: another run is active on the thread.
            LeaseLost: the epoch or the status has changed.
            Conflict: the run has succeeded, or was imported.
        """
        ...

    async def renew_lease(self, lease: Lease, *, seconds: float) -> bool:
        """Extend the lease; return whether a cancel is requested. Raises `LeaseLost`."""
        ...

    async def poll(self, lease: Lease) -> tuple[bool, bool]:
        """Return whether a cancel is requested, and whether the inbox holds anything.

        Raises `LeaseLost` if the epoch moved.
        """
        ...

    async def cancel(self, run_id: str) -> list[str]:
        """Request a cancel of every active run of this run's subtree; return their ids.

        Calling it again changes nothing.  Raises `NotFound`.
        """
        ...

    async def adopt(self, run_id: str, budget: Budget) -> None:
        """Let an imported root be resumed as the owner's own, under this budget.

        The step limit and the budget of the import do not count.  Other runs stay as they are.
        """
        ...

    async def replace_spec(
        self, run_id: str, spec: Mapping[str, Any], internal: Mapping[str, Any], *, replaces: int
    ) -> None:
        """Replace what is stored with a run so that it can be resumed.

        The caller decides whether anybody works on the run.

        Args:
            replaces: the epoch that the run must still have.

        Raises:
            LeaseLost: the epoch has changed.
            NotFound: there is no such run.
        """
        ...

    async def active_seconds(self, run_id: str) -> float:
        """Return how many seconds a run was running; 0 if it does not exist.

        Suspended time does not count, nor the time between the death of its process, as far as
        it is known, and the takeover.
        """
        ...

    async def count_tree_steps(self, root_run_id: str) -> int:
        """Return how many steps the runs of a tree have made together; 0 for no such tree."""
        ...


class JobStore(Protocol):
    """Durable jobs: queued once for each key, claimed under a lease."""

    async def enqueue(self, thread_id: str, kind: str, key: str, payload: bytes) -> bool:
        """Add a job unless the thread has one of this kind and key; return whether it was added."""
        ...

    async def claim(
        self,
        kind: str,
        *,
        seconds: float,
        thread_id: str | None = None,
        key: str | None = None,
        holder: str = "",
        void: str = "",
    ) -> Job | None:
        """Lease the oldest job that is free or whose lease expired; None if there is none.

        Args:
            thread_id, key: lease only a job of this thread, and with this key.
            holder: who claims it, for `standing`.
            void: the token of a claim in `standing` whose holder is dead: its job counts as free.
        """
        ...

    async def standing(self, thread_id: str, kind: str) -> list[StandingClaim]:
        """Return the claims on a thread's jobs of a kind that have not expired."""
        ...

    async def finish(self, job: Job) -> None:
        """Mark a claimed job done; doing so again changes nothing.

        Raises:
            LeaseLost: another process has claimed the job, or it was given up.
        """
        ...

    async def fail(self, job: Job, *, retry_after: float | None, detail: str) -> None:
        """Free a claimed job for a retry after `retry_after` seconds; None gives it up.

        Raises:
            LeaseLost: another process has claimed the job.
        """
        ...

    async def claim_periodic(self, kind: str, *, seconds: float) -> str | None:
        """Claim a periodic job of the owner; return the token that finishes it, None if not due.

        A job is due at first, when its next time has come, and when a claim has expired.
        """
        ...

    async def finish_periodic(self, kind: str, token: str, *, again_after: float) -> None:
        """Finish a claimed periodic job; it is due again after `again_after` seconds.

        Raises:
            LeaseLost: another process has claimed the job.
        """
        ...
