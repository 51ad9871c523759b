"""A world: workers, their faults, and what people and schedules enqueue, all by one seed."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

from agent_runtime.errors import AgentRuntimeError
from agent_runtime.log.lease_keeper import LeaseKeeper
from agent_runtime.log.run_log import cancelled_finish
from agent_runtime.run.process.host import RunHost
from agent_runtime.run.queue.control import withdraw
from agent_runtime.run.queue.schedules import next_time
from agent_runtime.run.queue.worker import Starter, Worker
from agent_runtime_config import Settings
from agent_runtime_storage.contract.errors import StoreError
from agent_runtime_storage.contract.records.log import ACTIVE, Finish, Run
from agent_runtime_storage.contract.records.queue import NewQueuedRun, QueueLimits
from agent_runtime_storage.contract.records.schedules import Missed, NewSchedule
from agent_runtime_storage.store import SqlStore
from benchmarks.proof.simulated.body import Body, plan_of, take_and_stop
from benchmarks.proof.simulated.database import Faults, SimulatedDatabase, SimulatedDriver
from benchmarks.proof.simulated.judge import Hopeless, Judge
from benchmarks.proof.simulated.scheduler import FOREVER, Pause, Process, Scheduler
from benchmarks.proof.simulated.seams import Seams

BEGIN = 1_800_000_000.0
SETTLE_SECONDS = 3000.0
"""How long everything may take to end when nothing disturbs it any more."""
LATE_SECONDS = 60.0
WOKEN = 0.35
"""The chance of each worker to hear a word of new work that is not lost."""
DRAIN_SECONDS = 12.0


@dataclass(frozen=True, slots=True)
class Size:
    """How large worlds are.

    Attributes:
        seconds: how long runs are enqueued and faults happen.
        troubles: how many faults there are at most.
        sampled: judge one in this number of picks and batches thoroughly.
    """

    workers: tuple[int, int] = (2, 5)
    machines: int = 3
    slots: int = 3
    users: int = 3
    runs: tuple[int, int] = (4, 12)
    seconds: float = 100.0
    troubles: int = 9
    sampled: int = 1


SMALL = Size()
CROWDED = Size(users=1, runs=(10, 14), seconds=60.0)
"""One user, whose runs are on few threads and close together."""
LARGE = Size((1000, 3000), 500, 3, 200, (2500, 4000), 60.0, 400, 400)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The faults of a world.

    Attributes:
        happened: how often each counted event occurred.
    """

    seed: int
    problems: tuple[str, ...]
    happened: Counter[str]


@dataclass(slots=True)
class _Agents:
    """What a worker can run; see `Agents`."""

    program: str
    names: Sequence[str]
    versions: Sequence[str]
    refuses: Callable[[Run], bool]

    def of_run(self, run: Run) -> Any:
        """Return something to run it with, or None."""
        return None if self.refuses(run) else _AGENT


_AGENT = object()


@dataclass(slots=True)
class _Node:
    """A worker's process and its parts."""

    process: Process
    versions: Sequence[str]
    keeper: LeaseKeeper
    admission: SimpleNamespace
    slots: int


