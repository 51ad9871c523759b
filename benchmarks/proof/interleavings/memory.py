"""Interleave two runtimes with observational memory on one thread, by seeds, and judge all prompts.

The runs are complete, with loop, log, memory and store; only models are scripted, and the
thresholds are so small that observations are written, activated or condensed every few steps.  Each
interleaving has a dozen actions (runs, resumes, regenerated answers, edits, forks, cancels,
steering, crashes, leases that expire while their holder works, cancelled tasks).  A fifth of the
runs has its memory switched off; windows have 4K to 1M tokens; Observers and Reflectors are
faithful, silent, slow, lying, echoing, hostile or write in another language.  One scheduler orders
every read, every batch and every model answer by the seed.  With `--processes` two processes work
at the same time instead, and one is killed.

The judge uses only the rows and the prompts as sent: each node of the branch is in every prompt
exactly once, raw or within one observation, or the prompt counts and names it as missing; an
observation is valid on its branch; every job was committed once or can be claimed again; a former
lease holder wrote nothing.  `--seed` repeats a
failing seed; with `--serial` one call is let through at a time, and a seed mostly gives the same
each time: the event loop's clock moves only when the scheduler says so, but the database's clock
and the work of threads between two calls remain.  An interleaving that does not end is ended and
reported.
"""

from __future__ import annotations

import argparse
import itertools
from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import partial
from typing import Any

import orjson

from agent_runtime.memory.observational import worker
from agent_runtime.models.tokens import count_text
from agent_runtime_storage import Store
from benchmarks.frame import Report
from benchmarks.proof.interleavings import command
from benchmarks.proof.interleavings.harness import SIDES, Action, Odds, Scheduler, World
from benchmarks.proof.interleavings.history import Op, recorded
from benchmarks.proof.interleavings.memory_actions import ACTIONS, WEIGHTS, Actor, Remembering
from tests.support.prompt_judge import Judge, Left, claim_all, read_left
from tests.support.stores import driver_of, expire

COUNT = 12
_CRASH, _EXPIRE = 0.004, 0.008


class MemoryWorld(World):
    """Whole runs with observational memory.

    Attributes:
        runtimes: the runtimes of each side's actions.
    """

    odds = Odds(
        first="run",
        width=3,
        tasks=1,
        # While the other process holds the thread, actions fail fast: do not spin.
        rest=0.002,
        start=0.03,
        tick=0.02,
        cancel=0.002,
        several=0.1,
        most=2,
        interrupt=0,
    )
    weights = WEIGHTS

    def __init__(self, owner: str) -> None:
        super().__init__(owner)
        self.numbers = itertools.count()
        self.runtimes: defaultdict[str, list[Remembering]] = defaultdict(list)

    @staticmethod
    def prepare(seconds: float = 0.0) -> None:
        """Load the vocabulary, and have the memory retry after `seconds`."""
        count_text("load")
        worker.RETRY_SECONDS = seconds
        worker.AGAIN_SECONDS = seconds

    async def act(self, action: Action) -> None:
        """Do an action in a runtime of its own."""
        op = action.op

        def mark(what: str) -> str:
            return f"{what} {op.side}/{next(self.numbers)}."

        actor = Actor(action, self.owner, mark, self.on_sent)
        self.runtimes[op.side].append(actor.runtime)
        with recorded(op):
            await ACTIONS[op.what](actor)

    async def disturb(self, scheduler: Scheduler, luck: float) -> bool:
        """Crash a side, or expire all leases, whose holders may be alive and continue."""
        if luck < _CRASH:
            number = scheduler.chance.randrange(len(SIDES))
            entry = Op(f"a{len(scheduler.history)}", "crash", SIDES[number], outcome="ok")
            scheduler.history.append(entry)
            await self._crash(scheduler, number)
        elif luck < _EXPIRE:
            with scheduler.gate.calling():
                await expire(scheduler.stores[0], self.owner)
            scheduler.start("resume")
        return luck < _EXPIRE

    async def _crash(self, scheduler: Scheduler, number: int) -> None:
        scheduler.crash(number)
        await scheduler.apart(partial(self._end, SIDES[number]))

    async def _end(self, side: str) -> None:
        for runtime in self.runtimes.pop(side, ()):
            await runtime.end()

    async def close(self) -> None:
        """End work that outlives its run."""
        for side in list(self.runtimes):
            await self._end(side)

    async def finish(self, scheduler: Scheduler) -> None:
        """Let an undisturbed run finish everything."""
        await expire(scheduler.stores[0], self.owner)
        op = await scheduler.alone("tidy")
        if op.outcome != "ok":
            op.outcome, op.error = "failed", f"the thread is not usable any more: {op.error}"
        for number in range(len(SIDES)):
            await self._crash(scheduler, number)

    async def judge(self, store: Store, history: Sequence[Op]) -> list[str]:
        """Judge the rows once every claim of a job has expired."""
        await expire(store, self.owner)
        left = await read_left(store, driver_of(store), self.owner)
        claimed = frozenset(await claim_all(store.of(self.owner), left))
        self.happened = _happened(left)
        failed = [
            f"{op.what} {op.id} failed: {op.error}" for op in history if op.outcome == "failed"
        ]
        return failed + Judge(left, self.sent, claimed).judge()


WORLD = MemoryWorld


def _happened(left: Left) -> dict[str, int]:
    """Count the causes and forms of activations, and the kinds of observations."""
    counts = Counter[str]()
    for _, _, body in left.activations:
        start: dict[str, Any] = orjson.loads(bytes(body))
        counts["activations without memory"] += not start["remembers"]
        counts["activations with gaps"] += bool(start["gaps"])
    for event in left.events:
        data: Any = event.data
        if event.kind == "activation":
            counts[f"activated: {data['cause']}"] += 1
        elif event.kind == "observation":
            counts[f"{'reflected' if data['level'] else 'observed'} by {data['origin']}"] += 1
    return dict(+counts)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the benchmark's options."""
    command.add_options(parser, actions=COUNT)


def run(args: argparse.Namespace) -> Report:
    """Interleave and judge."""
    return command.measure("interleavings.memory", MemoryWorld, args, seconds=1800, survive=False)
