"""The timeout of a tool call, which does not run while the tool's child runs work."""

from __future__ import annotations

import math
from collections.abc import Generator
from contextlib import contextmanager

import anyio


class ToolTimer:
    """The timeout of one call.  Child runs have their own limits, so their time does not count."""

    def __init__(self) -> None:
        self._scope: anyio.CancelScope | None = None
        self._left = math.inf
        self._pauses = 0

    @contextmanager
    def limit(self, seconds: float | None) -> Generator[None]:
        """Cancel the body after `seconds`, not counting pauses, and continue after it."""
        with anyio.move_on_after(seconds) as self._scope:
            yield

    @contextmanager
    def paused(self) -> Generator[None]:
        """Stop the time; pauses may overlap."""
        self._pauses += 1
        if self._pauses == 1 and self._scope is not None:
            # The scope stays: a cancellation from outside still ends the call.
            self._left = self._scope.deadline - anyio.current_time()
            self._scope.deadline = math.inf
        try:
            yield
        finally:
            self._pauses -= 1
            if self._pauses == 0 and self._scope is not None:
                self._scope.deadline = anyio.current_time() + self._left
