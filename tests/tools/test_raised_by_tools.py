"""Tools that raise `SystemExit` and the like: processes, threads and logs survive."""

from __future__ import annotations

import asyncio
import sys
from typing import Annotated, Any

import anyio
import pytest
from pydantic import BeforeValidator

from agent_runtime import Agent, Event, ToolContext, Workflow, WorkflowContext, tool
from agent_runtime.models.scripted import call, calls, raw_call, say
from tests.support.worlds import Play, World, double


class Unprintable(Exception):
    """An error whose text cannot be read."""

    def __str__(self) -> str:
        raise SystemExit("not even that")

    __repr__ = __str__


class Odd(BaseException):
    """A `BaseException` that is not an `Exception`."""


@tool
def exit_in_thread() -> str:
    """End the process."""
    sys.exit(3)


@tool
async def exit_on_loop() -> str:
    """End the process."""
    raise SystemExit(4)


@tool
async def raise_generator_exit() -> str:
    """Raise `GeneratorExit`."""
    raise GeneratorExit


@tool
def unprintable_in_thread() -> str:
    """Raise an error whose text cannot be read."""
    raise Unprintable


@tool
async def unprintable_on_loop() -> str:
    """Raise an error whose text cannot be read."""
    raise Unprintable


@tool
async def group() -> str:
    """Raise several errors."""
    raise ExceptionGroup("several", [ValueError("one"), Unprintable()])


@tool
async def group_of_exits() -> str:
    """Raise several errors; none is an `Exception`."""
    raise BaseExceptionGroup("several", [SystemExit(7), asyncio.CancelledError()])


def _refuse(value: Any) -> Any:
    raise KeyError("a validator of the author's")


def _exit(value: Any) -> Any:
    raise SystemExit(5)


@tool
def bad_validator(value: Annotated[int, BeforeValidator(_refuse)]) -> int:
    """Fail in a validator, before it runs."""
    return value


@tool
def exiting_validator(value: Annotated[int, BeforeValidator(_exit)]) -> int:
    """Exit in a validator, before it runs."""
    return value


class Unserializable:
    """A value that cannot become text."""

    def __str__(self) -> str:
        raise SystemExit(6)

    __repr__ = __str__


@tool
def return_the_unserializable() -> Any:
    """Return a value that cannot become text."""
    return Unserializable()


KINDS: dict[str, type[BaseException]] = {"interrupt": KeyboardInterrupt, "odd": Odd}


@tool
async def raise_on_loop(kind: str) -> str:
    """Raise a `BaseException` that is not an `Exception`."""
    raise KINDS[kind]


@tool
def raise_in_thread(kind: str) -> str:
    """Raise a `BaseException` that is not an `Exception`."""
    raise KINDS[kind]


RESULTS = {
    "exit_in_thread": "SystemExit: 3",
    "exit_on_loop": "SystemExit: 4",
    "raise_generator_exit": "GeneratorExit",
    "unprintable_in_thread": "Unprintable: (its text cannot be shown",
    "unprintable_on_loop": "Unprintable: (its text cannot be shown",
    "group": "ExceptionGroup: several",
    "group_of_exits": "BaseExceptionGroup: several",
    "bad_validator": "KeyError",
    "exiting_validator": "SystemExit: 5",
    "return_the_unserializable": "",
}
TOOLS = [
    double,
    exit_in_thread,
    exit_on_loop,
    raise_generator_exit,
    unprintable_in_thread,
    unprintable_on_loop,
    group,
    group_of_exits,
    bad_validator,
    exiting_validator,
    return_the_unserializable,
    raise_on_loop,
    raise_in_thread,
]


@pytest.mark.parametrize("name", RESULTS)
@pytest.mark.backends("file")
async def test_an_error_of_a_tool_becomes_a_result_and_the_run_continues(
    play: Play, name: str
) -> None:
    bad = raw_call(name, value=1) if "validator" in name else raw_call(name)
    async with play([calls(bad, raw_call("double", number=2)), say("Done.")]) as world:
        assert (await world.run(Agent(tools=TOOLS), thread="t")).ok
        first, second = await world.results("t")
    assert second == ("ok", "4")
    if RESULTS[name]:
        assert first[0] == "error"
        assert first[1].startswith(RESULTS[name])


