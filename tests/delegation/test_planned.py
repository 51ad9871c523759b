"""A task whose key is a plan item: the plan shows its status."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

import pytest

from agent_runtime import Agent
from agent_runtime.models.base import ModelRequest
from agent_runtime.models.scripted import Scripted, call, say
from tests.delegation.helpers import is_child, playing, step
from tests.support.worlds import Play, double

pytestmark = pytest.mark.backends("file")


@pytest.mark.parametrize(
    ("answer", "status", "result"),
    [
        ("It is read.", "completed", "It is read."),
        ("# Result\n\nIt is read.\n\nstate: {}", "completed", "# Result It is read."),
        ('[{"a": 1}]', "completed", '[{"a": 1}]'),
        ("", "failed", "empty"),
    ],
)
async def test_the_item_has_the_status_of_its_task(
    play: Play, answer: str, status: str, result: str
) -> None:
    steps: list[dict[str, Any]] = [
        {"id": "read", "description": "Read.", "phase": "execute"},
        {"id": "write", "description": "Write.", "phase": "execute"},
    ]
    seen: list[str] = []

    async def child(request: ModelRequest) -> Scripted:
        plan = await world.runtime.plans.current("t")
        assert plan is not None
        seen.extend(item.status for item in plan.items)
        return say(answer)

    parent = [
        call("plan", action="create", goal="Read and write.", steps=steps),
        call("delegate", role="reader", instructions="Read.", task_key="read"),
        say("Done."),
    ]

    def respond(request: ModelRequest) -> Scripted | Awaitable[Scripted]:
        return child(request) if is_child(request) else parent[step(request)]

    async with play(respond) as world:
        agent = Agent(tools=[double], delegation=True, planning=True)
        assert (await world.run(agent, thread="t")).ok
        plan = await world.runtime.plans.current("t")
    assert seen[:2] == ["in_progress", "pending"]
    assert plan is not None
    assert [item.status for item in plan.items] == [status, "pending"]
    assert result in str(plan.items[0].result)


async def test_a_task_whose_key_is_not_an_item_leaves_the_plan_unchanged(play: Play) -> None:
    steps = [{"id": "write", "description": "Write.", "phase": "execute"}]
    parent = [
        call("plan", action="create", goal="Write.", steps=steps),
        call("delegate", role="reader", instructions="Read.", task_key="read"),
        say("Done."),
    ]
    async with play(playing(parent, lambda request, number: say("Read."))) as world:
        agent = Agent(tools=[double], delegation=True, planning=True)
        assert (await world.run(agent, thread="t")).ok
        plans = await world.runtime.plans.versions("t")
    assert len(plans) == 1
