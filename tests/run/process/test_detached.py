"""Runs that outlive the call that starts them."""

from __future__ import annotations

import asyncio

import anyio
import anyio.lowlevel
import pytest

from agent_runtime import Agent, Runtime, ScriptedModel, Settings, tool
from agent_runtime.concurrency import DetachedTasks
from agent_runtime.errors import RunCancelled, RuntimeClosed
from agent_runtime.messages import UserMessage, encode_message
from agent_runtime.models.scripted import call, say
from agent_runtime.run.process.detached import begun
from agent_runtime.run.process.listener import OnEvent
from agent_runtime.run.results import RunResult
from tests.storage.helpers import OTHER, begin, message

pytestmark = pytest.mark.backends("file")


@pytest.fixture
def settings(database_url: str) -> Settings:
    """Settings with the test's own database, and a place for one run at a time."""
    return Settings(database_url=database_url, max_runs=1, sweep=0)


async def test_a_started_run_goes_on_and_its_task_raises_nothing(settings: Settings) -> None:
    entered = anyio.Event()

    @tool
    async def wait() -> None:
        """Wait."""
        entered.set()
        await anyio.sleep_forever()

    agent = Agent(ScriptedModel([call("wait"), say("never")]), tools=[wait])
    async with Runtime.open(settings) as runtime:
        started = await runtime.start(agent, "Go.", thread="t")
        await entered.wait()
        started.task.cancel()
        await started.task
        run = await runtime.store_of().runs.get(started.run_id)
        assert run.status == "cancelled"


async def test_a_start_that_waits_is_refused_by_name_when_the_runtime_closes(
    settings: Settings,
) -> None:
    entered, opened = anyio.Event(), anyio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        entered.set()
        await opened.wait()
        return "open"

    agent = Agent(ScriptedModel([call("wait"), say("done")]), tools=[wait])
    async with Runtime.open(settings) as runtime:
        started = await runtime.start(agent, "Go.")
        await entered.wait()
        second, third = (asyncio.ensure_future(runtime.start(agent, "Wait.")) for _ in range(2))
        while runtime.health().waiting < 2:
            await anyio.lowlevel.checkpoint()
        # The caller of the third goes away: it does not begin.
        third.cancel()
        await asyncio.wait([third])
        assert third.cancelled() and runtime.health().waiting == 1
        closing = asyncio.ensure_future(runtime.close(drain=30))
        with pytest.raises(RuntimeClosed):
            await second
        opened.set()
        await closing
        assert started.task.done() and len(runtime.host.background) == 0


async def test_a_start_that_is_stopped_from_within_does_not_look_cancelled() -> None:
    """Whoever waits for a start was not cancelled, though the runtime's tasks were."""
    tasks, entered = DetachedTasks(), anyio.Event()

    async def work(listen: OnEvent) -> RunResult:
        entered.set()
        await anyio.sleep_forever()
        raise AssertionError(listen)

    starting = asyncio.ensure_future(begun(tasks, work))
    await entered.wait()
    await tasks.close()
    with pytest.raises(RuntimeClosed, match="before the run began"):
        await starting


async def test_work_without_a_first_event_has_started_when_it_ends(settings: Settings) -> None:
    async with Runtime.open(settings) as runtime:
        ended = await runtime.run(Agent(ScriptedModel([say("done")])), "Go.")

        async def work(listen: OnEvent) -> RunResult:
            return ended

        started = await begun(runtime.host.background, work)
        await started.task
        assert (started.run_id, started.thread_id) == (ended.run_id, ended.thread_id)


async def test_a_resume_that_does_not_start_raises_its_reason(settings: Settings) -> None:
    async with Runtime.open(settings) as runtime:
        store = runtime.store_of()
        task = message(1, None, encode_message(UserMessage("Go.")))
        await begin(store, "r", "t", owner=OTHER, lease_seconds=0.0, nodes=(task,))
        await store.runs.cancel("r")
        with pytest.raises(RunCancelled, match="nobody worked on it"):
            await runtime.start_resumed("r", Agent(ScriptedModel([])))
        assert (await store.runs.get("r")).status == "cancelled"
