"""A campaign: runs are enqueued from all sides while parts of the cluster die, stop, come back."""
# ruff: noqa: ASYNC110 - it waits for what other processes do

from __future__ import annotations

import random
import signal
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal

import anyio
import anyio.abc
import anyio.to_thread
import httpx
import psycopg

from agent_runtime import Agent, App, Runtime
from agent_runtime.errors import AgentRuntimeError, Conflict
from agent_runtime.log.leases import LEASE_SECONDS
from benchmarks.proof.cluster.journal import read
from benchmarks.proof.cluster.processes import Cluster, Member, Place
from benchmarks.proof.cluster.script import ROOTS, Kind, task_of
from tests.services.postgres import PostgresServer

FaultKind = Literal["kill", "stop", "drain"]
USERS = ("ann", "bob", "cyd", "dan")
CLOCK = "clock"
"""The owner of the schedules."""
ZONES = ("UTC", "Europe/Berlin", "Asia/Kolkata")
"""Those of the schedules, which come every minute; each is called by its zone."""
SCHEMA = "agent_runtime"
"""That of the store's tables."""
DRAIN_SECONDS = 40.0
"""Seconds after which a drained worker counts as stuck."""
AGENTS = App(
    agents={name: Agent(name=name) for name in ("alone", "inside", "placed", "tick")},
    name="cluster",
)
"""What is enqueued from here: the names are what matters, the workers have the rest."""


