"""Nodes in loops and branches, and their events."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from agent_runtime import (
    Agent,
    Event,
    MemoryMode,
    NodeFailed,
    Runtime,
    ScriptedModel,
    Workflow,
    WorkflowContext,
)
from agent_runtime.log.run_spec import RunSpec
from tests.workflow.helpers import answering, echo, local

pytestmark = pytest.mark.backends("file")


async def test_a_node_in_a_loop_has_iterations(runtime: Runtime) -> None:
    scores = iter([0.2, 0.5, 0.9])

    @Workflow
    async def flow(w: WorkflowContext) -> list[Any]:
        while (await w.call("score", next, scores)) < 0.8:
            await w.agent("improve", answering(f"Version {len(w.outputs('improve')) + 1}."))
        return [w.outputs("score"), w.outputs("improve"), w.outputs("none")]

    result = await runtime.run(flow, "Go.")
    assert result.output == [[0.2, 0.5, 0.9], ["Version 1.", "Version 2."], []]
    children = await local(runtime).runs.list(parent_run_id=result.run_id)
    assert sorted(RunSpec.of(run).iteration for run in children) == [1, 2]


async def test_concurrent_nodes_run_at_once_and_return_in_order(
    runtime: Runtime,
) -> None:
    met = asyncio.Barrier(3)

    async def meet(number: int) -> int:
        # None of them can end before all have started.
        await met.wait()
        await anyio.sleep(0.01 * (3 - number))
        return number

    @Workflow
    async def flow(w: WorkflowContext) -> list[int]:
        async def branch(number: int) -> int:
            first = await w.call("meet", meet, number)
            return first + await w.call("meet", meet, number)

        values = await w.gather(*(branch(number) for number in range(3)))
        assert w.outputs("meet") == [0, 1, 2, 0, 1, 2]
        return values

    with anyio.fail_after(30):
        result = await runtime.run(flow, "Go.")
    assert result.output == [0, 2, 4]
    thread = await local(runtime).threads.get(result.thread_id)
    nodes = await local(runtime).log.branch(thread.id, thread.head or 0)
    assert [len(node.calls) for node in nodes] == [0, 3, 3, 0]


async def test_branches_may_branch_and_a_failing_one_ends_the_others(runtime: Runtime) -> None:
    async def fail() -> None:
        raise LookupError("nothing there")

    @Workflow
    async def flow(w: WorkflowContext) -> list[Any]:
        async def deeper(number: int) -> list[int]:
            return await w.gather(*(w.call("n", int, f"{number}{one}") for one in range(2)))

        values = await w.gather(*map(deeper, range(2)), deeper(5))
        assert await w.gather() == []
        with pytest.raises(NodeFailed, match="LookupError: nothing there") as failed:
            await w.gather(w.call("fail", fail), w.call("n", int, "7"))
        assert isinstance(failed.value.__cause__, LookupError)
        return [*values, await w.call("last", str, "end")]

    result = await runtime.run(flow, "Go.")
    assert result.output == [[0, 1], [10, 11], [50, 51], "end"]


async def test_nodes_in_the_flows_own_task_group_run_in_turn(runtime: Runtime) -> None:
    at_work = 0

    async def alone(number: int) -> int:
        nonlocal at_work
        at_work += 1
        await anyio.lowlevel.checkpoint()
        at_work -= 1
        return number + at_work

    @Workflow
    async def flow(w: WorkflowContext) -> list[int]:
        finished: list[int] = []

        async def one(number: int) -> None:
            finished.append(await w.call(f"node{number}", alone, number))

        async with anyio.create_task_group() as group:
            for number in range(3):
                group.start_soon(one, number)
        return sorted(finished)

    assert len((await runtime.run(flow, "Go.")).require_output()) == 3


async def test_a_workflow_streams_the_events_of_its_nodes(runtime: Runtime) -> None:
    @Workflow
    async def flow(w: WorkflowContext) -> str:
        await w.call("count", len, "four")
        return await w.agent("write", answering("Text."))

    events: list[Event] = []
    async with runtime.stream(flow, "Go.") as stream:
        async for event in stream:
            events.append(event)
    assert stream.result.output == "Text."
    own = [one for one in events if one.run_id == stream.run_id]
    assert [one.kind for one in own if one.kind.startswith(("run", "tool"))] == [
        "run-start",
        "tool-start",
        "tool-finish",
        "tool-start",
        "tool-finish",
        "run-finish",
    ]
    assert [one.data["tool"] for one in own if one.kind == "tool-start"] == ["count", "write"]
    assert [one.kind for one in events].count("run-start") == 2


async def test_an_agent_with_node_memory_continues_from_its_iterations(runtime: Runtime) -> None:
    agent = Agent(ScriptedModel(echo), name="critic", memory=MemoryMode.NODE)

    @Workflow
    async def flow(w: WorkflowContext) -> list[str]:
        return [await w.agent("critic", agent, text) for text in ("One?", "Two?")]

    assert (await runtime.run(flow, "Go.")).output == ["One?", "One? | One? | Two?"]
    again = (await runtime.run(flow, "Go.")).require_output()
    assert again[0].startswith("One? | One? | Two? | One?")
