"""What a run may still spend of the budgets of its run tree, its thread and its user's day.

The store enforces them, whoever else spends at the same time
(`agent_runtime_storage.log.spending`); this module computes what follows for a run: what is left,
when to wrap up, and what its sub-agents must leave unspent for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agent_runtime.errors import BudgetExceeded
from agent_runtime.models.cost import NANO
from agent_runtime_config import Settings
from agent_runtime_storage.contract.records.log import Lease, Run
from agent_runtime_storage.contract.records.spending import (
    NO_AMOUNT,
    UNLIMITED,
    Amount,
    Budget,
    Limits,
    Spending,
    over_budget,
)
from agent_runtime_storage.contract.store import UserStore

ROOM = 2
"""Calls still affordable at wrap-up."""
NO_END = 2**53
"""What is left of a budget that sets no limit."""
_SMALL = 20
"""A root's next call is reserved for it, or the next two if under this part of the budget."""


@dataclass(frozen=True, slots=True)
class BudgetState:
    """A budget that a run must keep to, with what is spent of it.

    Attributes:
        whose: `run` for the run tree's, `thread`, or `day`.
        kept: what this run must leave unspent for the root of its tree.
    """

    whose: str
    limit: Budget
    spending: Spending
    kept: Amount = NO_AMOUNT

    @property
    def left(self) -> Amount:
        """What is unspent, counting reservations as unspent."""
        spent, kept, limit = self.spending.spent, self.kept, self.limit
        return Amount(
            NO_END if limit.tokens is None else limit.tokens - spent.tokens - kept.tokens,
            NO_END if limit.cost is None else limit.cost - spent.cost - kept.cost,
        )


@dataclass(frozen=True, slots=True)
class TimeLimit:
    """How long an execution of a run may take.

    Attributes:
        seconds: what is left of the limit when the execution begins.
        of: the whole limit, including time already used.
        detail: the run's detail if it ends by this limit.
    """

    seconds: float
    of: float
    detail: str


def tree_budget(settings: Settings) -> Budget:
    """Return what a run tree may spend that begins under these settings."""
    return budget_of(settings.budget_tokens, settings.budget_usd)


def limits_of(settings: Settings) -> Limits:
    """Return the limits of runs under these settings, except the budget of their tree."""
    steps = settings.budget_steps
    # Steps that child runs leave for the root's last answer; never all, or none could begin.
    return Limits(
        thread=budget_of(settings.thread_budget_tokens, settings.thread_budget_usd),
        day=budget_of(settings.day_budget_tokens, settings.day_budget_usd),
        steps=steps,
        kept_steps=0 if steps is None else min(ROOM, steps - 1),
    )


def budget_of(tokens: int | None, dollars: float | None) -> Budget:
    """Return a budget of tokens and dollars; None means no limit."""
    return Budget(tokens, None if dollars is None else int(dollars * NANO))


def in_money(budget: Budget, limits: Limits) -> bool:
    """Return whether dollars are limited, so that prices must be known."""
    return any(one.cost is not None for one in (budget, limits.thread, limits.day))


async def allowances(store: UserStore, lease: Lease, limits: Limits) -> list[BudgetState]:
    """Return the budgets that a run must keep to, as they are now."""
    root = await store.runs.get(lease.root_run_id)
    # The root itself may spend what its child runs have to leave for it.
    kept = root.kept if lease.is_child else NO_AMOUNT
    budgets: list[BudgetState] = []
    if root.budget != UNLIMITED:
        budgets.append(_of_tree(root, kept))
    if limits.thread != UNLIMITED:
        spending = await store.spending.of_thread(root.thread_id)
        budgets.append(BudgetState("thread", limits.thread, spending, kept))
    if limits.day != UNLIMITED:
        budgets.append(BudgetState("day", limits.day, await store.spending.of_day(), kept))
    return budgets


