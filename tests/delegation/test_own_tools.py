"""Tools of a program that delegate themselves: they wait for people if they can be made again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
import pytest

from agent_runtime import Agent, Assignment, Outcome, ToolContext, delegate, tool
from agent_runtime.errors import QuestionsOpen
from agent_runtime.models.base import ModelRequest
from agent_runtime.models.scripted import Scripted, call, raw_call, say
from agent_runtime.tools.base import REFUSED
from tests.delegation.erasing import erase, erased
from tests.delegation.erasing import nothing_erased as nothing_erased
from tests.delegation.helpers import is_child, step
from tests.support.worlds import Play, World

FILE = pytest.mark.backends("file")
began: list[str] = []
"""What each call of the program's tool did first."""


@pytest.fixture(autouse=True)
def nothing_began() -> None:
    """Forget the calls of another test."""
    began.clear()


def clean(path: str, *, asking: bool = False) -> Assignment:
    """Return the task to erase a file."""
    tools = [] if asking else [erase]
    return Assignment(
        role="cleaner", instructions="Clean.", briefing=path, tools=tools, asking=asking
    )


def respond(request: ModelRequest) -> Scripted:
    """Answer as an agent that hands over, or as a sub-agent that erases what its task names."""
    if not is_child(request):
        return [call("hand_over"), say("Done.")][step(request)]
    if step(request):
        return say(request.messages[-1].text)
    path = request.messages[1].text.split("\n")[1]
    if path == "?":
        return raw_call("ask_user", question="Why?", kind="text")
    return say("clean already") if path == "/clean" else call("erase", path=path)


def handing(work: Callable[[ToolContext], Awaitable[list[str]]], *, asking: bool = False) -> Agent:
    """Return an agent with a tool that does this work."""

    @tool(idempotent=True)
    async def hand_over(context: ToolContext) -> str:
        """Hand it over."""
        began.append("hand_over")
        return "; ".join(await work(context))

    return Agent(tools=[erase, hand_over], delegation=True, name="boss", asking=asking)


async def result_text(world: World) -> str:
    """Return the result of the program's tool."""
    [text] = [text for _, text in await world.results("t")]
    return text


async def statuses(world: World, root: str) -> list[str]:
    """Return the status of each sub-agent of a run."""
    return sorted(run.status for run in await world.store.runs.list(parent_run_id=root))


async def test_a_tools_own_sub_agent_waits_for_an_approval(play: Play) -> None:
    async def work(context: ToolContext) -> list[str]:
        return [(await delegate(context, clean("/a"))).result]

    async with play(respond) as world:
        agent = handing(work)
        waits = await world.run(agent, thread="t")

        assert (waits.status, waits.stop_reason) == ("suspended", "awaiting_user")
        assert "a sub-agent that asks" in waits.detail
        [question] = waits.questions
        assert (question.role, question.tool, erased) == ("cleaner", "erase", [])
        with pytest.raises(QuestionsOpen, match=question.id):
            await world.runtime.resume(waits.run_id, agent)
    # Days later, in another process.
    async with play(respond) as world:
        await world.runtime.answer(question.id, True)
        result = await world.runtime.resume(waits.run_id, handing(work))

        assert (result.output, await result_text(world), erased) == ("Done.", "erased /a", ["/a"])
        # The tool ran again from its beginning, and its sub-agent went on.
        assert began == ["hand_over"] * 2
        assert await statuses(world, waits.run_id) == ["succeeded"]


@FILE
async def test_equal_tasks_of_one_call_go_on_each_for_itself(play: Play) -> None:
    """The second waits when the first is over, in a call that is made three times."""

    async def work(context: ToolContext) -> list[str]:
        return [(await delegate(context, clean("/a"))).run_id for _ in range(2)]

    async with play(respond) as world:
        agent = handing(work)
        result = await world.run(agent, thread="t")
        for n in (1, 2):
            [question] = result.questions
            await world.runtime.answer(question.id, True)
            result = await world.runtime.resume(result.run_id, agent)
            assert erased == ["/a"] * n

        assert result.ok
        first, second = (await result_text(world)).split("; ")
        assert first != second
        assert await statuses(world, result.run_id) == ["succeeded"] * 2


@FILE
async def test_sub_agents_at_work_end_before_the_call_is_stopped(play: Play) -> None:
    """Stopping the call would cancel them, and a cancelled sub-agent is not run again."""

    async def work(context: ToolContext) -> list[str]:
        made: dict[str, Outcome] = {}

        async def do(path: str) -> None:
            made[path] = await delegate(context, clean(path))

        async with anyio.create_task_group() as group:
            for path in ("/a", "/clean", "/b"):
                group.start_soon(do, path)
        return [made[path].result for path in ("/a", "/clean", "/b")]

    async with play(respond) as world:
        agent = handing(work)
        waits = await world.run(agent, thread="t")
        assert await statuses(world, waits.run_id) == ["succeeded", "suspended", "suspended"]
        for question in waits.questions:
            await world.runtime.answer(question.id, True)
        result = await world.runtime.resume(waits.run_id, agent)

        assert result.ok and await result_text(world) == "erased /a; clean already; erased /b"
        assert sorted(erased) == ["/a", "/b"]


@FILE
async def test_a_tool_that_handles_failures_does_not_take_waiting_for_one(play: Play) -> None:
    async def work(context: ToolContext) -> list[str]:
        try:
            return [(await delegate(context, clean("/a"))).result]
        except Exception:
            began.append("handled")
            return ["It failed."]

    async with play(respond) as world:
        agent = handing(work)
        waits = await world.run(agent, thread="t")
        await world.runtime.answer(waits.questions[0].id, True)
        result = await world.runtime.resume(waits.run_id, agent)

        assert result.ok and await result_text(world) == "erased /a"
        assert began == ["hand_over"] * 2


@FILE
async def test_a_question_of_a_tools_own_sub_agent_is_answered_in_words(play: Play) -> None:
    async def work(context: ToolContext) -> list[str]:
        return [(await delegate(context, clean("?", asking=True))).result]

    async with play(respond) as world:
        agent = handing(work, asking=True)
        waits = await world.run(agent, thread="t")
        [question] = waits.questions
        assert (question.kind, question.text, question.role) == ("text", "Why?", "cleaner")
        await world.runtime.answer(question.id, "It is old.")
        result = await world.runtime.resume(waits.run_id, agent)

        assert result.ok and "It is old." in await result_text(world)


@FILE
async def test_cancelling_the_run_withdraws_the_question_of_a_tools_sub_agent(play: Play) -> None:
    async def work(context: ToolContext) -> list[str]:
        return [(await delegate(context, clean("/a"))).result]

    async with play(respond) as world:
        waits = await world.run(handing(work), thread="t")
        await world.runtime.cancel(waits.run_id)

        assert await world.runtime.questions() == []
        assert await statuses(world, waits.run_id) == ["cancelled"]


@FILE
async def test_approvals_are_refused_where_a_tool_is_not_idempotent(play: Play) -> None:
    @tool
    async def hand_over(context: ToolContext) -> str:
        """Delegate from a tool that must not run twice."""
        return str((await delegate(context, clean("/a"))).result)

    async with play(respond) as world:
        agent = Agent(tools=[erase, hand_over], delegation=True)
        result = await world.run(agent, thread="t")

        assert result.ok and erased == []
        assert await world.runtime.questions(status=None) == []
        assert REFUSED in await result_text(world)
        assert await statuses(world, result.run_id) == ["succeeded"]
