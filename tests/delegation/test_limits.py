"""Limits of delegation: tools, models, artifacts, depth and concurrency."""

from __future__ import annotations

from typing import Any

import anyio
import anyio.lowlevel
import pytest

from agent_runtime import Agent, Delegation, ToolContext, tool
from agent_runtime.delegation.assignment import Assignment
from agent_runtime.delegation.delegate import delegate
from agent_runtime.errors import ConfigError
from agent_runtime.models.base import ModelRequest
from agent_runtime.models.scripted import Scripted, call, calls, raw_call, say
from tests.delegation.helpers import is_child, outcomes, playing, step
from tests.support.worlds import Play, double

pytestmark = pytest.mark.backends("file")


@tool
def look() -> str:
    """Look."""
    return "seen"


@tool(needs_approval=True)
def danger() -> str:
    """Do something that needs approval."""
    return "done"


def never(request: ModelRequest, number: int) -> Scripted:
    """Fail if a sub-agent's model is called."""
    raise AssertionError("a sub-agent was called")


async def refusal(play: Play, policy: bool | Delegation = True, **order: Any) -> str:
    """Return why a task was refused without a model call."""
    arguments = {"role": "worker", "instructions": "Work."} | order
    async with play(playing([call("delegate", **arguments), say("Done.")], never)) as world:
        agent = Agent(tools=[double, look, danger], delegation=policy)
        result = await world.run(agent)
        [outcome] = await outcomes(world, result)
        [(ends, _)] = await world.results(result.thread_id)
        runs = await world.store.runs.list(parent_run_id=result.run_id)
    assert (outcome["status"], outcome["stop_reason"], ends) == ("failed", "refused", "refused")
    assert runs == []
    return outcome["blockers"][0]


@pytest.mark.parametrize("name", ["fly", "delegate", "plan", "ask_user", "danger", "look"])
async def test_unknown_and_forbidden_tools_are_refused_before_any_call(
    play: Play, name: str
) -> None:
    arguments: dict[str, Any] = {"tools": ["double", name], "background": True}
    why = await refusal(play, Delegation(tools=["double"]), **arguments)
    assert why == (f"A sub-agent cannot be given: {name}. The tools that you can give are: double.")


async def test_another_model_is_refused_unless_the_policy_names_it(play: Play) -> None:
    why = await refusal(play, Delegation(models=["cheap"]), model="dear")
    assert "'dear'" in why and "cheap" in why


@pytest.mark.parametrize("reference", ["tool:0190", "c00000zzz"])
async def test_an_unknown_artifact_is_refused(play: Play, reference: str) -> None:
    assert reference in await refusal(play, artifacts=[reference])


async def test_a_task_without_a_role_or_instructions_is_refused(play: Play) -> None:
    assert "must not be empty" in await refusal(play, instructions=" ")


async def test_a_policy_with_a_tool_that_the_agent_lacks_is_a_named_error(play: Play) -> None:
    async with play([say("never")]) as world:
        with pytest.raises(ConfigError, match="fly"):
            await world.run(Agent(tools=[double], delegation=Delegation(tools=["fly"])))


async def tools_of_children(play: Play, depth: int, **order: Any) -> list[list[str]]:
    """Return each sub-agent's tools, where each delegates if it can."""
    seen: list[list[str]] = []

    def respond(request: ModelRequest) -> Scripted:
        names = [one.name for one in request.tools]
        if is_child(request) and step(request) == 0:
            seen.append(names)
        if step(request) or "delegate" not in names:
            return say("Done.")
        return call("delegate", role="worker", instructions="Work.", **order)

    async with play(respond, settings={"delegation_depth": depth}) as world:
        assert (await world.run(Agent(tools=[double, look], delegation=True))).ok
    return seen


@pytest.mark.parametrize("depth", [0, 1, 2, 3])
async def test_no_agent_delegates_below_the_depth_limit(play: Play, depth: int) -> None:
    seen = await tools_of_children(play, depth)
    assert len(seen) == depth
    for level, names in enumerate(seen, 1):
        assert ("delegate" in names) == (level < depth)


async def test_a_sub_agent_has_exactly_the_tools_assigned(play: Play) -> None:
    assert await tools_of_children(play, 1, tools=["look"]) == [["look", "recall"]]
    assert await tools_of_children(play, 1, tools=[]) == [[]]


async def test_code_cannot_delegate_below_the_depth_limit_either(play: Play) -> None:
    @tool
    async def dig(context: ToolContext) -> str:
        """Delegate one level deeper."""
        order = Assignment(role="r", instructions="i", tools=[dig])
        return (await delegate(context, order)).tool_result().text

    def respond(request: ModelRequest) -> Scripted:
        return call("dig") if step(request) == 0 else say(request.messages[-1].text)

    async with play(respond, settings={"delegation_depth": 2}) as world:
        result = await world.run(Agent(tools=[dig]))
        assert len(await world.store.runs.list(root_run_id=result.run_id)) == 3
    assert "AGENT_RUNTIME_DELEGATION_DEPTH" in str(result.output)


async def test_sub_agents_over_the_limit_wait_and_results_stay_in_order(
    play: Play,
) -> None:
    working, most = 0, 0
    full = anyio.Event()

    async def child(request: ModelRequest) -> Scripted:
        nonlocal working, most
        working += 1
        most = max(most, working)
        if working == 3:
            full.set()
        await full.wait()
        await anyio.lowlevel.checkpoint()
        working -= 1
        return say(request.messages[1].text.split("\n")[1])

    orders = [
        raw_call("delegate", role="r", instructions="i", briefing=f"part {n}") for n in range(7)
    ]

    def respond(request: ModelRequest) -> Any:
        if is_child(request):
            return child(request)
        return calls(*orders) if step(request) == 0 else say("Done.")

    async with play(respond, settings={"delegation_parallel": 3}) as world:
        result = await world.run(Agent(tools=[double], delegation=True))
        ends = await outcomes(world, result)
    assert most == 3
    assert [end["result"] for end in ends] == [f"part {n}" for n in range(7)]
