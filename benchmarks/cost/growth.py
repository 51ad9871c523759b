"""Measure how the cost of a step, an event, a search, a pick and a renewal grows with the data.

One thing grows at a time, from ten to ten thousand: threads of a user, messages of a thread, users,
runs at work, runs that wait.  The rows are written by plain SQL; what is measured goes through the
store.  Times on a shared machine say little, so what is judged is the database's own work: the
instructions of SQLite's virtual machine, or the pages that Postgres touches.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from math import log10
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias

import psycopg

from agent_runtime_storage import Store, UserStore, open_store
from agent_runtime_storage.contract.leases import HeldLease
from agent_runtime_storage.contract.records.log import Commit, Lease, NewEvent
from agent_runtime_storage.contract.records.queue import NewQueuedRun, QueueLimits
from agent_runtime_storage.drivers.protocol import Driver
from agent_runtime_storage.urls import Backend, open_driver
from benchmarks.backends import empty_databases, parse_backends
from benchmarks.cost.growth_rows import AXES, USER, grow, node, owner_of
from benchmarks.cost.growth_work import WorkMeter, sqlite_instructions
from benchmarks.frame import Report, Row, Target
from benchmarks.peers.plots import lines

SIZES = (10, 100, 1000, 10_000)
FLAT = 1.5
"""The most that ten thousand may cost of what ten cost, to count as flat."""
LOGARITHMIC = 1.7
"""The most that the last factor of ten may cost, to count as logarithmic."""

Operation: TypeAlias = Callable[[], Awaitable[object]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--backends", type=parse_backends, default=("file", "postgres"))
    parser.add_argument("--sizes", type=_sizes, default=SIZES, help="such as 10,100,1000")
    parser.add_argument("--times", type=int, default=8, help="of each operation")
    parser.add_argument("--axes", type=_axes, default=AXES, help=",".join(AXES))
    parser.add_argument("--write", type=Path, metavar="DIR", help="plots for people")


def _axes(text: str) -> list[str]:
    axes = text.split(",")
    if unknown := set(axes) - set(AXES):
        # Nothing would grow, and all would look flat.
        raise argparse.ArgumentTypeError(f"{sorted(unknown)} is none of {', '.join(AXES)}")
    return axes


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


@dataclass(frozen=True, slots=True)
class Cost:
    """What an operation costs at a size: the database's work, and CPU of this process in ms."""

    size: int
    work: float
    cpu: float


def run(args: argparse.Namespace) -> Report:
    """Measure each backend. Blocks until it is done."""
    rows: list[Row] = []
    targets: list[Target] = []
    with empty_databases() as make:
        for backend in args.backends:
            costs = dict[str, list[Cost]]()
            for axis in args.axes:
                with sqlite_instructions():
                    asyncio.run(_axis(backend, make(backend), axis, args, costs))
            for name, found in costs.items():
                rows.append(_row(backend, name, found))
                targets.append(_target(backend, name, found))
            if args.write is not None:
                points = {
                    name: [(one.size, one.work) for one in found] for name, found in costs.items()
                }
                unit = "pages" if backend == "postgres" else "instructions"
                title = f"Work of the database, {backend}"
                page = lines(title, unit, points, across="rows of what grows")
                args.write.mkdir(parents=True, exist_ok=True)
                (args.write / f"growth-{backend}.svg").write_text(page)
    return Report("growth", rows, targets)


def _row(backend: Backend, name: str, costs: Sequence[Cost]) -> Row:
    figures: dict[str, float] = {}
    for cost in costs:
        figures[f"work {cost.size:,}"] = round(cost.work, 1)
    for cost in (costs[0], costs[-1]):
        figures[f"CPU ms {cost.size:,}"] = round(cost.cpu, 2)
    return {"backend": backend, "what grows: operation": name, **figures}


def growth_of(costs: Sequence[Cost]) -> str:
    """Return how a cost grows: `flat`, `logarithmic` or `more`."""
    first, before, last = costs[0], costs[-2], costs[-1]
    if last.work <= FLAT * first.work:
        return "flat"
    # Of each factor of ten, as the sizes need not be such.
    steps = log10(last.size / before.size)
    return "logarithmic" if (last.work / before.work) ** (1 / steps) <= LOGARITHMIC else "more"


