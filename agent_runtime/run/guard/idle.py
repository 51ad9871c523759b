"""End a background run that has gone quiet."""

from __future__ import annotations

import time

import anyio

from agent_runtime.events import Event
from agent_runtime.log.run_log import RunLog


class IdleTimer:
    """Cancels a scope once a run has emitted no event for some seconds.

    Attributes:
        expired: whether it has.
        detail: the run's detail if it ends by this.
    """

    def __init__(self, log: RunLog, seconds: float) -> None:
        self._seconds = seconds
        self._heard = time.monotonic()
        # In front of the listener, so that live events such as text deltas count as well.
        self._emit, log.emit = log.emit, self._heard_of
        self.expired = False
        self.detail = f"Nothing was heard of it for {seconds:g} seconds."

    def _heard_of(self, event: Event) -> None:
        self._heard = time.monotonic()
        self._emit(event)

    async def watch(self, scope: anyio.CancelScope) -> None:
        """Wait until nothing was heard for too long, then cancel the scope."""
        # Sleeping until the earliest possible end costs nothing per event, unlike a timer that
        # each one resets.
        while (left := self._heard + self._seconds - time.monotonic()) > 0:  # noqa: ASYNC110
            await anyio.sleep(left)
        self.expired = True
        scope.cancel()
