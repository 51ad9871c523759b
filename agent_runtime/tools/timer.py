"""The time that a tool may take: it stands still while child runs of the tool are at work."""

from __future__ import annotations

import math
from collections.abc import Generator
from contextlib import contextmanager

import anyio


class ToolTimer:
    """The timeout of one call. A child run has limits of its own, so its time does not count."""

    def __init__(self) -> None:
        self._scope: anyio.CancelScope | None = None
        self._left = math.inf
        self._pauses = 0

    @contextmanager
    def limit(self, seconds: float | None) -> Generator[None]:
        """Cancel what is inside after so many seconds, pauses not counted, and go on behind it."""
        with anyio.move_on_after(seconds) as self._scope:
            yield

    @contextmanager
    def paused(self) -> Generator[None]:
        """Let the time stand still; pauses may overlap."""
        self._pauses += 1
        if self._pauses == 1 and self._scope is not None:
            self._left = self._scope.deadline - anyio.current_time()
            self._scope.deadline = math.inf
        try:
            yield
        finally:
            self._pauses -= 1
            if self._pauses == 0 and self._scope is not None:
                self._scope.deadline = anyio.current_time() + self._left
