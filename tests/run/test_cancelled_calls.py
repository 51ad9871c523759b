"""Tools that are cancelled while their run is not: every result is recorded before a prompt."""

from __future__ import annotations

import asyncio

import anyio
import pytest

from agent_runtime import Agent, ScriptedModel, ToolContext, tool
from agent_runtime.models.scripted import call, calls, raw_call, say
from tests.support.worlds import Play, double


@tool
async def cancel_itself() -> str:
    """Cancel the task that runs this tool, and work until the cancellation arrives."""
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0.1)
    return "not reached"


@tool
async def cancel_and_return() -> str:
    """Cancel the task that runs this tool, and return at once."""
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    return "returned"


@tool
async def cancel_and_swallow() -> str:
    """Cancel the task that runs this tool, and swallow the cancellation."""
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    try:
        await asyncio.sleep(0.1)
    except asyncio.CancelledError:
        await anyio.lowlevel.checkpoint()
    return "swallowed"


@tool
async def await_cancelled() -> str:
    """Await a cancelled future."""
    future = asyncio.get_running_loop().create_future()
    future.cancel()
    await future
    return "not reached"


@tool
def cancel_from_thread(context: ToolContext) -> str:
    """Run in a thread, and return a coroutine that is cancelled on the loop."""
    return cancel_itself()  # pyright: ignore[reportReturnType]


CANCELLING = {
    "cancel_itself": ("interrupted", "cancelled from inside"),
    "cancel_and_return": ("ok", "returned"),
    "cancel_and_swallow": ("ok", "swallowed"),
    "await_cancelled": ("interrupted", "cancelled from inside"),
    "cancel_from_thread": ("interrupted", "cancelled from inside"),
}
TOOLS = [
    double,
    cancel_itself,
    cancel_and_return,
    cancel_and_swallow,
    await_cancelled,
    cancel_from_thread,
]


@pytest.mark.parametrize("name", CANCELLING)
async def test_every_result_is_recorded_and_in_the_next_prompt(play: Play, name: str) -> None:
    outcome, text = CANCELLING[name]
    script = [calls(raw_call(name), raw_call("double", number=4)), call(name), say("Done.")]
    async with play(script) as world:
        result = await world.run(Agent(tools=TOOLS), thread="t")

        assert result.ok
        first, second, third = await world.results("t")
        assert first[0] == third[0] == outcome
        assert text in first[1] and text in third[1]
        assert second == ("ok", "8")
        assert isinstance(world.model, ScriptedModel)
        # Each prompt extends the previous one by an answer and its results.
        assert [len(request.messages) for request in world.model.requests] == [2, 5, 7]
        assert (await world.row()).open_node is None


@pytest.mark.backends("file")
async def test_calls_whose_tasks_are_all_cancelled_are_closed_as_interrupted(play: Play) -> None:
    begun = anyio.Event()

    @tool
    async def wait() -> str:
        """Wait without end."""
        begun.set()
        await anyio.sleep_forever()
        return "not reached"

    @tool
    async def cancel_all() -> str:
        """Cancel every task that runs a tool, but not the run."""
        await begun.wait()
        for task in asyncio.all_tasks():
            if task.get_name().startswith("agent_runtime.concurrency."):
                task.cancel()
        await asyncio.sleep(0.1)
        return "not reached"

    async with play([calls(raw_call("cancel_all"), raw_call("wait")), say("Done.")]) as world:
        assert (await world.run(Agent(tools=[cancel_all, wait]), thread="t")).ok
        assert [outcome for outcome, _ in await world.results("t")] == ["interrupted"] * 2


async def test_a_sub_agent_continues_after_its_tool_cancels_itself(play: Play) -> None:
    child = Agent(name="child", tools=[cancel_itself])

    @tool
    async def ask(context: ToolContext) -> str:
        """Run a sub-agent."""
        return (await context.run_agent(child, "Work below.")).output

    script = [call("ask"), call("cancel_itself"), say("Below."), say("Above.")]
    async with play(script) as world:
        result = await world.run(Agent(tools=[ask]), thread="t")
        assert result.output == "Above."
        assert await world.results("t") == [("ok", "Below.")]


async def test_a_run_is_still_cancelled_while_a_tool_cancels_itself(play: Play) -> None:
    begun = anyio.Event()

    @tool
    async def wait() -> str:
        """Wait without end."""
        begun.set()
        await anyio.sleep_forever()
        return "not reached"

    async with play([calls(raw_call("wait"), raw_call("cancel_itself"))]) as world:
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: world.run(Agent(tools=[wait, cancel_itself]), thread="t"))
            await begun.wait()
            group.cancel_scope.cancel()
        run = await world.row()
        assert (run.status, run.open_node) == ("cancelled", None)
        assert [outcome for outcome, _ in await world.results("t")] == ["interrupted"] * 2


@pytest.mark.backends("file")
async def test_no_prompt_is_built_while_an_exchange_is_open(play: Play) -> None:
    from agent_runtime.errors import InvariantError
    from agent_runtime.run.loop import AgentLoop

    seen: list[type[Exception]] = []

    @tool
    async def build_now() -> str:
        """Do what the loop must not: build a prompt before the results are recorded."""
        try:
            await drivers[0].next_prompt()
        except InvariantError as error:
            seen.append(type(error))
        return "built"

    drivers: list[AgentLoop] = []
    real_drive = AgentLoop.drive

    async def drive(self: AgentLoop) -> object:
        drivers.append(self)
        return await real_drive(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AgentLoop, "drive", drive)
        async with play([call("build_now"), say("Done.")]) as world:
            assert (await world.run(Agent(tools=[build_now]))).ok
    assert seen == [InvariantError]


async def test_a_result_is_recorded_if_the_run_is_cancelled_just_after_it(play: Play) -> None:
    @tool
    async def last_words() -> str:
        """Cancel the run, and return before the cancellation arrives."""
        scopes[0].cancel()
        return "said"

    @tool
    async def wait() -> str:
        """Wait without end."""
        await anyio.sleep_forever()
        return "not reached"

    scopes: list[anyio.CancelScope] = []
    async with play([calls(raw_call("wait"), raw_call("last_words"))]) as world:
        with anyio.CancelScope() as scope:
            scopes.append(scope)
            await world.run(Agent(tools=[wait, last_words]), thread="t")
        assert (await world.row()).status == "cancelled"
        first, second = await world.results("t")
        assert (first[0], second) == ("interrupted", ("ok", "said"))
