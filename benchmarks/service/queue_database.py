"""What the queue costs the database: transactions, CPU time, and the plan of a pick."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, LiteralString, cast

import orjson
import psutil
import psycopg

from agent_runtime.log import leases
from agent_runtime_storage import Store
from agent_runtime_storage.contract.leases import HeldLease
from agent_runtime_storage.contract.records.queue import QueueLimits
from agent_runtime_storage.sql.loader import load_queries
from benchmarks.proof.cluster.campaign import AGENTS, SCHEMA

KNOWN = [(AGENTS.program, name, "") for name in AGENTS.names]
_PLACEHOLDER = re.compile(r"(?<!:):([a-z_]+)")


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
class PickPlan:
    """How the server finds the runs of a pick.

    Attributes:
        rows: that it looked at, in all nodes of the plan.
    """

    milliseconds: float
    rows: int
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

    async def explain_claim(self) -> PickPlan:
        """Return how a pick finds the next runs; nothing of it is kept."""
        values = {
            "claim": "explained", "slots": 4, "known": orjson.dumps(KNOWN).decode(),
            "per_user": None, "per_agent": None, "per_model": None,
        }  # fmt: skip
        sql = _PLACEHOLDER.sub(r"%(\1)s", load_queries("postgres")["queue_claim"])
        query = cast("LiteralString", f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}")
        connecting = psycopg.AsyncConnection.connect(
            self._admin,
            options=f"-c search_path={SCHEMA} -c enable_seqscan=off -c enable_sort=off -c jit=off",
            cursor_factory=psycopg.AsyncClientCursor,
        )
        async with await connecting as connection:
            row = await (await connection.execute(query, values)).fetchone()
            await connection.rollback()
        explained: list[dict[str, Any]] = row[0] if row else []
        [plan] = explained
        nodes = list(_nodes(plan["Plan"]))
        return PickPlan(
            plan["Execution Time"],
            sum(int(node["Actual Rows"] * node["Actual Loops"]) for node in nodes),
            tuple(dict.fromkeys(node["Index Name"] for node in nodes if "Index Name" in node)),
        )


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for below in plan.get("Plans", ()):
        yield from _nodes(below)


async def picks(store: Store, count: int) -> list[float]:
    """Pick four runs again and again; return the seconds of each, and give the runs back."""
    took: list[float] = []
    held: list[HeldLease] = []
    owner = leases.this_process_owner()
    for _ in range(count):
        began = time.perf_counter()
        picked = await store.queue.pick(4, KNOWN, owner, seconds=3600.0, limits=QueueLimits())
        took.append(time.perf_counter() - began)
        held += [HeldLease(one.user_id, one.lease.run_id, one.lease.epoch) for one in picked]
    await store.queue.expel(held)
    return took
