"""Closing a runtime leaves no run at work, and each can be resumed."""

from __future__ import annotations

import asyncio

import anyio
import anyio.lowlevel
import pytest

from agent_runtime import (
    Agent,
    Runtime,
    ScriptedModel,
    Settings,
    Workflow,
    WorkflowContext,
    tool,
)
from agent_runtime.errors import RuntimeClosed, WrongLoop
from agent_runtime.models.base import ModelRequest
from agent_runtime.models.scripted import Scripted, call, say
from tests.delegation.helpers import playing

# Closing is the same over every database.
pytestmark = pytest.mark.backends("file")


@pytest.fixture
def settings(database_url: str) -> Settings:
    """Settings with the test's own database."""
    return Settings(database_url=database_url, observational_memory=False, pause_timeout=30)


class Doing:
    """A tool that says when it has begun, and ends when it may."""

    def __init__(self) -> None:
        self.begun, self.may_end = anyio.Event(), anyio.Event()
        self.ended = False

    def agent(self, *script: Scripted) -> Agent:
        """Return an agent that calls the tool first."""

        @tool
        async def work() -> str:
            """Work until it may end."""
            self.begun.set()
            await self.may_end.wait()
            self.ended = True
            return "done"

        return Agent(ScriptedModel([call("work"), *script]), tools=[work])


async def test_runs_may_end_by_themselves_while_the_runtime_drains(settings: Settings) -> None:
    doing = Doing()
    async with Runtime.open(settings) as runtime:
        running = asyncio.ensure_future(runtime.run(doing.agent(say("all")), "Go."))
        await doing.begun.wait()
        closing = asyncio.ensure_future(runtime.close(drain=60))
        while not runtime.health().closing:
            await anyio.lowlevel.checkpoint()
        with pytest.raises(RuntimeClosed):
            await runtime.run(Agent(ScriptedModel([say("no")])), "Me too.")
        doing.may_end.set()
        await closing

        assert (await running).output == "all"


async def test_a_run_is_suspended_at_its_next_step_and_goes_on_later(settings: Settings) -> None:
    doing = Doing()
    async with Runtime.open(settings) as runtime:
        running = asyncio.ensure_future(runtime.run(doing.agent(say("never")), "Go."))
        await doing.begun.wait()
        closing = asyncio.ensure_future(runtime.close())
        while not runtime.health().closing:
            await anyio.lowlevel.checkpoint()
        # Its step in progress is not cut.
        assert not running.done()
        doing.may_end.set()
        await closing
        result = await running

    assert doing.ended
    assert (result.status, result.stop_reason) == ("suspended", "interrupted")
    assert result.questions == ()
    async with Runtime.open(settings) as runtime:
        swept = await runtime.sweep()
        assert [run.id for run in swept.resumable] == [result.run_id]
        agent = Agent(ScriptedModel([say("went on")]))
        assert (await runtime.resume(result.run_id, agent)).output == "went on"


async def test_a_workflow_is_suspended_at_its_next_node(settings: Settings) -> None:
    doing = Doing()
    called: list[str] = []

    async def first() -> str:
        called.append("first")
        doing.begun.set()
        await doing.may_end.wait()
        return "one"

    async def second(before: str) -> str:
        called.append("second")
        return f"{before}, two"

    @Workflow
    async def flow(w: WorkflowContext) -> str:
        return await w.call("second", second, await w.call("first", first))

    async with Runtime.open(settings) as runtime:
        running = asyncio.ensure_future(runtime.run(flow, "Go."))
        await doing.begun.wait()
        closing = asyncio.ensure_future(runtime.close())
        while not any(run.closing for run in runtime.host.keeper.runs.values()):
            await anyio.lowlevel.checkpoint()
        doing.may_end.set()
        await closing
        result = await running

    assert (result.status, result.stop_reason) == ("suspended", "interrupted")
    assert called == ["first"]
    async with Runtime.open(settings) as runtime:
        assert (await runtime.resume(result.run_id, flow)).output == "one, two"
    assert called == ["first", "second"]


