"""Runs one interleaving: two stores on one database, one seed, one scheduler."""

from __future__ import annotations

import copy
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from agent_runtime_storage import Store
from agent_runtime_storage.drivers.protocol import Driver
from benchmarks.proof.interleavings.check import Judge, read_rows
from benchmarks.proof.interleavings.history import COMMITS, MAIN, Op, Side
from benchmarks.proof.interleavings.world import Actor, choose
from tests.support.gate import Gate, GatedDriver, Ticket

WIDTH = 4
"""How many actions are under way at most."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of an interleaving."""

    seed: int
    problems: tuple[str, ...]
    history: tuple[Op, ...]


def driver_of(store: Store) -> Driver:
    """Return the driver of an open store: the harness looks at rows and holds back calls."""
    opened: Any = store
    return cast("Driver", opened._driver)


def over(store: Store, driver: Any) -> Store:
    """Return the same store over another driver."""
    view: Any = copy.copy(store)
    view._driver = driver
    return cast("Store", view)


@dataclass
class Scheduler:
    """Starts actions, and chooses which call of which of them comes next."""

    stores: Sequence[Store]
    owner: str
    seed: int
    chance: random.Random
    actions: int
    concurrent: bool
    gate: Gate = field(default_factory=Gate)
    sides: list[Side] = field(default_factory=list[Side])
    history: list[Op] = field(default_factory=list[Op])
    scopes: dict[str, anyio.CancelScope] = field(default_factory=dict[str, anyio.CancelScope])

    async def run(self) -> None:
        """Do all the actions."""
        self.sides = [Side(f"store {number}") for number in range(len(self.stores))]
        async with anyio.create_task_group() as group:
            while self.actions or self.scopes:
                await self.gate.still()
                waiting = self.gate.waiting
                room = self.actions and len(self.scopes) < WIDTH
                if room and (not waiting or self.chance.random() < 0.35):
                    self._start(group)
                elif waiting:
                    await self._advance(waiting)

    def _start(self, group: TaskGroup) -> None:
        self.actions -= 1
        number = self.chance.randrange(len(self.stores))
        what = choose(self.chance) if self.history else "begin"
        op = Op(f"a{len(self.history)}", what, f"store {number}", 0)
        self.history.append(op)
        self.scopes[op.id] = anyio.CancelScope()
        self.gate.begin()
        group.start_soon(self._act, op, number)

    async def _act(self, op: Op, number: int) -> None:
        # Each action's own choices do not depend on when others make theirs.
        chance = random.Random(f"{self.seed} {op.id}")
        store = self.stores[number]
        gated = GatedDriver(driver_of(store), self.gate, op.id)
        op.start = time.monotonic_ns()
        try:
            with self.scopes[op.id]:
                user = over(store, gated).of(self.owner)
                await Actor(user, self.sides[number], chance, op).act()
            if op.outcome == "cancelled" and op.what in COMMITS:
                op.facts["there"] = await self._is_there(op)
        finally:
            del self.scopes[op.id]
            self.gate.end()

    async def _is_there(self, op: Op) -> bool:
        rows = await driver_of(self.stores[0]).read(
            "SELECT count(*) FROM events WHERE user_id = :user_id AND kind = :kind",
            {"user_id": self.owner, "kind": f"{op.what} {op.id}"},
            owner=self.owner,
        )
        return rows[0][0] > 0

    async def _advance(self, waiting: list[Ticket]) -> None:
        luck = self.chance.random()
        some = self.chance.choice(waiting)
        if luck < 0.03:
            self.scopes[str(some.task)].cancel()
            # It runs as soon as this task waits; until then it stands at the gate.
            await anyio.lowlevel.checkpoint()
            return
        together = [some]
        if self.concurrent and luck > 0.85:
            together = self.chance.sample(waiting, min(len(waiting), self.chance.randint(2, 4)))
        for ticket in together:
            self.gate.let_through(ticket)
        if self.concurrent and luck > 0.95:
            for _ in range(self.chance.randrange(4)):
                await anyio.lowlevel.checkpoint()
            if scope := self.scopes.get(str(some.task)):
                scope.cancel()


async def interleave(
    stores: Sequence[Store], prefix: str, seed: int, actions: int, concurrent: bool
) -> Verdict:
    """Run the interleaving of a seed, for an owner of its own, and judge it."""
    owner = f"{prefix} {seed}"
    chance = random.Random(seed)
    await stores[0].of(owner).ensure_thread(MAIN)
    count = chance.randint(actions // 2, actions * 3 // 2)
    scheduler = Scheduler(stores, owner, seed, chance, count, concurrent)
    await scheduler.run()
    for number, store in enumerate(stores):
        side = scheduler.sides[number]
        events = await store.of(owner).events(MAIN, after=side.cursor)
        side.followed += [(event.id, event.kind) for event in events]
    rows = await read_rows(driver_of(stores[seed % len(stores)]), owner)
    problems = Judge(rows, scheduler.history, scheduler.sides).judge()
    return Verdict(seed, tuple(problems), tuple(scheduler.history))
