"""A clock of the event loop that moves only when a scheduler says so.

Timers of the product (polls, deadlines, pauses) then run in an order that depends neither on the
machine nor on its load, and nothing has to wait for them.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any


class LoopClock:
    """The clock of the running event loop."""

    def __init__(self) -> None:
        # The loop's list of timers is private, and so is the way to replace its clock.
        self._loop: Any = asyncio.get_running_loop()
        self._now = 0.0
        self._is_held = False

    @contextmanager
    def held(self) -> Generator[None]:
        """Hold the clock; afterwards it continues from where `tick` has moved it."""
        # A whole second, so that sums of the same durations are the same in each run.
        if self._is_held:
            yield
            return
        self._is_held = True
        began: float = self._loop.time()
        self._now = float(math.ceil(began))
        self._loop.time = lambda: self._now
        try:
            yield
        finally:
            self._is_held = False
            ahead = self._now - time.monotonic()
            self._loop.time = lambda: time.monotonic() + ahead

    def tick(self) -> bool:
        """Move a held clock to the next timer; return False if there is none."""
        timers = [timer.when() for timer in self._loop._scheduled if not timer.cancelled()]
        if not timers:
            return False
        self._now = max(self._now, min(timers))
        return True

    def elapse(self, seconds: float) -> None:
        """Move a held clock by some seconds."""
        self._now += seconds
