"""Schedules: one start for each time, whoever looks; missed times; clocks that are changed."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

import anyio
import pytest

from agent_runtime import Agent, App, Runtime, ScriptedModel, Settings
from agent_runtime.errors import ConfigError, Conflict, NotFound
from agent_runtime.models.scripted import say
from agent_runtime.run.queue.schedules import due_times, next_time, start_due
from agent_runtime_storage.contract.records.queue import NewQueuedRun
from agent_runtime_storage.contract.records.schedules import Missed, NewSchedule, ScheduleRow
from tests.run.process.test_queue import working

BERLIN = ZoneInfo("Europe/Berlin")


@pytest.fixture
def settings(database_url: str) -> Settings:
    """Settings with the test's own database."""
    return Settings(database_url=database_url, observational_memory=False)


def row_of(cron: str, missed: Missed, next_at: datetime, now: datetime) -> ScheduleRow:
    """Return a schedule in Berlin as the database would give it."""
    run = NewQueuedRun("", "", "agent", "", "{}", {}, "ann")
    at, read = next_at.timestamp(), now.timestamp()
    return ScheduleRow(
        "ann", "s", cron, "Europe/Berlin", missed, False, at, None, run, 0, read
    )  # fmt: skip


def shown(times: list[float]) -> list[str]:
    """Return times by Berlin's clock."""
    return [datetime.fromtimestamp(at, BERLIN).strftime("%m-%d %H:%M %Z") for at in times]


def following(cron: str, begin: datetime, count: int) -> list[str]:
    """Return the next times after one."""
    times = [begin.timestamp()]
    for _ in range(count):
        times.append(next_time(cron, "Europe/Berlin", times[-1]))
    return shown(times[1:])


def test_hours_that_the_clock_leaves_out_or_repeats() -> None:
    spring = datetime(2026, 3, 29, tzinfo=BERLIN)
    assert following("30 2 * * *", spring, 2) == ["03-29 03:00 CEST", "03-30 02:30 CEST"]
    assert following("15 * * * *", spring, 3) == [
        "03-29 00:15 CET", "03-29 01:15 CET", "03-29 03:15 CEST",
    ]  # fmt: skip
    autumn = datetime(2026, 10, 25, tzinfo=BERLIN)
    assert following("30 2 * * *", autumn, 2) == ["10-25 02:30 CEST", "10-26 02:30 CET"]
    assert following("15 2-3 * * *", autumn, 2) == ["10-25 02:15 CEST", "10-25 03:15 CET"]
    assert following("15 * * * *", autumn + timedelta(hours=1), 3) == [
        "10-25 01:15 CEST", "10-25 02:15 CEST", "10-25 02:15 CET",
    ]  # fmt: skip
    # All of them are made up, also over the change.
    row = row_of("15 * * * *", "all", autumn.replace(hour=1, minute=15), autumn.replace(hour=4))
    assert shown(due_times(row)) == [
        "10-25 01:15 CEST", "10-25 02:15 CEST", "10-25 02:15 CET", "10-25 03:15 CET",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("missed", "minutes_late", "count"),
    [("skip", 0, 1), ("skip", 5, 0), ("once", 3000, 1), ("all", 3, 4), ("all", 3000, 100)],
)
def test_what_becomes_of_missed_times(missed: Missed, minutes_late: int, count: int) -> None:
    due = datetime(2026, 6, 1, 9, tzinfo=BERLIN)
    now = due + timedelta(minutes=minutes_late, seconds=0.5)
    cron = "* * * * *" if minutes_late != 5 else "0 9 * * *"
    times = due_times(row_of(cron, missed, due, now))
    assert len(times) == count
    assert all(at <= now.timestamp() for at in times)
    if times:
        assert now.timestamp() - times[-1] < 60


async def test_many_workers_start_each_time_once(settings: Settings) -> None:
    app = App(agents={"helper": Agent(ScriptedModel([say("News.")] * 9))})
    async with Runtime.open(settings) as runtime, Runtime.open(settings) as second:
        schedules, store = runtime.schedules, runtime.store_of()
        added = await schedules.add(
            "news", "* * * * *", app.named("helper"), "What is new?", app=app, missed="all"
        )
        assert added.next_at - datetime.now(UTC).timestamp() <= 60
        assert await start_due(runtime.store) == 0
        # Three minutes have passed without a worker.
        assert await store.schedules.pause("news", paused=False, next_at=added.next_at - 240)

        started = list[int]()

        async def look(one: Runtime) -> None:
            started.append(await start_due(one.store))

        async with anyio.create_task_group() as group:
            for one in (runtime, second) * 4:
                group.start_soon(look, one)
        [row] = await schedules.list()
        queued = await runtime.queue.list()
        assert sum(started) == len(queued) == len({one.run_id for one in queued}) >= 3
        assert row.next_at > row.now and row.last_at is not None

        async with working(runtime, app), working(second, app):
            with anyio.fail_after(60):
                while await runtime.queue.list():  # noqa: ASYNC110
                    await anyio.sleep(0.02)
        run = await store.runs.get(queued[0].run_id)
        [task, answer] = await runtime.threads.messages(run.thread_id)
        assert (task.text, answer.text) == ("What is new?", "News.")

        # One that read it earlier comes too late.
        stale = replace(row, next_at=added.next_at - 240)
        assert not await store.schedules.start(stale, [], next_at=0.0)