async def test_a_run_that_does_not_stop_in_time_is_left_as_a_crash_leaves_it(
    settings: Settings,
) -> None:
    doing = Doing()
    async with Runtime.open(settings) as runtime:
        running = asyncio.ensure_future(runtime.run(doing.agent(), "Go.", thread="t"))
        await doing.begun.wait()
        await runtime.close(pause=0)
        result = await running

    assert (result.status, result.stop_reason) == ("suspended", "interrupted")
    assert not doing.ended
    again = Doing()
    async with Runtime.open(settings) as runtime:
        node = await runtime.store.of("local").log.node("t", 2)
        assert [(node.status, one.status) for one in node.calls] == [("open", "started")]
        agent = again.agent()
        # The call is not idempotent: the model reads that its effect is unverified.
        model = ScriptedModel([say("I see.")])
        result = await runtime.resume(result.run_id, Agent(model, tools=agent.tools))
        assert "unverified" in model.requests[0].messages[-1].text
    assert result.ok and not again.begun.is_set()


@pytest.mark.parametrize("background", [False, True])
async def test_sub_agents_are_interrupted_with_their_root(
    settings: Settings, background: bool
) -> None:
    child = Doing()

    @tool
    async def work() -> str:
        """Work until it may end."""
        child.begun.set()
        await child.may_end.wait()
        return "done"

    def below(request: ModelRequest, number: int) -> Scripted:
        return say("child done") if number else call("work")

    task = {"role": "worker", "instructions": "Work.", "task_key": "k"}
    delegation = call("delegate", **task, background=background)
    script = playing([delegation, say("root done")], below)

    def agent() -> Agent:
        return Agent(ScriptedModel(script), tools=[work], delegation=True)

    async with Runtime.open(settings) as runtime:
        running = asyncio.ensure_future(runtime.run(agent(), "Go."))
        await child.begun.wait()
        if background:
            await running
        await runtime.close(pause=0)
        root = await running
    async with Runtime.open(settings) as runtime:
        store = runtime.store.of("local")
        [run] = await store.runs.list(parent_run_id=root.run_id)
        assert (run.status, run.stop_reason) == ("suspended", "interrupted")
        if background:
            [left] = await runtime.tasks(root.thread_id)
            assert left.status == "interrupted"
            return
        assert (root.status, root.stop_reason) == ("suspended", "interrupted")
        # The tool's effect is unverified in the sub-agent, which goes on by itself.
        child.may_end.set()
        assert (await runtime.resume(root.run_id, agent())).output == "root done"
        [run] = await store.runs.list(parent_run_id=root.run_id)
        assert run.status == "succeeded"


async def test_closing_is_finished_even_if_its_task_is_cancelled(settings: Settings) -> None:
    doing = Doing()
    async with Runtime.open(settings) as runtime:
        running = asyncio.ensure_future(runtime.run(doing.agent(), "Go."))
        await doing.begun.wait()
        closing = asyncio.ensure_future(runtime.close(pause=0.01))
        while not runtime.health().closing:
            await anyio.lowlevel.checkpoint()
        for _ in range(2):
            closing.cancel()
            await anyio.lowlevel.checkpoint()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert running.done()
        assert (await running).stop_reason == "interrupted"


def delegating(child: Doing) -> Agent:
    """Return an agent that begins a background task, in which the tool is called."""

    def answer(request: ModelRequest, number: int) -> Scripted:
        return say("child done") if number else call("work")

    task = {"role": "worker", "instructions": "Work.", "task_key": "k", "background": True}
    script = playing([call("delegate", **task), say("root done")], answer)
    return Agent(ScriptedModel(script), tools=child.agent().tools, delegation=True)


async def test_a_drain_leaves_no_background_run_at_work(settings: Settings) -> None:
    child = Doing()
    async with Runtime.open(settings) as runtime:
        root = await runtime.run(delegating(child), "Go.")
        await child.begun.wait()
        await runtime.drain(0, pause=0)
        assert runtime.health().running == runtime.health().background == 0
        [run] = await runtime.store.of("local").runs.list(parent_run_id=root.run_id)
        assert (run.status, run.stop_reason) == ("suspended", "interrupted")


async def test_a_background_run_may_end_by_itself_while_the_runtime_drains(
    settings: Settings,
) -> None:
    child = Doing()
    async with Runtime.open(settings) as runtime:
        root = await runtime.run(delegating(child), "Go.")
        await child.begun.wait()
        draining = asyncio.ensure_future(runtime.drain(60))
        while not runtime.health().closing:
            await anyio.lowlevel.checkpoint()
        child.may_end.set()
        await draining
        [run] = await runtime.store.of("local").runs.list(parent_run_id=root.run_id)
        assert run.status == "succeeded"


