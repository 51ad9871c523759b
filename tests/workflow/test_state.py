"""Inputs and outputs of a workflow's nodes, and the state that they share."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import pytest
from pydantic import BaseModel

from agent_runtime import (
    Agent,
    NodeFailed,
    Runtime,
    ScriptedModel,
    ToolContext,
    Workflow,
    WorkflowContext,
    tool,
)
from agent_runtime.errors import ConfigError
from agent_runtime.log.run_spec import RunSpec
from agent_runtime.models.scripted import call, say
from agent_runtime.workflow.values import SHOWN_CHARS
from tests.workflow.helpers import ECHO, answering, local, sent, texts

pytestmark = pytest.mark.backends("file")


async def test_each_agent_adds_one_message_to_the_shared_state_and_its_trace_stays_in_its_thread(
    runtime: Runtime,
) -> None:
    @tool
    async def look() -> str:
        """Look."""
        return "seen"

    agent = Agent(ScriptedModel([call("look"), call("look"), say("Found.")]), tools=[look])
    states: list[list[str]] = []

    @Workflow
    async def flow(w: WorkflowContext) -> None:
        await w.agent("find", agent)
        states.append(texts(w.messages))
        await w.call("count", len, "four")
        states.append(texts(w.messages))
        assert w.node_outputs == {"find": "Found.", "count": 4}

    result = await runtime.run(flow, "Go.")
    assert states == [["Go.", "Found."]] * 2
    [child] = await local(runtime).runs.list(parent_run_id=result.run_id)
    assert (child.root_run_id, RunSpec.of(child).node, child.steps) == (result.run_id, "find", 3)
    assert await sent(runtime, child.id) == ["Go.", "", "", "Found."]
    assert await sent(runtime, result.run_id) == ["Go.", "", "", "(no result)"]


async def test_a_childs_input_is_the_last_message_a_nodes_output_or_nothing(
    runtime: Runtime,
) -> None:
    @Workflow
    async def flow(w: WorkflowContext) -> list[str]:
        await w.call("facts", dict, moon=1)
        await w.agent("first", answering("First."))
        given = [await w.agent("a", ECHO)]
        given.append(await w.agent("b", ECHO, input_source="node_output", source_node_id="first"))
        given.append(await w.agent("c", ECHO, input_source="node_output", source_node_id="facts"))
        given.append(await w.agent("d", ECHO, input_source="none"))
        given.append(await w.agent("e", ECHO, "Just this."))
        with pytest.raises(ConfigError, match="No node 'nowhere' has an output") as error:
            await w.agent("f", ECHO, input_source="node_output", source_node_id="nowhere")
        assert "facts, first" in error.value.cure
        return given

    result = await runtime.run(flow, "Go.")
    assert result.output == ["First.", "First.", '{"moon":1}', "(no input)", "Just this."]


async def test_a_child_starts_without_messages_unless_it_shares_them(
    runtime: Runtime,
) -> None:
    @Workflow
    async def flow(w: WorkflowContext) -> list[str]:
        alone = await w.agent("alone", ECHO, "And?")
        return [alone, await w.agent("seeing", ECHO, "And?", history=True)]

    await runtime.run(flow, "One.", thread="t")
    result = await runtime.run(flow, "Two.", thread="t")
    assert result.output == ["And?", 'One. | ["And?","One. | And? | And?"] | Two. | And? | And?']


async def test_inner_runs_inherit_the_user_context(runtime: Runtime) -> None:
    @tool
    async def who(context: ToolContext) -> str:
        """Return who the user is."""
        return str(context.user_context["name"])

    def agent() -> Agent:
        model = ScriptedModel(
            lambda request: request.messages[-1].text if len(request.messages) > 2 else call("who")
        )
        return Agent(model, tools=[who])

    @Workflow
    async def inner(w: WorkflowContext) -> list[str]:
        return [w.user_context["name"], await w.agent("agent", agent())]

    @Workflow
    async def outer(w: WorkflowContext) -> list[Any]:
        return [await w.agent("agent", agent()), await w.workflow("inner", inner)]

    result = await runtime.run(outer, "Who?", user_context={"name": "Ada"})
    assert result.output == ["Ada", ["Ada", "Ada"]]


async def test_a_workflow_as_a_node_has_its_own_thread_and_state(runtime: Runtime) -> None:
    @Workflow
    async def inner(w: WorkflowContext) -> dict[str, Any]:
        await w.agent("write", answering("Inner text."))
        assert texts(w.messages) == ["First.", "Inner text."]
        return {"text": w.node_outputs["write"], "input": w.input}

    @Workflow
    async def outer(w: WorkflowContext) -> list[str]:
        await w.agent("write", answering("First."))
        value = await w.workflow("inner", inner)
        assert value == w.node_outputs["inner"] == {"text": "Inner text.", "input": "First."}
        assert w.node_outputs["write"] == "First."
        empty = await w.workflow("nothing", Workflow(_input, name="input"), input_source="none")
        return [*texts(w.messages), empty]

    async def _input(w: WorkflowContext) -> str:
        return w.input

    result = await runtime.run(outer, "Go.")
    assert result.output == [
        "Go.",
        "First.",
        '{"text":"Inner text.","input":"First."}',
        "(no result)",
        "",
    ]
    runs = {run.agent: run for run in await local(runtime).runs.list(root_run_id=result.run_id)}
    assert runs["inner"].parent_run_id == result.run_id
    assert len({run.thread_id for run in runs.values()}) == len(runs)


# Values


class Point(BaseModel):
    """A value."""

    x: int
    y: int = 0


@dataclass
class Pair:
    """Another value."""

    left: str
    right: set[int]


def pair(left: str) -> Pair:
    """Return a pair, created in a worker thread."""
    with pytest.raises(RuntimeError):
        asyncio.get_running_loop()
    return Pair(left, {2, 1})


async def move(point: Point, by: int) -> Point:
    """Move a point."""
    return Point(x=point.x + by)


async def test_values_are_equal_after_a_resume(runtime: Runtime) -> None:
    model = ScriptedModel([call("final_result", x=7)])
    seen: list[list[Any]] = []
    broken = True

    @Workflow
    async def flow(w: WorkflowContext) -> None:
        point: Point = await w.agent("find", Agent(model, output_type=Point))
        moved = await w.call("move", move, point, by=3)
        both = await w.call("pair", pair, "1")
        digits = await w.call("digits", str, 12)
        seen.append([point, moved, both, digits])
        if broken:
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await runtime.run(flow, "Go.", thread="t")
    [run] = await local(runtime).runs.list(thread_id="t")
    broken = False
    await runtime.resume(run.id, flow)
    expected = [Point(x=7), Point(x=10), Pair("1", {1, 2}), "12"]
    assert seen == [expected, expected]
    assert len(model.requests) == 1


def kind_of(value: object) -> str:
    """Return the name of a value's type."""
    return type(value).__name__


