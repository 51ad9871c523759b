"""Runs one interleaving of whole runs: two runtimes on one database, one seed, one scheduler."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import anyio
from anyio.abc import TaskGroup

from agent_runtime_storage import Store, UserStore
from benchmarks.proof.interleavings.memory_gate import Gate, GatedDriver, Process
from benchmarks.proof.interleavings.memory_world import MAIN, Actor, Op, Sent, World, choose, expire
from benchmarks.proof.interleavings.run import driver_of, over
from tests.support.prompt_judge import Judge, Left, read_left

WIDTH = 3
"""How many actions are under way at most."""
SIDES = 2


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of an interleaving.

    Attributes:
        happened: how often each cause of an activation, and each kind of observation, occurred.
    """

    seed: int
    problems: tuple[str, ...]
    history: tuple[Op, ...]
    happened: dict[str, int] = field(default_factory=dict[str, int])


@dataclass
class Scheduler:
    """Starts actions, and chooses which call of which of them comes next.

    Args:
        concurrent: whether several calls are at times let through at once; how those end is not
            the seed's alone to say.
    """

    stores: Sequence[Store]
    owner: str
    seed: int
    actions: int
    concurrent: bool
    gate: Gate = field(default_factory=Gate)
    history: list[Op] = field(default_factory=list[Op])
    sent: list[Sent] = field(default_factory=list[Sent])
    scopes: dict[str, anyio.CancelScope] = field(default_factory=dict[str, anyio.CancelScope])

    def __post_init__(self) -> None:
        """Make the sides."""
        self.chance = random.Random(self.seed)
        self.processes = [Process(f"store {number}") for number in range(SIDES)]
        # A side that crashed begins anew; what it says from then on is its own all the same.
        self.worlds = [World(process.name, on_sent=self.sent.append) for process in self.processes]

    async def run(self) -> None:
        """Do all the actions."""
        async with anyio.create_task_group() as group:
            while self.actions or self.scopes:
                await self.gate.still()
                waiting = self.gate.waiting
                room = self.actions and len(self.scopes) < WIDTH
                if room and (not waiting or self.chance.random() < 0.03):
                    self._start(group, choose(self.chance) if self.history else "run")
                elif waiting:
                    await self._advance(group)
                else:
                    await anyio.sleep(0.001)

    async def finish(self) -> None:
        """Let all that is left open come to its end by an undisturbed run."""
        await expire(driver_of(self.stores[0]), self.owner)
        op: Op | None = None
        async with anyio.create_task_group() as group:
            op = self._start(group, "tidy", 0)
            while self.scopes:
                await self.gate.still()
                if self.gate.waiting:
                    self.gate.let_through(self.gate.waiting[0])
                else:
                    await anyio.sleep(0.001)
        if op and op.outcome != "ok":
            op.outcome, op.error = "failed", f"the thread is not usable any more: {op.error}"
        for number in range(SIDES):
            await self._kill(number)

    def _start(self, group: TaskGroup, what: str, number: int | None = None) -> Op:
        self.actions = max(0, self.actions - 1)
        number = self.chance.randrange(SIDES) if number is None else number
        op = Op(f"a{len(self.history)}", what, f"store {number}")
        self.history.append(op)
        self.scopes[op.id] = anyio.CancelScope()
        group.start_soon(self._act, op, number)
        return op

    async def _act(self, op: Op, number: int) -> None:
        # Each action's own choices do not depend on when others make theirs.
        chance = random.Random(f"{self.seed} {op.id}")
        store, process, world = self.stores[number], self.processes[number], self.worlds[number]
        gated = over(store, GatedDriver(driver_of(store), self.gate, process))
        pause = partial(self.gate.wait, process)
        mine = World(world.name, pause, world.on_sent, world.numbers, world.runtimes)
        try:
            with self.scopes[op.id]:
                await Actor(gated, self.owner, mine, chance, op).act()
        finally:
            del self.scopes[op.id]

    async def _advance(self, group: TaskGroup) -> None:
        luck = self.chance.random()
        if luck < 0.004:
            await self._crash()
        elif luck < 0.008:
            # Who did not renew its lease may be alive, and go on after another took its run over.
            await expire(driver_of(self.stores[0]), self.owner)
            self._start(group, "resume")
        elif luck < 0.010 and self.scopes:
            self.scopes[self.chance.choice(list(self.scopes))].cancel()
        else:
            waiting = self.gate.waiting
            together = [self.chance.choice(waiting)]
            if self.concurrent and luck > 0.9:
                together = self.chance.sample(waiting, min(len(waiting), 2))
            for ticket in together:
                self.gate.let_through(ticket)

    async def _crash(self) -> None:
        number = self.chance.randrange(SIDES)
        self.history.append(Op(f"a{len(self.history)}", "crash", f"store {number}", "ok"))
        await self._kill(number)

    async def _kill(self, number: int) -> None:
        self.gate.kill(self.processes[number])
        self.processes[number] = Process(f"store {number}")
        await self.worlds[number].end()


async def interleave(
    stores: Sequence[Store], prefix: str, seed: int, actions: int, *, concurrent: bool
) -> Verdict:
    """Run the interleaving of a seed, for an owner of its own, and judge it."""
    owner = f"{prefix} {seed}"
    await stores[0].of(owner).ensure_thread(MAIN)
    scheduler = Scheduler(stores, owner, seed, actions, concurrent)
    await scheduler.run()
    await scheduler.finish()
    store = stores[seed % len(stores)]
    return await judge(store, owner, seed, scheduler.history, scheduler.sent)


async def judge(
    store: Store, owner: str, seed: int, history: Sequence[Op], sent: Sequence[Sent]
) -> Verdict:
    """Judge what is left, once every claim of a job is over."""
    driver = driver_of(store)
    await expire(driver, owner)
    left = await read_left(store, driver, owner)
    claimed = frozenset(await claim_all(store.of(owner), left))
    problems = Judge(left, history, sent, claimed).judge()
    return Verdict(seed, tuple(problems), tuple(history), _happened(left))


async def claim_all(user: UserStore, left: Left, thread: str = MAIN) -> list[str]:
    """Claim every job that is not done, and return those that could be claimed."""
    claimed: list[str] = []
    for _, kind, key, status in left.jobs:
        if status == "done":
            continue
        job = await user.claim(kind, seconds=60, thread_id=thread, key=key)
        if job is not None:
            claimed.append(job.id)
    return claimed


def _happened(left: Left) -> dict[str, int]:
    found: dict[str, int] = {}

    def count(what: str) -> None:
        found[what] = found.get(what, 0) + 1

    for event in left.events:
        data: Any = event.data
        if event.kind == "activation":
            count(f"activated: {data['cause']}")
        elif event.kind == "observation":
            level = "observed" if not data["level"] else "reflected"
            count(f"{level} by {data['origin']}")
    return found
