"""What simulated runs do: the commits of an agent's loop, from a plan instead of a model."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from agent_runtime.errors import RuntimeClosed
from agent_runtime.log import leases
from agent_runtime.log.lease_keeper import HeldRun, LeaseKeeper
from agent_runtime.log.run_log import CLOSED, cancelled_finish, finish_event
from agent_runtime.run.takeover import is_queued
from agent_runtime_storage.contract.errors import LeaseLost
from agent_runtime_storage.contract.records.log import (
    ACTIVE,
    Commit,
    Finish,
    Lease,
    NewEvent,
    NewNode,
    NewRun,
    Run,
)
from agent_runtime_storage.contract.records.questions import NewQuestion
from agent_runtime_storage.contract.records.queue import NewQueuedRun, PickedRun
from agent_runtime_storage.contract.store import UserStore
from benchmarks.proof.simulated.judge import Judge
from benchmarks.proof.simulated.scheduler import FOREVER, Pause, Process, Scheduler

What = Literal["work", "ask", "delegate", "unavailable", "pause", "kill", "poison", "fail"]
QUESTION_SECONDS = 45.0


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a run.

    Attributes:
        count: how many children it delegates, or how often it does what is done only so often.
        background: whether the last of the children is not waited for.
    """

    what: What
    seconds: float
    count: int = 1
    background: bool = False


def plan_of(seed: int, run: str, harsh: float) -> Sequence[Step]:
    """Return the steps of a run, by the seed and the run's id alone.

    Args:
        harsh: how likely a step is none of plain work.
    """
    chance = random.Random(f"{seed} {run}")
    is_child = run.count(".") > 0
    kinds: list[What] = ["ask", "unavailable", "pause", "kill", "fail", "poison"]
    weights = [5, 2, 1, 3, 1, 1]
    if run.count(".") < 2:
        kinds.append("delegate")
        weights.append(3 if is_child else 9)
    steps: list[Step] = []
    for _ in range(chance.randint(1, 2 if is_child else 3)):
        odd = chance.random() < harsh
        what = chance.choices(kinds, weights)[0] if odd else "work"
        steps.append(
            Step(what, chance.choice((0.5, 3.0, 9.0)), chance.randint(1, 2), chance.random() < 0.3)
        )
    return steps


