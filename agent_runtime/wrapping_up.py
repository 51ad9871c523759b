"""Wrapping up: a run whose steps, budget or time are nearly used up is told while there is room.

At nine tenths, or earlier where a budget would not pay for two more calls, the model gets a note
once: it can still end its task well, and say what is open, before the limit stops it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from agent_runtime_storage.records import Amount, Run

from .messages import Note

SHARE = 0.9
ROOM = 2
"""For so many more calls a budget has to last after the note."""
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
        timeout: the most seconds of this execution; None for no limit.
        told: whether its model knows already.
    """

    timeout: float | None = None
    told: bool = False
    _began: float = field(default_factory=time.monotonic)

    def start(self, timeout: float | None) -> None:
        """Take the time from now on."""
        self.timeout, self._began = timeout, time.monotonic()

    def notes(self, *, steps: int, most: int, root: Run | None, call: Amount) -> list[Note]:
        """Return the note if it is time for it, and nothing if that was told before.

        Args:
            steps, most: those that the run has made, and that it may make.
            root: the root of the run tree, with what the tree has spent; None without a budget.
            call: the most that the next call can take of it.
        """
        if self.told:
            return []
        what = self._steps(steps, most) or self._time() or _budget(root, call)
        if not what:
            return []
        self.told = True
        return [Note(NOTE.format(what=what), source="limits")]

    def _steps(self, steps: int, most: int) -> str:
        due = most >= _TENTH and steps >= SHARE * most
        return f"{steps:,} of its {most:,} steps" if due else ""

    def _time(self) -> str:
        took = time.monotonic() - self._began
        due = self.timeout is not None and took >= SHARE * self.timeout
        return f"{took:,.0f} of its {self.timeout:,.0f} seconds" if due else ""


def _budget(root: Run | None, call: Amount) -> str:
    if root is None:
        return ""
    spent = Amount(
        root.settled.tokens + root.unsettled.tokens, root.settled.cost + root.unsettled.cost
    )
    for what, limit, used, next_call in (
        ("tokens", root.budget.tokens, spent.tokens, call.tokens),
        ("budget in dollars", root.budget.cost, spent.cost, call.cost),
    ):
        if limit is not None and (used >= SHARE * limit or limit - used < ROOM * next_call):
            return f"{used / limit:.0%} of its {what}"
    return ""