@pytest.mark.backends("file")
async def test_a_call_whose_approval_check_fails_asks_for_approval(play: Play) -> None:
    @tool(needs_approval=_exit)
    def by_function() -> str:
        """Have a function that exits decide on the approval."""
        return "allowed"

    @tool(needs_approval={"value": "[0-9]"})
    def by_pattern(value: Annotated[int, BeforeValidator(_exit)]) -> str:
        """Have a pattern on a value that exits decide on the approval."""
        return "allowed"

    script = [calls(raw_call("by_function"), raw_call("by_pattern", value=1)), say("Done.")]
    async with play(script) as world:
        result = await world.run(Agent(tools=[by_function, by_pattern]), thread="t")
        assert [question.tool for question in result.questions] == ["by_function", "by_pattern"]


async def _check_over(world: World, *, status: str = "failed") -> None:
    """Check that the run is over with a valid log, and that its thread is free."""
    run = await world.row()
    thread = await world.store.threads.get(run.thread_id)
    assert (run.status, run.open_node, thread.active_run) == (status, None, None)


@pytest.mark.parametrize("place", ["raise_on_loop", "raise_in_thread"])
@pytest.mark.parametrize("kind", KINDS)
async def test_a_base_exception_ends_the_run_and_is_raised(
    play: Play, kind: str, place: str
) -> None:
    script = [calls(raw_call("double", number=1), raw_call(place, kind=kind)), say("Again.")]
    async with play(script) as world:
        with pytest.raises(KINDS[kind]):
            await world.run(Agent(tools=TOOLS), thread="t")
        await _check_over(world)
        outcome, text = (await world.results("t"))[1]
        assert (outcome, text) == ("error", KINDS[kind].__name__)
        assert (await world.run(Agent(tools=TOOLS), thread="t")).output == "Again."


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.backends("file")
async def test_a_base_exception_of_a_sub_agent_ends_its_parent_too(play: Play, kind: str) -> None:
    child = Agent(name="child", tools=[raise_on_loop])

    @tool
    async def ask(context: ToolContext) -> str:
        """Run a sub-agent."""
        return (await context.run_agent(child, "Work below.")).output

    async with play([call("ask"), call("raise_on_loop", kind=kind)]) as world:
        with pytest.raises(KINDS[kind]):
            await world.run(Agent(tools=[ask]), thread="t")
        runs = await world.store.runs.list(limit=10)
        assert [run.status for run in runs] == ["failed", "failed"]
        assert [run.open_node for run in runs] == [None, None]
        assert (await world.store.threads.get("t")).active_run is None


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.backends("file")
async def test_a_base_exception_leaves_other_runs_alone(play: Play, kind: str) -> None:
    other_ended = anyio.Event()
    ended: list[bool] = []

    @tool
    async def wait() -> str:
        """Wait until the other run has ended."""
        await other_ended.wait()
        return "waited"

    def answer(request: Any) -> Any:
        if request.messages[-1].role == "tool":
            return say("Done.")
        name = request.tools[0].name
        return call("wait") if name == "wait" else call(name, kind=kind)

    async with play(answer) as world:

        async def other() -> None:
            ended.append((await world.runtime.run(Agent(tools=[wait]), "Work.", thread="o")).ok)

        async with anyio.create_task_group() as group:
            group.start_soon(other)
            with pytest.raises(KINDS[kind]):
                await world.run(Agent(tools=[raise_on_loop]), thread="t")
            other_ended.set()
        assert ended == [True]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.backends("file")
async def test_a_base_exception_ends_a_workflow_and_its_branches(play: Play, kind: str) -> None:
    async def boom() -> str:
        raise KINDS[kind]

    async def by_node(w: WorkflowContext) -> str:
        return await w.call("boom", boom)

    async def by_branch(w: WorkflowContext) -> list[str]:
        return await w.gather(w.call("fine", str, 1), boom())

    for flow in (by_node, by_branch):
        async with play() as world:
            with pytest.raises(KINDS[kind]):
                await world.runtime.run(
                    Workflow(flow), "Work.", thread=flow.__name__, on_event=world.events.append
                )
            await _check_over(world)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.backends("file")
async def test_a_base_exception_passes_through_listeners_and_streams(play: Play, kind: str) -> None:
    def listen(event: Event) -> None:
        world.events.append(event)
        if event.kind == "tool-finish":
            raise KINDS[kind]

    async with play([call("double", number=1), say("Done.")]) as world:
        with pytest.raises(KINDS[kind]):
            await world.runtime.run(Agent(tools=[double]), "Work.", thread="t", on_event=listen)
        await _check_over(world)

    async with play([call("raise_on_loop", kind=kind), say("Done.")]) as world:
        with pytest.raises(KINDS[kind]):
            async with world.runtime.stream(Agent(tools=TOOLS), "Work.", thread="s") as stream:
                async for event in stream:
                    world.events.append(event)
        await _check_over(world)
