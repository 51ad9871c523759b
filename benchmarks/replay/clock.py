"""The time of a recording, in which observational memory works during a replay.

The memory's worker is the product's own.  An observation is ready some seconds of recorded time
after its request, however long it really takes: `Clock.advance` moves from one model call to the
next, and stops at each observation that becomes ready between them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from unittest.mock import patch

import anyio
from typing_extensions import override

from agent_runtime.memory.observational.observer.base import (
    MemoryCall,
    Observer,
    ObserverFailed,
    ObserverInput,
    ObserverResult,
)
from agent_runtime.memory.observational.worker import RETRY_SECONDS, MemoryWorker


class Clock:
    """The time of one recording, in seconds since the epoch.

    Attributes:
        waited: model calls that had to wait for an observation.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.waited = 0
        self._hands: list[Hand] = []
        self._changed = anyio.Event()

    def hand(self) -> Hand:
        """Return a hand for a worker; an earlier run's may still be in use."""
        self._hands.append(hand := Hand(self))
        return hand

    async def advance(self, to: float) -> None:
        """Advance to a time, after everything that is ready by then was processed."""
        await self._quiet()
        while due := [hand for hand in self._hands if hand.ready_at <= to]:
            first = min(due, key=lambda hand: hand.ready_at)
            self.now = max(self.now, first.ready_at)
            first.release()
            await self._quiet()
        self.now = max(self.now, to)

    async def _quiet(self) -> None:
        """Wait until every worker waits, for the clock or for something to do."""
        while any(hand.busy for hand in self._hands):
            await self._changed.wait()

    def notify(self) -> None:
        """Make `advance` check the workers again."""
        self._changed.set()
        self._changed = anyio.Event()


class Hand:
    """The state of one worker.

    Attributes:
        ready_at: until when it waits; infinite if it does not wait for the clock.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.ready_at = math.inf
        self._ready = anyio.Event()
        self._working = _never

    @property
    def busy(self) -> bool:
        """Whether its worker is running."""
        return self.ready_at == math.inf and self._working()

    async def sleep(self, seconds: float) -> None:
        """Wait until this many recorded seconds have passed."""
        self._ready, self.ready_at = anyio.Event(), self.clock.now + seconds
        self.clock.notify()
        try:
            await self._ready.wait()
        finally:
            self.release()

    def release(self) -> None:
        """Let its worker continue."""
        self.ready_at = math.inf
        self._ready.set()

    def tell(self, working: Callable[[], bool]) -> None:
        """Set the function that returns whether its worker is running."""
        self._working = working
        self.clock.notify()


def _always() -> bool:
    return True


def _never() -> bool:
    return False


@dataclass(kw_only=True)
class PacedWorker(MemoryWorker):
    """The product's worker; it reports to the clock when it is idle."""

    hand: Hand

    @override
    async def work(self) -> None:
        """Do all due work."""
        self.hand.tell(_always)
        try:
            await super().work()
        finally:
            self.hand.tell(_never)

    @override
    async def next(self) -> bool:
        """Do the next due work."""
        self.hand.tell(_always)
        worked = await super().next()
        self.hand.tell(lambda: worked or self.memory.woken.is_set())
        return worked

    @override
    async def _pause(self) -> None:
        if not self._retired:
            await self.hand.sleep(RETRY_SECONDS)


class PacedObserver:
    """An Observer whose notes are ready some recorded seconds after the request.

    Args:
        foreground: returns whether the run itself waits for the notes.
        billed: gets each interval's model calls.
    """

    def __init__(
        self,
        observer: Observer,
        hand: Hand,
        latency: float,
        *,
        foreground: Callable[[], bool],
        billed: Callable[[tuple[MemoryCall, ...]], None],
    ) -> None:
        self._observer = observer
        self._hand = hand
        self._latency = latency
        self._foreground = foreground
        self._billed = billed

    async def observe(self, interval: ObserverInput) -> ObserverResult:
        """Return the notes of the interval, late."""
        try:
            seen = await self._observer.observe(interval)
        except ObserverFailed as error:
            self._billed(error.calls)
            await self._wait()
            raise
        self._billed(seen.calls)
        await self._wait()
        return seen

    async def _wait(self) -> None:
        if not self._foreground():
            await self._hand.sleep(self._latency)
        elif self._latency:
            self._hand.clock.waited += 1
            self._hand.clock.now += self._latency

    def bound(self, interval: ObserverInput) -> tuple[int, int]:
        """Return the most that observing can cost."""
        return self._observer.bound(interval)


_recorded: ContextVar[Clock | None] = ContextVar("recorded", default=None)


@contextmanager
def recorded_time() -> Generator[None]:
    """Make `time.time` return recorded time in tasks that replay a recording."""
    real = time.time

    def now() -> float:
        clock = _recorded.get()
        return real() if clock is None else clock.now

    with patch("time.time", now):
        yield


def tell_time_by(clock: Clock) -> None:
    """Make the current task, and tasks that it starts, use a clock's time."""
    _recorded.set(clock)
