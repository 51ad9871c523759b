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
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, ExitStack
from functools import partial
from pathlib import Path
from uuid import uuid4

import anyio

from agent_runtime_storage import open_store
from agent_runtime_storage.urls import backend_of
from benchmarks.backends import empty_databases
from benchmarks.frame import Report, at_least
from benchmarks.proof.interleavings import tally as interleavings_tally
from benchmarks.proof.interleavings.processes import judge, kill_one, processes, went_on
from benchmarks.proof.interleavings.run import Verdict, interleave
from benchmarks.proof.interleavings.tally import LONGEST, Tally, Took, report
from benchmarks.proof.interleavings.worker import read_journal


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
            journals = kill_one(work, url, f"{prefix} {seed}", seed, folder)
            history = [op for journal in journals for op in read_journal(journal)]
            on_verdict(anyio.run(verdict, seed))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the benchmark's options."""
    parser.add_argument("--parallel", type=int, default=4, help="interleavings at the same time")
    interleavings_tally.add_arguments(parser, actions=40)


def run(args: argparse.Namespace) -> Report:
    """Interleave and judge."""
    tally, survivors = Tally(), 0
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
                nonlocal survivors
                tally.add(verdict)
                survivors += went_on(verdict.history) > 0

            run_kills(url, args.seed, args.processes, add, folder)
        kill_seconds = time.monotonic() - begun - seconds
    took = Took(seconds, kill_seconds, 3600)
    alive = [at_least("survivors that went on", survivors, args.processes)]
    targets = alive if args.processes else []
    return report("interleavings", backend_of(url), args, tally, took, targets=targets)
