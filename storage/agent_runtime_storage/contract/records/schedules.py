"""Rows of schedules: runs that are enqueued by the clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from agent_runtime_storage.contract.records.queue import NewQueuedRun

Missed = Literal["skip", "once", "all"]


@dataclass(frozen=True, slots=True)
class NewSchedule:
    """A schedule to store.

    Attributes:
        id: its name; one of an owner's own.
        cron: five fields: minute, hour, day, month, weekday.
        zone: the name of the time zone whose clock they mean.
        missed: what becomes of times that passed without a worker: `skip` them, enqueue `once` for
            all of them, or `all`.
        run: what is enqueued; its id and, without a thread of the schedule, its `thread_id` are
            those of each single run.
        next_at: its next time, in seconds since the epoch.
    """

    id: str
    cron: str
    zone: str
    missed: Missed
    run: NewQueuedRun
    next_at: float


@dataclass(frozen=True, slots=True)
class ScheduleRow:
    """A stored schedule.

    Attributes:
        last_at: when a run was last enqueued.
        now: the database's time when the row was read.
    """

    user_id: str
    id: str
    cron: str
    zone: str
    missed: Missed
    paused: bool
    next_at: float
    last_at: float | None
    run: NewQueuedRun
    created_at: float
    now: float