def _of_tree(root: Run, kept: Amount = NO_AMOUNT) -> BudgetState:
    return BudgetState(
        "run", root.budget, Spending(root.settled, root.unsettled, root.reserved), kept
    )


def least_left(budgets: Sequence[BudgetState]) -> Amount:
    """Return what is left of the tightest budgets, counting reservations as unspent."""
    left = [one.left for one in budgets]
    return Amount(
        min([NO_END, *(one.tokens for one in left)]), min([NO_END, *(one.cost for one in left)])
    )


async def require_room(store: UserStore, limits: Limits, thread_id: str) -> None:
    """Refuse to begin a run whose thread or day has no budget left.

    Raises:
        BudgetExceeded: the thread, or the user's day, has used up its budget.
    """
    if limits.thread == limits.day == UNLIMITED:
        return
    for one in await _spent(store, limits, thread_id):
        if one.left.tokens <= 0 or one.left.cost <= 0:
            raise over_budget(one.whose, one.limit, one.spending, NO_AMOUNT)


async def spending_of(
    store: UserStore, settings: Settings, thread_id: str | None = None, run_id: str | None = None
) -> list[BudgetState]:
    """Return what was spent today, and on a thread and by a run tree if they are named.

    Each has its limit: of the settings, or the run tree's own.
    """
    found = await _spent(store, limits_of(settings), thread_id)
    if run_id is not None:
        found.append(await spending_of_tree(store, run_id))
    return found


async def spending_of_tree(store: UserStore, run_id: str) -> BudgetState:
    """Return what the run tree of a run has spent, with its budget. Raises `NotFound`."""
    run = await store.runs.get(run_id)
    child = run.parent_run_id is not None
    return _of_tree(await store.runs.get(run.root_run_id) if child else run)


async def _spent(store: UserStore, limits: Limits, thread_id: str | None) -> list[BudgetState]:
    found = [BudgetState("day", limits.day, await store.spending.of_day())]
    if thread_id is not None:
        found.append(
            BudgetState("thread", limits.thread, await store.spending.of_thread(thread_id))
        )
    return found


def held_by_the_dead(error: BudgetExceeded, dead: Sequence[str]) -> BudgetExceeded:
    """Return the refusal with the dead runs whose reservations will not be released."""
    if not dead:
        return error
    return BudgetExceeded(
        f"{error.message} The runs that reserved it have died: {', '.join(dead[:3])}.",
        budget=error.budget,
        cure="`agent-runtime runs sweep` takes it back; it then counts as spent.",
    )


def root_reserve(call: Amount, budgets: Sequence[BudgetState]) -> Amount:
    """Return what child runs must leave unspent for their root.

    That is its next call, or up to two calls as long as they are a small part of each budget.
    """
    small = Amount(
        min([NO_END, *(one.limit.tokens or NO_END for one in budgets)]) // _SMALL,
        min([NO_END, *(one.limit.cost or NO_END for one in budgets)]) // _SMALL,
    )
    return Amount(
        max(call.tokens, min(ROOM * call.tokens, small.tokens)),
        max(call.cost, min(ROOM * call.cost, small.cost)),
    )


async def time_limit(
    store: UserStore, lease: Lease, settings: Settings, *, background: bool = False
) -> TimeLimit | None:
    """Return the shorter of the run's own time limit and what is left of its tree's; None for none.

    A tree's time is the time in which its root was executed; while it was suspended, or no process
    worked on it, no time counts.
    """
    limits: list[TimeLimit] = []
    owns = [settings.run_timeout, settings.background_timeout if background else None]
    if own := min((one for one in owns if one), default=None):
        limits.append(TimeLimit(own, own, f"It ran longer than its {own:g} seconds."))
    if (most := settings.budget_seconds) is not None:
        worked = await store.runs.active_seconds(lease.root_run_id)
        detail = f"The run and its sub-agents have used up their {most:g} seconds."
        limits.append(TimeLimit(max(most - worked, 0.0), most, detail))
    return min(limits, key=lambda one: one.seconds, default=None)
