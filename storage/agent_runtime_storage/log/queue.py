"""The queue of runs over SQL."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import fields
from typing import Any

import orjson

from agent_runtime_storage.contract.errors import (
    Conflict,
    LeaseLost,
    RunCancelled,
    StoreError,
    StoreInDoubt,
)
from agent_runtime_storage.contract.leases import HeldLease
from agent_runtime_storage.contract.names import name_problem
from agent_runtime_storage.contract.records.log import Finish, Lease, LeaseOwner, NewEvent
from agent_runtime_storage.contract.records.queue import (
    NewQueuedRun,
    PickedRun,
    QueueLimits,
    QueueRow,
    QueueState,
)
from agent_runtime_storage.contract.records.spending import Budget
from agent_runtime_storage.drivers.protocol import (
    BatchMissed,
    ConstraintFailed,
    Driver,
    Joining,
    Row,
    Statement,
    Value,
)
from agent_runtime_storage.drivers.signals import WORK, SignalListener
from agent_runtime_storage.log.run_statements import RunStatements
from agent_runtime_storage.queries.owner import OwnerScope, encode_json
from agent_runtime_storage.queries.run_spec import whole_spec
from agent_runtime_storage.sql.loader import load_queries

_LIMITED = "queue limits"


class SqlQueue:
    """`QueueStore` over SQL."""

    def __init__(self, scope: OwnerScope, statements: RunStatements) -> None:
        self._scope = scope
        self._statements = statements

    async def enqueue(self, run: NewQueuedRun, *, connection: Any = None) -> None:
        for what, identity in (("run", run.id), ("thread", run.thread_id)):
            if problem := name_problem(identity):
                raise StoreError(f"The {what}'s id {problem}.", cure=f"Give the {what} a short id.")
        batch = self._enqueuing(run, await self._floor())
        try:
            if connection is not None:
                await self._join(connection, run, batch)
                return
            tree = run.parent and run.parent.root_run_id
            await self._scope.batch(batch, thread=run.thread_id, tree=tree)
        except StoreInDoubt:
            # The run's id is new, so only this batch can have written it.
            if not await self._scope.read("run_exists", run_id=run.id):
                raise
        except BatchMissed as error:
            if error.label == "parent" and run.parent is not None:
                raise await self._why_no_child(run.parent) from error
            raise Conflict(
                f"Thread {run.thread_id} is being imported or deleted.",
                cure="Wait until that is done, or use another thread.",
            ) from error
        announce_work(self._scope.driver)

    async def _why_no_child(self, parent: Lease) -> Exception:
        rows = await self._scope.read("poll", run_id=parent.run_id, epoch=parent.epoch)
        if not rows:
            return LeaseLost(
                f"Run {parent.run_id} was taken over by another process, or is over.",
                cure="Do not write for it any more.",
            )
        return RunCancelled(
            f"Run {parent.run_id} is being cancelled; it starts no child runs.",
            cure="Resume it first.",
        )

    async def statements_of(self, runs: Sequence[NewQueuedRun]) -> list[Statement]:
        """Return what enqueues runs as a part of another batch."""
        floor = await self._floor()
        return [one for run in runs for one in self._enqueuing(run, floor)]

    async def _join(self, connection: Any, run: NewQueuedRun, batch: Sequence[Statement]) -> None:
        driver = self._scope.driver
        if not isinstance(driver, Joining):
            raise StoreError(
                "Only Postgres lets a run join a caller's transaction.",
                cure="Leave `connection` out, or use a database of Postgres.",
            )
        locks = [f"thread {run.thread_id}"]
        try:
            await driver.join(connection, batch, owner=self._scope.user_id, locks=locks)
        except ConstraintFailed as error:
            raise Conflict(
                f"The run cannot be enqueued: {error}.", cure="Give it another id."
            ) from error

    def _enqueuing(self, run: NewQueuedRun, floor: float) -> list[Statement]:
        thread: dict[str, Value] = {
            "thread_id": run.thread_id,
            "title": run.title,
            "metadata": encode_json(run.metadata, "thread's metadata"),
        }
        # A tree has one budget, on its root.
        parent, budget = run.parent, run.budget if run.parent is None else Budget()
        values: dict[str, Value] = {
            "run_id": run.id,
            "thread_id": run.thread_id,
            "parent_run_id": parent and parent.run_id,
            "root_run_id": parent.root_run_id if parent else run.id,
            "agent": run.agent,
            "spec": encode_json(whole_spec(run.spec, run.internal), "run's spec"),
            "budget_tokens": budget.tokens,
            "budget_cost": budget.cost,
        }
        place: dict[str, Value] = {
            "run_id": run.id,
            "thread_id": run.thread_id,
            "program": run.program,
            "agent": run.agent,
            "version": run.version,
            "model": run.model,
            "share": run.share,
            "floor": floor,
            "step": run.step,
            "due_at": run.due_at,
            "task": run.task,
        }
        begun = [
            self._scope.statement("create_thread", thread),
            self._scope.statement("enqueue_run", values, rows=1),
        ]
        if parent is None:
            return [*begun, self._scope.statement("enqueue", place, rows=1, miss="thread")]
        above: dict[str, Value] = {"parent_run_id": parent.run_id}
        held = {**above, "epoch": parent.epoch}
        behind = {**above, "run_id": run.id, "thread_id": run.thread_id, "model": run.model}
        behind["task"] = run.task
        return [
            self._scope.statement("hold_parent", held, rows=1, miss="parent"),
            *begun,
            self._scope.statement("enqueue_child", behind, rows=1, miss="thread"),
        ]

    async def _floor(self) -> float:
        # Over all owners.  Read before the batch, because a turn need not be exact.
        driver = self._scope.driver
        [(floor,)] = await driver.read(self._scope.sql["queue_floor"], {}, owner=None)
        return float(floor)

    async def withdraw(self, run_id: str, finish: Finish, event: NewEvent) -> bool:
        rows = await self._scope.read("run_place", run_id=run_id)
        if not rows:
            return False
        thread_id, root = map(str, rows[0])
        counts: dict[str, Value] = {
            "thread_id": thread_id, "nodes": 0, "activations": 0, "events": 1, "usage": 0,
            "expect_seq": None, "expect_activation": None,
        }  # fmt: skip
        batch = [
            self._scope.statement("withdraw_queued", {"run_id": run_id}, rows=1),
            self._scope.statement("commit_thread", counts, rows=1),
            *self._statements.append_events(thread_id, run_id, [event]),
            *self._statements.leave_queue(run_id, thread_id, finish),
        ]
        try:
            rows = await self._scope.batch(batch, thread=thread_id, tree=root)
        except BatchMissed:
            return False
        # The end of a child may be what its parent waits for.
        if root != run_id:
            announce_work(self._scope.driver)
        self._scope.announce(thread_id, lambda: self._statements.appended(thread_id, batch, rows))
        return True

    async def list(
        self, *, run_id: str | None = None, state: QueueState | None = None, limit: int = 100
    ) -> list[QueueRow]:
        rows = await self._scope.read(
            "queue_of_user", run_id=run_id, state=state, limit=max(limit, 0)
        )
        return [QueueRow(*row) for row in rows]

    async def wake(self, run_id: str, cause: str) -> bool:
        values: dict[str, Value] = {"run_id": run_id, "cause": cause, "floor": await self._floor()}
        return await self._change("queue_wake", values)

    async def postpone(self, run_id: str, seconds: float, cause: str) -> None:
        values: dict[str, Value] = {"run_id": run_id, "seconds": seconds, "cause": cause}
        await self._change("queue_postpone", values)

    async def drop(self, run_id: str) -> bool:
        return await self._change("queue_drop", {"run_id": run_id})

    async def _change(self, name: str, values: Mapping[str, Value]) -> bool:
        try:
            await self._scope.batch([self._scope.statement(name, values, rows=1)])
        except BatchMissed:
            return False
        announce_work(self._scope.driver)
        return True


class SqlWorkQueue:
    """`WorkQueue` over SQL.  It works over all owners."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._sql = load_queries(driver.dialect)

    async def pick(
        self,
        slots: int,
        known: Sequence[tuple[str, str, str]],
        owner: LeaseOwner,
        *,
        seconds: float,
        limits: QueueLimits,
    ) -> list[PickedRun]:
        claim = secrets.token_hex(16)
        limited = _values_of(limits)
        named: dict[str, Value] = {"claim": claim}
        claimed: dict[str, Value] = {
            **named, **limited, "slots": slots, "known": orjson.dumps(known).decode(),
            "instance": owner.instance,
        }  # fmt: skip
        taken: dict[str, Value] = {**named, **_values_of(owner), "seconds": seconds}
        # Concurrent picks do not see what the others take, so those with limits queue up.
        is_limited = limits != QueueLimits()
        batch = [
            self._statement("queue_in_order", {}),
            self._statement("queue_ripen", {}),
            self._statement("queue_lost", named),
            self._statement("queue_lost_workers", named),
            self._statement("queue_forget_workers", {}),
            self._statement("queue_blame", named),
            self._statement("queue_revoke", named),
            self._statement("queue_expire", named),
            self._statement("queue_claim_suspect", claimed),
            self._statement("queue_claim", claimed),
            *([self._statement("queue_trim", {**named, **limited})] if is_limited else ()),
            self._statement("queue_take_threads", named),
            self._statement("queue_take_runs", taken),
            self._statement("queue_unclaim", named),
            self._statement("queue_claimed", named),
        ]
        try:
            locks = [_LIMITED] if is_limited else ()
            *_, rows = await self._driver.batch(batch, owner=None, locks=locks)
        except StoreInDoubt:
            # The claim is this batch's alone.
            rows = await self._driver.read(self._sql["queue_claimed"], named, owner=None)
        return [_to_picked(row) for row in rows]

    async def list(self, *, state: QueueState | None = None, limit: int = 100) -> list[QueueRow]:
        values: dict[str, Value] = {"state": state, "limit": max(limit, 0)}
        rows = await self._driver.read(self._sql["queue_of_all"], values, owner=None)
        return [QueueRow(*row) for row in rows]

    async def owners(self, here: LeaseOwner) -> list[tuple[HeldLease, LeaseOwner]]:
        values: dict[str, Value] = {
            "host": here.host, "machine": here.machine, "instance": here.instance,
        }  # fmt: skip
        rows = await self._driver.read(self._sql["queue_owners"], values, owner=None)
        return [(HeldLease(*row[:3]), LeaseOwner(*row[3:])) for row in rows]

    async def expel(self, leases: Iterable[HeldLease]) -> None:
        values: dict[str, Value] = {"leases": orjson.dumps([list(one) for one in leases]).decode()}
        await self._driver.batch(
            [self._statement("queue_expel", values)], owner=None, repeatable=True
        )

    def wake(self) -> None:
        announce_work(self._driver)

    def listening(self) -> AbstractContextManager[SignalListener]:
        return self._driver.signals.listen(WORK)

    def _statement(self, name: str, values: Mapping[str, Value]) -> Statement:
        return Statement(self._sql[name], values)


def _values_of(record: LeaseOwner | QueueLimits) -> dict[str, Value]:
    # Unlike `asdict` without a copy of each value, because idle workers pick all the time.
    return {one.name: getattr(record, one.name) for one in fields(record)}


def announce_work(driver: Driver) -> None:
    """Say that there may be work, to a worker or to all of them."""
    driver.signals.announce(WORK)


def _to_picked(row: Row) -> PickedRun:
    user_id, run_id, thread_id, root, epoch, takeovers, task, blame, others = row
    lease = Lease(run_id, thread_id, root, int(epoch), queued=True)
    return PickedRun(user_id, lease, int(takeovers), task, float(blame), int(others))
