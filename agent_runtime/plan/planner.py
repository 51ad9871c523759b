"""Plans in the store: read on a branch, changed by the run that holds the thread."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import anyio

from agent_runtime.errors import ConfigError, CorruptThread
from agent_runtime.log.run_log import RunLog
from agent_runtime.messages import ItemStatus, Plan, decode_result
from agent_runtime.plan.model import (
    Followed,
    decode_plan,
    encode_plan,
    mark_item,
    stop_following,
    update_following,
)
from agent_runtime_storage.contract.records.log import Commit, NewEvent
from agent_runtime_storage.contract.records.plans import NewPlan, PlanRow
from agent_runtime_storage.contract.store import Store, UserStore

PLAN = "plan"
"""The name of the tool, and the kind of the event."""
# Versions: far more than any run makes.
_ALL = 10_000


class ThreadPlans:
    """Reads the plans of threads: `Runtime.plans`.

    Args:
        user: the default owner.
    """

    def __init__(self, store: Store, *, user: str) -> None:
        self._store = store
        self._user = user

    async def current(self, thread: str, *, user: str | None = None) -> Plan | None:
        """Return the plan at the head of the thread's branch, or None.

        While a run is active, changes by its open exchange are included.

        Raises:
            NotFound: this owner has no such thread.
        """
        store = self._store.of(user or self._user)
        head = await _newest(store, thread)
        return None if head is None else await plan_at(store, thread, head)

    async def versions(
        self, thread: str, *, user: str | None = None, limit: int = 100
    ) -> list[Plan]:
        """Return the versions of the plan on the thread's branch, the newest first.

        Raises:
            NotFound: this owner has no such thread.
        """
        store = self._store.of(user or self._user)
        head = await _newest(store, thread)
        rows = [] if head is None else await store.log.plans(thread, head, limit=limit)
        return [await _read(store, thread, row) for row in rows]


class Planner:
    """Reads and changes the plan of one run's thread, one change at a time.

    Each change commits a new version under the run's lease.
    """

    def __init__(self, log: RunLog) -> None:
        self._log = log
        # Calls of one answer run in parallel; each change builds on the version before.
        self._turn = anyio.Lock()

    async def current(self) -> Plan | None:
        """Return the plan of the run's branch, or None."""
        log = self._log
        head = log.exchange.seq if log.exchange is not None else log.head
        thread = log.lease.thread_id
        return None if head is None else await plan_at(log.store, thread, head)

    async def change(
        self,
        call_id: str,
        change: Callable[[Plan | None, int], Plan | None],
        *,
        from_scratch: bool = False,
    ) -> Plan | None:
        """Change the plan by a call of the open exchange; return the new version.

        Args:
            call_id: a call that already made a version returns that one, so it may run again after
                a crash; empty for a change that may be repeated.
            change: makes the new plan from the current one and the number of other calls in the
                message; None, or an equal plan, changes nothing.  Its errors are passed on.
            from_scratch: do not read the current plan; `change` gets None for it.

        Raises:
            LeaseLost: another process took the run over; nothing was written.
            CorruptThread: the current plan cannot be read.
            ConfigError: no exchange is open.
        """
        log, thread = self._log, self._log.lease.thread_id
        async with self._turn:
            if log.exchange is None:
                raise ConfigError(
                    "A plan can only be changed during a tool call.",
                    cure="Change plans inside of a tool that an agent calls.",
                )
            seq = log.exchange.seq
            row = await log.store.log.plan(thread, seq)
            if call_id and (made := await self._made(call_id, row, seq)) is not None:
                return made
            old = None if row is None or from_scratch else await self._before(row, seq)
            new = change(old, sum(one.name != PLAN for one in log.exchange.message.calls))
            # A version that changes nothing would only look like progress.
            if new is None or new == old:
                return old
            return await self._write(new, seq, call_id)

    async def mark(self, identity: str, status: ItemStatus, result: str = "") -> bool:
        """Set the observed status of an item; return whether the plan has the item.

        Does nothing without a plan, without the item, and outside of a tool call.
        """
        if self._log.exchange is None:
            return False

        def marked(plan: Plan | None, others: int) -> Plan | None:
            del others
            return plan and mark_item(plan, identity, status, result)

        plan = await self.change("", marked)
        return plan is not None and plan.item(identity) is not None

    async def _before(self, row: PlanRow, seq: int) -> Plan:
        thread = self._log.lease.thread_id
        if row.node_id == seq:
            # Made by another call of this exchange: items that follow its calls still do.
            return _decode(thread, row)
        return stop_following(await _read(self._log.store, thread, row))

    async def _made(self, call_id: str, newest: PlanRow | None, seq: int) -> Plan | None:
        """Return the version that a call of the open exchange already made."""
        if newest is None or newest.node_id != seq:
            return None
        thread = self._log.lease.thread_id
        rows = await self._log.store.log.plans(thread, seq, first=seq, limit=_ALL)
        made = [row for row in rows if row.call_id == call_id]
        return _decode(thread, made[0]) if made else None

    async def _write(self, plan: Plan, seq: int, call_id: str) -> Plan:
        log = self._log
        # Of all branches: versions count through the thread.
        version = 1 + await log.store.log.last_plan_id(log.lease.thread_id)
        row = NewPlan(version, seq, call_id, encode_plan(plan))
        data = {
            "version": version,
            "phase": plan.phase,
            "iteration": plan.iteration,
            **plan.counts,
        }
        followed = [one.id for one in log.open_exchange().message.calls if one.name != PLAN]
        # Decoded again, so that listeners get what readers of the store get.
        stored = decode_plan(row.body, version=version, node_id=seq, created_at=0.0)
        await log.write(
            Commit(plan=row, events=(NewEvent(PLAN, seq, data),)),
            live={0: {"plan": stored, "followed": followed}},
        )
        return stored


