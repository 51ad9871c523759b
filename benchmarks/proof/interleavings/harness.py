"""Run interleavings: two stores on one database, one seed, one scheduler, one world.

A world defines the actions on a thread and judges their result.  There are two: calls of the store
alone (`store`), and whole runs with observational memory (`memory`).
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar, TypeAlias
from uuid import uuid4

import anyio
import anyio.lowlevel

from agent_runtime_storage import Store, open_store
from benchmarks.proof.interleavings.clock import LoopClock
from benchmarks.proof.interleavings.history import Note, Op, choose
from tests.support.gate import Gate, GatedDriver, Process, Ticket
from tests.support.prompt_judge import MAIN, Sent
from tests.support.stores import driver_of, over

SIDES = ("store 0", "store 1")
LONGEST = 20_000
"""Calls and timers after which an interleaving counts as hung; most have some hundreds."""

Pause: TypeAlias = Callable[[str], Awaitable[None]]
"""Waits until a model may answer; its argument is the purpose of the call."""


async def no_pause(what: str) -> None:
    """Let a model answer at once."""
    del what


def no_note(op: Op) -> None:
    """Write no journal."""
    del op


@dataclass(frozen=True, slots=True)
class Action:
    """An action to do.

    Attributes:
        op: its entry in the history.
        chance: decides everything that the action leaves open.
    """

    op: Op
    store: Store
    chance: random.Random
    pause: Pause = no_pause
    note: Note = no_note


@dataclass(frozen=True, slots=True)
class Verdict:
    """The faults of an interleaving.

    Attributes:
        happened: how often each counted event occurred.
    """

    seed: int
    problems: tuple[str, ...]
    history: tuple[Op, ...]
    happened: dict[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True, slots=True)
class Odds:
    """The probabilities and limits by which a scheduler acts in a world.

    Attributes:
        first: the action that begins each interleaving.
        width: the most actions in progress.
        tasks: how many actions one process has in progress.
        rest: seconds between two actions of a process.
        start: the probability that an action starts while calls wait.
        tick: the probability that the clock moves to the next timer while calls wait.
        cancel: the probability that an action is cancelled instead of a call let through.
        several: the probability that several calls are let through at once.
        most: the most calls let through at once.
        interrupt: the probability that an action is cancelled while its call is in progress.
    """

    first: str
    width: int
    tasks: int
    rest: float
    start: float
    tick: float
    cancel: float
    several: float
    most: int
    interrupt: float


class World(ABC):
    """The actions on one owner's thread, and the judge of their result.

    Attributes:
        weights: how often each action is chosen, relative to the others.
        sent: the prompts to judge.
        on_sent: gets each prompt before it is sent.
        happened: filled by `judge`.
    """

    odds: ClassVar[Odds]
    weights: ClassVar[Mapping[str, int]]

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.sent: list[Sent] = []
        self.on_sent: Callable[[Sent], None] = self.sent.append
        self.happened: dict[str, int] = {}

    @staticmethod
    def prepare(seconds: float = 0.0) -> None:
        """Prepare this process; it waits `seconds` before it retries what another one holds."""
        del seconds

    @abstractmethod
    async def act(self, action: Action) -> None:
        """Do an action and complete its entry in the history."""

    async def cancelled(self, op: Op, store: Store) -> None:
        """Record what a cancelled action wrote."""
        del op, store

    async def disturb(self, scheduler: Scheduler, luck: float) -> bool:
        """Disturb the run instead of letting a call through, sometimes; return whether it did."""
        del scheduler, luck
        return False

    async def finish(self, scheduler: Scheduler) -> None:
        """Finish what is still open."""
        del scheduler

    @abstractmethod
    async def judge(self, store: Store, history: Sequence[Op]) -> list[str]:
        """Return the faults in the rows, one sentence each."""

    async def close(self) -> None:  # noqa: B027  # most worlds have nothing to end
        """End work that outlives the actions that started it."""


class Hung(Exception):
    """An interleaving that does not end."""


@dataclass
class Scheduler:
    """Starts actions, and chooses the next call to let through.

    Args:
        concurrent: whether several calls are sometimes let through at once, and some cancelled
            while in progress; how those end does not depend on the seed alone.
    """

    world: World
    stores: Sequence[Store]
    seed: int
    actions: int = 0
    concurrent: bool = False
    history: list[Op] = field(default_factory=list[Op])
    clock: LoopClock = field(default_factory=LoopClock)
    scopes: dict[str, anyio.CancelScope] = field(default_factory=dict[str, anyio.CancelScope])

    def __post_init__(self) -> None:
        """Make the sides."""
        self.gate = Gate(self.clock.elapse)
        self.chance = random.Random(self.seed)
        self.processes = [Process(side) for side in SIDES]
        self._left = LONGEST

    async def run(self) -> None:
        """Do all actions.

        Raises:
            Hung: they do not end.
        """
        odds = self.world.odds
        async with self._scheduling():
            while self.actions or self.scopes:
                waiting = await self._waiting()
                room = self.actions and len(self.scopes) < odds.width
                if room and (not waiting or self.chance.random() < odds.start):
                    first = not self.history
                    self.start(odds.first if first else choose(self.world.weights, self.chance))
                elif waiting and self.chance.random() >= odds.tick:
                    await self._advance(waiting)
                else:
                    self._tick(waiting)

    async def alone(self, what: str) -> Op:
        """Do one action, undisturbed.

        Raises:
            Hung: it does not end.
        """
        async with self._scheduling():
            op = self.start(what, 0)
            while self.scopes:
                waiting = await self._waiting()
                if waiting and self.chance.random() >= self.world.odds.tick:
                    # Not the first: a task that retries without a pause would keep out the others.
                    self.gate.let_through(self.chance.choice(waiting))
                else:
                    self._tick(waiting)
        return op

    async def apart(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do some work while all calls wait that wait at the gate."""
        with self.clock.held():
            async with anyio.create_task_group() as group:
                done = anyio.Event()

                async def end() -> None:
                    await work()
                    done.set()

                group.start_soon(end)
                while True:
                    waiting = await self._waiting()
                    if done.is_set():
                        return
                    self._tick(waiting)

    @asynccontextmanager
    async def _scheduling(self) -> AsyncGenerator[None]:
        hung: Hung | None = None
        with self.clock.held():
            async with anyio.create_task_group() as group:
                self._group = group
                try:
                    yield
                except Hung as error:
                    hung = error
                    await self._give_up()
                except BaseException:
                    self._kill_all()
                    raise
        # Outside of the task group, which would wrap it.
        if hung is not None:
            raise hung

    def _kill_all(self) -> None:
        # What cannot be cancelled just now leaves the gate if its process dies.
        for number in range(len(SIDES)):
            self.crash(number)

    async def _give_up(self) -> None:
        self._left = LONGEST
        self._kill_all()
        for scope in self.scopes.values():
            scope.cancel()
        while self.scopes:
            self._tick(await self._waiting())

    async def _waiting(self) -> list[Ticket]:
        """Return the calls that wait, in an order that the speed of threads does not decide.

        Raises:
            Hung: the interleaving has too many calls and timers.
        """
        await self.gate.still()
        self._left -= 1
        if self._left < 0:
            raise Hung(f"{self._open()} had not ended after {LONGEST:,} calls and timers")
        return sorted(self.gate.waiting, key=lambda ticket: (ticket.action, ticket.what))

    def _tick(self, waiting: Sequence[Ticket]) -> None:
        if not self.clock.tick() and not waiting and self.scopes:
            raise Hung(f"{self._open()} waited for nothing that could happen")

    def _open(self) -> str:
        return ", ".join(f"{op.what} {op.id}" for op in self.history if op.id in self.scopes)

    def start(self, what: str, number: int | None = None) -> Op:
        """Start an action on one of the sides."""
        self.actions = max(0, self.actions - 1)
        number = self.chance.randrange(len(SIDES)) if number is None else number
        op = Op(f"a{len(self.history)}", what, SIDES[number])
        self.history.append(op)
        self.scopes[op.id] = anyio.CancelScope()
        self._group.start_soon(self._act, op, number)
        return op

    async def _act(self, op: Op, number: int) -> None:
        # A generator of its own: its choices do not depend on when other actions make theirs.
        chance = random.Random(f"{self.seed} {op.id}")
        store, process = self.stores[number], self.processes[number]
        gated = over(store, GatedDriver(driver_of(store), self.gate, process, op.id))

        async def pause(what: str) -> None:
            await self.gate.wait(process, op.id, what)

        try:
            with self.scopes[op.id]:
                await self.world.act(Action(op, gated, chance, pause))
            if op.outcome == "cancelled":
                # Counted as a call, so that the scheduler does not take this read for a pause.
                with self.gate.calling():
                    await self.world.cancelled(op, store)
        finally:
            del self.scopes[op.id]

    async def _advance(self, waiting: list[Ticket]) -> None:
        odds, luck = self.world.odds, self.chance.random()
        if luck < odds.cancel and self.scopes:
            self.scopes[self.chance.choice(list(self.scopes))].cancel()
            # The cancelled action leaves the gate only once this task yields.
            await anyio.lowlevel.checkpoint()
            return
        if await self.world.disturb(self, luck - odds.cancel):
            return
        some = self.chance.choice(waiting)
        together = [some]
        if self.concurrent and self.chance.random() < odds.several:
            count = min(len(waiting), self.chance.randint(2, odds.most))
            together = self.chance.sample(waiting, count)
        for ticket in together:
            self.gate.let_through(ticket)
        if self.concurrent and self.chance.random() < odds.interrupt:
            for _ in range(self.chance.randrange(4)):
                await anyio.lowlevel.checkpoint()
            if scope := self.scopes.get(some.action):
                scope.cancel()

    def crash(self, number: int) -> None:
        """Kill a side's process; the side continues in another one."""
        self.gate.kill(self.processes[number])
        self.processes[number] = Process(SIDES[number])


