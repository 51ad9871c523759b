"""Wrapping up: a run whose steps, budget or time are nearly used up is told while there is room.

At nine tenths, or earlier where a budget would not pay for two more calls, the model gets a note
once: it can still end its task well, and say what is open, before the limit stops it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from agent_runtime_storage.records import Amount

from .allowance import ROOM, Allowance, TimeLimit
from .messages import Note

SHARE = 0.9
NOTE = (
    "This run has nearly used up what it may: {what}. Begin nothing new. Finish what you are at, "
    "then give your last answer: what is done, what you found, and what is still open."
)
_TENTH = 10
"""With fewer steps than that, a tenth is no step, and nothing is told of them."""


@dataclass(slots=True)
class WrapUp:
    """Looks how near a run is to its limits.

    Attributes:
        limit: how long this execution may take; None for no limit.
        told: whether its model knows already.
    """

    limit: TimeLimit | None = None
    told: bool = False
    _began: float = field(default_factory=time.monotonic)

    def start(self, limit: TimeLimit | None) -> None:
        """Take the time from now on."""
        self.limit, self._began = limit, time.monotonic()

    def notes(
        self, *, steps: Sequence[tuple[int, int]], budgets: Sequence[Allowance], call: Amount
    ) -> list[Note]:
        """Return the note if it is time for it, and nothing if that was told before.

        Args:
            steps: those that the run has made and that it may make, then those of its tree if they
                are limited.
            budgets: those that it has to keep to.
            call: the most that the next call can take of them.
        """
        if self.told:
            return []
        reasons = (
            *(_steps(made, most, place) for place, (made, most) in enumerate(steps)),
            self._time(),
            *(_budget(one, call) for one in budgets),
        )
        what = next(filter(None, reasons), "")
        if not what:
            return []
        self.told = True
        return [Note(NOTE.format(what=what), source="limits")]

    def _time(self) -> str:
        if self.limit is None:
            return ""
        took = time.monotonic() - self._began + self.limit.of - self.limit.seconds
        due = took >= SHARE * self.limit.of
        return f"{took:,.0f} of its {self.limit.of:,.0f} seconds" if due else ""


def _steps(made: int, most: int, place: int) -> str:
    due = most >= _TENTH and made >= SHARE * most
    together = " (with its sub-agents)" if place else ""
    return f"{made:,} of its {most:,} steps{together}" if due else ""


def _budget(one: Allowance, call: Amount) -> str:
    spent, left, limit = one.spending.spent, one.left, one.limit
    whose = {"run": "its", "thread": "its thread's", "day": "the day's"}[one.whose]
    for what, most, used, rest, next_call in (
        ("tokens", limit.tokens, spent.tokens, left.tokens, call.tokens),
        ("budget in dollars", limit.cost, spent.cost, left.cost, call.cost),
    ):
        if most is not None and (used >= SHARE * most or rest < ROOM * next_call):
            return f"{used / most:.0%} of {whose} {what}"
    return ""