async def plan_at(store: UserStore, thread_id: str, head: int) -> Plan | None:
    """Return the plan of the branch that ends at a node, or None.

    Raises:
        CorruptThread: its row holds no plan.
    """
    row = await store.log.plan(thread_id, head)
    return None if row is None else await _read(store, thread_id, row)


async def last_moved(store: UserStore, thread_id: str, head: int) -> tuple[Plan, int] | None:
    """Return the plan at an open exchange, and the node of its last progress.

    Progress is a version in which an item has another status, result or description than in the
    version before.  None if the branch has no plan.

    Raises:
        CorruptThread: a version cannot be read.
    """
    plans: list[Plan] = []
    for limit in (2, _ALL):
        # Two suffice nearly always, because most versions change an item.
        rows = await store.log.plans(thread_id, head, limit=limit)
        plans = [await _read(store, thread_id, row) for row in rows]
        for new, old in pairwise(plans):
            # Such an item counts as moving: its status changes when the open calls end.
            followed = new.node_id == head and any(one.follows for one in new.items)
            if followed or _progress(new) != _progress(old):
                return plans[0], new.node_id
        if len(rows) < limit:
            break
    return (plans[0], plans[-1].node_id) if plans else None


def _progress(plan: Plan) -> list[tuple[str, str, str, str]]:
    return [(one.id, one.status, one.result, one.description) for one in plan.items]


async def _newest(store: UserStore, thread_id: str) -> int | None:
    """Return the open exchange of the thread's active run, or else its head."""
    thread = await store.threads.get(thread_id)
    if thread.active_run is not None:
        run = await store.runs.get(thread.active_run)
        if run.open_node is not None:
            return run.open_node
    return thread.head


async def _read(store: UserStore, thread_id: str, row: PlanRow) -> Plan:
    """Return a version, with the current status of the items that follow calls."""
    plan = _decode(thread_id, row)
    if not any(one.follows for one in plan.items):
        return plan
    node = await store.log.node(thread_id, row.node_id)
    calls: list[Followed] = []
    for call in node.calls:
        if call.tool != PLAN:
            ok = call.outcome in (None, "ok")
            error = "" if ok else decode_result(call.body).text
            calls.append(Followed(call.tool, call.outcome, error))
    return update_following(plan, calls)


def _decode(thread_id: str, row: PlanRow) -> Plan:
    try:
        return decode_plan(row.body, version=row.id, node_id=row.node_id, created_at=row.created_at)
    except ValueError as error:
        raise CorruptThread(
            f"Version {row.id} of the plan of thread {thread_id} cannot be read.",
            cure="Restore the database from a backup, or have the agent create a new plan.",
        ) from error
