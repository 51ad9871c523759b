"""The time of a recording, under which observational memory works while a run is replayed.

The worker of the memory is the product's own.  An observation that is asked for at a time is ready
so many seconds of the recording later, however long it really takes: `Clock.advance` goes from one
model call to the next and stops at whatever becomes ready between them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from unittest.mock import patch

import anyio

from agent_runtime.memory.observer import Call, Interval, NotObserved, Observed, Observer
from agent_runtime.memory.worker import Worker


class Clock:
    """The time of one recording, in seconds since the epoch.

    Attributes:
        waited: model calls that had to wait until something was observed.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.waited = 0
        self._busy: Callable[[], bool] = _never
        self._ready_at: float | None = None
        self._ready = anyio.Event()
        self._changed = anyio.Event()

    async def advance(self, to: float) -> None:
        """Go on to a time, when all that is ready by then is taken in."""
        await self._quiet()
        while self._ready_at is not None and self._ready_at <= to:
            self.now = max(self.now, self._ready_at)
            self._ready_at = None
            self._ready.set()
            await self._quiet()
        self.now = max(self.now, to)

    async def _quiet(self) -> None:
        """Wait until the worker waits for the clock, or for something to do."""
        while self._ready_at is None and self._busy():
            await self._changed.wait()

    # For the worker

    async def sleep(self, seconds: float) -> None:
        """Wait until so many seconds have passed."""
        self._ready, self._ready_at = anyio.Event(), self.now + seconds
        self._notify()
        try:
            await self._ready.wait()
        finally:
            self._ready_at = None

    def tell(self, busy: Callable[[], bool]) -> None:
        """Take note of how to know whether the worker goes on by itself."""
        self._busy = busy
        self._notify()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()


@dataclass
class PacedWorker(Worker):
    """The product's worker, of which the clock knows when it has nothing to do."""

    clock: Clock = field(default_factory=Clock)

    async def work(self) -> None:
        """Do what is due."""
        self.clock.tell(_always)
        try:
            await super().work()
        finally:
            self.clock.tell(_never)

    async def next(self) -> bool:
        """Do what is due next."""
        self.clock.tell(_always)
        found = await super().next()
        self.clock.tell(lambda: found or self.memory.woken.is_set())
        return found


def _always() -> bool:
    return True


def _never() -> bool:
    return False


class PacedObserver:
    """An Observer whose notes are ready some seconds of the recording after they were asked for.

    Args:
        foreground: says whether the run itself waits for the notes.
        billed: told of each interval's model calls.
    """

    def __init__(
        self,
        observer: Observer,
        clock: Clock,
        latency: float,
        *,
        foreground: Callable[[], bool],
        billed: Callable[[tuple[Call, ...]], None],
    ) -> None:
        self._observer = observer
        self._clock = clock
        self._latency = latency
        self._foreground = foreground
        self._billed = billed

    async def observe(self, interval: Interval) -> Observed:
        """Return the notes of the interval, late."""
        try:
            seen = await self._observer.observe(interval)
        except NotObserved as error:
            self._billed(error.calls)
            await self._wait()
            raise
        self._billed(seen.calls)
        await self._wait()
        return seen

    async def _wait(self) -> None:
        if not self._foreground():
            await self._clock.sleep(self._latency)
        elif self._latency:
            self._clock.waited += 1
            self._clock.now += self._latency

    def bound(self, interval: Interval) -> tuple[int, int]:
        """Return what observing costs at most."""
        return self._observer.bound(interval)


_recorded: ContextVar[Clock | None] = ContextVar("recorded", default=None)


@contextmanager
def recorded_time() -> Generator[None]:
    """Have `time.time` tell the time of the recording in tasks that replay one."""
    real = time.time

    def now() -> float:
        clock = _recorded.get()
        return real() if clock is None else clock.now

    with patch("time.time", now):
        yield


def tell_time_by(clock: Clock) -> None:
    """Have the current task, and those that it starts, tell the time by a clock."""
    _recorded.set(clock)
