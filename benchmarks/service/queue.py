"""The queue: steps of a worker and of a plain process, time to the first step, 10,000 runs."""
# ruff: noqa: ASYNC110 - it waits for what other processes do

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, median
from typing import Any

import anyio

from agent_runtime import Runtime, Settings
from agent_runtime.testing import OpenAIServer, Reply
from benchmarks.frame import Report, Row, Target, at_most
from benchmarks.proof.cluster.campaign import AGENTS
from benchmarks.proof.cluster.journal import Fact, read
from benchmarks.proof.cluster.processes import BUDGET, Cluster, Member, Place
from benchmarks.proof.cluster.script import PLANS, Kind, reply, task_of
from benchmarks.proof.cluster.world import share
from benchmarks.service.queue_database import Counted, Database, explain_pick, picks
from tests.services.postgres import CREATOR, PostgresServer

MOST_OVERHEAD = 1.2
MOST_SECONDS = 1.0
LIGHT_USERS = 50
_SETTLED = 5.0
"""Seconds after which a cluster is idle."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--only", choices=["overhead", "latency", "backlog"], action="append")
    parser.add_argument("--rounds", type=int, default=5, help="of the comparison, interleaved")
    parser.add_argument("--runs", type=int, default=60, help="of each process in a round")
    parser.add_argument("--at-once", type=int, default=8, help="runs that a process has at work")
    parser.add_argument("--single", type=int, default=200, help="runs that meet an idle cluster")
    parser.add_argument("--queued", type=int, default=10_000, help="runs that wait")
    parser.add_argument("--served", type=int, default=1000, help="of these are worked on")


def run(args: argparse.Namespace) -> Report:
    """Measure. Blocks until it is done."""
    logging.disable(logging.ERROR)
    parts = {"overhead": _overhead, "latency": _latency, "backlog": _backlog}
    rows: list[Row] = []
    targets: list[Target] = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = PostgresServer(folder)
        stack.callback(server.stop)
        server.start()
        server.ensure_logins()
        for name, part in parts.items():
            if name in (args.only or parts):
                found, wanted = anyio.run(part, server, folder, args)
                rows += found
                targets += wanted
    return Report("queue", rows, targets)


@dataclass(frozen=True, slots=True)
class World:
    """A database, a model that answers at once, and a folder for processes."""

    cluster: Cluster
    place: Place
    runtime: Runtime
    model: OpenAIServer
    database: Database

    async def enqueue(self, name: str, kind: Kind, user: str = "ann") -> None:
        """Enqueue a run."""
        agent, task = AGENTS.named(kind), task_of(name, kind)
        await self.runtime.enqueue(agent, task, app=AGENTS, user=user)

    def effects(self) -> list[Fact]:
        """Return the effects so far."""
        return [fact for fact in read(self.cluster.journal) if fact["what"] == "effect"]

    async def until(self, effects: int) -> list[Fact]:
        """Wait until there are this many effects, and return them."""
        while len(found := self.effects()) < effects:
            await anyio.sleep(0.2)
        return found


@asynccontextmanager
async def _world(server: PostgresServer, folder: Path) -> AsyncGenerator[World]:
    name = server.create(owner=CREATOR)
    url = server.url(name, CREATOR)
    own = Path(tempfile.mkdtemp(dir=folder))
    settings = Settings(database_url=url, budget_tokens=BUDGET, observer_model="extractive")
    cluster = Cluster(own, pause=0)

    def at_once(request: dict[str, Any], n: int) -> Reply:
        return replace(reply(request, n), delay=0)

    try:
        async with OpenAIServer(at_once) as model, Runtime.open(settings) as runtime:
            place = Place("here", url, model.base_url)
            database = Database(server.url(name), server.pid)
            yield World(cluster, place, runtime, model, database)
    finally:
        cluster.end()
        server.drop(name)


# A worker against a plain process


async def _overhead(
    server: PostgresServer, folder: Path, args: argparse.Namespace
) -> tuple[list[Row], list[Target]]:
    """Compare the time of a step in a worker with that in a process without a queue."""
    variants = ("plain", "worker", "worker with tokens")
    figures: defaultdict[str, list[dict[str, float]]] = defaultdict(list)
    for number in range(args.rounds):
        for variant in variants:
            print(f"round {number + 1}: {variant}", file=sys.stderr)
            async with _world(server, folder) as world:
                figures[variant].append(await _steps(world, variant, args))
    rows: list[Row] = []
    targets: list[Target] = []
    plain = figures["plain"]
    for variant in variants:
        of_variant = figures[variant]
        row: dict[str, Any] = {"table": "a step", "process": variant}
        for name in plain[0]:
            row[name] = round(median(one[name] for one in of_variant), 2)
        for name in ("cpu ms", "wall ms"):
            # Each round's own, because the machine's load changes.
            ratio = median(
                one[name] / base[name] for one, base in zip(of_variant, plain, strict=True)
            )
            row[f"{name}, to plain"] = round(ratio, 3)
            if variant != "plain":
                targets.append(at_most(f"{name} of a step: {variant}", ratio, MOST_OVERHEAD))
        rows.append(row)
    return rows, targets


async def _steps(world: World, variant: str, args: argparse.Namespace) -> dict[str, float]:
    """Work on runs in one process; return what a step took."""
    calls = sum(map(len, PLANS["alone"]))
    if variant == "plain":
        world.cluster.plain(world.place, args.at_once, args.runs)
    else:
        for number in range(args.runs):
            await world.enqueue(f"r{number:04}", "alone")
        tokens = variant.endswith("tokens")
        await world.cluster.worker(world.place, args.at_once, tokens=tokens)
    # Without the beginning, in which much is loaded that is loaded once.
    first = (await world.until(args.runs * calls // 6))[-1]
    before = await world.database.counted()
    last = (await world.until(args.runs * calls))[-1]
    after = await world.database.counted()
    facts = world.effects()
    between = sum(first["at"] < fact["at"] <= last["at"] for fact in facts)
    steps = between * (len(PLANS["alone"]) + 1) / calls
    spent = after - before
    return {
        "cpu ms": 1000 * (last["cpu"] - first["cpu"]) / steps,
        "wall ms": 1000 * (last["at"] - first["at"]) / steps,
        "database cpu ms": 1000 * spent.cpu / steps,
        "transactions": spent.transactions / steps,
    }


# An idle cluster


async def _latency(
    server: PostgresServer, folder: Path, args: argparse.Namespace
) -> tuple[list[Row], list[Target]]:
    """Enqueue runs one by one to four idle workers; measure the time to the first step."""
    rows: list[Row] = []
    targets: list[Target] = []
    for tokens in (False, True):
        async with _world(server, folder) as world:
            async with anyio.create_task_group() as group:
                for _ in range(4):
                    group.start_soon(_worker, world, tokens)
            took = [await _first_step(world, number) for number in range(args.single + 8)][8:]
            await anyio.sleep(_SETTLED)
            before = await world.database.counted()
            await anyio.sleep(2 * _SETTLED)
            idle = await world.database.counted() - before
        name = "with tokens" if tokens else "without tokens"
        rows.append(
            {
                "table": "from the call of `enqueue` to the first request to the model",
                "workers": f"4 {name}",
                "runs": len(took),
                "p50 ms": round(1000 * share(took, 0.5)),
                "p99 ms": round(1000 * share(took, 0.99)),
                "max ms": round(1000 * max(took)),
                "transactions/s, idle": round(idle.transactions / (2 * _SETTLED), 1),
            }
        )
        late = share(took, 0.99)
        targets.append(at_most(f"enqueue to first step, p99, {name}", late, MOST_SECONDS, "s"))
    return rows, targets


async def _worker(world: World, tokens: bool) -> None:
    await world.cluster.worker(world.place, 4, tokens=tokens)


async def _first_step(world: World, number: int) -> float:
    """Return the seconds from enqueueing a run to its first request; wait until it is over."""
    seen = len(world.model.requests)
    began = time.perf_counter()
    await world.enqueue(f"t{number:04}", "tick")
    await world.model.wait_for_requests(seen + 2)
    await anyio.sleep(0.1)
    return world.model.requests[seen].time - began


# Many that wait


async def _backlog(
    server: PostgresServer, folder: Path, args: argparse.Namespace
) -> tuple[list[Row], list[Target]]:
    """Fill the queue, half of it by one user; see how it is picked and worked on."""
    light = args.queued // 2 // LIGHT_USERS
    users = [f"u{number:02}" for number in range(LIGHT_USERS) for _ in range(light)]
    users = ["big"] * (args.queued - len(users)) + users
    async with _world(server, folder) as world:
        alone, crowd = users[: len(users) // 10], users[len(users) // 10 :]
        rates = [await _fill(world, alone, 1), await _fill(world, crowd, 8)]
        # First, as the runs of the picks are lost afterwards.
        cost = await explain_pick(world.runtime.store, str(world.runtime.settings.database_url))
        picked = await picks(world.runtime.store, 50)
        workers: list[Member] = []
        for _ in range(2):
            workers.append(await world.cluster.worker(world.place, 8, tokens=True))
        await world.until(1)
        began, before = time.monotonic(), await world.database.counted()
        facts = await world.until(args.served)
        spent, seconds = await world.database.counted() - before, time.monotonic() - began
    waits = _waits(facts, facts[0]["at"])
    rows: list[Row] = [
        {
            "table": "enqueue",
            "queued": len(users),
            "one at a time /s": round(rates[0]),
            "8 at a time /s": round(rates[1]),
        },
        {
            "table": "pick of 4, with all of these waiting",
            "p50 ms": round(1000 * share(picked, 0.5), 1),
            "p99 ms": round(1000 * share(picked, 0.99), 1),
            "in the server ms": round(cost.milliseconds, 2),
            "pages": cost.pages,
            "indexes": ", ".join(cost.indexes),
        },
        _load_row(spent, seconds, len(facts)),
        {
            "table": "waiting time of a user's runs, from the first pick",
            "users": len(waits),
            "runs of each": min(map(len, waits.values())),
            **_fairness(waits),
        },
    ]
    return rows, [at_most("waiting times of users, largest to smallest", _ratio(waits), 2.0)]


def _load_row(spent: Counted, seconds: float, runs: int) -> Row:
    return {
        "table": "two workers at work on them",
        "runs": runs,
        "runs/s": round(runs / seconds, 1),
        "transactions/s": round(spent.transactions / seconds, 1),
        "transactions a run": round(spent.transactions / runs, 1),
        "database cpu ms a run": round(1000 * spent.cpu / runs, 1),
    }


async def _fill(world: World, users: Sequence[str], at_once: int) -> float:
    """Enqueue a run for each of these users; return how many a second."""
    waiting = iter(enumerate(users))
    began = time.perf_counter()

    async def fill() -> None:
        for number, user in waiting:
            await world.enqueue(f"q{at_once}-{number:05}", "tick", user)

    async with anyio.create_task_group() as group:
        for _ in range(at_once):
            group.start_soon(fill)
    return len(users) / (time.perf_counter() - began)


def _waits(facts: Sequence[Fact], began: float) -> dict[str, list[float]]:
    """Return how long the runs of each user waited that were worked on, as many of each."""
    waits: defaultdict[str, list[float]] = defaultdict(list)
    for fact in facts:
        waits[fact["user"]].append(fact["at"] - began)
    # The last round of turns is not complete.
    least = max(1, min(map(len, waits.values())) - 1)
    return {user: sorted(of_user)[:least] for user, of_user in waits.items()}


def _fairness(waits: dict[str, list[float]]) -> dict[str, float]:
    means = [mean(of_user) for of_user in waits.values()]
    return {
        "least s": round(min(means), 2),
        "most s": round(max(means), 2),
        "ratio": round(_ratio(waits), 2),
    }


def _ratio(waits: dict[str, list[float]]) -> float:
    means = [mean(of_user) for of_user in waits.values()]
    return max(means) / max(min(means), 1e-9)
