"""Records of budgets, limits and spending."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum

from agent_runtime_storage.contract.errors import BudgetExceeded

_NANO = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Budget:
    """The budget of a run tree (on its root), of a thread or of a day; None means unlimited."""

    tokens: int | None = None
    cost: int | None = None


UNLIMITED = Budget()


class Unchanged(Enum):
    """The type of `UNCHANGED`, for a limit that stays as it is; None would lift it."""

    UNCHANGED = "unchanged"


UNCHANGED = Unchanged.UNCHANGED


@dataclass(frozen=True, slots=True)
class Amount:
    """An amount of spending: tokens, and money in nanodollars."""

    tokens: int = 0
    cost: int = 0


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits that a reservation has to fit, in addition to the budget of its run tree.

    Attributes:
        thread: for all run trees whose root is on the same thread, together.
        day: for everything that the owner spends on a day, by UTC.
        steps: the most steps of the run tree; None for no limit.
        kept_steps: the steps that the runs below the root have to leave for it.
        spare: whether a reservation by the root has to leave the kept amount as well.
    """

    thread: Budget = UNLIMITED
    day: Budget = UNLIMITED
    steps: int | None = None
    kept_steps: int = 0
    spare: bool = False


NO_LIMITS = Limits()
NO_AMOUNT = Amount()


@dataclass(frozen=True, slots=True)
class Spending:
    """The spending of a thread's runs, or of an owner's runs on a day.

    Attributes:
        settled: reported by providers.
        unsettled: upper bounds of calls that were never reported.
        reserved: for calls in progress.
        ends_at: the end of the day, by the database's clock; None for a thread.
    """

    settled: Amount = NO_AMOUNT
    unsettled: Amount = NO_AMOUNT
    reserved: Amount = NO_AMOUNT
    ends_at: float | None = None

    @property
    def spent(self) -> Amount:
        """The most that was billed."""
        return Amount(
            self.settled.tokens + self.unsettled.tokens, self.settled.cost + self.unsettled.cost
        )


def step_budget_exceeded(steps: int, most: int) -> BudgetExceeded:
    """Return the error for a step beyond the limit of a run tree."""
    return BudgetExceeded(
        f"The run and its sub-agents have used up their {most:,} steps: {steps:,} are made, the "
        "others in progress or kept for the run itself.",
        budget="steps",
        cure="Allow the tree more steps, or start a new run.",
    )


def over_budget(
    which: str, limit: Budget, spending: Spending, wanted: Amount, kept: Amount | None = None
) -> BudgetExceeded:
    """Return the error for a reservation that does not fit a budget.

    Args:
        which: `run` (a run and those below it), `thread` or `day`.
        kept: the amount to leave for the root of the tree.
    """
    whose = {
        "run": "of the run and its sub-agents",
        "thread": "of the thread",
        "day": "of the user for today (UTC)",
    }[which]
    ends = ""
    if spending.ends_at is not None:
        ends = f"; the day ends at {datetime.fromtimestamp(spending.ends_at, UTC):%Y-%m-%dT%H:%MZ}"
    left = f", {_show(kept, limit)} kept for the run itself" if kept and kept != Amount() else ""
    needed = f"A call of up to {_show(wanted, limit)}" if wanted != Amount() else "Another call"
    return BudgetExceeded(
        f"{needed} does not fit the budget {whose}: of {_show_limit(limit)}, "
        f"{_show(spending.spent, limit)} are spent and {_show(spending.reserved, limit)} "
        f"reserved{left}{ends}.",
        budget=which,
        cure={
            "run": "Give the run a larger one (`agent-runtime budget RUN`), and resume it.",
            "thread": "Raise the budget of threads, or continue on another thread.",
            "day": "Raise the budget of the day, or continue when it is over.",
        }[which],
    )


def _show(amount: Amount, limit: Budget) -> str:
    """Return an amount in the units of the limit; tokens if nothing is limited."""
    tokens = f"{amount.tokens:,} tokens"
    cost = f"${amount.cost / _NANO:.6g}"
    if limit.cost is None:
        return tokens
    return cost if limit.tokens is None else f"{tokens} ({cost})"


def _show_limit(limit: Budget) -> str:
    return _show(Amount(limit.tokens or 0, limit.cost or 0), limit)
