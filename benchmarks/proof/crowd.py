"""Run many agents at once in a process: speed, lag of the loop, idle transactions, memory.

All runs begin at once, with a scripted model, and begin again until the time is over.  Then as many
runs wait in a tool, and the transactions that they cost are counted.  With `--idle N` only the
latter is measured, with N runs.

The lag of a busy machine is also that of other programs.  `turn ms` is therefore the CPU time that
the loop's thread used between two looks at the clock.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import resource
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, ParamSpec, TypeVar
from unittest.mock import patch

import anyio
import psycopg

from agent_runtime import Agent, Runtime, ScriptedModel, Settings, tool
from agent_runtime.models.scripted import call, say
from agent_runtime_storage.drivers.sqlite.driver import SqliteDriver
from benchmarks.backends import empty_databases, parse_backends
from benchmarks.frame import Report, Row, Target, at_most

_P = ParamSpec("_P")
_T = TypeVar("_T")

MOST_IDLE = 20.0
MOST_LAG = 0.1
SETTLE_SECONDS = 12.0
"""An idle connection of Postgres reports its last transactions only after 10 seconds."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--backends", type=parse_backends, default=("file", "postgres"))
    parser.add_argument("--seconds", type=float, default=60.0, help="how long the runs work")
    parser.add_argument("--runs", type=int, default=1000, help="at once")
    parser.add_argument("--steps", type=int, default=10, help="of each run")
    parser.add_argument("--max-runs", type=int, default=None, help="admitted at once")
    parser.add_argument("--idle", type=int, default=None, metavar="N", help="only N idle runs")
    parser.add_argument("--watch", type=float, default=10.0, help="seconds of idle runs")


def run(args: argparse.Namespace) -> Report:
    """Measure each backend. Blocks until it is done."""
    logging.disable(logging.WARNING)
    rows: list[Row] = []
    targets: list[Target] = []
    with empty_databases() as make:
        for backend in args.backends:
            figures = asyncio.run(_measure(make(backend), args))
            rows.append({"backend": backend, **figures.row(args)})
            targets += figures.targets(backend)
    return Report("crowd", rows, targets)


@dataclass(slots=True)
class Figures:
    """What was measured on a database; times in seconds, memory in bytes."""

    runs: int = 0
    steps: int = 0
    failed: int = 0
    seconds: float = 0.0
    lags: list[float] = field(default_factory=list[float])
    turns: list[float] = field(default_factory=list[float])
    idle: int = 0
    transactions: float = 0.0
    memory_before: int = 0
    memory: int = 0

    def row(self, args: argparse.Namespace) -> Row:
        """Return the figures for people."""
        worked: Row = {}
        if self.runs:
            worked = {
                "at once": args.runs,
                "runs": self.runs,
                "failed": self.failed,
                "runs/s": round(self.runs / self.seconds, 1),
                "steps/s": round(self.steps / self.seconds, 1),
                "lag p50 ms": round(_share(self.lags, 0.5) * 1000, 1),
                "lag p99 ms": round(_share(self.lags, 0.99) * 1000, 1),
                "turn p99 ms": round(_share(self.turns, 0.99) * 1000, 1),
            }
        return {
            **worked,
            "idle runs": self.idle,
            "idle transactions/s": round(self.transactions, 1),
            "MB before": round(self.memory_before / 2**20),
            "MB most": round(self.memory / 2**20),
        }

    def targets(self, backend: str) -> list[Target]:
        """Return the promised figures."""
        idle = at_most(f"{backend}: idle transactions", self.transactions, MOST_IDLE, "a second")
        if not self.runs:
            return [idle]
        return [
            idle,
            at_most(f"{backend}: lag of the loop, p99", _share(self.lags, 0.99), MOST_LAG, "s"),
            at_most(f"{backend}: runs that failed", self.failed, 0),
        ]


@tool
async def work(n: int) -> str:
    """Return a number."""
    return f"did {n}"


