"""Virtual time: coroutines that wait on a heap instead of an event loop, and their processes.

A coroutine runs until it awaits a `Pause`.  Which one runs next depends on the virtual time alone,
so a seed repeats its world, and nothing ever sleeps.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass, field
from typing import Any

from agent_runtime_storage.contract.records.log import LeaseOwner

FOREVER = float("inf")


@dataclass(slots=True, eq=False)
class Process:
    """A simulated process.

    Attributes:
        machine: whose processes see which of them have died.
        stopped_until: when it goes on after a stop.
        ahead: how far its own clocks are ahead of the true time, in seconds.
        rate: how fast they run.
    """

    name: str
    machine: str
    alive: bool = True
    stopped_until: float = 0.0
    ahead: float = 0.0
    rate: float = 1.0

    @property
    def owner(self) -> LeaseOwner:
        """Return the process as the owner of a lease."""
        return LeaseOwner(self.machine, "boot", 1, self.name, self.machine, self.name)


class Pause:
    """Waits for some seconds of virtual time, or until a waiter is woken."""

    __slots__ = ("seconds", "waiter")

    def __init__(self, seconds: float, waiter: Waiter | None = None) -> None:
        self.seconds = seconds
        self.waiter = waiter

    def __await__(self) -> Generator[Pause, None, None]:
        """Give the turn to others."""
        yield self


@dataclass(slots=True, eq=False)
class Task:
    """A coroutine of a process; of its entries on the heap only that with its turn counts."""

    process: Process
    work: Coroutine[Any, Any, Any]
    turn: int = 0
    is_done: bool = False

    def done(self) -> bool:
        """Return whether it has ended, as a task of asyncio does."""
        return self.is_done


@dataclass(slots=True, eq=False)
class Waiter:
    """A wait that can end early; stands for the store's own `Waiter`."""

    scheduler: Scheduler
    task: Task | None = None
    woken: bool = False

    def wake(self, after: float = 0.0) -> None:
        """End the wait after some seconds, or the next one at once."""
        if self.task is None:
            self.woken = True
        else:
            task, self.task = self.task, None
            self.scheduler.push(task, after)

    async def wait(self, seconds: float) -> None:
        """Return when it is woken, or after the given seconds."""
        if not self.woken:
            await Pause(seconds, self)
        self.task, self.woken = None, False


@dataclass(slots=True)
class Scheduler:
    """Runs the tasks of all processes in the order of virtual time.

    Attributes:
        now: the true time, in seconds.
        current: the process whose task runs.
    """

    now: float
    current: Process
    turns: int = 0
    _heap: list[tuple[float, int, Task]] = field(default_factory=list[tuple[float, int, Task]])
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    def spawn(self, process: Process, work: Coroutine[Any, Any, Any], after: float = 0.0) -> Task:
        """Start a task after some seconds."""
        task = Task(process, work)
        self.push(task, after)
        return task

    def push(self, task: Task, after: float) -> None:
        """Let a task go on after some seconds, whatever it waited for."""
        task.turn = next(self._numbers)
        heapq.heappush(self._heap, (self.now + after, task.turn, task))

    def run(self, done: Callable[[], bool], until: float) -> None:
        """Run tasks until something is done, none is left, or the time is over."""
        heap = self._heap
        while heap and not done():
            at, turn, task = heapq.heappop(heap)
            if at > until:
                heapq.heappush(heap, (at, turn, task))
                self.now = until
                return
            if turn != task.turn:
                continue
            self.now = max(self.now, at)
            process = task.process
            if not process.alive:
                task.work.close()
            elif process.stopped_until > self.now:
                self.push(task, process.stopped_until - self.now)
            else:
                self._step(task)

    def _step(self, task: Task) -> None:
        self.current = task.process
        self.turns += 1
        try:
            pause: Pause = task.work.send(None)
        except StopIteration:
            task.is_done = True
            return
        if pause.waiter is not None:
            pause.waiter.task = task
        if pause.seconds < FOREVER:
            self.push(task, pause.seconds)
        elif not task.process.alive:
            task.work.close()

    def close(self) -> None:
        """End all tasks that are left."""
        for _, _, task in self._heap:
            task.work.close()
        self._heap.clear()
