"""Where the calls of whole runs wait: to the database, to the model, to the Observer.

A run is many tasks (its loop, its memory's worker, its watch), and nobody outside knows how many
of them are about to do something.  So it is the event loop that tells when all of them wait: then
nothing is ready to run, no thread is at work, and no call is under way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import anyio
import anyio.to_thread

from agent_runtime_storage import StoreUnavailable
from agent_runtime_storage.drivers.protocol import Driver, Row, SqlDialect, Statement, Value
from agent_runtime_storage.drivers.signals import Signals


@dataclass(eq=False)
class Process:
    """What a crash ends: all calls of the runs at work in it fail from then on."""

    name: str
    dead: bool = False

    def check(self) -> None:
        """Raise `StoreUnavailable` if the process is dead: to the database it is silent."""
        if self.dead:
            raise StoreUnavailable(f"{self.name} is dead.")


@dataclass(eq=False)
class Ticket:
    """A call that waits at the gate."""

    process: Process
    what: str
    passed: anyio.Event = field(default_factory=anyio.Event)


class Gate:
    """Where all calls of one interleaving wait; belongs to one event loop."""

    def __init__(self) -> None:
        self.waiting: list[Ticket] = []
        self.under_way = 0

    async def wait(self, process: Process, what: str) -> None:
        """Wait until let through; raise `StoreUnavailable` if the process is dead by then."""
        process.check()
        ticket = Ticket(process, what)
        self.waiting.append(ticket)
        try:
            await ticket.passed.wait()
        finally:
            if ticket in self.waiting:
                self.waiting.remove(ticket)
        process.check()

    def let_through(self, ticket: Ticket) -> None:
        """Let a call go."""
        self.waiting.remove(ticket)
        ticket.passed.set()

    def kill(self, process: Process) -> None:
        """End a process: no call of it comes through or back any more."""
        process.dead = True
        for ticket in [one for one in self.waiting if one.process is process]:
            self.let_through(ticket)

    async def still(self) -> None:
        """Return when every task waits for the gate, or for nothing that comes by itself."""
        loop = cast("Any", asyncio.get_running_loop())
        limiter = anyio.to_thread.current_default_thread_limiter()
        while True:
            await asyncio.sleep(0)
            if self.under_way or limiter.borrowed_tokens:
                await asyncio.sleep(0.0001)
            elif not loop._ready:
                return


class GatedDriver:
    """A driver whose calls wait at a gate first, and fail once their process is dead."""

    def __init__(self, driver: Driver, gate: Gate, process: Process) -> None:
        self.dialect: SqlDialect = driver.dialect
        self.signals: Signals = driver.signals
        self._driver = driver
        self._gate = gate
        self._process = process

    def __getattr__(self, name: str) -> Any:
        """Return what this driver has beyond the protocol."""
        return getattr(self._driver, name)

    async def read(self, sql: str, params: Mapping[str, Value], *, owner: str | None) -> list[Row]:
        """Answer a query, once let through."""
        await self._gate.wait(self._process, "read")
        self._gate.under_way += 1
        try:
            rows = await self._driver.read(sql, params, owner=owner)
        finally:
            self._gate.under_way -= 1
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
        """Run a batch, once let through; what died meanwhile does not learn that it was written."""
        await self._gate.wait(self._process, "batch")
        self._gate.under_way += 1
        try:
            rows = await self._driver.batch(
                statements, owner=owner, locks=locks, repeatable=repeatable
            )
        finally:
            self._gate.under_way -= 1
        self._process.check()
        return rows

    async def close(self) -> None:
        """Leave the driver open: it is its opener's."""
