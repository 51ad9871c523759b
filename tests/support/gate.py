"""Hold back calls to the database, and to models, until a test lets them through.

Whoever holds the gate waits until every task waits, and then chooses which call is next.  So tasks
of several stores interleave exactly as a seed says, at every point where one could come between.

A run is many tasks (its loop, its memory's worker, its watch), and nothing outside knows how many
of them are about to act.  So the event loop decides when all of them wait: nothing is ready to
run, no thread works, and no call is in progress.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import anyio
import anyio.to_thread

from agent_runtime_storage import StoreUnavailable
from agent_runtime_storage.drivers.protocol import Driver, Row, SqlDialect, Statement, Value
from agent_runtime_storage.drivers.signals import Signals


@dataclass(eq=False)
class Process:
    """What a crash ends: every call of a dead process fails."""

    name: str
    dead: bool = False

    def check(self) -> None:
        """Raise `StoreUnavailable` if the process is dead."""
        if self.dead:
            raise StoreUnavailable(f"{self.name} is dead.")


@dataclass(eq=False)
class Ticket:
    """A call that waits at the gate."""

    process: Process
    action: str
    passed: anyio.Event = field(default_factory=anyio.Event)


class Gate:
    """Where all calls of one interleaving wait; belongs to one event loop.

    One gate at a time: another task that polls keeps the event loop from being still.
    """

    def __init__(self) -> None:
        self.waiting: list[Ticket] = []
        self._in_progress = 0

    async def wait(self, process: Process, action: str = "") -> None:
        """Wait until let through.

        Raises:
            StoreUnavailable: the process is dead by then.
        """
        process.check()
        ticket = Ticket(process, action)
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
        """Let a call pass."""
        self.waiting.remove(ticket)
        ticket.passed.set()

    def kill(self, process: Process) -> None:
        """End a process: its calls that wait fail, and so does every later one."""
        process.dead = True
        for ticket in [one for one in self.waiting if one.process is process]:
            self.let_through(ticket)

    async def still(self) -> None:
        """Wait until every task waits for the gate, or for nothing that comes by itself."""
        loop = cast("Any", asyncio.get_running_loop())
        limiter = anyio.to_thread.current_default_thread_limiter()
        while True:
            await asyncio.sleep(0)
            if self._in_progress or limiter.borrowed_tokens:
                await asyncio.sleep(0.0001)
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
        """Answer a query, once let through."""
        await self._gate.wait(self._process, self._action)
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
    ) -> list[list[Row]]:
        """Run a batch, once let through; a process that died does not learn that it was written."""
        await self._gate.wait(self._process, self._action)
        with self._gate.calling():
            rows = await self._driver.batch(
                statements, owner=owner, locks=locks, repeatable=repeatable
            )
        self._process.check()
        return rows

    async def close(self) -> None:
        """Leave the driver open: its opener closes it."""
