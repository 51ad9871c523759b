"""Run mixed load for an hour while everything is restarted; memory, handles and tasks stay flat.

Clients in this process run agents in rounds: steps with observational memory, questions and their
answers, sub-agents, cancellations, steered runs.  Meanwhile another process runs agents on the same
database and is killed, and this process takes its runs over; Postgres is killed and started again;
each third round the runtime is closed and opened again.  After each round, when all clients are
idle, what the clients saw is compared with the log, the round's threads are deleted, and memory,
open files, tasks, threads and connections are counted.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import itertools
import logging
import os
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import anyio
import anyio.to_thread
import psycopg

from agent_runtime import Runtime, Settings
from agent_runtime.errors import AgentRuntimeError
from agent_runtime_storage.contract.records.log import ACTIVE
from benchmarks.frame import Report, Row, Target, at_least, at_most
from benchmarks.proof.soak_agents import KINDS, Seen, agent_of, settings
from benchmarks.proof.soak_worker import journal
from tests.services.postgres import PostgresServer

MOST_GROWTH = 1.05
"""Of memory, from the middle of the first rounds to that of the last ones."""
MOST_MORE = 2
"""Open files, tasks, threads and connections that the last rounds may have more than the first."""
WARM_UP_ROUNDS = 3
END_SECONDS = 180.0
"""Seconds after which a run that has not ended counts as lost."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--clients", type=int, default=12, help="runs at once in this process")
    parser.add_argument("--round", type=float, default=20.0, help="seconds of load in a round")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--file", action="store_true", help="on a file instead of Postgres")


def run(args: argparse.Namespace) -> Report:
    """Measure. Blocks until it is done."""
    logging.disable(logging.ERROR)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = None
        url = f"file:{folder / 'soak.db'}"
        if not args.file:
            server = PostgresServer(folder)
            stack.callback(server.stop)
            server.start()
            url = server.url(server.create())
        soak = Soak(args, url, folder, server)
        asyncio.run(soak.run())
    return soak.report()


