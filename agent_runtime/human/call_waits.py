"""A call of a tool that delegates itself, and waits for people with its sub-agents.

The call of an idempotent tool can be made again, so it need not stay in memory for days: it is
stopped where it waits, and the run is suspended.  After the answer it is made again from its
beginning, and what it delegates continues where it was.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from typing import NoReturn, cast

import anyio

from agent_runtime.human.waiting import AwaitingHuman


class WaitsBelow(BaseException):
    """Stops a call that is made again later.

    Not an `Exception`, like a cancellation: a tool that handles failures must not take it for one.
    """


class CallWaits:
    """What one call of an idempotent tool waits for.

    Attributes:
        asked: how often the call has delegated each key.
        waiting: what it waits for; it may delegate several tasks at once.
    """

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.waiting: list[AwaitingHuman] = []
        self._at_work = 0
        self._changed = anyio.Event()

    @contextmanager
    def working(self) -> Generator[None]:
        """Count a sub-agent as at work."""
        self._at_work += 1
        try:
            yield
        finally:
            self._at_work -= 1
            if not self._at_work:
                self._changed.set()
                self._changed = anyio.Event()

    async def wait(self, waits: AwaitingHuman) -> NoReturn:
        """Stop the call, once none of its sub-agents works.

        Raises:
            WaitsBelow: always.
        """
        self.waiting.append(waits)
        # Stopping the call cancels its other sub-agents, and a cancelled one does not go on.
        while self._at_work:
            await self._changed.wait()
        raise WaitsBelow

    def ends(self, error: BaseException) -> bool:
        """Return whether an error of the call says no more than that it waits."""
        if not self.waiting:
            return False
        if isinstance(error, BaseExceptionGroup):
            group = cast("BaseExceptionGroup[BaseException]", error)
            return group.split((Exception, WaitsBelow))[1] is None
        return isinstance(error, WaitsBelow)

    def result(self) -> AwaitingHuman:
        """Return what the call returns instead of its result."""
        # A suspension that no answer ends comes first: the call must not be tried again before.
        apart = (one for one in self.waiting if one.stop_reason != "awaiting_user")
        return next(apart, self.waiting[0])
