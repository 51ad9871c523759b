"""Schedules: runs that workers enqueue by the clock, once for each of their times."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from itertools import islice, takewhile
from typing import Any
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from agent_runtime.agent import Runnable
from agent_runtime.errors import AgentRuntimeError, ConfigError, NotFound, StoreUnavailable
from agent_runtime.messages import UserMessage
from agent_runtime.run.queue.enqueue import Agents, QueueRequest, new_queued_run
from agent_runtime_config import Settings
from agent_runtime_storage import Store, UserStore
from agent_runtime_storage.contract.records.queue import NewQueuedRun
from agent_runtime_storage.contract.records.schedules import Missed, NewSchedule, ScheduleRow

LATE_SECONDS = 60.0
"""From here on a time counts as missed."""
RETRY_SECONDS = 60.0
"""How long a schedule is put off that cannot start."""
MOST_MISSED = 100
"""How many of the times that a schedule missed are started at most: the newest."""
MOST_CHARS = 1000
"""Of the times of a schedule: each worker reads them again whenever it comes due."""
# The namespace of the ids of scheduled runs.  Never change it: two workers of different versions
# would enqueue one time twice.
_RUNS = uuid.UUID("5e0ad3f6-7f0a-4e0e-9f3c-1d7f52f0c6a4")

_log = logging.getLogger(__name__)


class RunSchedules:
    """The schedules of a database. Use `Runtime.schedules`."""

    def __init__(self, store: Store, settings: Settings, program: str) -> None:
        self._store = store
        self._settings = settings
        self._program = program

    async def add(
        self,
        name: str,
        cron: str,
        agent: Runnable[Any],
        task: str | UserMessage,
        *,
        zone: str = "UTC",
        missed: Missed = "once",
        app: Agents | None = None,
        thread: str | None = None,
        user: str | None = None,
        priority: float = 1.0,
        share: str | None = None,
        spec: Mapping[str, Any] | None = None,
        user_context: Mapping[str, Any] | None = None,
    ) -> ScheduleRow:
        """Let workers enqueue a task by the clock; the other arguments are those of `enqueue`.

        Args:
            name: of the schedule, one of the user's own.
            cron: five fields: minute, hour, day, month, weekday, such as `0 9 * * MON-FRI`.
            zone: whose clock `cron` means, such as `Europe/Berlin`.  A time in an hour that the
                clock leaves out comes right after it; one in an hour that comes twice comes once,
                unless it is one of every hour.
            missed: what becomes of times that no worker saw within a minute: `skip` them, start
                `once` for all of them, or start `all`, of which the newest hundred.
            thread: on which all runs continue; None for a new one each time.

        Raises:
            ConfigError: the times, the zone, or another argument cannot be used.
            Conflict: the user has a schedule of this name.
        """
        # The clocks of machines differ; the database's decides when a time has come.
        next_at = next_time(cron, zone, await self._store.schedules.now())
        request = QueueRequest(
            agent=agent,
            task=task,
            program=self._program if app is None else app.program,
            version="" if app is None else app.versions[0],
            thread=thread,
            priority=priority,
            share=share,
            spec=spec or {},
            user_context=user_context,
        )
        store = self._of(user)
        run = await new_queued_run(store, self._settings, request)
        # A template: each time of the schedule gives the run its own id, and a thread if it has
        # none.
        run = replace(run, id="", thread_id=thread or "")
        await store.schedules.add(NewSchedule(name, cron, zone, missed, run, next_at))
        return await self._row(store, name)

    async def list(self, *, user: str | None = None, limit: int = 1000) -> list[ScheduleRow]:
        """Return a user's schedules by their names."""
        return await self._of(user).schedules.list(limit=limit)

    async def pause(self, name: str, *, user: str | None = None) -> None:
        """Start no more runs of a schedule until it is resumed. Raises `NotFound`."""
        store = self._of(user)
        row = await self._row(store, name)
        await store.schedules.pause(name, paused=True, next_at=row.next_at)

    async def resume(self, name: str, *, user: str | None = None) -> None:
        """Let a paused schedule go on; what it missed is not made up. Raises `NotFound`."""
        store = self._of(user)
        row = await self._row(store, name)
        next_at = next_time(row.cron, row.zone, row.now)
        await store.schedules.pause(name, paused=False, next_at=next_at)

    async def remove(self, name: str, *, user: str | None = None) -> None:
        """Remove a schedule; its runs stay. Raises `NotFound`."""
        if not await self._of(user).schedules.remove(name):
            raise _missing(name)

    def _of(self, user: str | None) -> UserStore:
        return self._store.of(user or self._settings.user)

    async def _row(self, store: UserStore, name: str) -> ScheduleRow:
        # An owner may have more of them than a list holds.
        for row in await store.schedules.list(schedule_id=name):
            return row
        raise _missing(name)


