"""What was spent, by thread and day, and the statements that keep it within its limits."""

from __future__ import annotations

from datetime import UTC, datetime

from agent_runtime_storage.contract.errors import BudgetExceeded, Conflict, StoreError
from agent_runtime_storage.contract.records import Commit, Lease, Run
from agent_runtime_storage.contract.spending_records import Amount, Budget, Spending
from agent_runtime_storage.drivers.protocol import BatchMissed, Row, Statement
from agent_runtime_storage.queries.owner import OwnerScope, not_found
from agent_runtime_storage.queries.row_decoding import to_run

OVER_LIMIT = ("thread_budget", "day_budget", "steps_budget")
"""Why a reservation misses that does not keep to its limits."""
_NANO = 1_000_000_000


class SpendingQueries(OwnerScope):
    """The methods of `UserStore` for what was spent."""

    async def day_spending(self) -> Spending:
        return _spending(await self._read("spending_of_day"))

    async def thread_spending(self, thread_id: str) -> Spending:
        return _spending(await self._read("spending_of_thread", thread_id=thread_id))

    async def set_budget(self, run_id: str, budget: Budget) -> None:
        values = {"run_id": run_id, "tokens": budget.tokens, "cost": budget.cost}
        try:
            update = self._statement("set_budget", values, rows=1)
            await self._batch([update], tree=run_id, repeatable=True)
        except BatchMissed as error:
            rows = await self._read("run", run_id=run_id)
            raise _why_not_set(to_run(rows[0]) if rows else None, run_id) from error

    async def tree_steps(self, root_run_id: str) -> int:
        [(steps,)] = await self._read("tree_steps", root_run_id=root_run_id)
        return int(steps)

    async def holders(self) -> list[str]:
        return [str(run_id) for (run_id,) in await self._read("holders")]

    async def worked_seconds(self, run_id: str) -> float:
        rows = await self._read("worked", run_id=run_id)
        return float(rows[0][0]) if rows else 0.0

    def _room(self, lease: Lease, commit: Commit) -> list[Statement]:
        """Return what makes a commit miss whose reservation does not keep to its limits."""
        limits = commit.limits
        if commit.reserve is None:
            return []
        root = {"root_run_id": lease.root_run_id, "below": int(is_below(lease) or limits.spare)}
        batch: list[Statement] = []
        for name, limit in (("thread", limits.thread), ("day", limits.day)):
            if limit != Budget():
                values = {**root, "tokens": limit.tokens, "cost": limit.cost}
                batch.append(
                    self._statement(f"room_of_{name}", values, rows=1, miss=f"{name}_budget")
                )
        if limits.steps is not None:
            kept = limits.kept_steps if is_below(lease) else 0
            values = {"root_run_id": lease.root_run_id, "most": limits.steps, "kept": kept}
            batch.append(self._statement("room_of_steps", values, rows=1, miss="steps_budget"))
        return batch

    def _book(self, commit: Commit) -> list[Statement]:
        """Return what books a commit's spending on the day."""
        settle, unsettle = commit.settle or Amount(), commit.unsettle or Amount()
        if settle == unsettle == Amount():
            return []
        values = {
            "settle_tokens": settle.tokens,
            "settle_cost": settle.cost,
            "unsettle_tokens": unsettle.tokens,
            "unsettle_cost": unsettle.cost,
        }
        return [self._statement("book_day", values)]

    async def _over_limit(self, lease: Lease, commit: Commit, label: str) -> BudgetExceeded:
        """Return why a reservation missed one of its limits."""
        wanted, limits = commit.reserve or Amount(), commit.limits
        if label == "steps_budget":
            steps = await self.tree_steps(lease.root_run_id)
            return step_budget_exceeded(steps, limits.steps or 0)
        rows = await self._read("run", run_id=lease.root_run_id)
        root = to_run(rows[0]) if rows else None
        kept = root.kept if root and (is_below(lease) or limits.spare) else None
        if label == "day_budget":
            return over_budget("day", limits.day, await self.day_spending(), wanted, kept)
        spending = await self.thread_spending(root.thread_id if root else lease.thread_id)
        return over_budget("thread", limits.thread, spending, wanted, kept)


def _why_not_set(run: Run | None, run_id: str) -> StoreError:
    if run is None:
        return not_found("run", run_id)
    if run.root_run_id != run_id:
        return Conflict(
            f"Run {run_id} spends from the budget of run {run.root_run_id}, which it works for.",
            cure="Change that one's.",
        )
    if run.status == "succeeded":
        return Conflict(f"Run {run_id} is over: succeeded.", cure="Start a new run on its thread.")
    return Conflict(
        f"Run {run_id} is at work, and began without such a limit.",
        cure="Pause it, change its budget, and resume it.",
    )


def is_below(lease: Lease) -> bool:
    """Return whether a run is below the root of its tree."""
    return lease.run_id != lease.root_run_id


def takes_lock(commit: Commit) -> bool:
    """Return whether a commit is one of the reservations that have to come one after the other."""
    limits = commit.limits
    return commit.reserve is not None and not limits.thread == limits.day == Budget()


def step_budget_exceeded(steps: int, most: int) -> BudgetExceeded:
    """Return the refusal of a step for which a run tree has no room."""
    return BudgetExceeded(
        f"The run and its sub-agents have used up their {most:,} steps: {steps:,} are made, the "
        "others under way or kept for the run itself.",
        budget="steps",
        cure="Allow the tree more steps, or start a new run.",
    )


def over_budget(
    which: str, limit: Budget, spending: Spending, wanted: Amount, kept: Amount | None = None
) -> BudgetExceeded:
    """Return the refusal of a reservation.

    Args:
        which: `run` (a run and those below it), `thread` or `day`.
        kept: what is to be left for the root of the tree.
    """
    whose = {
        "run": "of the run and its sub-agents",
        "thread": "of the thread",
        "day": "of the user for today (UTC)",
    }[which]
    ends = ""
    if spending.ends_at is not None:
        ends = f"; the day ends at {datetime.fromtimestamp(spending.ends_at, UTC):%Y-%m-%dT%H:%MZ}"
    left = f", {_said(kept, limit)} kept for the run itself" if kept and kept != Amount() else ""
    needed = f"A call of up to {_said(wanted, limit)}" if wanted != Amount() else "Another call"
    return BudgetExceeded(
        f"{needed} does not fit the budget {whose}: of {_limit(limit)}, "
        f"{_said(spending.spent, limit)} are spent and {_said(spending.reserved, limit)} "
        f"reserved{left}{ends}.",
        budget=which,
        cure={
            "run": "Give the run a larger one (`agent-runtime budget RUN`), and resume it.",
            "thread": "Raise the budget of threads, or go on on another thread.",
            "day": "Raise the budget of the day, or go on when it is over.",
        }[which],
    )


def _said(amount: Amount, limit: Budget) -> str:
    """Return an amount, by what is limited."""
    tokens = f"{amount.tokens:,} tokens"
    cost = f"${amount.cost / _NANO:.6g}"
    if limit.cost is None:
        return tokens
    return cost if limit.tokens is None else f"{tokens} ({cost})"


def _limit(limit: Budget) -> str:
    return _said(Amount(limit.tokens or 0, limit.cost or 0), limit)


def _spending(rows: list[Row]) -> Spending:
    [(settled, settled_cost, unsettled, unsettled_cost, reserved, reserved_cost, ends_at)] = rows
    return Spending(
        Amount(settled, settled_cost),
        Amount(unsettled, unsettled_cost),
        Amount(reserved, reserved_cost),
        ends_at,
    )
