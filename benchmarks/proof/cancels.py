"""Cancel an agent whose sub-agents are at work in two processes, at random instants.

An agent delegates to ten sub-agents, and its process is killed.  One process resumes the five in
the background, another the agent and the five that it waits for.  Their model calls (by litellm, to
a server on loopback) hang or stop in the middle, their tools hang, or they keep working.  A third
process cancels the agent.  The benchmark measures the time until the last run has ended, and judges
the result: leftover tasks and model calls, occupied threads, and runs whose end is not reported
exactly once.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import sys
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from statistics import median
from typing import Any

import anyio

from agent_runtime import Runtime
from agent_runtime.log.run_spec import DelegationRecord, delegation_record
from agent_runtime.testing.model_server import OpenAIServer
from agent_runtime_storage import UserStore
from agent_runtime_storage.contract.records.log import ACTIVE, Run
from benchmarks.backends import BACKENDS, empty_databases
from benchmarks.frame import Report, at_most
from benchmarks.proof.cancels_worker import (
    BACKGROUND,
    THREAD,
    WAITED_FOR,
    Left,
    Place,
    begin,
    go_on,
    script,
    settings_of,
)

WITHIN = 1.0
"""Seconds within which every run has to end."""
LATEST = 1.0
"""Seconds: the most by which the cancel follows the start of work in both processes."""
PATIENCE = 120.0
"""Seconds after which a cancelled run counts as never ending."""


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The result of a cancel.

    Attributes:
        seconds: from the cancel until the last run had ended, in any process.
        runs: the runs of the tree.
        violations: the faults.
    """

    seconds: float
    runs: int
    violations: tuple[str, ...]


class Processes:
    """Starts processes that share their imports."""

    def __init__(self) -> None:
        self._context: ForkServerContext = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(
            ["benchmarks.proof.preloaded", "benchmarks.proof.cancels_worker"]
        )

    @asynccontextmanager
    async def start(self, target: Callable[..., None], *args: Any) -> AsyncGenerator[Connection]:
        """Start one with a pipe as its last argument; it is killed at the end."""
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=target, args=(*args, theirs))
        process.start()
        theirs.close()
        try:
            yield ours
        finally:
            ours.close()
            process.kill()
            process.join()


async def cancel_often(
    times: int, seed: int, make: Callable[[], str], on_cancelled: Callable[[Cancelled], None]
) -> None:
    """Cancel `times` trees, one after the other.

    Args:
        make: returns the URL of a new database.
    """
    processes = Processes()
    async with OpenAIServer(script) as server:
        for number in range(times):
            chance = random.Random(f"{seed} {number}")
            place = Place(make(), server.base_url)
            on_cancelled(await _trial(processes, server, place, chance.uniform(0, LATEST)))


async def _trial(
    processes: Processes, server: OpenAIServer, place: Place, later: float
) -> Cancelled:
    async with Runtime.open(settings_of(place)) as runtime:
        store = runtime.store_of()
        first = len(server.requests)
        async with processes.start(_begin, place):
            await _all_at_work(server, first)
        [root] = await store.runs.list(thread_id=THREAD)
        below = await store.runs.list(parent_run_id=root.id)
        apart = [run.id for run in below if _record(run).background]
        # This precedes the takeover of the agent, which would otherwise end its background runs.
        async with processes.start(go_on, place, apart, False) as one:
            await _hear(one)
            async with processes.start(go_on, place, [root.id], True) as other:
                await _hear(other)
                await anyio.sleep(later)
                cancelled_at = time.monotonic()
                await runtime.cancel(root.id)
                left: list[Left] = [await _hear(one), await _hear(other)]
                waiting = server.waiting
                one.send("exit")
                other.send("exit")
        faults = [f"{task} is left" for part in left for task in part.tasks]
        if waiting:
            faults.append(f"{waiting} connections still wait for an answer")
        faults += await _check(store, root)
        runs = await store.runs.list(root_run_id=root.id, limit=1000)
        return Cancelled(max(part.at for part in left) - cancelled_at, len(runs), tuple(faults))


def _begin(place: Place, pipe: Connection) -> None:
    del pipe
    begin(place)


async def _all_at_work(server: OpenAIServer, first: int) -> None:
    """Wait until each sub-agent is at its second step."""
    with anyio.fail_after(PATIENCE):
        while True:
            working = {
                str(request.json["messages"][1]["content"])
                for request in server.requests[first:]
                if len(request.json["messages"]) > 2
            }
            if len(working) == WAITED_FOR + BACKGROUND:
                return
            await anyio.sleep(0.01)


async def _hear(pipe: Connection) -> Any:
    # `recv` blocks, so it is called once there is something to read.
    with anyio.fail_after(PATIENCE):
        await anyio.wait_readable(pipe.fileno())
    return pipe.recv()


async def _check(store: UserStore, root: Run) -> list[str]:
    faults: list[str] = []
    runs: Sequence[Run] = await store.runs.list(root_run_id=root.id, limit=1000)
    if len(runs) != 1 + WAITED_FOR + BACKGROUND:
        faults.append(f"{len(runs)} runs")
    for run in runs:
        if run.status != "cancelled":
            faults.append(f"run {run.agent} is {run.status}: {run.detail}")
        thread = await store.threads.get(run.thread_id)
        if thread.active_run is not None or run.status in ACTIVE:
            faults.append(f"run {run.agent} left its thread occupied")
        if run.open_node is not None:
            faults.append(f"run {run.agent} left its exchange open")
        events = await store.events.list(run.thread_id, limit=100_000)
        ends = sum(event.kind == "run-finish" for event in events)
        if ends != 1:
            faults.append(f"run {run.agent} has {ends} events of its end")
    return faults


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--cancels", type=int, default=100, metavar="N", help="how many")
    parser.add_argument("--seed", type=int, default=1, help="of the instants")
    parser.add_argument("--backend", choices=BACKENDS, default="file", help="new databases of it")


def run(args: argparse.Namespace) -> Report:
    """Cancel again and again. Blocks until it is done."""
    trials: list[Cancelled] = []

    def hear(one: Cancelled) -> None:
        trials.append(one)
        for violation in one.violations:
            print(f"cancel {len(trials)}: {violation}", file=sys.stderr)

    with empty_databases() as make:
        anyio.run(cancel_often, args.cancels, args.seed, partial(make, args.backend), hear)
    seconds = [one.seconds for one in trials]
    row = {
        "backend": args.backend,
        "cancels": len(trials),
        "runs of a tree": trials[0].runs,
        "seconds, median": median(seconds),
        "seconds, longest": max(seconds),
        f"later than {WITHIN:g} s": sum(second > WITHIN for second in seconds),
        "violations": sum(len(trial.violations) for trial in trials),
    }
    targets = [
        at_most("seconds until the last run had ended, longest", max(seconds), WITHIN, "s"),
        at_most("tasks, calls, threads or ends that should not be", row["violations"], 0),
    ]
    return Report("cancels", [row], targets)


def _record(run: Run) -> DelegationRecord:
    """Return the call that started a sub-agent, as its run stores it."""
    record = delegation_record(run)
    assert record is not None
    return record