def _target(backend: Backend, name: str, costs: Sequence[Cost]) -> Target:
    found = growth_of(costs)
    return Target(f"{backend}, {name}", found, "flat or logarithmic", found != "more")


async def _axis(
    backend: Backend, url: str, axis: str, args: argparse.Namespace, costs: dict[str, list[Cost]]
) -> None:
    store = await open_store(url)
    driver = await open_driver(url)
    try:
        begun = 0
        for size in args.sizes:
            await grow(store, driver, axis, begun, size)
            begun = size
            if backend == "postgres":
                # As autovacuum would have by now.
                await _analyze(url)
            meter = await WorkMeter.open(url, store)
            try:
                for name, operation in (await _operations(store, driver, axis, size)).items():
                    cost = await _measure(meter, size, operation, args.times)
                    costs.setdefault(f"{axis}: {name}", []).append(cost)
            finally:
                await meter.close()
    finally:
        await driver.close()
        await store.close()


async def _analyze(url: str) -> None:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute("VACUUM ANALYZE")


async def _measure(meter: WorkMeter, size: int, operation: Operation, times: int) -> Cost:
    # The first prepares statements and reads pages.
    await operation()
    spent: list[float] = []
    work: list[float] = []
    await meter.start()
    for _ in range(times):
        began, before = time.process_time(), meter.instructions
        await operation()
        spent.append(1000 * (time.process_time() - began))
        work.append(meter.instructions - before)
    whole = await meter.stop() / times
    # The index of texts merges its parts now and then, which the median leaves out.
    return Cost(size, median(work) or whole, median(spent))


async def _operations(
    store: Store, driver: Driver, axis: str, size: int
) -> Mapping[str, Operation]:
    """Return what is measured where something grows."""
    user = store.of(USER)
    step = await _step(user, driver)
    steps: dict[str, Operation] = {
        "a step": step,
        "the last 20 events": lambda: _events(user),
        "last 20 messages": lambda: _last(user),
    }
    queue: dict[str, Operation] = {
        "a pick": lambda: _pick(store, QueueLimits()),
        "a pick with limits": lambda: _pick(store, QueueLimits(100_000, 100_000, 100_000)),
        "enqueueing": _enqueueing(user, size),
        "a renewal of 10 leases": lambda: store.leases.renew(_HELD, seconds=1e9),
    }
    match axis:
        case "threads":
            return {**steps, "a search": lambda: user.search.find("needle")}
        case "messages":
            return {**steps, "a search": lambda: user.search.find("needle")}
        case "users":
            return {**steps, **queue}
        case _:
            return queue


_HELD = [HeldLease(USER, f"held{number}", 1) for number in range(10)]


async def _step(user: UserStore, driver: Driver) -> Operation:
    thread = await user.threads.get("t0")
    lease = Lease("held0", "t0", "held0", 1)
    del driver
    seqs = count(thread.last_seq + 1)
    heads = [thread.head]

    async def step() -> None:
        seq = next(seqs)
        commit = Commit(
            nodes=(node(seq, heads[0]),), head=seq, events=(NewEvent("message", seq),), steps=seq
        )
        await user.runs.commit(lease, commit)
        heads[0] = seq

    return step


async def _last(user: UserStore) -> object:
    thread = await user.threads.get("t0")
    return await user.log.branch("t0", thread.head or 1, limit=20)


async def _events(user: UserStore) -> object:
    thread = await user.threads.get("t0")
    return await user.events.list("t0", after=max(thread.last_event - 20, 0))


async def _pick(store: Store, limits: QueueLimits) -> None:
    known = [("app", "agent", "")]
    assert await store.queue.pick(1, known, owner_of(0), seconds=1e9, limits=limits)


_NUMBERS = count()


def _enqueueing(user: UserStore, size: int) -> Operation:
    async def enqueue() -> Any:
        name = f"new{size}-{next(_NUMBERS)}"
        # Of a version that no worker has, so that picks find the same.
        await user.queue.enqueue(
            NewQueuedRun(name, name, "agent", "app", "{}", {}, USER, version="later")
        )

    return enqueue