def nested(depth: int) -> list[Any]:
    """Return lists in lists."""
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def circular() -> list[Any]:
    """Return a list that holds itself."""
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    "make", [lambda: nested(300), lambda: nested(5000), circular, lambda: {(1, 2): 3}]
)
async def test_values_without_an_end_are_refused_with_their_cause(
    runtime: Runtime, make: Callable[[], Any]
) -> None:
    @Workflow
    async def flow(w: WorkflowContext) -> Any:
        with pytest.raises(NodeFailed, match="JSON cannot hold"):
            await w.call("bad", make)
        with pytest.raises(ConfigError, match="cannot be recorded"):
            await w.call("given", kind_of, make())
        return make()

    with pytest.raises(ConfigError, match="JSON cannot hold"):
        await runtime.run(flow, "Go.")


@pytest.mark.parametrize("number", [math.nan, [math.inf], {"score": -math.inf}])
async def test_an_output_that_no_reader_can_decode_fails_the_run(
    runtime: Runtime, number: object
) -> None:
    @Workflow
    async def flow(w: WorkflowContext) -> Any:
        return await w.call("score", lambda: number)

    with pytest.raises(ConfigError, match="infinite"):
        await runtime.run(flow, "Go.", thread="t")
    [run] = await local(runtime).runs.list(thread_id="t")
    assert run.status == "failed" and not run.output


async def test_half_a_surrogate_pair_is_no_reason_to_fail(runtime: Runtime) -> None:
    @Workflow
    async def flow(w: WorkflowContext) -> Any:
        return await w.call("read", lambda: "a\ud800")

    assert (await runtime.run(flow, "Go.")).output == "a\ufffd"


async def test_a_long_output_is_whole_in_the_result_and_short_in_the_thread(
    runtime: Runtime,
) -> None:
    @Workflow
    async def flow(w: WorkflowContext) -> Any:
        return await w.call("read", lambda: "word " * 60_000)

    result = await runtime.run(flow, "Go.", thread="t")
    assert result.output == "word " * 60_000
    *_, answer = await runtime.threads.messages("t")
    assert answer.text is not None and len(answer.text) < SHOWN_CHARS + 100
    assert answer.text.endswith("[... 200,000 more characters in the run's output ...]")


async def test_values_that_json_cannot_represent_are_refused(runtime: Runtime) -> None:
    @Workflow
    async def flow(w: WorkflowContext) -> str:
        with pytest.raises(NodeFailed, match="JSON cannot hold") as failed:
            await w.call("bad", object)
        assert isinstance(failed.value.__cause__, ConfigError)
        # As an argument it is identified by its type.
        return await w.call("good", kind_of, object())

    assert (await runtime.run(flow, "Go.")).output == "object"


def test_a_workflow_takes_its_context_alone() -> None:
    async def flow(w: WorkflowContext, task: str) -> str:
        return task

    with pytest.raises(ConfigError, match="with its context alone: missing a required argument"):
        Workflow(cast("Any", flow))
