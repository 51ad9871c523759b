"""Measure the store on each backend, against the plain driver that runs the same statements.

Appends of a message of 1.1 KB with its event, by 1 and by 64 tasks, each to its own thread and
acknowledged before the next; reads of the last 20 messages of a short and of a very long thread;
and steps of an agent on both.  Every measurement is its own process, appends go to a new database,
the store and the plain driver alternate, and medians are reported.

The plain drivers check nothing and have no row-level security: aiosqlite on one connection, psycopg
with a pool and one pipeline per batch, httpx with one request per batch.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import orjson

from agent_runtime_storage.urls import Backend
from benchmarks.backends import BACKENDS, empty_databases, parse_backends
from benchmarks.cost.storage_worker import Measured
from benchmarks.frame import Report, Target, at_least, at_most

TASKS = (1, 64)
SHORT = 1000
VARIANTS = ("store", "plain")
LEAST_OF_AIOSQLITE = 1.5
MOST_OF_PSYCOPG = 1.3
MOST_OF_SHORT = 1.2

_WORKER = (sys.executable, "-m", f"{__package__}.storage_worker")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--backends", type=parse_backends, default=BACKENDS, help="such as file")
    parser.add_argument("--rounds", type=int, default=3, help="of each measurement")
    parser.add_argument("--appends", type=int, default=3200, help="of each measurement")
    parser.add_argument("--long", type=int, default=1_000_000, help="messages of the long thread")
    parser.add_argument("--steps", type=int, default=200, help="of an agent on each thread")


def run(args: argparse.Namespace) -> Report:
    """Measure every backend."""
    rows: list[dict[str, Any]] = []
    targets: list[Target] = []
    with empty_databases() as make:
        for backend in args.backends:
            appends = _appends(backend, make, args)
            reads = _reads(backend, make(backend), args)
            rows += [*appends, *reads]
            targets += _targets(backend, appends, reads)
    return Report("storage", rows, targets)


def _measure(what: str, url: str, *options: object) -> Measured:
    command = [*_WORKER, what, "--url", url, *map(str, options)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return Measured(**orjson.loads(done.stdout))


def _middle(runs: Sequence[Measured], figure: Callable[[Measured], float]) -> float:
    return median(figure(run) for run in runs)


def _appends(
    backend: Backend, make: Callable[[Backend], str], args: argparse.Namespace
) -> list[dict[str, Any]]:
    trials: dict[tuple[int, str], list[Measured]] = {}
    for number in range(args.rounds):
        for tasks in TASKS:
            for variant in VARIANTS:
                _tell(backend, f"round {number + 1}: append, {tasks} tasks, {variant}")
                options = ("--variant", variant, "--tasks", tasks, "--count", args.appends)
                measured = _measure("append", make(backend), *options)
                trials.setdefault((tasks, variant), []).append(measured)
    return [
        {
            "backend": backend,
            "what": "append",
            "variant": variant,
            "tasks": tasks,
            "per_second": _middle(runs, lambda run: run.count / run.seconds),
            "p50_ms": _middle(runs, lambda run: run.p50_ms),
            "p99_ms": _middle(runs, lambda run: run.p99_ms),
            "cpu_ms": _middle(runs, lambda run: run.cpu / run.count * 1000),
        }
        for (tasks, variant), runs in trials.items()
    ]


def _reads(backend: Backend, url: str, args: argparse.Namespace) -> list[dict[str, Any]]:
    lengths = [SHORT, args.long]
    _tell(backend, f"threads of {lengths[0]:,} and {lengths[1]:,} messages")
    _measure("prepare", url, "--length", lengths[0], "--length", lengths[1])
    trials: dict[tuple[str, int, str], list[Measured]] = {}
    for number in range(args.rounds):
        _tell(backend, f"round {number + 1}: read and step")
        for length in lengths:
            for variant in VARIANTS:
                measured = _measure("read", url, "--length", length, "--variant", variant)
                trials.setdefault(("read", length, variant), []).append(measured)
            measured = _measure("steps", url, "--length", length, "--count", args.steps)
            trials.setdefault(("step", length, "store"), []).append(measured)
    return [
        {
            "backend": backend,
            "what": what,
            "variant": variant,
            "messages": length,
            "p50_ms": _middle(runs, lambda run: run.p50_ms),
            "p99_ms": _middle(runs, lambda run: run.p99_ms),
            "cpu_ms": _middle(runs, lambda run: run.cpu / run.count * 1000),
        }
        for (what, length, variant), runs in trials.items()
    ]


def _tell(backend: Backend, what: str) -> None:
    print(f"{backend}: {what}", file=sys.stderr)


def _targets(
    backend: Backend, appends: Sequence[dict[str, Any]], reads: Sequence[dict[str, Any]]
) -> list[Target]:
    rate = {(row["tasks"], row["variant"]): row["per_second"] for row in appends}
    targets: list[Target] = []
    many = rate[64, "store"] / rate[64, "plain"]
    if backend == "file":
        name = "file: appends of 64 tasks, against aiosqlite"
        targets.append(at_least(name, many, LEAST_OF_AIOSQLITE, "times"))
    if backend == "postgres":
        for tasks in TASKS:
            name = f"postgres: time of an append, {tasks} tasks, against psycopg"
            ratio = rate[tasks, "plain"] / rate[tasks, "store"]
            targets.append(at_most(name, ratio, MOST_OF_PSYCOPG, "times"))
    for what in ("read", "step"):
        times = [
            row["p50_ms"] for row in reads if row["what"] == what and row["variant"] == "store"
        ]
        name = f"{backend}: a {what} in the long thread, against the short one"
        targets.append(at_most(name, times[1] / times[0], MOST_OF_SHORT, "times"))
    return targets
