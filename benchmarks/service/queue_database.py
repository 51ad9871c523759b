"""What the queue costs the database: transactions, CPU time, and a pick in its server."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

import psutil
import psycopg

from agent_runtime.log import leases
from agent_runtime_storage import Store
from agent_runtime_storage.contract.leases import HeldLease
from agent_runtime_storage.contract.records.queue import PickedRun, QueueLimits
from agent_runtime_storage.store import SqlStore
from benchmarks.cost.scale_plans import Captured, Explainer, Recorder
from benchmarks.proof.cluster.campaign import AGENTS
from tests.support.stores import driver_of

KNOWN = [(AGENTS.program, name, "") for name in AGENTS.names]


@dataclass(frozen=True, slots=True)
class Counted:
    """What a database has done.

    Attributes:
        cpu: seconds, of all processes of its server.
    """

    transactions: int
    cpu: float

    def __sub__(self, before: Counted) -> Counted:
        return Counted(self.transactions - before.transactions, self.cpu - before.cpu)


@dataclass(frozen=True, slots=True)
class PickCost:
    """What a pick is for the server.

    Attributes:
        pages: that its statements read, in the cache or not.
        indexes: that they use.
    """

    milliseconds: float
    pages: int
    indexes: tuple[str, ...]


class Database:
    """A database as its server sees it.

    Args:
        admin: its URL for a login that sees all rows.
        pid: of the server.
    """

    def __init__(self, admin: str, pid: int) -> None:
        self._admin = admin
        self._pid = pid

    async def counted(self) -> Counted:
        """Return what it has done; the server counts with a delay of about a second."""
        async with await psycopg.AsyncConnection.connect(self._admin) as connection:
            cursor = await connection.execute(
                "SELECT sum(xact_commit + xact_rollback)::int8 FROM pg_stat_database"
                " WHERE datname = current_database()"
            )
            row = await cursor.fetchone()
        return Counted(int(row[0]) if row else 0, self._cpu())

    def _cpu(self) -> float:
        server = psutil.Process(self._pid)
        # Those of processes that have ended are among the children's of the server.
        total = sum(server.cpu_times()[:4])
        for child in server.children():
            # One that has ended since is counted by the server the next time.
            with suppress(psutil.NoSuchProcess):
                total += sum(child.cpu_times()[:2])
        return total


async def explain_pick(store: Store, url: str) -> PickCost:
    """Return what a pick of four is for the server, planned as in the store; it is taken back."""
    recorder = Recorder(driver_of(store))
    with suppress(Captured):
        await _pick(SqlStore(cast("Any", recorder)))
    [sent] = recorder.sent
    explainer = Explainer(url)
    try:
        plans = explainer.plans(sent)
    finally:
        explainer.close()
    return PickCost(
        sum(plan.milliseconds for plan in plans),
        sum(plan.pages for plan in plans),
        tuple(dict.fromkeys(name for plan in plans for name in plan.indexes)),
    )


async def picks(store: Store, count: int) -> list[float]:
    """Pick four runs again and again; return the seconds of each, and give the runs back."""
    took: list[float] = []
    held: list[HeldLease] = []
    for _ in range(count):
        began = time.perf_counter()
        picked = await _pick(store)
        took.append(time.perf_counter() - began)
        held += [HeldLease(one.user_id, one.lease.run_id, one.lease.epoch) for one in picked]
    await store.queue.expel(held)
    return took


async def _pick(store: Store) -> list[PickedRun]:
    owner = leases.this_process_owner()
    return await store.queue.pick(4, KNOWN, owner, seconds=3600.0, limits=QueueLimits())
