"""Records of what may be spent and what was: budgets, limits, the books of threads and days."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from agent_runtime_storage.contract.errors import BudgetExceeded

_NANO = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of a run tree, kept on its root, or of a thread or a day; None means unlimited."""

    tokens: int | None = None
    cost: int | None = None


UNLIMITED = Budget()


@dataclass(frozen=True, slots=True)
class Amount:
    """An amount of spending: tokens, and money in nanodollars."""

    tokens: int = 0
    cost: int = 0


@dataclass(frozen=True, slots=True)
class Limits:
    """What a reservation has to fit, in addition to the budget of its run tree.

    Attributes:
        thread: of all run trees whose root is on the same thread, together.
        day: of all that the owner spends on a day, by UTC.
        steps: the most steps of the run tree; None for no limit.
        kept_steps: how many of these the runs below the root have to leave.
        spare: whether a reservation of the root's own leaves what it keeps as well.
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
    """What a thread's runs, or an owner's on a day, have spent.

    Attributes:
        settled: reported by providers.
        unsettled: upper bounds of calls that died unreported.
        reserved: for calls under way.
        ends_at: when the day is over, by the database's clock; None of a thread.
    """

    settled: Amount = NO_AMOUNT
    unsettled: Amount = NO_AMOUNT
    reserved: Amount = NO_AMOUNT
    ends_at: float | None = None

    @property
    def spent(self) -> Amount:
        """What counts as spent: at most that much was billed."""
        return Amount(
            self.settled.tokens + self.unsettled.tokens, self.settled.cost + self.unsettled.cost
        )


def step_budget_exceeded(steps: int, most: int) -> BudgetExceeded:
    """Return the refusal of a step for which a run tree has no room."""
    return BudgetExceeded(
        f"The run and its sub-agents have used up their {most:,} steps: {steps:,} are made, the "
        "others in progress or kept for the run itself.",
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
    """Return an amount, by what is limited."""
    tokens = f"{amount.tokens:,} tokens"
    cost = f"${amount.cost / _NANO:.6g}"
    if limit.cost is None:
        return tokens
    return cost if limit.tokens is None else f"{tokens} ({cost})"


def _show_limit(limit: Budget) -> str:
    return _show(Amount(limit.tokens or 0, limit.cost or 0), limit)