@pytest.mark.backends("file", "postgres")
@pytest.mark.parametrize("hours", [1, -1])
async def test_the_clock_of_the_database_decides_when_a_schedule_begins(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    class Wrong(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Wrong:
            return cls.fromtimestamp(time.time() + hours * 3600, tz)

    monkeypatch.setattr("agent_runtime.run.queue.schedules.datetime", Wrong)
    async with Runtime.open(settings) as runtime:
        await runtime.schedules.add("one", "* * * * *", Agent(), "Go.", missed="all")
        [row] = await runtime.schedules.list()
        assert 0 < row.next_at - row.created_at <= 60


@pytest.mark.backends("file")
async def test_a_time_that_was_started_before_is_passed_over(settings: Settings) -> None:
    app = App(agents={"news": Agent(ScriptedModel([say("ok")]))}, name="lib")
    async with Runtime.open(settings) as runtime:
        await runtime.schedules.add(
            "s", "* * * * *", app.named("news"), "Look.", app=app, user="ann", missed="all"
        )
        schedules = runtime.store.of("ann").schedules
        before = datetime.now(UTC).timestamp() - 120
        first = next_time("* * * * *", "UTC", before)
        await schedules.pause("s", paused=False, next_at=first)
        count = await start_due(runtime.store)

        # As where the clock was set back, and the schedule was resumed then.
        await schedules.pause("s", paused=False, next_at=first)
        await start_due(runtime.store)

        [row] = await schedules.list()
        assert row.next_at > row.now - 1
        assert count <= len(await runtime.queue.list(user="ann")) <= count + 1


@pytest.mark.backends("file")
async def test_schedules_are_paused_removed_and_checked(settings: Settings) -> None:
    async with Runtime.open(settings) as runtime:
        schedules, store = runtime.schedules, runtime.store_of()
        endless = ",".join(["0-59"] * 1000) + " * * * *"
        for cron, zone in (
            ("* * * *", "UTC"),
            ("0 0 31 2 *", "UTC"),
            ("* * * * *", "Mars/One"),
            (endless, "UTC"),
        ):
            with pytest.raises(ConfigError):
                await schedules.add("bad", cron, Agent(), "Go.", zone=zone)
        await schedules.add("one", "* * * * *", Agent(), "Go.", thread="t", missed="all")
        with pytest.raises(Conflict, match="one"):
            await schedules.add("one", "* * * * *", Agent(), "Go.")

        await schedules.pause("one")
        await store.schedules.pause("one", paused=True, next_at=60.0)
        assert await start_due(runtime.store) == 0
        await schedules.resume("one")
        [row] = await schedules.list()
        assert row.next_at > row.now and row.run.thread_id == "t"

        await schedules.remove("one")
        assert await schedules.list() == []
        for change in (schedules.remove, schedules.pause, schedules.resume):
            with pytest.raises(NotFound):
                await change("one")


async def test_a_schedule_that_cannot_start_holds_up_no_other(settings: Settings) -> None:
    """Another owner has more of them than are read at once."""
    app = App(agents={"helper": Agent(ScriptedModel([say("News.")]))})
    async with Runtime.open(settings) as runtime:
        schedules, helper = runtime.schedules, app.named("helper")
        past = datetime.now(UTC).timestamp() - 600
        mallory = runtime.store_of("mallory")
        row = await schedules.add("one", "* * * * *", helper, "Go.", app=app, user="mallory")
        await mallory.schedules.remove("one")
        for number in range(101):
            # A zone that this machine does not know any more.
            run, name = replace(row.run, id=""), f"broken {number}"
            new = NewSchedule(name, row.cron, "Nowhere/Land", "once", run, past)
            await mallory.schedules.add(new)
        await schedules.add("news", "* * * * *", helper, "What is new?", app=app)
        await runtime.store_of().schedules.pause("news", paused=False, next_at=past + 60)

        assert [await start_due(runtime.store) for _ in range(3)] == [0, 1, 0]

        assert len(await runtime.queue.list()) == 1
        # Each is found by its name, however many there are.
        [last] = await mallory.schedules.list(schedule_id="broken 99")
        assert last.id == "broken 99" and len(await mallory.schedules.list(limit=50)) == 50
        # They are tried again later.
        again = await mallory.schedules.list()
        assert all(one.next_at > one.now + 30 for one in again) and len(again) == 101


async def test_schedules_that_cannot_be_read_keep_no_worker_from_the_queue(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = App(agents={"helper": Agent(ScriptedModel([say("News.")]))})

    async def broken(store: object) -> int:
        raise TypeError("a field of another version")

    monkeypatch.setattr("agent_runtime.run.queue.worker.start_due", broken)
    async with Runtime.open(settings) as runtime, working(runtime, app):
        queued = await runtime.enqueue(app.named("helper"), "What is new?", app=app)
        with anyio.fail_after(30):
            store = runtime.store_of()
            while (await store.runs.get(queued.run_id)).status != "succeeded":  # noqa: ASYNC110
                await anyio.sleep(0.01)