async def _measure(url: str, args: argparse.Namespace) -> Figures:
    figures = Figures(memory_before=_most_memory())
    settings = Settings(
        database_url=url, observational_memory=False, max_runs=args.max_runs, loop_limit=0
    )
    async with Runtime.open(settings) as runtime:
        if args.idle is None:
            await _work(runtime, figures, args)
        most = args.idle or min(args.runs, args.max_runs or args.runs)
        await _idle(runtime, figures, most, args.watch)
    figures.memory = _most_memory()
    return figures


def _most_memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


async def _work(runtime: Runtime, figures: Figures, args: argparse.Namespace) -> None:
    began = time.monotonic()
    script = [*(call("work", n=n) for n in range(args.steps - 1)), say("done")]

    async def repeat() -> None:
        while True:
            result = await runtime.run(Agent(ScriptedModel(script), tools=[work]), "Work.")
            figures.runs, figures.steps = figures.runs + 1, figures.steps + result.steps
            figures.failed += not result.ok
            if time.monotonic() - began >= args.seconds:
                return

    async with anyio.create_task_group() as group:
        watching = await group.start(_watch, figures)
        async with anyio.create_task_group() as runs:
            for _ in range(args.runs):
                runs.start_soon(repeat)
        watching.cancel()
    figures.seconds = time.monotonic() - began


async def _watch(figures: Figures, *, task_status: Any) -> None:
    with anyio.CancelScope() as scope:
        task_status.started(scope)
        while True:
            before, used = time.monotonic(), time.thread_time()
            await anyio.sleep(0.01)
            figures.lags.append(max(0.0, time.monotonic() - before - 0.01))
            figures.turns.append(time.thread_time() - used)


async def _idle(runtime: Runtime, figures: Figures, most: int, seconds: float) -> None:
    """Measure the transactions per second while that number of runs wait in a tool."""
    waiting, all_wait, go_on = 0, anyio.Event(), anyio.Event()

    @tool
    async def wait() -> str:
        """Wait until all have waited."""
        nonlocal waiting
        waiting += 1
        if waiting == most:
            all_wait.set()
        await go_on.wait()
        return "waited"

    async with anyio.create_task_group() as group:
        for _ in range(most):
            agent = Agent(ScriptedModel([call("wait"), say("done")]), tools=[wait])
            group.start_soon(runtime.run, agent, "Wait.")
        await all_wait.wait()
        figures.idle = most
        figures.transactions = await _transactions(runtime.settings.database_url, seconds)
        go_on.set()


async def _transactions(url: str, seconds: float) -> float:
    """Return the transactions a second of a database; those of this process, if it is a file."""
    if not url.startswith("postgres"):
        return await _of_this_process(seconds)
    counted = (
        "SELECT sum(xact_commit + xact_rollback) FROM pg_stat_database"
        " WHERE datname = current_database()"
    )
    # One connection for both: beginning it would count.
    connected = await psycopg.AsyncConnection.connect(url, autocommit=True)
    async with connected as connection:

        async def count() -> int:
            await anyio.sleep(SETTLE_SECONDS)
            row = await (await connection.execute(counted)).fetchone()
            return int(row[0]) if row else 0

        before = await count()
        await anyio.sleep(seconds)
        return (await count() - before) / (seconds + SETTLE_SECONDS)


async def _of_this_process(seconds: float) -> float:
    count = 0

    def counted(real: Callable[_P, Awaitable[_T]]) -> Callable[_P, Awaitable[_T]]:
        async def call(*given: _P.args, **named: _P.kwargs) -> _T:
            nonlocal count
            count += 1
            return await real(*given, **named)

        return call

    with (
        patch.object(SqliteDriver, "read", counted(SqliteDriver.read)),
        patch.object(SqliteDriver, "batch", counted(SqliteDriver.batch)),
    ):
        await anyio.sleep(seconds)
    return count / seconds


def _share(values: list[float], share: float) -> float:
    ordered = sorted(values) or [0.0]
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]
