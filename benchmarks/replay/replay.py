"""Recorded runs with observational memory and with other policies: prompts, cache and dollars.

The memory is the product's own, in the real loop over the real store; only the models' answers and
the time are the recording's.  The other policies are computed from the same tokens.  Prices:
claude-sonnet-4-5 for the agent, gemini-2.5-flash for the scripted observer.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import anyio

from benchmarks.frame import Report, Row, Target, at_least, at_most, data_folder
from benchmarks.replay.bill import Bill
from benchmarks.replay.clock import recorded_time
from benchmarks.replay.policies import bills_of, recording_of
from benchmarks.replay.recordings import Trace, read_traces
from benchmarks.replay.world import WINDOW, Lived, Policy, ReplayRuntime, live, settings_for

SOURCES = ("claude_code_traces", "swebench_mini_traces")
FULL = "full history"
POLICIES = (
    Policy("memory by rules"),
    *(Policy(f"memory 1:{ratio}", ratio=ratio) for ratio in (5, 10, 30)),
    Policy("memory by rules, price", "price"),
    Policy("memory 1:10, price", "price", 10),
)
# The most dollars for prompts and observer, as a share of the full history's.
WANTED = {
    ("claude_code_traces", "memory 1:10"): 0.42,
    ("claude_code_traces", "memory 1:10, price"): 0.40,
    ("swebench_mini_traces", "memory 1:10"): 0.92,
    ("swebench_mini_traces", "memory 1:10, price"): 0.79,
}
LONGEST = 10
"""One in this many runs counts as long."""
LEAST_ACTIVATIONS = 5
AT_ONCE = 4
"""Runs that a process replays at a time: one waits for the disk while another works."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--source", choices=SOURCES, action="append", help="may be repeated")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="each Nth trace only")
    names = [policy.name for policy in POLICIES]
    parser.add_argument("--memory", choices=names, action="append", help="may be repeated")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, metavar="N")


def run(args: argparse.Namespace) -> Report:
    """Replay what the options name; everything takes a quarter of an hour on two cores."""
    folder = data_folder(args)
    policies = [policy for policy in POLICIES if args.memory is None or policy.name in args.memory]
    rows: list[Row] = []
    targets: list[Target] = []
    for source in args.source or SOURCES:
        shards = [
            Shard(folder, source, tuple(policies), args.every * number, args.every * args.processes)
            for number in range(args.processes)
        ]
        sums: dict[str, PolicySums] = {}
        for shard in _in_processes(shards):
            for name, one in shard.items():
                sums.setdefault(name, PolicySums()).add(one)
        full = sums[FULL].bill
        rows += [
            {"source": source.partition("_")[0], "policy": name, **one.row(full)}
            for name, one in sums.items()
        ]
        targets += targets_of(source, sums)
    return Report("replay", rows, targets)


@dataclass(frozen=True, slots=True)
class Shard:
    """The part of one process: every n-th trace, from `start` on."""

    folder: Path
    source: str
    policies: tuple[Policy, ...]
    start: int
    every: int


@dataclass(slots=True)
class PolicySums:
    """The sums over recorded runs with a policy.

    Attributes:
        lengths: of each run, its tokens and its activations.
        by_rules: observations by rules because the observer's notes were unusable.
        faults: violations of the invariants of prompts and log.
    """

    bill: Bill = field(default_factory=Bill)
    activations: Counter[str] = field(default_factory=Counter[str])
    lengths: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    faults: list[str] = field(default_factory=list[str])
    observations: int = 0
    by_rules: int = 0
    reflections: int = 0
    cuts: int = 0
    waited: int = 0
    memory: bool = False

    def lived(self, one: Lived, tokens: int) -> None:
        """Add a run with a memory."""
        self.memory = True
        self.bill.add(one.bill)
        self.activations.update(one.outcome.activations)
        self.lengths.append((tokens, _activations(one.outcome.activations)))
        self.faults += one.outcome.faults
        if above := one.outcome.above:
            self.faults.append(f"{one.outcome.trace}: {above} prompts above the window's room")
        self.observations += one.observations
        self.by_rules += one.by_rules
        self.reflections += one.reflections
        self.cuts += one.outcome.cut
        self.waited += one.waited

    def add(self, other: PolicySums) -> None:
        """Add the sums of another process."""
        self.bill.add(other.bill)
        self.activations.update(other.activations)
        self.lengths += other.lengths
        self.faults += other.faults
        self.observations += other.observations
        self.by_rules += other.by_rules
        self.reflections += other.reflections
        self.cuts += other.cuts
        self.waited += other.waited
        self.memory = other.memory

    def row(self, full: Bill) -> Row:
        """Return a row of the report.

        `$` is for prompts and the observer.  `of full`, its share of the full history's, is also
        shown with the answers, which are the same under every policy, and with the recorded agent's
        own prefix: its system prompt and tools, which the recording lacks.
        """
        bill = self.bill
        row: dict[str, object] = {
            "mean K": round(bill.tokens / max(1, bill.prompts) / 1000, 1),
            "peak K": round(bill.peak / 1000, 1),
            "shared": round(bill.shared / max(1, bill.tokens), 3),
            "$": round(bill.dollars(), 1),
            "of full": share(bill, full),
            "with answers": share(bill, full, answers=True),
            "with front": share(bill, full, front=True),
            "$ uncached": round(bill.dollars(caching=False)),
            "over": bill.over,
        }
        if self.memory:
            causes = self.activations.most_common()
            row |= {
                "observer": f"{bill.observer_calls} calls ${bill.observing:.2f}",
                "wrote": f"{self.observations}+{self.reflections}",
                "by rules": self.by_rules,
                "activations": " ".join(f"{n} {cause}" for cause, n in causes if cause != "start"),
                "cuts": self.cuts,
                "waited": self.waited,
                "faults": len(self.faults),
            }
        return row