@dataclass(frozen=True, slots=True)
class Order:
    """A run to enqueue."""

    name: str
    kind: Kind
    user: str


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of a worker, and the runs that it had at work then."""

    kind: FaultKind
    member: str
    at: float
    runs: Sequence[str]


@dataclass(frozen=True, slots=True)
class Plan:
    """How much happens.

    Attributes:
        runs: that are enqueued, apart from their sub-agents and schedules.
        slots: of each worker.
        every: seconds between two faults of workers, on average; 0 for none.
        pace: seconds between two runs of one who enqueues, on average.
        database_restarts: how often the database is killed and started again.
        limit: seconds after which runs count as lost.
    """

    runs: int
    workers: int = 4
    slots: int = 6
    every: float = 4.0
    pace: float = 1.5
    database_restarts: int = 2
    limit: float = 1800.0
    seed: int = 1


@dataclass
class Campaign:
    """The campaign.

    Args:
        places: where the members run, in turn.
        admin: the URL of the database for a login that sees all rows.
        runtime: open on the same database.

    Attributes:
        orders: every run that has to be there in the end.
        faults: of workers, in order.
        restarts: what else was restarted.
        stuck: what did not happen in time.
    """

    plan: Plan
    cluster: Cluster
    places: Sequence[Place]
    server: PostgresServer
    admin: str
    runtime: Runtime
    orders: list[Order] = field(default_factory=list[Order])
    faults: list[Fault] = field(default_factory=list[Fault])
    restarts: list[str] = field(default_factory=list[str])
    stuck: list[str] = field(default_factory=list[str])
    enqueued: int = 0

    def __post_init__(self) -> None:
        self._chance = random.Random(self.plan.seed)
        self._workers: list[Member] = []
        self._services: list[Member] = []
        self._returning: list[Member] = []
        self._restarting = set[int]()
        self._faults_over = anyio.Event()
        kinds: list[Kind] = [ROOTS[number % len(ROOTS)] for number in range(self.plan.runs)]
        self.orders = [
            Order(f"r{number:04}", kind, USERS[number // 3 % len(USERS)])
            for number, kind in enumerate(kinds)
        ]

    async def run(self) -> None:
        """Return when every run has ended, or the time is over."""
        async with anyio.create_task_group() as starting:
            for _ in range(2):
                starting.start_soon(self._start_service)
            for _ in range(self.plan.workers):
                starting.start_soon(self._start_worker)
        await self._schedule()
        async with anyio.create_task_group() as group:
            # A part of the runs for each of the services, and a part for the library.
            for number, one in enumerate((self._by_service, self._by_service, self._by_library)):
                group.start_soon(self._enqueue, self.orders[number::3], one)
            group.start_soon(self._disturb, group)
            group.start_soon(self._restart_database)
            await self._until_over()
            self._faults_over.set()
        await self._drain_all()

    # What is enqueued

    async def _schedule(self) -> None:
        tick = AGENTS.named("tick")
        for zone in ZONES:
            await self.runtime.schedules.add(
                zone, "* * * * *", tick, task_of(f"t-{zone}", "tick"),
                zone=zone, missed="all", app=AGENTS, user=CLOCK,
            )  # fmt: skip

    async def _enqueue(
        self, orders: Sequence[Order], enqueue: Callable[[Order], Awaitable[None]]
    ) -> None:
        for order in orders:
            await enqueue(order)
            self.enqueued += 1
            await anyio.sleep(self.plan.pace * self._chance.uniform(0, 2))

    async def _by_service(self, order: Order) -> None:
        """Ask a service, and again under the same key whatever becomes of it."""
        key = str(uuid.uuid4())
        body = {"agent": order.kind, "task": task_of(order.name, order.kind), "queue": True}
        headers = {"x-cluster-user": order.user, "Idempotency-Key": key}
        while True:
            service = self._chance.choice(self._services)
            with suppress(httpx.HTTPError):
                async with httpx.AsyncClient(timeout=20) as client:
                    answer = await client.post(
                        f"{service.url}/api/runs", json=body, headers=headers
                    )
                if answer.status_code == 201:
                    return
                if answer.status_code not in (409, 429) and answer.status_code < 500:
                    self.stuck.append(f"{order.name} was refused: {answer.text}")
                    return
            await anyio.sleep(0.3)

    async def _by_library(self, order: Order) -> None:
        """Enqueue it, every other one in a transaction of its own with another row."""
        run_id, agent = str(uuid.uuid4()), AGENTS.named(order.kind)
        joined = int(order.name[1:]) % 2 == 0

        async def enqueue(connection: Any = None) -> None:
            await self.runtime.enqueue(
                agent, task_of(order.name, order.kind), app=AGENTS, user=order.user,
                run_id=run_id, connection=connection,
            )  # fmt: skip

        while True:
            try:
                if not joined:
                    await enqueue()
                else:
                    connecting = psycopg.AsyncConnection.connect(self.places[0].database)
                    async with await connecting as connection:
                        await enqueue(connection)
                return
            except Conflict:
                # An earlier attempt was committed, and its answer was lost.
                return
            except (AgentRuntimeError, psycopg.Error):
                await anyio.sleep(0.3)

    # Faults

    async def _disturb(self, group: anyio.abc.TaskGroup) -> None:
        """Kill, stop and drain workers, and restart a service from time to time."""
        number = 0
        while self.plan.every and not self._faults_over.is_set():
            with anyio.move_on_after(self.plan.every * self._chance.uniform(0.5, 1.5)):
                await self._faults_over.wait()
                return
            number += 1
            if number % 6 == 0:
                group.start_soon(self._restart_service, number)
            # A worker that has done nothing yet shows nothing.
            facts = read(self.cluster.journal)
            active = {fact["member"] for fact in facts if fact["what"] == "effect"}
            if not (able := [member for member in self._workers if member.name in active]):
                continue
            kinds: tuple[FaultKind, ...] = ("kill", "drain", "kill", "stop")
            member = self._chance.choice(able)
            self._workers.remove(member)
            await self._strike(kinds[number % 4], member, group)
            group.start_soon(self._start_worker)

    async def _strike(self, kind: FaultKind, member: Member, group: anyio.abc.TaskGroup) -> None:
        runs = await self._at_work(member)
        number = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "drain": signal.SIGTERM}[kind]
        self.faults.append(Fault(kind, member.name, member.send(number), runs))
        if kind == "stop":
            group.start_soon(self._go_on, member)
        elif kind == "drain":
            group.start_soon(self._gone, member)

    async def _go_on(self, member: Member) -> None:
        """Let a stopped worker go on after its leases have expired, and drain it later."""
        began = time.monotonic()
        with anyio.move_on_after(LEASE_SECONDS + self._chance.uniform(3, 8)):
            await self._faults_over.wait()
        member.send(signal.SIGCONT)
        member.stopped.append((began, time.monotonic()))
        await anyio.sleep(5)
        member.send(signal.SIGTERM)
        await self._gone(member)

    async def _gone(self, member: Member) -> None:
        if not await member.gone(DRAIN_SECONDS):
            self.stuck.append(f"{member.name} did not end {DRAIN_SECONDS:g} s after SIGTERM")
            # Its log then shows where it is.
            member.send(signal.SIGABRT)
            await member.gone(5)
            member.send(signal.SIGKILL)

    async def _start_worker(self) -> None:
        number = len(self.cluster.members)
        place = self.places[number % len(self.places)]
        # Every second one, on each of the places.
        tokens = number // len(self.places) % 2 == 0
        self._workers.append(await self.cluster.worker(place, self.plan.slots, tokens=tokens))

    async def _start_service(self) -> None:
        place = self.places[len(self.cluster.members) % len(self.places)]
        self._services.append(await self.cluster.service(place))

    async def _restart_service(self, number: int) -> None:
        which = number // 6 % 2
        if which in self._restarting:
            # Where starting takes longer than the time between two faults.
            return
        self._restarting.add(which)
        old = self._services[which]
        old.send(signal.SIGTERM if number // 12 % 2 else signal.SIGKILL)
        if not await old.gone(DRAIN_SECONDS):
            self.stuck.append(f"{old.name} did not end {DRAIN_SECONDS:g} s after its signal")
            old.end()
        port = int(old.url.rpartition(":")[2])
        self._services[which] = await self.cluster.service(old.place, port)
        self._restarting.remove(which)
        self.restarts.append("service")

    async def _restart_database(self) -> None:
        """Kill the database and start it again, at even parts of the work."""
        for number in range(1, self.plan.database_restarts + 1):
            most = self.plan.runs * number / (self.plan.database_restarts + 1)
            while self.enqueued < most and not self._faults_over.is_set():
                await anyio.sleep(0.2)
            self.server.kill()
            await anyio.to_thread.run_sync(self.server.start)
            self.restarts.append("database")

    # What is there

    async def _at_work(self, member: Member) -> list[str]:
        """Return the runs whose leases a worker holds; none while the database is away."""
        begun = [fact for fact in read(self.cluster.journal) if fact["what"] == "member"]
        own = [fact["instance"] for fact in begun if fact["member"] == member.name]
        rows = await self._rows(
            "SELECT id FROM runs WHERE status = 'running' AND lease_instance = ANY(%s)", own
        )
        return [str(row[0]) for row in rows]

    async def _rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        try:
            connecting = psycopg.AsyncConnection.connect(
                self.admin, connect_timeout=5, options=f"-c search_path={SCHEMA}"
            )
            async with await connecting as connection:
                cursor = await connection.execute(query.encode(), values or None)
                return await cursor.fetchall()
        except psycopg.OperationalError:
            return []

    async def _until_over(self) -> None:
        end = time.monotonic() + self.plan.limit
        while True:
            await anyio.sleep(1)
            if time.monotonic() > end:
                self.stuck.append(f"the runs did not end within {self.plan.limit:g} s")
                return
            if self.enqueued < len(self.orders):
                continue
            [(left,)] = await self._rows(
                "SELECT count(*) FROM runs WHERE status IN ('queued', 'running', 'suspended')"
                " AND user_id <> %s", CLOCK,
            ) or [(1,)]  # fmt: skip
            if not left:
                return

    async def _drain_all(self) -> None:
        """End the schedules away from the turn of a minute, let their runs end, end the workers."""
        while not 5 < time.time() % 60 < 50:
            await anyio.sleep(0.5)
        for zone in ZONES:
            await self.runtime.schedules.pause(zone, user=CLOCK)
        with anyio.move_on_after(120) as scope:
            while await self._rows("SELECT 1 FROM queue WHERE state <> 'dead' LIMIT 1"):
                await anyio.sleep(0.5)
        if scope.cancelled_caught:
            self.stuck.append("the queue did not become empty")
        async with anyio.create_task_group() as group:
            for member in [*self._workers, *self._services]:
                member.send(signal.SIGTERM)
                group.start_soon(self._gone, member)
