"""Interleave two stores on one thread in many orders, by seeds, and look for broken promises.

Each interleaving has some forty actions: new runs, steps, results, posts, drains, takeovers,
cancels, child runs, jobs and moves of the head, with stale knowledge, repetitions and cancelled
tasks.  One scheduler orders their reads and writes by the seed.  With `--processes` two processes
act at the same time instead, and one is killed.  Faults are printed with their seed; `--seed`
repeats it.  With `--serial` one call at a time reaches the database, so a seed gives the same in
every run.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from agent_runtime_storage import Store
from benchmarks.frame import Report
from benchmarks.proof.interleavings import command
from benchmarks.proof.interleavings.harness import Action, Odds, Scheduler, World
from benchmarks.proof.interleavings.history import Op, recorded
from benchmarks.proof.interleavings.store_actions import COMMITS, WEIGHTS, Actor, Side
from benchmarks.proof.interleavings.store_judge import Judge, read_rows
from tests.support.prompt_judge import MAIN
from tests.support.stores import driver_of

ACTIONS = 40


class StoreWorld(World):
    """Calls of the store alone, as an engine makes them."""

    odds = Odds(
        first="begin",
        width=4,
        tasks=3,
        rest=0,
        start=0.35,
        tick=0.0,
        cancel=0.03,
        several=0.15,
        most=4,
        interrupt=0.05,
    )
    weights = WEIGHTS

    def __init__(self, owner: str) -> None:
        super().__init__(owner)
        self.sides: dict[str, Side] = {}

    async def act(self, action: Action) -> None:
        """Do an action, or another one if it cannot be applied."""
        op = action.op
        side = self.sides.setdefault(op.side, Side(op.side))
        user = action.store.of(self.owner)
        actor = Actor(user, side, action.chance, op, action.note)
        try:
            with recorded(op):
                if not await actor.act():
                    op.outcome = "nothing"
        finally:
            if op.outcome in ("doubt", "cancelled"):
                side.forget(op)

    async def cancelled(self, op: Op, store: Store) -> None:
        """Record whether a cancelled commit is there: it must not be written later."""
        if op.what not in COMMITS:
            return
        rows = await driver_of(store).read(
            "SELECT count(*) FROM events WHERE user_id = :user_id AND kind = :kind",
            {"user_id": self.owner, "kind": f"{op.what} {op.id}"},
            owner=self.owner,
        )
        op.facts["there"] = rows[0][0] > 0

    async def finish(self, scheduler: Scheduler) -> None:
        """Have each side read the events to the end."""
        user = scheduler.stores[0].of(self.owner)
        for side in self.sides.values():
            events = await user.events.list(MAIN, after=side.cursor)
            side.followed += [(event.id, event.kind) for event in events]

    async def judge(self, store: Store, history: Sequence[Op]) -> list[str]:
        """Judge the rows; the branch of the head must be readable."""
        user = store.of(self.owner)
        thread = await user.threads.get(MAIN)
        if thread.head is not None:
            await user.log.branch(MAIN, thread.head)
        rows = await read_rows(driver_of(store), self.owner)
        return Judge(rows, history, list(self.sides.values())).judge()


WORLD = StoreWorld


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the benchmark's options."""
    command.add_options(parser, actions=ACTIONS)


def run(args: argparse.Namespace) -> Report:
    """Interleave and judge."""
    return command.measure("interleavings.store", StoreWorld, args, seconds=3600, survive=True)