@pytest.mark.parametrize("turns", [0, 1, 3, 10])
async def test_a_run_that_is_about_to_begin_is_interrupted_too(
    settings: Settings, turns: int
) -> None:
    async with Runtime.open(settings) as runtime:
        running = asyncio.ensure_future(runtime.run(Doing().agent(), "Go."))
        while not runtime.host.admission.working:
            await anyio.lowlevel.checkpoint()
        for _ in range(turns):
            await anyio.lowlevel.checkpoint()
        await runtime.close(pause=0)
        assert (await running).stop_reason == "interrupted"


async def test_a_runtime_is_closed_once_and_its_context_may_follow(settings: Settings) -> None:
    async with Runtime.open(settings) as runtime:
        await asyncio.gather(runtime.close(), runtime.close())
        with pytest.raises(RuntimeClosed, match="begins no more runs"):
            await runtime.resume("r", Agent())


def test_another_event_loop_is_named(settings: Settings) -> None:
    async def other(runtime: Runtime) -> None:
        with pytest.raises(WrongLoop, match="another event loop"):
            await runtime.run(Agent(ScriptedModel([])), "Go.")
        with pytest.raises(WrongLoop):
            await runtime.cancel("r")

    async def main() -> None:
        async with Runtime.open(settings) as runtime:
            await asyncio.to_thread(asyncio.run, other(runtime))

    asyncio.run(main())


async def test_run_sync_on_an_event_loop_says_what_to_write() -> None:
    with pytest.raises(WrongLoop, match="event loop runs") as raised:
        Agent(ScriptedModel([])).run_sync("Go.")
    assert "await" in raised.value.cure


async def test_a_run_that_is_cancelled_again_and_again_records_its_end(settings: Settings) -> None:
    doing = Doing()
    async with Runtime.open(settings) as runtime:
        running = asyncio.ensure_future(runtime.run(doing.agent(), "Go.", thread="t"))
        await doing.begun.wait()
        while not running.done():
            running.cancel()
            await anyio.lowlevel.checkpoint()
        [run] = await runtime.store.of("local").runs.list(thread_id="t")
        assert (run.status, run.open_node) == ("cancelled", None)


@pytest.mark.parametrize("depth", [1, 2])
async def test_a_sub_agent_that_is_waited_for_ends_its_step_first(
    settings: Settings, depth: int
) -> None:
    child = Doing()
    calls: list[str] = []

    @tool
    async def work() -> str:
        """Work until it may end."""
        calls.append("work")
        child.begun.set()
        await child.may_end.wait()
        return "done"

    task = {"role": "worker", "instructions": "Work.", "task_key": "k"}

    def respond(request: ModelRequest) -> Scripted:
        prompt = request.messages
        deepest = not any(one.name == "delegate" for one in request.tools)
        if any(message.role == "tool" for message in prompt):
            calls.append("worker ends" if deepest else "delegated")
            return say("ended")
        return call("work") if deepest else call("delegate", **task)

    def agent() -> Agent:
        return Agent(ScriptedModel(respond), tools=[work], delegation=True)

    settings = settings.model_copy(update={"delegation_depth": depth})
    async with Runtime.open(settings) as runtime:
        running = asyncio.ensure_future(runtime.run(agent(), "Go."))
        await child.begun.wait()
        closing = asyncio.ensure_future(runtime.close())
        while not any(run.closing for run in runtime.host.keeper.runs.values()):
            await anyio.lowlevel.checkpoint()
        assert all(run.closing for run in runtime.host.keeper.runs.values())
        child.may_end.set()
        await closing
        root = await running

    assert (root.status, root.stop_reason) == ("suspended", "interrupted")
    assert calls == ["work"]
    async with Runtime.open(settings) as runtime:
        store = runtime.store.of("local")
        tree = await store.runs.list(root_run_id=root.run_id)
        assert {(one.status, one.stop_reason) for one in tree} == {("suspended", "interrupted")}
        assert len(tree) == depth + 1
        assert [run.id for run in (await runtime.sweep()).resumable] == [root.run_id]
        assert (await runtime.resume(root.run_id, agent())).output == "ended"
    # The step that was in progress was ended before, so its tool did not run again.
    assert calls == ["work", "worker ends", *["delegated"] * depth]
