"""Simulate the queue and its leases in virtual time, over the real statements, by many seeds.

A world has workers on several machines, runs of several users with sub-agents, questions and
schedules, and faults: processes that die, stop and go on, drain or are replaced by a new version;
calls of the database that are slow, lost, late or written without an answer; a database that
restarts with another clock; words of new work that are lost; cancels, sweeps and retries.

What is real: the worker (`Worker.work`), the keeper of leases, the start of schedules, the store,
and its SQL on SQLite in memory.  What is simulated: time, processes, the network, and what a run
does between its commits.  A judge watches each batch that is written (see `simulated.judge`).
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.frame import Report, Row, Target, at_least, at_most
from benchmarks.proof.simulated.kept import Judged, Kept
from benchmarks.proof.simulated.world import LARGE, SMALL, Size
from benchmarks.proof.simulated.worlds import run_worlds

SHARE = 20
SHOWN = 5
SAID_EVERY = 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--seeds", type=int, default=1000, help="how many small worlds")
    parser.add_argument("--large", type=int, default=0, help="how many of thousands of workers")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=2, help="in how many processes")
    parser.add_argument("--minutes", type=float, default=600.0, help="begin no more after these")
    parser.add_argument(
        "--keep",
        type=Path,
        help="a file of ranges that were judged, to continue after an interruption",
    )


@dataclass(slots=True)
class _Tally:
    worlds: int = 0
    failed: list[int] = field(default_factory=list[int])
    happened: Counter[str] = field(default_factory=Counter[str])
    cpu: float = 0.0

    def add(self, judged: Judged) -> None:
        before = self.worlds
        self.worlds += judged.worlds
        self.happened += Counter(judged.happened)
        self.cpu += judged.cpu
        for seed, problems in judged.problems.items():
            self.failed.append(int(seed))
            if len(self.failed) <= SHOWN:
                shown = "\n  ".join(problems[:5])
                print(f"seed {seed}:\n  {shown}", file=sys.stderr, flush=True)
        if before // SAID_EVERY < self.worlds // SAID_EVERY:
            said = f"{self.worlds:,} worlds, {len(self.failed)} with a violation"
            print(said, file=sys.stderr, flush=True)

    def row(self, name: str) -> Row:
        per_world = 1000 * self.cpu / max(self.worlds, 1)
        counted = dict(sorted(self.happened.items()))
        return {"table": name, "worlds": self.worlds, "CPU ms each": round(per_world), **counted}


def run(args: argparse.Namespace) -> Report:
    """Simulate and judge. Blocks until it is done."""
    until = time.monotonic() + 60 * args.minutes
    rows: list[Row] = []
    targets = [*_simulated("small worlds", SMALL, args.seeds, SHARE, until, args, rows)]
    if args.large:
        targets += _simulated("large worlds", LARGE, args.large, 1, until, args, rows)
    # One event a line, because there are too many for columns.
    events: list[Row] = [
        {"table": row["table"], "what": name, "count": count}
        for row in rows
        for name, count in row.items()
        if name != "table"
    ]
    return Report("simulation", events, targets)


def _simulated(
    name: str,
    size: Size,
    count: int,
    share: int,
    until: float,
    args: argparse.Namespace,
    rows: list[Row],
) -> list[Target]:
    tally, last = _Tally(), args.seed + count
    shares = [range(at, min(at + share, last)) for at in range(args.seed, last, share)]
    kept = Kept(args.keep, name)
    for one in kept.of(shares):
        tally.add(one)
    # Spawned, so that no process has another one's replaced names.
    with ProcessPoolExecutor(args.jobs, multiprocessing.get_context("spawn")) as pool:
        futures = [
            pool.submit(_worlds, seeds, size, until)
            for seeds in shares
            if seeds.start not in kept.judged
        ]
        for future in as_completed(futures):
            if (judged := future.result()) is not None:
                tally.add(judged)
                kept.add(judged)
    print(f"{name}: failing seeds: {tally.failed[:20] or 'none'}", file=sys.stderr)
    rows.append(tally.row(name))
    return [
        at_most(f"{name} with a violation", len(tally.failed), 0),
        at_least(name, tally.worlds, count),
    ]


def _worlds(seeds: range, size: Size, until: float) -> Judged | None:
    # Deadlines are compared between processes of one machine, by its one monotonic clock.
    if time.monotonic() > until:
        return None
    began = time.process_time()
    happened, problems = Counter[str](), dict[str, list[str]]()
    for verdict in run_worlds(seeds, size):
        happened += verdict.happened
        if verdict.problems:
            problems[str(verdict.seed)] = list(verdict.problems)
    cpu = time.process_time() - began
    return Judged(seeds.start, seeds.stop, dict(happened), problems, cpu)