@dataclass(slots=True)
class Soak:
    """The rounds, and what was counted after each."""

    args: argparse.Namespace
    url: str
    folder: Path
    server: PostgresServer | None
    rows: list[Row] = field(default_factory=list[Row])
    faults: list[str] = field(default_factory=list[str])
    done: Counter[str] = field(default_factory=Counter[str])

    async def run(self) -> None:
        """Run rounds until the time is over."""
        end = time.monotonic() + self.args.minutes * 60
        while time.monotonic() < end:
            async with Runtime.open(self._settings(), agents=agent_of) as runtime:
                for _ in range(3):
                    if time.monotonic() < end:
                        await self._round(runtime)

    def _settings(self) -> Settings:
        return settings(self.url, sweep=1.0)

    async def _round(self, runtime: Runtime) -> None:
        number, began = len(self.rows) + 1, time.monotonic()
        chance = random.Random(self.args.seed * 100_000 + number)
        seen = Seen(runtime)
        async with anyio.create_task_group() as group:
            for client in range(self.args.clients):
                group.start_soon(self._client, seen, number, client, began)
            group.start_soon(self._restart_server, chance)
            await self._kill_worker(number, chance)
        self.faults += await self._compare(runtime, seen, number)
        for thread in await runtime.threads.list(limit=10_000):
            await runtime.threads.delete(thread.id, force=True)
        await self._count(number)

    async def _client(self, seen: Seen, number: int, client: int, began: float) -> None:
        """Run agents one after the other until the round's time is over."""
        for turn in itertools.count(client):
            if time.monotonic() > began + self.args.round:
                return
            kind, name = KINDS[turn % len(KINDS)], f"{number}-{client}-{turn}"
            try:
                with anyio.fail_after(END_SECONDS):
                    await seen.run(kind, name)
                self.done[kind] += 1
            except TimeoutError:
                self.faults.append(f"{kind} {name} did not end")
            except AgentRuntimeError as error:
                self.faults.append(f"{kind} {name}: {type(error).__name__}: {error}")

    async def _restart_server(self, chance: random.Random) -> None:
        await anyio.sleep(self.args.round * chance.uniform(0.1, 0.4))
        if self.server is not None:
            self.server.kill()
            await anyio.to_thread.run_sync(self.server.start)

    async def _kill_worker(self, number: int, chance: random.Random) -> None:
        """Start the other process, and kill it while it works."""
        command = [sys.executable, "-m", "benchmarks.proof.soak_worker", self.url]
        command += [str(self._journal(number)), f"w{number}"]
        process = await anyio.open_process(command, stderr=None)
        try:
            await anyio.sleep(self.args.round * chance.uniform(0.5, 1.0))
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            with anyio.CancelScope(shield=True):
                await process.aclose()

    def _journal(self, number: int) -> Path:
        return self.folder / f"journal-{number}"

    async def _compare(self, runtime: Runtime, seen: Seen, number: int) -> list[str]:
        """Wait until every run has ended, and compare the log with what clients saw."""
        store, faults = runtime.store_of(), list[str]()
        with anyio.move_on_after(END_SECONDS):
            while await store.runs.list(status=sorted(ACTIVE), limit=1):  # noqa: ASYNC110
                await anyio.sleep(0.2)
        for run in await store.runs.list(limit=10_000):
            if run.status in ACTIVE or run.status == "failed":
                faults.append(f"a run of {run.agent} is {run.status}: {run.detail}")
            elif run.parent_run_id is None and run.status != seen.expected(run.thread_id):
                faults.append(f"a run of {run.agent} {run.status}: {run.detail}")
        there = {thread.id for thread in await runtime.threads.list(limit=10_000)}
        worker = journal(self._journal(number))
        for thread, events in (seen.events | worker).items():
            logged = [
                (event.id, event.kind)
                for event in (
                    await runtime.threads.events(thread, limit=100_000) if thread in there else []
                )
            ]
            # Memory may observe after a run's end, when nobody listens; after a kill others write.
            rest = {kind for _, kind in logged[len(events) :]} - {"observation"}
            if events != logged[: len(events)] or (rest and thread not in worker):
                unlike = sorted(set(events) ^ set(logged))[:3]
                faults.append(f"the log of {thread} is not what its client saw: {unlike}")
        self.done["taken over"] += len(worker)
        faults += [problem.detail for problem in await runtime.store.maintenance.check()]
        return [f"round {number}: {fault}" for fault in faults]

    async def _count(self, number: int) -> None:
        gc.collect()
        # What the round left behind: connections and tasks that are about to end.
        await anyio.sleep(1.5)
        row: Row = {
            "round": number,
            "runs": self.done.total(),
            "faults": len(self.faults),
            "MB": round(_memory() / 2**20, 1),
            "files": len(os.listdir("/proc/self/fd")),  # noqa: PTH208
            "tasks": len(asyncio.all_tasks()),
            "threads": threading.active_count(),
            "connections": await self._connections(),
        }
        self.rows.append(row)
        print("  ".join(f"{name} {value}" for name, value in row.items()), file=sys.stderr)

    async def _connections(self) -> int:
        if self.server is None:
            return 0
        connected = await psycopg.AsyncConnection.connect(self.url)
        async with connected as connection:
            counted = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            row = await (await connection.execute(counted)).fetchone()
            return (int(row[0]) if row else 0) - 1

    def report(self) -> Report:
        """Return the report: every round, and whether the figures are flat."""
        for fault in self.faults:
            print(fault, file=sys.stderr)
        targets = [
            at_most("faults", len(self.faults), 0),
            at_least("runs of a killed process that were continued", self.done["taken over"], 1),
            *_flat(self.rows),
        ]
        kinds = [{"table": "runs", "kind": kind, "runs": n} for kind, n in self.done.items()]
        return Report("soak", [*self.rows, *kinds], targets)


def _memory() -> int:
    """Return the bytes of this process that are in memory."""
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def _flat(rows: list[Row]) -> list[Target]:
    """Compare the middle of the first third of the rounds with that of the last third."""
    rows = rows[WARM_UP_ROUNDS:]
    third = len(rows) // 3
    if not third:
        return []
    first, last = rows[:third], rows[-third:]

    def middle(some: list[Row], name: str) -> float:
        return median(row[name] for row in some)

    growth = middle(last, "MB") / middle(first, "MB")
    return [
        at_most("growth of memory", round(growth, 3), MOST_GROWTH),
        *(
            at_most(f"more {name}", middle(last, name) - middle(first, name), MOST_MORE)
            for name in ("files", "tasks", "threads", "connections")
        ),
    ]