def share(bill: Bill, full: Bill, *, answers: bool = False, front: bool = False) -> float:
    """Return a bill's share of the full history's."""
    return round(
        bill.dollars(answers=answers, front=front) / full.dollars(answers=answers, front=front), 3
    )


def _activations(causes: Counter[str]) -> int:
    """Return the number of activations without the first one of each thread."""
    return sum(causes.values()) - causes["start"]


def targets_of(source: str, sums: dict[str, PolicySums]) -> Iterator[Target]:
    """Yield the targets of the memory on a source."""
    for name, one in sums.items():
        if not one.memory:
            continue
        title = f"{source.removesuffix('_traces')}, {name}"
        if (most := WANTED.get((source, name))) is not None:
            yield at_most(f"{title}: dollars of full", share(one.bill, sums[FULL].bill), most)
        faults = one.faults
        yield Target(f"{title}: violations", faults[0] if faults else 0, "none", met=not faults)
        yield at_most(f"{title}: prompts over the window", one.bill.over, 0)
        yield at_most(f"{title}: steps that waited", one.waited, 0)
        if source == SOURCES[0] and one.lengths:
            longest = sorted(one.lengths)[-max(1, len(one.lengths) // LONGEST) :]
            least = min(activations for _, activations in longest)
            yield at_least(f"{title}: activations in the longest runs", least, LEAST_ACTIVATIONS)


# A shard


def _in_processes(shards: Sequence[Shard]) -> Iterator[dict[str, PolicySums]]:
    if len(shards) == 1:
        yield replay_shard(shards[0])
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(len(shards), mp_context=context) as pool:
        # In order of completion: a failure is raised without waiting for the others.
        for done in as_completed([pool.submit(replay_shard, shard) for shard in shards]):
            yield done.result()


def replay_shard(shard: Shard) -> dict[str, PolicySums]:
    """Replay a shard with all policies."""
    traces = list(islice(read_traces(shard.folder, shard.source), shard.start, None, shard.every))
    sums: dict[str, PolicySums] = {}
    recordings = [recording_of(trace) for trace in traces]
    for recording in recordings:
        for name, bill in bills_of(recording, WINDOW):
            sums.setdefault(name, PolicySums()).bill.add(bill)
    tokens = [recording.tokens for recording in recordings]
    for policy in shard.policies:
        sums[policy.name] = anyio.run(live_all, policy, traces, tokens)
    return sums


async def live_all(policy: Policy, traces: Sequence[Trace], tokens: Sequence[int]) -> PolicySums:
    """Replay runs with a memory, over a new database file."""
    sums = PolicySums(memory=True)
    limiter = anyio.CapacityLimiter(AT_ONCE)
    with tempfile.TemporaryDirectory() as folder, recorded_time():
        settings = settings_for(policy, f"file:{folder}/replay.db")
        async with ReplayRuntime.open(settings) as runtime, anyio.create_task_group() as group:

            async def replay(index: int) -> None:
                async with limiter:
                    lived = await live(runtime, traces[index], policy, thread=f"trace-{index}")
                sums.lived(lived, tokens[index])

            for index in range(len(traces)):
                group.start_soon(replay, index)
    return sums
