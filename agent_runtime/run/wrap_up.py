"""Warn a run's model before its steps, budget or time run out.

At nine tenths of a limit, or earlier if a budget does not cover two more calls, the model gets one
note, so that it can finish and say what is open before the limit stops it.  If the limits are
raised later, or the run is resumed with more steps or time, a second note says so.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from agent_runtime.messages import Note
from agent_runtime.prompt.view import Entry
from agent_runtime.run.budget import ROOM, BudgetState, TimeLimit
from agent_runtime_storage.contract.records.log import Amount

SHARE = 0.9
"""Share of a limit from which on it counts as near."""
NOTE = (
    "This run has nearly used up what it may: {what}. Begin nothing new. Finish what you are at, "
    "then give your last answer: what is done, what you found, and what is still open."
)
ROOM_AGAIN = "This run has room again: continue with the task, and do not wrap up."
_TENTH = 10
"""Step limits below this get no note: a tenth of them is less than one step."""


@dataclass(slots=True)
class WrapUp:
    """Compares a run with its limits.

    Attributes:
        limit: how long this execution may take; None for no limit.
        warned: whether the model's newest note about limits says to wrap up.
    """

    limit: TimeLimit | None = None
    warned: bool = False
    _limits: tuple[object, ...] = ()
    _began: float = field(default_factory=time.monotonic)

    def start(self, limit: TimeLimit | None, entries: Sequence[Entry] = ()) -> None:
        """Start the clock; read from the branch whether the model was warned before."""
        self.limit, self._began = limit, time.monotonic()
        self.warned = _was_warned(entries)

    def notes(
        self, *, steps: Sequence[tuple[int, int]], budgets: Sequence[BudgetState], call: Amount
    ) -> list[Note]:
        """Return a note if a limit is near, or if there is room again since the warning.

        Args:
            steps: the run's steps and its limit, then those of its tree if it has a limit.
            budgets: the budgets that the run must keep to.
            call: an upper bound of the next call.
        """
        limits = (self.limit, *(most for _, most in steps), *(one.limit for one in budgets))
        if self.warned and limits == self._limits:
            # A shorter prompt makes the next call cheaper, but is no reason to begin new work.
            return []
        self._limits = limits
        reasons = (
            *(_steps(made, most, place) for place, (made, most) in enumerate(steps)),
            self._time(),
            *(_budget(one, call) for one in budgets),
        )
        # One reason is enough: the model cannot do more about two.
        what = next(filter(None, reasons), "")
        if bool(what) == self.warned:
            return []
        self.warned = bool(what)
        if what:
            return [Note(NOTE.format(what=what), source="limits")]
        return [Note(ROOM_AGAIN, source="limits_raised")]

    def _time(self) -> str:
        if self.limit is None:
            return ""
        # Earlier executions of the tree have used up the difference.
        took = time.monotonic() - self._began + self.limit.of - self.limit.seconds
        due = took >= SHARE * self.limit.of
        return f"{took:,.0f} of its {self.limit.of:,.0f} seconds" if due else ""


def _was_warned(entries: Sequence[Entry]) -> bool:
    for entry in reversed(entries):
        message = entry.message
        # A warning before the user's message was for an earlier run.
        if message.type == "user":
            return False
        # Earlier versions wrote both notes as "limits".  A run that they gave room again counts as
        # warned here, so it gets the second note once more.
        if message.type == "note" and message.source in ("limits", "limits_raised"):
            return message.source == "limits"
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
