"""Schedules over SQL."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import orjson

from agent_runtime_storage.contract.errors import Conflict, StoreError, StoreInDoubt
from agent_runtime_storage.contract.names import name_problem
from agent_runtime_storage.contract.records.queue import NewQueuedRun
from agent_runtime_storage.contract.records.schedules import NewSchedule, ScheduleRow
from agent_runtime_storage.contract.records.spending import Budget
from agent_runtime_storage.drivers.protocol import (
    BatchMissed,
    Driver,
    Row,
    Statement,
    Value,
)
from agent_runtime_storage.log.queue import SqlQueue, announce_work
from agent_runtime_storage.queries.owner import OwnerScope, encode_json
from agent_runtime_storage.sql.loader import load_queries

_log = logging.getLogger(__name__)


class SqlSchedules:
    """`ScheduleStore` over SQL."""

    def __init__(self, scope: OwnerScope, queue: SqlQueue) -> None:
        self._scope = scope
        self._queue = queue

    async def add(self, schedule: NewSchedule) -> None:
        if problem := name_problem(schedule.id):
            raise StoreError(f"The schedule's name {problem}.", cure="Give it a short name.")
        values: dict[str, Value] = {
            "id": schedule.id,
            "cron": schedule.cron,
            "zone": schedule.zone,
            "missed": schedule.missed,
            "next_at": schedule.next_at,
            "agent": schedule.run.agent,
            "run": encode_json(asdict(schedule.run), "schedule's run"),
        }
        try:
            await self._scope.batch([self._scope.statement("add_schedule", values)])
        except Conflict as error:
            raise Conflict(
                f"There is a schedule {schedule.id!r} already.",
                cure="Choose another name, or remove that one.",
            ) from error
        announce_work(self._scope.driver)

    async def list(self, *, schedule_id: str | None = None, limit: int = 1000) -> list[ScheduleRow]:
        rows = await self._scope.read("schedules_of_user", id=schedule_id, limit=max(limit, 0))
        return [_to_schedule(row) for row in rows]

    async def pause(self, schedule_id: str, *, paused: bool, next_at: float) -> bool:
        values: dict[str, Value] = {"id": schedule_id, "paused": int(paused), "next_at": next_at}
        return await self._change("pause_schedule", values)

    async def remove(self, schedule_id: str) -> bool:
        return await self._change("remove_schedule", {"id": schedule_id})

    async def start(
        self, schedule: ScheduleRow, runs: Sequence[NewQueuedRun], *, next_at: float
    ) -> bool:
        # A clock that was set back, or a schedule that was resumed, can come to a time again.
        runs = [run for run in runs if not await self._scope.read("run_exists", run_id=run.id)]
        values: dict[str, Value] = {
            "id": schedule.id,
            "was": schedule.next_at,
            "next_at": next_at,
            # Of ticks that are skipped none was started.
            "last_at": schedule.now if runs else None,
        }
        batch = [self._scope.statement("advance_schedule", values, rows=1, miss="schedule")]
        batch += await self._queue.statements_of(runs)
        try:
            await self._scope.batch(batch, threads=[run.thread_id for run in runs])
        except (BatchMissed, Conflict) as error:
            if isinstance(error, BatchMissed) and error.label == "schedule":
                return False
            raise Conflict(
                f"The schedule {schedule.id!r} cannot enqueue its run.",
                cure="Its thread may be in the course of being deleted or imported.",
            ) from error
        except StoreInDoubt:
            # If it was written, the next look finds another time.
            return False
        announce_work(self._scope.driver)
        return True

    async def _change(self, name: str, values: dict[str, Value]) -> bool:
        try:
            await self._scope.batch([self._scope.statement(name, values, rows=1)])
        except BatchMissed:
            return False
        return True


class SqlDueSchedules:
    """`DueSchedules` over SQL."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._sql = load_queries(driver.dialect)

    async def now(self) -> float:
        [(now,)] = await self._driver.read(self._sql["schedules_now"], {}, owner=None)
        return float(now)

    async def due(self, *, limit: int = 100) -> list[ScheduleRow]:
        due = Statement(self._sql["schedules_due"], {"limit": limit})
        rows = await self._driver.read(due.sql, due.params, owner=None)
        found: list[ScheduleRow] = []
        for row in rows:
            try:
                found.append(_to_schedule(row))
            except (TypeError, ValueError, LookupError) as error:
                # Of another version, for example: those of other owners are due as well.
                _log.warning("A schedule cannot be read: %s", type(error).__name__)
        return found


def _to_schedule(row: Row) -> ScheduleRow:
    user_id, name, cron, zone, missed, paused, next_at, last_at, run, created_at, now = row
    stored: dict[str, Any] = orjson.loads(run)
    budget = Budget(**stored.pop("budget"))
    return ScheduleRow(
        user_id, name, cron, zone, missed, bool(paused), float(next_at), last_at,
        NewQueuedRun(**stored, budget=budget), float(created_at), float(now),
    )  # fmt: skip
