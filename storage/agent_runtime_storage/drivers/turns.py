"""Spread what becomes ready at once over several turns of the event loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial

MOST = 4
"""A continuation of a run takes about a millisecond."""


class Turns:
    """Makes a few calls in each turn of the event loop, in order; the others wait for the next.

    A group commit answers hundreds of batches at once.  If all of their tasks went on in the same
    turn, everything else on the loop would wait for as long as all of them take.

    Args:
        most: calls in a turn.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, most: int = MOST) -> None:
        self._loop = loop
        self._most = most
        self._left = most
        self._waiting: deque[Callable[[], object]] = deque()
        self._scheduled = False

    def call(self, function: Callable[..., object], *args: object) -> None:
        """Call a function now or in a later turn; it must not raise. On the loop's thread only."""
        self._waiting.append(partial(function, *args))
        self._make_calls()
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._next)

    def _next(self) -> None:
        self._left = self._most
        self._make_calls()
        # Scheduled again only after a turn that made calls: an idle loop is not woken.
        self._scheduled = self._left < self._most
        if self._scheduled:
            self._loop.call_soon(self._next)

    def _make_calls(self) -> None:
        while self._waiting and self._left:
            self._left -= 1
            self._waiting.popleft()()
