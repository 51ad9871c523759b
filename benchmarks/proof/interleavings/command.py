"""The options, tally and report of an interleavings benchmark, for any world."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio

from agent_runtime_storage import open_store
from agent_runtime_storage.urls import backend_of
from benchmarks.backends import BACKENDS, empty_databases
from benchmarks.frame import Report, at_least, at_most
from benchmarks.proof.interleavings.harness import Verdict, World, run_seeds
from benchmarks.proof.interleavings.processes import acted_after, run_kills

SHOWN = 3
"""How many failing seeds are printed with all their faults."""
PROGRESS = 100
"""After how many verdicts it is said how far it is."""
SHARE = 25
"""How many seeds a worker runs before it reports their verdicts."""


@dataclass(slots=True)
class Tally:
    """The counted verdicts of all interleavings.

    Attributes:
        failed: the seeds with a violation.
        survivors: how many processes acted after the other one was killed.
    """

    verdicts: int = 0
    survivors: int = 0
    failed: list[int] = field(default_factory=list[int])
    happened: Counter[str] = field(default_factory=Counter[str])
    outcomes: dict[str, Counter[str]] = field(default_factory=dict[str, Counter[str]])

    def add(self, verdict: Verdict) -> None:
        """Count a verdict, and print its faults at once."""
        self.verdicts += 1
        self.survivors += acted_after(verdict.history) > 0
        self.happened.update(verdict.happened)
        if self.verdicts % PROGRESS == 0:
            said = f"{self.verdicts:,} verdicts, {len(self.failed)} with a violation"
            print(said, file=sys.stderr, flush=True)
        for op in verdict.history:
            self.outcomes.setdefault(op.what, Counter())[op.outcome] += 1
        if verdict.problems:
            self.failed.append(verdict.seed)
            if len(self.failed) <= SHOWN:
                problems = "\n  ".join(verdict.problems)
                print(f"seed {verdict.seed}:\n  {problems}", file=sys.stderr, flush=True)

    def rows(self) -> list[dict[str, Any]]:
        """Return how often each action ended in each way, and the counted events."""
        ends = [
            {"action": what, **dict(sorted(outcomes.items()))}
            for what, outcomes in sorted(self.outcomes.items())
        ]
        return [
            *ends,
            *({"happened": what, "times": n} for what, n in sorted(self.happened.items())),
        ]


def add_options(parser: argparse.ArgumentParser, *, actions: int) -> None:
    """Declare the options."""
    parser.add_argument("--count", type=int, default=1000, help="how many interleavings")
    parser.add_argument("--processes", type=int, default=0, help="how many kills of a process")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--actions", type=int, default=actions, help="of one, on average")
    parser.add_argument("--serial", action="store_true", help="let one call through at a time")
    parser.add_argument("--jobs", type=int, default=2, help="in how many processes")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--backend", choices=BACKENDS, default="file")
    where.add_argument("--url", help="a database of your own, in which rows are left")


def _share(kind: type[World], url: str, seeds: range, options: dict[str, Any]) -> list[Verdict]:
    verdicts: list[Verdict] = []

    async def run() -> None:
        await run_seeds(kind, url, seeds, verdicts.append, **options)

    anyio.run(run)
    return verdicts


def _run_shares(
    kind: type[World], url: str, args: argparse.Namespace, add: Callable[[Verdict], None]
) -> None:
    """Run the seeds in several processes: one interleaving keeps a core busy."""
    anyio.run(_migrate, url)
    last = args.seed + args.count
    shares = [range(at, min(at + SHARE, last)) for at in range(args.seed, last, SHARE)]
    options = {"actions": args.actions, "concurrent": not args.serial}
    # Spawned: this process has run an event loop, whose threads a fork would not copy.
    with ProcessPoolExecutor(args.jobs, multiprocessing.get_context("spawn")) as pool:
        futures = [pool.submit(_share, kind, url, seeds, options) for seeds in shares]
        try:
            for future in as_completed(futures):
                for verdict in future.result():
                    add(verdict)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


async def _migrate(url: str) -> None:
    """Migrate the schema before several processes try to at the same time."""
    store = await open_store(url)
    await store.close()


def measure(
    name: str, kind: type[World], args: argparse.Namespace, *, seconds: int, survive: bool
) -> Report:
    """Interleave and judge.

    Args:
        seconds: how long the interleavings, and the kills, may take.
        survive: whether the survivor of each kill must have done something afterwards.
    """
    tally = Tally()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        url = args.url or stack.enter_context(empty_databases())(args.backend)
        begun = time.monotonic()
        if args.count:
            _run_shares(kind, url, args, tally.add)
        took = time.monotonic() - begun
        if args.processes:
            kills = range(args.seed, args.seed + args.processes)
            run_kills(kind, url, kills, tally.add, folder)
        kills_took = time.monotonic() - begun - took
    seeds = ", ".join(map(str, tally.failed[:10])) or "none"
    print(f"failing seeds: {seeds}", file=sys.stderr)
    targets = [
        at_most(f"interleavings on {backend_of(url)} with a violation", len(tally.failed), 0),
        at_least("interleavings", tally.verdicts, args.count + args.processes),
        at_most("seconds of the interleavings", round(took, 1), seconds, "s"),
    ]
    if args.processes:
        targets.append(at_most("seconds of the kills", round(kills_took, 1), seconds, "s"))
        if survive:
            targets.append(at_least("survivors that acted", tally.survivors, args.processes))
    return Report(name, tally.rows(), targets)
