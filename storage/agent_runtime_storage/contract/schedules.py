"""Schedules: runs that are enqueued by the clock, once for each of their times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from agent_runtime_storage.contract.records.queue import NewQueuedRun
from agent_runtime_storage.contract.records.schedules import NewSchedule, ScheduleRow


class ScheduleStore(Protocol):
    """The schedules of one owner."""

    async def add(self, schedule: NewSchedule) -> None:
        """Store a schedule.

        Raises:
            Conflict: the owner has one of this id.
        """
        ...

    async def list(self, *, schedule_id: str | None = None, limit: int = 1000) -> list[ScheduleRow]:
        """Return the owner's schedules by their ids, or the one of an id."""
        ...

    async def pause(self, schedule_id: str, *, paused: bool, next_at: float) -> bool:
        """Pause a schedule, or let it go on at its next time; return False if there is none."""
        ...

    async def remove(self, schedule_id: str) -> bool:
        """Remove a schedule; its runs stay. Return False if there is none."""
        ...

    async def start(
        self, schedule: ScheduleRow, runs: Sequence[NewQueuedRun], *, next_at: float
    ) -> bool:
        """Enqueue the runs of a due schedule and set its next time, in one transaction.

        Returns:
            Whether this call did; False if another process was faster, or the schedule has changed.
        """
        ...


class DueSchedules(Protocol):
    """The schedules of all owners, for workers."""

    async def now(self) -> float:
        """Return the time by the database's clock, which decides what is due."""
        ...

    async def due(self, *, limit: int = 100) -> list[ScheduleRow]:
        """Return schedules whose time has come, by the database's clock; the oldest first."""
        ...
