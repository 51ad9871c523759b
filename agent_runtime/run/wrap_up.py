"""Wrapping up: a run whose steps, budget or time are nearly used up is told while there is room.

At nine tenths, or earlier where a budget would not pay for two more calls, the model gets a note
once: it can still end its task well, and say what is open, before the limit stops it.  When the
limits were raised after that, or the run is resumed with more steps or time, it is told so too.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from agent_runtime.messages import Note
from agent_runtime.prompt.view import Entry
from agent_runtime.run.budget import ROOM, BudgetState, TimeLimit
from agent_runtime_storage.contract.records import Amount

SHARE = 0.9
NOTE = (
    "This run has nearly used up what it may: {what}. Begin nothing new. Finish what you are at, "
    "then give your last answer: what is done, what you found, and what is still open."
)
ROOM_AGAIN = "There is room again for this run: go on with the task, without wrapping up."
_TENTH = 10
"""With fewer steps than that, a tenth is no step, and nothing is told of them."""


@dataclass(slots=True)
class WrapUp:
    """Looks how near a run is to its limits.

    Attributes:
        limit: how long this execution may take; None for no limit.
        told: whether its model has to wrap up, for all it knows.
    """

    limit: TimeLimit | None = None
    told: bool = False
    _limits: tuple[object, ...] = ()
    _began: float = field(default_factory=time.monotonic)

    def start(self, limit: TimeLimit | None, entries: Sequence[Entry] = ()) -> None:
        """Take the time from now on; the branch says what the model was told before."""
        self.limit, self._began = limit, time.monotonic()
        self.told = _was_told(entries)

    def notes(
        self, *, steps: Sequence[tuple[int, int]], budgets: Sequence[BudgetState], call: Amount
    ) -> list[Note]:
        """Return the note if it is time for it, or if there is room again since it was told.

        Args:
            steps: those that the run has made and that it may make, then those of its tree if they
                are limited.
            budgets: those that it has to keep to.
            call: the most that the next call can take of them.
        """
        limits = (self.limit, *(most for _, most in steps), *(one.limit for one in budgets))
        if self.told and limits == self._limits:
            # A prompt that became shorter is no reason to begin anything new.
            return []
        self._limits = limits
        reasons = (
            *(_steps(made, most, place) for place, (made, most) in enumerate(steps)),
            self._time(),
            *(_budget(one, call) for one in budgets),
        )
        what = next(filter(None, reasons), "")
        if bool(what) == self.told:
            return []
        self.told = bool(what)
        return [Note(NOTE.format(what=what) if what else ROOM_AGAIN, source="limits")]

    def _time(self) -> str:
        if self.limit is None:
            return ""
        took = time.monotonic() - self._began + self.limit.of - self.limit.seconds
        due = took >= SHARE * self.limit.of
        return f"{took:,.0f} of its {self.limit.of:,.0f} seconds" if due else ""


def _was_told(entries: Sequence[Entry]) -> bool:
    for entry in reversed(entries):
        message = entry.message
        if message.type == "user":
            return False
        if message.type == "note" and message.source == "limits":
            return message.text != ROOM_AGAIN
    return False


def _steps(made: int, most: int, place: int) -> str:
    due = most >= _TENTH and made >= SHARE * most
    together = " (with its sub-agents)" if place else ""
    return f"{made:,} of its {most:,} steps{together}" if due else ""


def _budget(one: BudgetState, call: Amount) -> str:
    spent, left, limit = one.spending.spent, one.left, one.limit
    whose = {"run": "its", "thread": "its thread's", "day": "the day's"}[one.whose]
    for what, most, used, rest, next_call in (
        ("tokens", limit.tokens, spent.tokens, left.tokens, call.tokens),
        ("budget in dollars", limit.cost, spent.cost, left.cost, call.cost),
    ):
        if most is not None and (used >= SHARE * most or rest < ROOM * next_call):
            return f"{used / most:.0%} of {whose} {what}"
    return ""