async def interleave(
    kind: type[World],
    stores: Sequence[Store],
    prefix: str,
    seed: int,
    *,
    actions: int,
    concurrent: bool,
) -> Verdict:
    """Run the interleaving of a seed, for an owner of its own, and judge it."""
    owner = f"{prefix} {seed}"
    await stores[0].of(owner).threads.ensure(MAIN)
    count = random.Random(f"{seed} actions").randint(actions // 2, actions * 3 // 2)
    scheduler = Scheduler(kind(owner), stores, seed, count, concurrent)
    try:
        await scheduler.run()
        return await finish(scheduler, stores[seed % len(stores)])
    except Hung as error:
        return Verdict(seed, (f"It hangs: {error}.",), tuple(scheduler.history))
    finally:
        await scheduler.apart(scheduler.world.close)


async def finish(scheduler: Scheduler, store: Store) -> Verdict:
    """Finish what is still open, and judge the rows through a store.

    Raises:
        Hung: it does not end.
    """
    world = scheduler.world
    await world.finish(scheduler)
    problems = await world.judge(store, scheduler.history)
    return Verdict(scheduler.seed, tuple(problems), tuple(scheduler.history), world.happened)


async def run_seeds(
    kind: type[World],
    url: str,
    seeds: Iterable[int],
    on_verdict: Callable[[Verdict], None],
    *,
    actions: int,
    concurrent: bool = True,
) -> None:
    """Interleave two stores on the database for each seed, one after the other.

    Args:
        actions: the average number of actions of an interleaving.
    """
    kind.prepare()
    prefix = f"interleaving {uuid4().hex}"
    async with AsyncExitStack() as stack:
        # Faster than `full`, and as safe against kills: only a power cut could lose a commit.
        stores = [await open_store(url, synchronous="normal") for _ in SIDES]
        for store in stores:
            stack.push_async_callback(store.close)
        one = partial(interleave, kind, stores, prefix, actions=actions, concurrent=concurrent)
        for seed in seeds:
            on_verdict(await one(seed))
