"""Decides when each of many tasks may go to the database: at its reads and its batches.

A gated driver lets no call through by itself.  Whoever holds the gate waits until every task
stands at it (or is over), and then chooses which call goes next.  So tasks of several stores are
interleaved exactly as one seed says, at every point where another one could come between.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import anyio

from agent_runtime_storage.drivers.protocol import Driver, Row, SqlDialect, Statement, Value
from agent_runtime_storage.drivers.signals import Signals


class Ticket:
    """A call that stands at the gate, and the task that wants to make it."""

    def __init__(self, task: object) -> None:
        self.task = task
        self.passed = anyio.Event()


class Gate:
    """Where the calls of one interleaving's tasks wait; belongs to one event loop."""

    def __init__(self) -> None:
        self.waiting: list[Ticket] = []
        self._busy = 0
        self._still = anyio.Event()

    def begin(self) -> None:
        """Count a task that is about to run."""
        self._busy += 1

    def end(self) -> None:
        """Count a task that is over."""
        self._rest()

    async def still(self) -> None:
        """Wait until every task stands at the gate or is over."""
        while self._busy:
            self._still = anyio.Event()
            await self._still.wait()

    def let_through(self, ticket: Ticket) -> None:
        """Let a call go to the database."""
        self.waiting.remove(ticket)
        self._busy += 1
        ticket.passed.set()

    async def wait(self, task: object) -> None:
        """Stand at the gate until let through; a cancelled task leaves it."""
        ticket = Ticket(task)
        self.waiting.append(ticket)
        self._rest()
        try:
            await ticket.passed.wait()
        except BaseException:
            if ticket in self.waiting:
                self.waiting.remove(ticket)
                self._busy += 1
            raise

    def _rest(self) -> None:
        self._busy -= 1
        if not self._busy:
            self._still.set()


class GatedDriver:
    """A driver whose calls wait at a gate first."""

    def __init__(self, driver: Driver, gate: Gate, task: object) -> None:
        self.dialect: SqlDialect = driver.dialect
        self.signals: Signals = driver.signals
        self._driver = driver
        self._gate = gate
        self._task = task

    def __getattr__(self, name: str) -> Any:
        """Return what this driver has beyond the protocol."""
        return getattr(self._driver, name)

    async def read(self, sql: str, params: Mapping[str, Value], *, owner: str | None) -> list[Row]:
        """Answer a query, once let through."""
        await self._gate.wait(self._task)
        return await self._driver.read(sql, params, owner=owner)

    async def batch(
        self,
        statements: Sequence[Statement],
        *,
        owner: str | None,
        locks: Sequence[str] = (),
        repeatable: bool = False,
    ) -> list[list[Row]]:
        """Run a batch, once let through."""
        await self._gate.wait(self._task)
        return await self._driver.batch(statements, owner=owner, locks=locks, repeatable=repeatable)

    async def close(self) -> None:
        """Leave the driver open: it is its opener's."""
