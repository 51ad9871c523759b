"""`Runtime.threads`: what programs read of threads and do with them."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

import anyio
import pytest

from agent_runtime import (
    Agent,
    Conflict,
    ConversationMemory,
    NotFound,
    Runtime,
    Settings,
    ThreadBusy,
    UserMessage,
    tool,
)
from agent_runtime.messages import AssistantMessage
from agent_runtime.testing import ScriptedModel, call, say
from tests.support.worlds import double


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncGenerator[Runtime]:
    settings = Settings(database_url=f"file:{tmp_path}/log.db")
    async with Runtime.open(settings) as opened:
        yield opened


async def test_messages_are_read_edited_and_forked(runtime: Runtime) -> None:
    model = ScriptedModel([call("double", number=2), say("4"), say("10")])
    agent = Agent(model, tools=[double])
    await runtime.run(agent, "Double 2.", thread="sums")
    asked, called, answered = await runtime.threads.messages("sums")
    assert isinstance(asked.message, UserMessage)
    assert isinstance(called.message, AssistantMessage)
    assert [result.text for result in called.results if result] == ["4"]
    assert (answered.text, answered.parent_id) == ("4", called.node_id)
    assert [one.text for one in await runtime.threads.messages("sums", limit=1)] == ["4"]

    await runtime.threads.edit("sums", asked.node_id)
    await runtime.run(agent, "Double 5.", thread="sums")
    texts = [one.text for one in await runtime.threads.messages("sums")]
    assert texts == ["Double 5.", "10"]
    newest, oldest = await runtime.threads.branches("sums")
    assert (oldest, newest > oldest) == (answered.node_id, True)
    await runtime.threads.fork("sums", oldest)
    assert (await runtime.threads.messages("sums"))[-1].text == "4"
    with pytest.raises(Conflict, match="not a message of the user"):
        await runtime.threads.edit("sums", answered.node_id)


async def test_events_continue_after_the_last_id_that_a_reader_knows(runtime: Runtime) -> None:
    agent = Agent(ScriptedModel([say("Yes."), say("No.")]))
    await runtime.run(agent, "First?", thread="t")
    first = await runtime.threads.events("t")
    await runtime.run(agent, "Second?", thread="t")
    later = await runtime.threads.events("t", after=first[-1].id)
    assert [event.id for event in first + later] == list(range(1, len(first + later) + 1))
    async with aclosing(runtime.threads.follow("t", after=first[-1].id)) as events:
        followed = [await anext(events) for _ in later]
    assert followed == later


async def test_a_cursor_of_a_deleted_thread_is_refused(runtime: Runtime) -> None:
    agent = Agent(ScriptedModel([say("Yes."), say("Yes."), say("No.")]))
    for task in ("First?", "Second?"):
        await runtime.run(agent, task, thread="t")
    cursor = (await runtime.threads.events("t"))[-1].id
    assert await runtime.threads.delete("t") == ["t"]
    with pytest.raises(NotFound):
        await runtime.threads.events("t", after=cursor)
    await runtime.run(agent, "Third?", thread="t")
    with pytest.raises(Conflict, match="fewer than the cursor"):
        await runtime.threads.events("t", after=cursor)
    with pytest.raises(Conflict, match="follow it from the start"):
        async with aclosing(runtime.threads.follow("t", after=cursor)) as events:
            await anext(events)


async def test_a_cursor_within_a_later_thread_of_the_same_id_is_refused(runtime: Runtime) -> None:
    agent = Agent(ScriptedModel(lambda request: say("Yes.")))
    await runtime.run(agent, "First?", thread="t")
    created = (await runtime.threads.get("t")).created_at
    cursor = (await runtime.threads.events("t"))[-1].id
    assert await runtime.threads.events("t", after=cursor, created_at=created) == []
    await runtime.threads.delete("t")
    for task in ("Second?", "Third?"):
        await runtime.run(agent, task, thread="t")
    with pytest.raises(Conflict, match="created at another time"):
        await runtime.threads.events("t", after=cursor, created_at=created)
    with pytest.raises(Conflict, match="follow it from the start"):
        follow = runtime.threads.follow("t", after=cursor, created_at=created)
        async with aclosing(follow) as events:
            await anext(events)


async def test_a_thread_at_work_is_deleted_only_by_force(runtime: Runtime) -> None:
    working = anyio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        working.set()
        await anyio.sleep_forever()
        return ""

    agent = Agent(ScriptedModel([call("wait")]), tools=[wait])

    async def run() -> None:
        with anyio.CancelScope() as scope:
            try:
                await runtime.run(agent, "Wait.", thread="busy")
            except Exception:
                scope.cancel()

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        await working.wait()
        with pytest.raises(ThreadBusy):
            await runtime.threads.delete("busy")
        assert await runtime.threads.delete("busy", force=True) == ["busy"]
        group.cancel_scope.cancel()
    assert await runtime.threads.list() == []


async def test_owners_see_only_their_own_threads(runtime: Runtime) -> None:
    model = ScriptedModel([say("Hello, Ann.")])
    await runtime.run(Agent(model), "Hello.", thread="t", user="ann")
    assert await runtime.threads.list() == []
    assert [one.id for one in await runtime.threads.list(user="ann")] == ["t"]
    with pytest.raises(NotFound):
        await runtime.threads.messages("t")
    with pytest.raises(NotFound):
        await runtime.threads.usage("t")
    assert (await runtime.threads.usage("t", user="ann")).calls == 1
    renamed = await runtime.threads.rename("t", "Greetings", user="ann")
    assert renamed.title == "Greetings"
    memory = ConversationMemory(runtime.store_of("ann"), "t")
    assert [one.text for one in await memory.history()] == ["Hello.", "Hello, Ann."]
