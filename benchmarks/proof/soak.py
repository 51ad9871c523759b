"""Run many agents at once in a process: speed, lag of the loop, idle transactions, memory.

All runs begin at once on a database file, with a scripted model, and begin again until the time is
over.  Then as many runs wait in a tool, and the transactions that they cost are counted.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import resource
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

from agent_runtime import Agent, Runtime, ScriptedModel, Settings, tool
from agent_runtime.models.scripted import call, say
from agent_runtime_storage.drivers.sqlite.driver import SqliteDriver
from benchmarks.frame import Report, at_most

MOST_IDLE = 20.0
MOST_LAG = 0.1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--minutes", type=float, default=1.0, help="how long the runs work")
    parser.add_argument("--runs", type=int, default=1000, help="at once")
    parser.add_argument("--steps", type=int, default=10, help="of each run")
    parser.add_argument("--max-runs", type=int, default=None, help="admitted at once")
    parser.add_argument("--idle", type=float, default=10.0, help="seconds in the tool")
    parser.add_argument("--url", default="", help="the database; a new file by default")


def run(args: argparse.Namespace) -> Report:
    """Measure."""
    with tempfile.TemporaryDirectory() as folder:
        url = args.url or f"file:{Path(folder) / 'soak.db'}"
        soaked = asyncio.run(_soak(url, args))
        return _report(args, soaked)


@dataclass(slots=True)
class Soaked:
    """What was measured."""

    runs: int = 0
    steps: int = 0
    failed: int = 0
    seconds: float = 0.0
    lags: tuple[float, float] = (0.0, 0.0)
    idle_transactions: float = 0.0
    memory: int = 0


@tool
async def work(n: int) -> str:
    """Return a number."""
    return f"did {n}"


async def _soak(url: str, args: argparse.Namespace) -> Soaked:
    logging.disable(logging.WARNING)
    soaked = Soaked()
    settings = Settings(
        database_url=url, observational_memory=False, max_runs=args.max_runs, loop_limit=0
    )
    async with Runtime.open(settings) as runtime:
        lags = await _work(runtime, soaked, args)
        soaked.lags = _share(lags, 0.5), _share(lags, 0.99)
        soaked.idle_transactions = await _idle(runtime, args)
    soaked.memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return soaked


async def _work(runtime: Runtime, soaked: Soaked, args: argparse.Namespace) -> list[float]:
    began = time.monotonic()
    script = [*(call("work", n=n) for n in range(args.steps - 1)), say("done")]

    async def repeat() -> None:
        while True:
            result = await runtime.run(Agent(ScriptedModel(script), tools=[work]), "Work.")
            soaked.runs, soaked.steps = soaked.runs + 1, soaked.steps + result.steps
            soaked.failed += not result.ok
            if time.monotonic() - began >= args.minutes * 60:
                return

    lags: list[float] = []
    async with anyio.create_task_group() as group:
        watching = await group.start(_watch, lags)
        async with anyio.create_task_group() as runs:
            for _ in range(args.runs):
                runs.start_soon(repeat)
        watching.cancel()
    soaked.seconds = time.monotonic() - began
    return lags


async def _watch(lags: list[float], *, task_status: Any) -> None:
    with anyio.CancelScope() as scope:
        task_status.started(scope)
        while True:
            before = time.monotonic()
            await anyio.sleep(0.01)
            lags.append(max(0.0, time.monotonic() - before - 0.01))


async def _idle(runtime: Runtime, args: argparse.Namespace) -> float:
    """Return the transactions per second while as many runs wait in a tool."""
    idle, count, waiting, go_on = 0.0, 0, 0, anyio.Event()

    @tool
    async def wait() -> str:
        """Wait until all have waited."""
        nonlocal waiting
        waiting += 1
        await go_on.wait()
        return "waited"

    real_read, real_batch = SqliteDriver.read, SqliteDriver.batch

    async def read(self: SqliteDriver, *given: Any, **named: Any) -> Any:
        nonlocal count
        count += 1
        return await real_read(self, *given, **named)

    async def batch(self: SqliteDriver, *given: Any, **named: Any) -> Any:
        nonlocal count
        count += 1
        return await real_batch(self, *given, **named)

    most = min(args.runs, args.max_runs or args.runs)
    async with anyio.create_task_group() as group:
        for _ in range(most):
            agent = Agent(ScriptedModel([call("wait"), say("done")]), tools=[wait])
            group.start_soon(runtime.run, agent, "Wait.")
        while waiting < most:  # noqa: ASYNC110
            await anyio.sleep(0.1)
        SqliteDriver.read, SqliteDriver.batch = read, batch  # type: ignore[method-assign]
        try:
            await anyio.sleep(args.idle)
            idle = count / args.idle
        finally:
            SqliteDriver.read, SqliteDriver.batch = real_read, real_batch  # type: ignore[method-assign]
        go_on.set()
    return idle


def _share(values: list[float], share: float) -> float:
    ordered = sorted(values) or [0.0]
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


def _report(args: argparse.Namespace, soaked: Soaked) -> Report:
    row = {
        "runs at once": args.runs,
        "admitted": args.max_runs,
        "runs": soaked.runs,
        "failed": soaked.failed,
        "runs/s": round(soaked.runs / soaked.seconds, 1),
        "steps/s": round(soaked.steps / soaked.seconds, 1),
        "lag p50 ms": round(soaked.lags[0] * 1000, 1),
        "lag p99 ms": round(soaked.lags[1] * 1000, 1),
        "idle transactions/s": round(soaked.idle_transactions, 1),
        "memory MB": round(soaked.memory / 2**20),
    }
    targets = [
        at_most("transactions of idle runs", row["idle transactions/s"], MOST_IDLE, "a second"),
        at_most("lag of the loop, p99", soaked.lags[1], MOST_LAG, "s"),
        at_most("runs that failed", soaked.failed, 0, ""),
    ]
    return Report("soak", rows=[row], targets=targets)