@dataclass(eq=False)
class World:
    """Runs one seed.

    Args:
        database: an empty one, which is empty again afterwards.
    """

    database: SimulatedDatabase
    seed: int
    size: Size = SMALL
    nodes: list[_Node] = field(default_factory=list[_Node])
    processes: dict[str, Process] = field(default_factory=dict[str, Process])
    runs: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    schedules: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    times: dict[tuple[str, int], int] = field(default_factory=dict[tuple[str, int], int])

    def __post_init__(self) -> None:
        """Decide what kind of a world it is."""
        chance = self.chance = random.Random(self.seed)
        self.client = Process("client", "office")
        self.processes["client"] = self.client
        self.scheduler = Scheduler(BEGIN + chance.uniform(0.0, 3600.0), self.client)
        self.harsh = chance.choice((0.0, 0.2, 0.4, 0.6))
        self.troubles = chance.choice((0, 2, self.size.troubles))
        rare, often = chance.choice(((0.0, 0.0), (0.002, 0.02), (0.01, 0.1)))
        self.faults = Faults(often, rare, rare, rare, chance.choice((0.0, 0.3, 1.0)))

        def limit(most: int) -> int | None:
            return chance.randint(1, most) if chance.random() < 0.35 else None

        scale = 1 if self.size.sampled == 1 else 20
        self.limits = QueueLimits(limit(3 * scale), limit(4 * scale), limit(5 * scale))
        self.settings = cast(
            "Settings",
            SimpleNamespace(
                max_runs=None,
                max_file_bytes=1000,
                queue_runs_per_user=self.limits.per_user,
                queue_runs_per_agent=self.limits.per_agent,
                queue_runs_per_model=self.limits.per_model,
            ),
        )
        self.version = 1
        self.healed = False
        self.judge = Judge(self.database, self.limits, self.size.sampled, self._kills)
        self.seams = Seams(self.scheduler, chance, self.processes, self._child_agent)
        self.refusing = 0.1 * (chance.random() < 0.3)

    async def _child_agent(self, store: Any, run: Run, *_: Any) -> Any:
        del store
        return None if self._refuses(run) else _AGENT

    def _refuses(self, run: Run) -> bool:
        del run
        return not self.healed and self.chance.random() < self.refusing

    def _kills(self, run: str, steps: int) -> bool:
        plan = plan_of(self.seed, run, self.harsh)
        return steps < len(plan) and plan[steps].what in ("kill", "poison")

    # Running

    def run(self) -> Verdict:
        """Run the world to its end, and judge it."""
        database, judge = self.database, self.judge
        database.begin(self.scheduler, self.chance, Faults())
        database.before, database.seen = judge.before, judge.after
        database.announced = self._announced
        try:
            self.store = SqlStore(SimulatedDriver(database, self.client))
            self._populate()
            database.faults = self.faults
            end = self.scheduler.now + self.size.seconds
            self.scheduler.run(lambda: False, end)
            self._heal()
            deadline = self.scheduler.now + SETTLE_SECONDS
            while True:
                self.scheduler.run(lambda: judge.left == 0, deadline)
                # Late words and writes must not undo the end.
                self.scheduler.run(lambda: False, self.scheduler.now + LATE_SECONDS)
                if judge.left == 0 or self.scheduler.now >= deadline:
                    break
            judge.conclude()
        except Hopeless:
            judge.problems.append("the world was given up")
        finally:
            self.scheduler.close()
            database.seen = database.before = None
            database.rollback()
        judge.happened["turns"] += self.scheduler.turns
        judge.happened["batches"] += database.batches
        return Verdict(self.seed, tuple(judge.problems), judge.happened)

    def _populate(self) -> None:
        chance, size = self.chance, self.size
        for _ in range(chance.randint(*size.workers)):
            self._start_worker()
        for number in range(chance.randint(*size.runs)):
            self._later(
                partial(self._enqueue, f"r{number}"), chance.uniform(0.0, size.seconds * 0.8)
            )
        for number in range(chance.choice((0, 0, 1, 2))):
            self._later(
                partial(self._schedule, f"s{number}"), chance.uniform(0.0, size.seconds / 3)
            )
        for _ in range(chance.randint(0, self.troubles)):
            trouble = chance.choices(_TROUBLES, _WEIGHTS)[0]
            self._later(partial(trouble, self), chance.uniform(0.0, size.seconds))

    def _later(self, work: Callable[[], Awaitable[None]], after: float) -> None:
        self.scheduler.spawn(self.client, self._tried(work), after)

    async def _tried(self, work: Callable[[], Awaitable[None]]) -> None:
        # A person tries again, or not.
        with suppress(AgentRuntimeError):
            await work()

    def _announced(self, process: Process) -> None:
        del process
        waiters = self.database.waiters
        if self.size.sampled == 1:
            for waiter in list(waiters.values()):
                if self.chance.random() < WOKEN:
                    waiter.wake(self.chance.random() * 0.1)
        elif waiters:
            # One of them, as tokens do.
            self.database.waiters[self.chance.choice(self.nodes).process.name].wake(0.05)

    # Workers

    def _start_worker(self, *, sure: bool = False) -> None:
        chance = self.chance
        process = Process(
            f"worker-{len(self.processes)}",
            f"machine-{chance.randrange(self.size.machines)}",
            ahead=chance.uniform(-1e5, 1e5),
            rate=chance.uniform(0.97, 1.03),
        )
        self.processes[process.name] = process
        versions = [str(self.version)]
        if sure or (self.version > 1 and chance.random() < 0.5):
            versions += [str(one) for one in range(1, self.version)]
        names = ["a", "b"] if sure else chance.choice((["a", "b"], ["a", "b"], ["a"]))
        store = SqlStore(SimulatedDriver(self.database, process))
        keeper = LeaseKeeper(store)
        admission = SimpleNamespace(closed=False)
        host = SimpleNamespace(
            keeper=keeper,
            admission=admission,
            background=SimpleNamespace(start=self.seams.start),
            mcp=None,
        )
        body = Body(
            self.seed, self.harsh, self.scheduler, process, keeper, lambda: admission.closed,
            self.judge, self.times, self._asked, self._paused, self._kill,
        )  # fmt: skip
        agents = _Agents("app", names, versions, self._refuses)
        slots = chance.randint(1, self.size.slots)
        worker = Worker(
            store, cast("RunHost", host), self.settings, agents, cast("Starter", body), slots
        )
        self.scheduler.spawn(process, worker.work(), chance.uniform(0.0, 2.0))
        self.nodes.append(_Node(process, versions, keeper, admission, slots))

    def _kill(self, process: Process, *, again: bool = True) -> None:
        if not process.alive:
            return
        process.alive = False
        self.nodes = [node for node in self.nodes if node.process is not process]
        self.database.waiters.pop(process.name, None)
        self.judge.happened["killed"] += 1
        if again:
            self._later(self._replaced, self.chance.uniform(0.5, 20.0))

    async def _replaced(self) -> None:
        self._start_worker(sure=self.healed)

    def _asked(self, user: str, question: str) -> None:
        after = self.chance.choice((0.0, 5.0, 30.0, FOREVER))
        if after < FOREVER:
            self._later(partial(self._answer, user, question), after)

    async def _answer(self, user: str, question: str) -> None:
        await self.store.of(user).questions.answer(question, {"text": "yes"})

    def _paused(self, user: str, run: str) -> None:
        self._later(partial(self._wake, user, run), self.chance.uniform(5.0, 30.0))

    async def _wake(self, user: str, run: str) -> None:
        for _ in range(100):
            with suppress(StoreError):
                if await self.store.of(user).queue.wake(run, "It was retried."):
                    return
                if (await self.store.of(user).runs.get(run)).status not in ACTIVE:
                    return
            await Pause(5.0)

    # What people do

    async def _enqueue(self, name: str) -> None:
        chance = self.chance
        user = f"u{chance.randrange(self.size.users)}"
        shared = chance.random() < 0.4
        delayed = chance.random() < (0.15 if self.size.users > 1 else 0.4)
        # By the clock of whoever enqueues, which may be wrong.
        at = self.scheduler.now + chance.uniform(-50.0, 90.0)
        run = NewQueuedRun(
            id=name,
            thread_id=f"t{chance.randrange(3)}" if shared else f"t-{name}",
            agent=chance.choice("aab"),
            program="app",
            task="{}",
            spec={},
            share=chance.choice((user, user, "other")),
            version=str(self.version),
            model=chance.choice("mn"),
            step=1 / chance.choice((1.0, 1.0, 1.0, 0.5, 4.0)),
            due_at=at if delayed else None,
        )
        self.runs.append((user, name))
        await self.store.of(user).queue.enqueue(run)

    async def _schedule(self, name: str) -> None:
        chance = self.chance
        user = f"u{chance.randrange(self.size.users)}"
        run = NewQueuedRun("", "", "a", "app", "{}", {}, user, version="1", model="m")
        cron = chance.choice(("* * * * *", "*/2 * * * *"))
        missed: Missed = chance.choice(("skip", "once", "all"))
        zone = chance.choice(("UTC", "Europe/Berlin"))
        at = next_time(cron, zone, self.database.now)
        await self.store.of(user).schedules.add(NewSchedule(name, cron, zone, missed, run, at))
        self.schedules.append((user, name))

    async def _cancel(self) -> None:
        """Cancel a run and all below it, as `Runtime.cancel` does."""
        if not self.runs:
            return
        user, run = self.chance.choice(self.runs)
        store = self.store.of(user)
        if await withdraw(store, run):
            return
        for one in await store.runs.cancel(run):
            if not await withdraw(store, one):
                await self._end_if_dead(user, await store.runs.get(one), cancelled_finish())

    async def _end_if_dead(self, user: str, run: Run, finish: Finish) -> None:
        dead = run.owner is None or not run.lease_live
        if run.status in ACTIVE and run.status != "queued" and dead:
            await take_and_stop(self.store.of(user), run, self.client.owner, finish)

    async def _sweep(self) -> None:
        """Suspend the runs of dead processes, as the sweep of a service does."""
        for user in sorted({user for user, _ in self.runs}):
            for run in await self.store.of(user).runs.list(status=["running"]):
                detail = Finish("suspended", "interrupted", "Its process is gone.")
                await self._end_if_dead(user, run, detail)

    async def _retry(self) -> None:
        dead = self.database.query("SELECT user_id, run_id FROM queue WHERE state = 'dead'")
        if dead:
            user, run = self.chance.choice(dead)
            await self.store.of(str(user)).queue.wake(str(run), "It was retried.")

    async def _turn_schedule(self) -> None:
        """Pause a schedule for a while."""
        if not self.schedules:
            return
        user, name = self.chance.choice(self.schedules)
        store = self.store.of(user).schedules
        for row in await store.list():
            if row.id == name:
                await store.pause(name, paused=True, next_at=row.next_at)
                await Pause(self.chance.uniform(1.0, 90.0))
                for again in await store.list():
                    if again.id == name:
                        at = next_time(again.cron, again.zone, again.now)
                        await store.pause(name, paused=False, next_at=at)

    # What happens to machines

    def _some(self) -> _Node | None:
        return self.chance.choice(self.nodes) if self.nodes else None

    async def _crash(self) -> None:
        if node := self._some():
            self._kill(node.process)

    async def _stop(self) -> None:
        if node := self._some():
            node.process.stopped_until = self.scheduler.now + self.chance.uniform(1.0, 90.0)
            self.judge.happened["stopped"] += 1

    async def _drain(self) -> None:
        if node := self._some():
            node.admission.closed = True
            node.keeper.suspend_all()
            self.judge.happened["drained"] += 1
            self._later(partial(self._exit, node), self.chance.uniform(0.0, DRAIN_SECONDS))

    async def _exit(self, node: _Node) -> None:
        self._kill(node.process)

    async def _deploy(self) -> None:
        """Begin a new version, whose workers replace some of the old ones."""
        self.version += 1
        self.judge.happened["deployed"] += 1
        for node in list(self.nodes):
            if self.chance.random() < 0.6:
                node.admission.closed = True
                node.keeper.suspend_all()
                self._later(partial(self._exit, node), self.chance.uniform(0.0, DRAIN_SECONDS))

    async def _restart(self) -> None:
        """Restart the database, perhaps on a machine with another clock."""
        self.database.down_until = self.scheduler.now + self.chance.choice((0.5, 5.0, 20.0, 80.0))
        self.database.ahead += self.chance.choice((0.0, 0.0, -40.0, -5.0, 5.0, 40.0))
        self.judge.happened["restarted"] += 1

    def _heal(self) -> None:
        """End all faults, so that everything has to end."""
        self.healed = True
        self.database.faults = Faults()
        self.database.down_until = 0.0
        for node in self.nodes:
            node.process.stopped_until = min(node.process.stopped_until, self.scheduler.now)
        for _ in range(2):
            self._start_worker(sure=True)
        for user, name in self.schedules:
            self._later(partial(self._unschedule, user, name), 0.0)

    async def _unschedule(self, user: str, name: str) -> None:
        store = self.store.of(user).schedules
        for row in await store.list():
            # Two polls after the time has come, it must have moved on.
            if row.id == name and not row.paused and row.next_at < self.database.now - 10.0:
                await Pause(20.0)
                # A pause may have been on its way for as long as the database was away.
                left = [one for one in await store.list() if one.id == name and not one.paused]
                if row.next_at in [one.next_at for one in left]:
                    self.judge.say(f"the schedule {name} is stuck at {row.next_at}")
        await store.remove(name)


_TROUBLES = (
    World._crash, World._stop, World._drain, World._deploy, World._restart, World._cancel,  # pyright: ignore[reportPrivateUsage]
    World._sweep, World._retry, World._turn_schedule,  # pyright: ignore[reportPrivateUsage]
)  # fmt: skip
_WEIGHTS = (5, 5, 3, 1, 3, 3, 3, 1, 2)
