"""Interleave two stores on one thread in many orders, by seeds, and look for what must never be.

Each interleaving is some forty actions (runs begun, steps, results, posts, drains, take-overs,
cancels, child runs, jobs, moves of the head, with stale knowledge, repetitions and cancelled
tasks), whose reads and writes one scheduler brings into the order that the seed says.  With
`--processes` two processes act at the same time instead, and one is killed.  What was found wrong
is shown with its seed; `--seed` runs it again.  With `--serial` one call at a time goes to the
database, so a seed gives the same in every run.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio

from agent_runtime_storage import open_store
from agent_runtime_storage.urls import backend_of

from .backends import BACKENDS, empty_databases
from .frame import Report, at_least, at_most
from .interleavings_processes import judge, kill_one, processes, went_on
from .interleavings_run import Verdict, interleave

SHOWN = 3
"""How many failing seeds are shown with all that is wrong."""
LONGEST = 60.0
"""Seconds after which an interleaving hangs."""


@dataclass(slots=True)
class Tally:
    """What came of all interleavings."""

    verdicts: int = 0
    failed: list[Verdict] = field(default_factory=list[Verdict])
    outcomes: dict[str, Counter[str]] = field(default_factory=dict[str, Counter[str]])
    went_on: int = 0

    def add(self, verdict: Verdict) -> None:
        """Count a verdict, and say at once what is wrong."""
        self.verdicts += 1
        for op in verdict.history:
            self.outcomes.setdefault(op.what, Counter())[op.outcome] += 1
        if verdict.problems:
            self.failed.append(verdict)
            if len(self.failed) <= SHOWN:
                problems = "\n  ".join(verdict.problems)
                print(f"seed {verdict.seed}:\n  {problems}", file=sys.stderr, flush=True)


async def run_seeds(
    url: str,
    first: int,
    count: int,
    on_verdict: Callable[[Verdict], None],
    *,
    parallel: int = 1,
    actions: int = 40,
    concurrent: bool = True,
) -> None:
    """Interleave two stores on the database, for each of so many seeds.

    Args:
        parallel: how many interleavings, of owners of their own, are under way at once.
        actions: how many actions one has on average.
        concurrent: whether several calls are at times let through at once, and some cancelled
            under way; how those end is not the seed's alone to say.
    """
    prefix = f"interleaving {uuid4().hex}"
    async with AsyncExitStack() as stack:
        stores = [await open_store(url, synchronous="normal") for _ in range(2)]
        for store in stores:
            stack.push_async_callback(store.close)
        seeds = iter(range(first, first + count))

        async def work(seeds: Iterator[int]) -> None:
            for seed in seeds:
                try:
                    with anyio.fail_after(LONGEST):
                        on_verdict(await interleave(stores, prefix, seed, actions, concurrent))
                except TimeoutError:
                    on_verdict(Verdict(seed, (f"it hangs for {LONGEST:g} s",), ()))

        async with anyio.create_task_group() as group:
            for _ in range(parallel):
                group.start_soon(work, seeds)


def run_kills(
    url: str, first: int, count: int, on_verdict: Callable[[Verdict], None], folder: Path
) -> None:
    """Let two processes act on one thread and kill one of them, for each of so many seeds."""
    prefix = f"processes {uuid4().hex}"

    async def prepare(seed: int) -> None:
        store = await open_store(url)
        await store.of(f"{prefix} {seed}").ensure_thread("main")
        await store.close()

    async def verdict(seed: int) -> Verdict:
        store = await open_store(url)
        try:
            return await judge(store, prefix, seed, history)
        finally:
            await store.close()

    with processes() as work:
        for seed in range(first, first + count):
            anyio.run(prepare, seed)
            history = list(kill_one(work, url, prefix, seed, folder))
            on_verdict(anyio.run(verdict, seed))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the benchmark's options."""
    parser.add_argument("--count", type=int, default=1000, help="how many interleavings")
    parser.add_argument("--processes", type=int, default=0, help="how many kills of a process")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--parallel", type=int, default=4, help="interleavings at the same time")
    parser.add_argument("--actions", type=int, default=40, help="of one interleaving, on average")
    parser.add_argument("--serial", action="store_true", help="let one call through at a time")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--backend", choices=BACKENDS, default="file")
    where.add_argument("--url", help="a database of your own, in which rows are left")


def run(args: argparse.Namespace) -> Report:
    """Interleave and judge."""
    tally = Tally()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        url = args.url or stack.enter_context(empty_databases())(args.backend)
        begun = time.monotonic()
        if args.count:
            seeds = partial(
                run_seeds,
                parallel=args.parallel,
                actions=args.actions,
                concurrent=not args.serial,
            )
            anyio.run(seeds, url, args.seed, args.count, tally.add)
        seconds = time.monotonic() - begun
        if args.processes:

            def add(verdict: Verdict) -> None:
                tally.add(verdict)
                tally.went_on += went_on(verdict.history) > 0

            run_kills(url, args.seed, args.processes, add, folder)
        kill_seconds = time.monotonic() - begun - seconds
    rows: list[dict[str, Any]] = [
        {"action": what, **dict(sorted(outcomes.items()))}
        for what, outcomes in sorted(tally.outcomes.items())
    ]
    backend = backend_of(url)
    seeds_failed = ", ".join(str(one.seed) for one in tally.failed[:10]) or "none"
    targets = [
        at_most(f"interleavings on {backend} with a violation", len(tally.failed), 0),
        at_least("interleavings", tally.verdicts, args.count + args.processes),
        at_most("seconds of the interleavings", round(seconds, 1), 3600, "s"),
    ]
    if args.processes:
        targets.append(at_most("seconds of the kills", round(kill_seconds, 1), 3600, "s"))
        targets.append(at_least("survivors that went on", tally.went_on, args.processes))
    print(f"failing seeds: {seeds_failed}", file=sys.stderr)
    return Report("interleavings", rows, targets)