async def start_due(store: Store) -> int:
    """Enqueue the runs of all schedules whose time has come; return how many.

    One that cannot start is tried again a minute later.  Raises `StoreUnavailable`.
    """
    count = 0
    for row in await store.schedules.due():
        schedules = store.of(row.user_id).schedules
        try:
            runs = [_run_at(row, tick) for tick in due_times(row)]
            next_at = next_time(row.cron, row.zone, row.now)
            if await schedules.start(row, runs, next_at=next_at):
                count += len(runs)
        # Every other schedule would fail the same way.
        except StoreUnavailable:
            raise
        except Exception as error:
            _log.warning("A schedule could not start: %s", type(error).__name__)
            # Otherwise it would stay before those of other owners, which are due as well.
            with suppress(AgentRuntimeError):
                await schedules.start(row, [], next_at=row.now + RETRY_SECONDS)
    return count


def next_time(cron: str, zone: str, after: float) -> float:
    """Return a schedule's next time, in seconds since the epoch.

    Raises:
        ConfigError: there is none, or the zone is unknown.
    """
    begin = datetime.fromtimestamp(after, _zone(zone))
    for found in _times(cron, begin):
        return found.timestamp()
    raise ConfigError(f"The times {cron!r} never come.", cure="Check the day and the month.")


def due_times(row: ScheduleRow) -> list[float]:
    """Return for which times a due schedule starts runs now, the oldest first."""
    # The second after, because the search goes on before its beginning.
    begin = datetime.fromtimestamp(int(row.now) + 1, _zone(row.zone))
    passed = (found.timestamp() for found in _times(row.cron, begin, reverse=True))
    known = takewhile(lambda at: at >= row.next_at, passed)
    times = [*islice(known, MOST_MISSED if row.missed == "all" else 1)][::-1]
    # The rules of the zone may have changed since the time was computed.
    times = times or [row.next_at]
    if row.missed == "skip":
        return [at for at in times if row.now - at < LATE_SECONDS]
    return times


def _times(cron: str, begin: datetime, *, reverse: bool = False) -> CronSim:
    if len(cron) > MOST_CHARS:
        raise ConfigError(
            f"The times have {len(cron):,} characters, and {MOST_CHARS} are the most.",
            cure="Use several schedules.",
        )
    try:
        if len(cron.split()) != 5:
            raise CronSimError("There are not five fields")
        return CronSim(cron, begin, reverse=reverse)
    except CronSimError as error:
        raise ConfigError(
            f"The times {cron!r} cannot be read: {error}.",
            cure="Give minute, hour, day, month and weekday, such as `0 9 * * MON-FRI`.",
        ) from None


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, LookupError):
        raise ConfigError(
            f"There is no time zone {name[:100]!r}.",
            cure="Name one such as `Europe/Berlin` or `UTC`.",
        ) from None


def _run_at(row: ScheduleRow, tick: float) -> NewQueuedRun:
    """Return the run of one time; its id is that time's own, so it cannot be enqueued twice."""
    named = uuid.uuid5(_RUNS, f"{row.created_at}\n{row.user_id}\n{row.id}\n{tick}")
    run_id = str(named)
    return replace(row.run, id=run_id, thread_id=row.run.thread_id or run_id)


def _missing(name: str) -> NotFound:
    return NotFound(
        f"This user has no schedule {name!r}.", cure="Look at `agent-runtime schedules list`."
    )
