"""Find out why a batch that begins, commits or takes over a run wrote nothing.

The state is read after the rollback, so it may be newer than what the batch met.
"""

from __future__ import annotations

from agent_runtime_storage.contract.errors import (
    BudgetExceeded,
    Conflict,
    InboxWaiting,
    LeaseLost,
    RunCancelled,
)
from agent_runtime_storage.contract.records.log import Commit, Lease, NewRun, Run, Thread
from agent_runtime_storage.contract.records.spending import (
    NO_AMOUNT,
    Amount,
    Spending,
    over_budget,
    step_budget_exceeded,
)
from agent_runtime_storage.log.questions import SqlQuestions
from agent_runtime_storage.log.run_statements import READ_AGAIN, missed_error
from agent_runtime_storage.log.spending import SqlSpending
from agent_runtime_storage.log.threads import thread_busy
from agent_runtime_storage.queries.owner import OwnerScope, not_found
from agent_runtime_storage.queries.row_decoding import to_run, to_thread

_OVER_LIMIT = ("thread_budget", "day_budget", "steps_budget")
"""The labels of a reservation that exceeds its limits."""


class RunMisses:
    """Returns the error to raise for the label of the statement that missed."""

    def __init__(self, scope: OwnerScope, questions: SqlQuestions, spending: SqlSpending) -> None:
        self._scope = scope
        self._questions = questions
        self._spending = spending

    async def why_not_begun(self, run: NewRun, root: str, label: str) -> Exception:
        if label == "parent":
            await self._scope.require_run(run.parent_run_id or "")
            return RunCancelled(
                f"Run {run.parent_run_id} is over or being cancelled; it starts no child runs.",
                cure="Resume it first.",
            )
        if label == "picked":
            return await self.lost(Lease(run.id, run.thread_id, root, run.epoch or 0))
        if label == "budget":
            return await self._over_budget(root, run.reserve or NO_AMOUNT, below=root != run.id)
        if label == "begin":
            thread = await self._thread(run.thread_id)
            if thread is None:
                return not_found("thread", run.thread_id)
            if thread.active_run is not None:
                return await self._busy(run.thread_id, thread.active_run)
            return Conflict(
                f"Thread {run.thread_id} has moved on: its head is {thread.head}, its last node "
                f"{thread.last_seq}, its last activation {thread.last_activation}.",
                cure=READ_AGAIN,
            )
        return missed_error(label, run.thread_id)

    async def _busy(self, thread_id: str, run_id: str) -> Exception:
        run = await self._run(run_id)
        questions = await self._questions.list(run_id=run_id, status="open")
        return thread_busy(
            thread_id,
            run_id,
            question_id=questions[0].id if questions else None,
            suspended=run.detail if run is not None and run.status == "suspended" else None,
        )

    async def why_not_committed(self, lease: Lease, commit: Commit, label: str) -> Exception:
        if label == "lease":
            return await self.lost(lease)
        if label == "budget":
            below = lease.is_child or commit.limits.spare
            wanted = commit.reserve or NO_AMOUNT
            return await self._over_budget(lease.root_run_id, wanted, below=below)
        if label in _OVER_LIMIT:
            return await self._over_limit(lease, commit, label)
        if label == "quiet":
            return InboxWaiting(f"Something waits in the inbox of thread {lease.thread_id}.")
        if label == "disturbed":
            return InboxWaiting(
                f"Something waits in the inbox of thread {lease.thread_id}, or a cancel of run "
                f"{lease.run_id} is requested."
            )
        return missed_error(label, lease.thread_id)

    async def lost(self, lease: Lease) -> Exception:
        """Return the error for a lease that is void."""
        run = await self._run(lease.run_id)
        if run is None:
            return not_found("run", lease.run_id)
        return LeaseLost(
            f"The lease of run {lease.run_id} (epoch {lease.epoch}) is void: the run is "
            f"{run.status} and its epoch is {run.epoch}.",
            cure="Leave the run to its new owner; take it over only if that process is dead.",
        )

    async def _over_budget(self, root: str, wanted: Amount, *, below: bool) -> Exception:
        run = await self._run(root)
        if run is None:
            return not_found("run", root)
        spending = Spending(run.settled, run.unsettled, run.reserved)
        return over_budget("run", run.budget, spending, wanted, run.kept if below else None)

    async def why_not_taken(self, run_id: str, replaces: int, label: str) -> Exception:
        run = await self._run(run_id)
        if run is None:
            return not_found("run", run_id)
        if label == "thread":
            thread = await self._thread(run.thread_id)
            if thread is None:
                return not_found("thread", run.thread_id)
            return thread_busy(run.thread_id, str(thread.active_run))
        if run.status == "succeeded":
            return Conflict(
                f"Run {run_id} has succeeded and cannot be resumed.",
                cure="Start a new run on its thread.",
            )
        if run.stop_reason == "imported":
            return Conflict(
                f"Run {run_id} was imported and cannot be resumed.",
                cure="Start a new run on its thread.",
            )
        # Nobody took the lease, so the run must have ended, or been suspended, by its own owner.
        if run.epoch == replaces:
            return LeaseLost(
                f"Run {run_id} has become {run.status} since it was read.",
                cure="Read the run again.",
            )
        return LeaseLost(
            f"Run {run_id} is at epoch {run.epoch}, not {replaces}: another process took it over.",
            cure="Leave the run to it, or read the run again.",
        )

    async def _over_limit(self, lease: Lease, commit: Commit, label: str) -> BudgetExceeded:
        wanted, limits = commit.reserve or NO_AMOUNT, commit.limits
        if label == "steps_budget":
            [(steps,)] = await self._scope.read("tree_steps", root_run_id=lease.root_run_id)
            return step_budget_exceeded(int(steps), limits.steps or 0)
        root = await self._run(lease.root_run_id)
        kept = root.kept if root and (lease.is_child or limits.spare) else None
        if label == "day_budget":
            return over_budget("day", limits.day, await self._spending.of_day(), wanted, kept)
        spending = await self._spending.of_thread(root.thread_id if root else lease.thread_id)
        return over_budget("thread", limits.thread, spending, wanted, kept)

    async def _run(self, run_id: str) -> Run | None:
        rows = await self._scope.read("run", run_id=run_id)
        return to_run(rows[0]) if rows else None

    async def _thread(self, thread_id: str) -> Thread | None:
        rows = await self._scope.read("thread", thread_id=thread_id)
        return to_thread(rows[0]) if rows else None