@dataclass(slots=True)
class Body:
    """Works on runs in one process; stands for the engine's starter.

    Attributes:
        times: how often a step that happens only so often was tried, in the whole world.
        on_question, on_pause: called with the owner and the id of a question, or of a run.
        kill: ends a process at once.
    """

    seed: int
    harsh: float
    scheduler: Scheduler
    process: Process
    keeper: LeaseKeeper
    is_closed: Callable[[], bool]
    judge: Judge
    times: dict[tuple[str, int], int]
    on_question: Callable[[str, str], None]
    on_pause: Callable[[str, str], None]
    kill: Callable[[Process], None]

    async def work_on(self, store: UserStore, picked: PickedRun, run: Run, agent: Any) -> None:
        """Return when the run ends or is suspended."""
        del agent
        if self.is_closed():
            raise RuntimeClosed("It is closed.", cure="Open another.")
        self.judge.worked(store.user_id, run.id)
        if is_queued(run):
            lease = await self._begin(store, picked, run)
        else:
            lease = await store.runs.take_lease(
                run.id,
                self.process.owner,
                seconds=leases.LEASE_SECONDS,
                replaces=run.epoch,
                was=run.status,
            )
        with self.keeper.holding(store.user_id, lease) as held:
            # Its default was made with the true clock.
            held.renewed_at = self.scheduler.now * self.process.rate + self.process.ahead
            held.suspends, held.alone = True, True
            held.closing = self.is_closed()
            await self._steps(store, lease, held)

    async def _begin(self, store: UserStore, picked: PickedRun, run: Run) -> Lease:
        thread = await store.threads.get(run.thread_id)
        seq = thread.last_seq + 1
        begun, _ = await store.runs.begin(
            NewRun(
                id=run.id,
                thread_id=run.thread_id,
                agent=run.agent,
                max_steps=100,
                spec=run.spec,
                internal=run.internal or {},
                owner=self.process.owner,
                lease_seconds=leases.LEASE_SECONDS,
                expect_head=thread.head,
                expect_seq=thread.last_seq,
                nodes=(NewNode(seq, thread.head, "message", "user", b"task", 1, 0),),
                task_id=seq,
                root_run_id=picked.lease.root_run_id,
                epoch=picked.lease.epoch,
            )
        )
        return begun

    async def _steps(self, store: UserStore, lease: Lease, held: HeldRun) -> None:
        run = await store.runs.get(lease.run_id)
        plan, done = plan_of(self.seed, run.id, self.harsh), run.steps
        if run.cancel_requested:
            await self._stop(store, lease, cancelled_finish())
            return
        while True:
            if held.cancel:
                await self._stop(store, lease, cancelled_finish())
                return
            if held.closing:
                await self._stop(store, lease, CLOSED)
                return
            if held.lost:
                held.lost = False
                # As the engine does: the row says whether it is.
                await store.runs.poll(lease)
            if done >= len(plan):
                await self._stop(store, lease, Finish("succeeded", "completed"))
                return
            step = plan[done]
            await Pause(step.seconds)
            finish = await self._do(store, lease, run, step, done)
            if finish is not None:
                questions = ()
                if finish.stop_reason == "awaiting_user":
                    asked = NewQuestion(
                        self._question(run, done), run.task_id or 1, None, "text", {},
                        QUESTION_SECONDS,
                    )  # fmt: skip
                    questions = (asked,)
                await self._stop(store, lease, finish, questions)
                if questions:
                    self.on_question(store.user_id, questions[0].id)
                return
            done += 1
            await store.runs.commit(lease, Commit(steps=done, events=(NewEvent("step"),)))

    def _question(self, run: Run, done: int) -> str:
        return f"q-{run.id}-{done}-{self.times.get((run.id, done), 0)}"

    async def _stop(
        self,
        store: UserStore,
        lease: Lease,
        finish: Finish,
        questions: tuple[NewQuestion, ...] = (),
    ) -> None:
        commit = Commit(finish=finish, questions=questions, events=(finish_event(finish),))
        await store.runs.commit(lease, commit)

    async def _do(
        self, store: UserStore, lease: Lease, run: Run, step: Step, done: int
    ) -> Finish | None:
        """Do a step; return how the run stops there, or None if the step is done."""
        key = run.id, done
        match step.what:
            case "work":
                return None
            case "fail":
                return Finish("failed", "error", "It failed.")
            case "delegate":
                return await self._delegate(store, lease, run, step, done)
            case "kill" | "poison":
                if step.what == "poison" or self._first(key, step.count):
                    self.kill(self.process)
                    await Pause(FOREVER)
                return None
            case "ask":
                if not self._first(key, 1):
                    return None
                return Finish("suspended", "awaiting_user", "It asks.")
            case "unavailable":
                return Finish("suspended", "unavailable") if self._first(key, 1) else None
            case "pause":
                if not self._first(key, 1):
                    return None
                self.on_pause(store.user_id, run.id)
                return Finish("suspended", "paused")

    def _first(self, key: tuple[str, int], count: int) -> bool:
        before = self.times.get(key, 0)
        self.times[key] = before + 1
        return before < count

    async def _delegate(
        self, store: UserStore, lease: Lease, run: Run, step: Step, done: int
    ) -> Finish | None:
        names = [f"{run.id}.{done}{number}" for number in range(step.count)]
        there = {one.id: one for one in await store.runs.list(parent_run_id=run.id)}
        later = names[-1] if step.background else ""
        for name in names:
            if name not in there:
                await store.queue.enqueue(self._child(lease, name, background=name == later))
        waits = [name for name in names if name != later]
        if all(name in there and there[name].status not in ACTIVE for name in waits):
            return None
        return Finish("suspended", "awaiting_children")

    def _child(self, lease: Lease, name: str, *, background: bool) -> NewQueuedRun:
        # As the engine marks what any worker may begin.
        placed: dict[str, Any] = {}
        internal: dict[str, Any] = {"delegation": {"background": background, "placed": placed}}
        return NewQueuedRun(
            id=name,
            thread_id=f"t-{name}",
            agent="child",
            program="",
            task="{}",
            spec={},
            internal=internal,
            share="",
            parent=lease,
        )


async def take_and_stop(store: UserStore, run: Run, owner: Any, finish: Finish) -> bool:
    """Take over a run that nobody works on and stop it, as a sweep and a cancel do."""
    try:
        lease = await store.runs.take_lease(
            run.id, owner, seconds=leases.LEASE_SECONDS, replaces=run.epoch, was=run.status
        )
        await store.runs.commit(lease, Commit(finish=finish, events=(finish_event(finish),)))
    except LeaseLost:
        return False
    return True
