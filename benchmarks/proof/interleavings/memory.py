"""Interleave two runtimes with observational memory on one thread, by seeds, and judge all prompts.

The runs are whole ones, with their loop, log, memory and store; only models are scripted, and the
thresholds are so small that every few steps something is observed, takes effect or is condensed.
Each interleaving is some dozen actions (runs, resumes, answers given again, forks, cancels,
steering, crashes, leases that run out under who still works, cancelled tasks); one scheduler
brings each read, each batch and each answer of a model into the order that the seed says.  With
`--processes` two processes work at the same time instead, and one is killed.

What is judged from the rows and the prompts as they were sent: each node of the branch is in every
prompt exactly once, raw or within one observation; an observation is valid on its branch; every
job was committed once or can be claimed again; who lost the lease wrote nothing.  `--seed` runs a
failing seed again; with `--serial` one call at a time is let through, so a seed gives the same
each time.
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from uuid import uuid4

import anyio

from agent_runtime_storage import open_store
from agent_runtime_storage.urls import backend_of
from benchmarks.backends import empty_databases
from benchmarks.frame import Report
from benchmarks.proof.interleavings import tally as interleavings_tally
from benchmarks.proof.interleavings.memory_processes import run_kills
from benchmarks.proof.interleavings.memory_run import Verdict, interleave
from benchmarks.proof.interleavings.memory_world import quick
from benchmarks.proof.interleavings.tally import LONGEST, Tally, Took, report

SHARE = 25
"""How many seeds a worker does before it tells of them."""


async def run_seeds(
    url: str,
    seeds: Iterable[int],
    on_verdict: Callable[[Verdict], None],
    *,
    actions: int = 12,
    concurrent: bool = True,
) -> None:
    """Interleave two runtimes on the database, for each of the seeds, one after the other.

    Args:
        actions: how many actions one has, those that the scheduler adds aside.
        concurrent: whether several calls are at times let through at once.
    """
    quick()
    prefix = f"memory {uuid4().hex}"
    async with AsyncExitStack() as stack:
        stores = [await open_store(url, synchronous="normal") for _ in range(2)]
        for store in stores:
            stack.push_async_callback(store.close)
        for seed in seeds:
            verdict = Verdict(seed, (f"it hangs for {LONGEST:g} s",), ())
            with anyio.move_on_after(LONGEST):
                verdict = await interleave(stores, prefix, seed, actions, concurrent=concurrent)
            on_verdict(verdict)


def _share(url: str, seeds: Iterable[int], actions: int, concurrent: bool) -> list[Verdict]:
    verdicts: list[Verdict] = []

    async def run() -> None:
        await run_seeds(url, seeds, verdicts.append, actions=actions, concurrent=concurrent)

    anyio.run(run)
    return verdicts


def _run_shares(url: str, args: argparse.Namespace, add: Callable[[Verdict], None]) -> None:
    """Have the seeds done by several processes: an interleaving keeps one core busy."""
    anyio.run(_prepare, url)
    last = args.seed + args.count
    shares = [range(at, min(at + SHARE, last)) for at in range(args.seed, last, SHARE)]
    with ProcessPoolExecutor(args.jobs, multiprocessing.get_context("spawn")) as pool:
        done = [pool.submit(_share, url, one, args.actions, not args.serial) for one in shares]
        try:
            for future in as_completed(done):
                for verdict in future.result():
                    add(verdict)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


async def _prepare(url: str) -> None:
    """Bring the schema up to date before several do at once."""
    store = await open_store(url)
    await store.close()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the benchmark's options."""
    parser.add_argument("--jobs", type=int, default=2, help="in how many processes")
    interleavings_tally.add_arguments(parser, actions=12)


def run(args: argparse.Namespace) -> Report:
    """Interleave and judge."""
    tally, happened = Tally(), Counter[str]()

    def add(verdict: Verdict) -> None:
        tally.add(verdict)
        happened.update(verdict.happened)

    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        url = args.url or stack.enter_context(empty_databases())(args.backend)
        begun = time.monotonic()
        if args.count:
            _run_shares(url, args, add)
        seconds = time.monotonic() - begun
        if args.processes:
            run_kills(url, args.seed, args.processes, add, folder)
        kill_seconds = time.monotonic() - begun - seconds
    rows = [{"happened": what, "times": times} for what, times in sorted(happened.items())]
    took = Took(seconds, kill_seconds, 1800)
    return report("interleavings_memory", backend_of(url), args, tally, took, rows=rows)
