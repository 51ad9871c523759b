"""Records of what may be spent and what was: budgets, limits, the books of threads and days."""

from __future__ import annotations

from dataclasses import dataclass


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
    """What a reservation has to keep to, beside the budget of its run tree.

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
