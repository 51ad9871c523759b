"""Hold back calls to the database and to models until a test lets them pass.

The holder of the gate waits until every task waits, then chooses which call is next. So tasks of
several stores interleave exactly as a seed says, at every point where they could.

A run has many tasks (its loop, its memory's worker, its watch), and nothing outside knows how many
of them are about to act. So the event loop decides when all of them wait: nothing is ready to run,
no thread works, and no call is in progress.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import anyio
import anyio.to_thread

from agent_runtime_storage import StoreUnavailable
from agent_runtime_storage.drivers.protocol import (
    Announce,
    Driver,
    Row,
    SqlDialect,
    Statement,
    Value,
)
from agent_runtime_storage.drivers.signals import Signals

SLOW = 0.2
"""Seconds after which a call in progress may wait for a timer of its own."""
LONGEST = 60.0
"""Seconds after which a call in progress counts as hung."""


@dataclass(eq=False)
class Process:
    """A simulated process: once it is dead, all its calls fail."""

    name: str
    dead: bool = False

    def check(self) -> None:
        """Raise `StoreUnavailable` if the process is dead."""
        if self.dead:
            raise StoreUnavailable(f"{self.name} is dead.")


@dataclass(eq=False)
class Ticket:
    """A call that waits at the gate.

    Attributes:
        action: what it is a part of.
        what: what it does.
    """

    process: Process
    action: str
    what: str = ""
    passed: anyio.Event = field(default_factory=anyio.Event)


class Gate:
    """The place where all calls of one interleaving wait; it belongs to one event loop.

    Args:
        elapse: gets the seconds that pass while a slow call is in progress; moves a held clock.

    Use one gate at a time: another task that polls keeps the event loop from being still.
    """

    def __init__(self, elapse: Callable[[float], None] | None = None) -> None:
        self.waiting: list[Ticket] = []
        self._elapse = elapse
        self._in_progress = 0

    async def wait(self, process: Process, action: str = "", what: str = "") -> None:
        """Wait until the call may pass.

        Raises:
            StoreUnavailable: the process has died meanwhile.
        """
        process.check()
        ticket = Ticket(process, action, what)
        self.waiting.append(ticket)
        try:
            await ticket.passed.wait()
        finally:
            if ticket in self.waiting:
                self.waiting.remove(ticket)
        process.check()

    @contextmanager
    def calling(self) -> Generator[None]:
        """Count a call as in progress."""
        self._in_progress += 1
        try:
            yield
        finally:
            self._in_progress -= 1

    def let_through(self, ticket: Ticket) -> None:
        """Let a waiting call pass."""
        self.waiting.remove(ticket)
        ticket.passed.set()

    def kill(self, process: Process) -> None:
        """End a process: its waiting calls fail, and so does every later one."""
        process.dead = True
        for ticket in [ticket for ticket in self.waiting if ticket.process is process]:
            self.let_through(ticket)

    async def still(self) -> None:
        """Wait until every task waits at the gate, or for something that another task must do.

        Raises:
            TimeoutError: a call does not return.
        """
        began = passed = time.monotonic()
        loop = cast("Any", asyncio.get_running_loop())
        limiter = anyio.to_thread.current_default_thread_limiter()
        while True:
            await asyncio.sleep(0)
            if self._in_progress or limiter.borrowed_tokens:
                now = time.monotonic()
                if now - began > LONGEST:
                    raise TimeoutError(f"A call has not returned for {LONGEST:g} s.")
                if now - began > SLOW and self._elapse is not None:
                    # It may pause before it tries again.
                    self._elapse(now - passed)
                passed = now
                # A thread or a server is at work: leave it the processor instead of spinning.
                # Not the loop's sleep, because the loop's clock may be held.
                time.sleep(0.0001)  # noqa: ASYNC251
            elif not loop._ready:
                return


class GatedDriver:
    """A driver whose calls wait at a gate first, and fail once their process is dead."""

    def __init__(self, driver: Driver, gate: Gate, process: Process, action: str = "") -> None:
        self.dialect: SqlDialect = driver.dialect
        self.signals: Signals = driver.signals
        self._driver = driver
        self._gate = gate
        self._process = process
        self._action = action

    def __getattr__(self, name: str) -> Any:
        return getattr(self._driver, name)

    async def read(self, sql: str, params: Mapping[str, Value], *, owner: str | None) -> list[Row]:
        """Run a query once the gate lets it pass."""
        await self._gate.wait(self._process, self._action, sql)
        with self._gate.calling():
            rows = await self._driver.read(sql, params, owner=owner)
        self._process.check()
        return rows

    async def batch(
        self,
        statements: Sequence[Statement],
        *,
        owner: str | None,
        locks: Sequence[str] = (),
        repeatable: bool = False,
        announce: Announce | None = None,
    ) -> list[list[Row]]:
        """Run a batch once the gate lets it pass.

        If the process has died meanwhile, it does not learn that the batch was written.
        """
        what = "; ".join(statement.sql for statement in statements)
        await self._gate.wait(self._process, self._action, what)
        with self._gate.calling():
            rows = await self._driver.batch(
                statements, owner=owner, locks=locks, repeatable=repeatable, announce=announce
            )
        self._process.check()
        return rows

    async def close(self) -> None:
        """Leave the driver open: its opener closes it."""
