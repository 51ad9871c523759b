"""How workflows end and resume."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from agent_runtime import (
    Agent,
    NodeFailed,
    Runtime,
    ScriptedModel,
    Settings,
    ToolContext,
    Workflow,
    WorkflowContext,
    tool,
)
from agent_runtime.errors import ConfigError, Conflict, ModelRejected, WorkflowDiverged
from agent_runtime.models.base import ModelRequest
from agent_runtime.models.scripted import call, say
from agent_runtime_storage.contract.records.log import Run
from tests.workflow.helpers import ECHO, local

pytestmark = pytest.mark.backends("file")


async def test_a_failed_last_node_runs_again_on_resume(
    runtime: Runtime,
) -> None:
    agent = Agent(ScriptedModel([ModelRejected("refused"), say("Now.")]), name="writer")
    tries: list[str] = []

    async def fail(name: str) -> None:
        tries.append(name)
        raise ValueError(name)

    @Workflow
    async def flow(w: WorkflowContext) -> str:
        for name in ("a", "b"):
            with pytest.raises(NodeFailed, match=f"ValueError: {name}"):
                await w.call("fail", fail, name)
        return await w.agent("write", agent, "Write.")

    with pytest.raises(NodeFailed, match="'write' failed: ModelRejected: refused") as failed:
        await runtime.run(flow, "Go.", thread="t")
    assert isinstance(failed.value.__cause__, ModelRejected)
    [run] = await local(runtime).runs.list(thread_id="t")
    assert (run.status, run.stop_reason) == ("failed", "error")
    result = await runtime.resume(run.id, flow)
    # Nodes whose failure the workflow handled stay as they were; the agent continued in its own
    # run.
    assert (result.output, tries) == ("Now.", ["a", "b"])
    assert len(await local(runtime).runs.list(parent_run_id=run.id)) == 1


@pytest.mark.parametrize("stage", ["steps", "limit"])
async def test_an_agent_stopped_by_a_limit_is_a_failed_node(runtime: Runtime, stage: str) -> None:
    endless = Agent(ScriptedModel([call("nothing")] * 9), max_steps=2, name="endless")

    @Workflow
    async def flow(w: WorkflowContext) -> str:
        with pytest.raises(NodeFailed) as failed:
            await w.agent("work", endless)
        return failed.value.stop_reason

    if stage == "steps":
        assert (await runtime.run(flow, "Go.")).output == "max_steps"
        return
    limited = Workflow(flow.flow, max_steps=2)

    @Workflow
    async def endless_flow(w: WorkflowContext) -> None:
        while True:
            await w.call("again", int)

    result = await runtime.run(Workflow(endless_flow.flow, max_steps=3), "Go.")
    assert (result.status, result.stop_reason, result.steps) == ("failed", "max_steps", 3)
    resumed = await runtime.resume(result.run_id, Workflow(endless_flow.flow, max_steps=3))
    assert resumed.steps == 6
    assert (await runtime.run(limited, "Go.", thread="limited")).output == "max_steps"


async def test_the_budget_of_the_tree_ends_it(database_url: str) -> None:
    @Workflow
    async def flow(w: WorkflowContext) -> None:
        while True:
            await w.agent("say", Agent(ScriptedModel([say("Words.")], max_output=500)))

    settings = Settings(database_url=database_url, budget_tokens=3000)
    async with Runtime.open(settings) as runtime:
        result = await runtime.run(flow, "Go.")
        root = await local(runtime).runs.get(result.run_id)
    assert (result.status, result.stop_reason) == ("failed", "budget")
    used = result.usage.prompt_tokens + result.usage.completion_tokens
    assert 0 < root.settled.tokens == used <= 3000
    assert root.reserved.tokens == 0


async def test_a_cancel_reaches_every_inner_run_and_a_resume_continues_them(
    runtime: Runtime,
) -> None:
    began, hanging = anyio.Event(), True

    @tool(idempotent=True)
    async def hang() -> str:
        """Hang until the run is resumed."""
        began.set()
        if hanging:
            await anyio.sleep_forever()
        return "over"

    def respond(request: ModelRequest) -> Any:
        return say("Deep.") if request.messages[-1].role == "tool" else call("hang")

    @Workflow
    async def inner(w: WorkflowContext) -> str:
        return await w.agent("deep", Agent(ScriptedModel(respond), tools=[hang]))

    ran: list[str] = []

    @Workflow
    async def outer(w: WorkflowContext) -> str:
        await w.call("before", ran.append, "before")
        text: str = await w.workflow("inner", inner)
        await w.call("after", ran.append, "after")
        return text

    async with anyio.create_task_group() as group:

        async def run() -> None:
            result = await runtime.run(outer, "Go.", thread="t")
            assert (result.status, result.stop_reason) == ("cancelled", "cancelled")

        group.start_soon(run)
        await began.wait()
        [at_work] = await local(runtime).runs.list(thread_id="t")
        assert len(await runtime.cancel(at_work.id)) == 3
    [root] = await local(runtime).runs.list(thread_id="t")
    runs = await local(runtime).runs.list(root_run_id=root.id)
    assert [run.status for run in runs] == ["cancelled"] * 3
    hanging = False
    assert (await runtime.resume(root.id, outer)).output == "Deep."
    runs = await local(runtime).runs.list(root_run_id=root.id)
    assert [run.status for run in runs] == ["succeeded"] * 3
    assert ran == ["before", "after"]


async def test_a_cancel_first_seen_by_a_child_cancels_the_workflow_too(
    runtime: Runtime,
) -> None:
    @tool
    async def cancel_all(context: ToolContext) -> str:
        """Cancel the whole tree; the child is the first to check."""
        await runtime.cancel((await context.store.runs.get(context.run_id)).root_run_id)
        return "cancelled"

    child = Agent(ScriptedModel([call("cancel_all"), say("Too late.")]), tools=[cancel_all])

    @Workflow
    async def flow(w: WorkflowContext) -> None:
        await w.agent("child", child)

    result = await runtime.run(flow, "Go.")
    assert (result.status, result.stop_reason) == ("cancelled", "cancelled")


async def test_a_workflow_that_runs_itself_is_stopped(runtime: Runtime) -> None:
    async def deeper(w: WorkflowContext) -> Any:
        return await w.workflow("self", Workflow(deeper))

    with pytest.raises(NodeFailed, match="nested deeper than 10 runs") as failed:
        await runtime.run(Workflow(deeper), "Go.", thread="t")
    path = " > ".join(["'self'"] * 10)
    assert failed.value.message.startswith(f"The node {path} failed: ConfigError: The node 'self'")
    [root] = await local(runtime).runs.list(thread_id="t")
    assert len(await local(runtime).runs.list(root_run_id=root.id)) == 11


# Whether a resumed run takes the same course


async def failing_after(runtime: Runtime, flow: Workflow) -> Run:
    """Run a workflow on its own thread until it fails; return its run."""
    with pytest.raises(ValueError, match="later"):
        await runtime.run(flow, "Go.", thread="t")
    [run] = await local(runtime).runs.list(thread_id="t")
    return run


async def later(w: WorkflowContext) -> None:
    """Run two nodes, then fail."""
    await w.call("a", int, 1)
    await w.call("b", int, 2)
    raise ValueError("later")


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ([("a", 1), ("c", 3)], "has the node 'b'"),
        ([("a", 1), ("b", 3)], "'b' .* other arguments"),
        ([("a", 1)], "did not ask for it"),
        ([("b", 2), ("a", 1)], None),
    ],
)
async def test_a_workflow_that_requests_other_nodes_than_before_is_stopped(
    runtime: Runtime, asked: list[tuple[str, int]], message: str | None
) -> None:
    run = await failing_after(runtime, Workflow(later))

    async def other(w: WorkflowContext) -> str:
        for name, value in asked:
            try:
                await w.call(name, int, value)
            except Exception:
                return "swallowed"
        return "done"

    if message is None:
        assert (await runtime.resume(run.id, Workflow(other))).output == "done"
        return
    with pytest.raises(WorkflowDiverged, match=message) as error:
        await runtime.resume(run.id, Workflow(other))
    assert "deterministic" in error.value.cure
    assert (await local(runtime).runs.get(run.id)).status == "failed"


async def test_a_run_is_resumed_only_by_the_workflow_or_agent_that_started_it(
    runtime: Runtime,
) -> None:
    agent = Agent(ScriptedModel([call("nothing")]), max_steps=1)
    stopped = await runtime.run(agent, "Go.")
    with pytest.raises(ConfigError, match="is that of an agent") as error:
        await runtime.resume(stopped.run_id, Workflow(later))
    assert error.value.cure
    run = await failing_after(runtime, Workflow(later))
    with pytest.raises(ConfigError, match="is that of a workflow, 'later'"):
        await runtime.resume(run.id, agent)


async def test_a_workflow_cannot_be_steered_but_its_agents_can(runtime: Runtime) -> None:
    refused: list[str] = []

    @tool
    async def steer(context: ToolContext) -> str:
        """Steer the workflow, and then the agent that works."""
        root = (await context.store.runs.get(context.run_id)).root_run_id
        with pytest.raises(Conflict, match="reads no messages") as error:
            await runtime.steer(root, "Faster.")
        refused.append(error.value.cure)
        await runtime.steer(context.run_id, "Faster.")
        return "said"

    model = ScriptedModel([call("steer"), say("Fast.")])

    @Workflow
    async def flow(w: WorkflowContext) -> str:
        return await w.agent("work", Agent(model, tools=[steer]))

    assert (await runtime.run(flow, "Go.")).output == "Fast."
    assert len(refused) == 1 and "Faster." in model.requests[-1].messages[-1].text


async def test_invalid_workflows_and_nodes_are_reported() -> None:
    def sync(w: Any) -> Any:
        del w

    with pytest.raises(ConfigError, match="not an async function"):
        Workflow(sync)
    with pytest.raises(ConfigError, match="'my flow' is not a valid name"):
        Workflow(later, name="my flow")
    with pytest.raises(ConfigError, match="negative"):
        Workflow(later, history_messages=-1)


async def test_an_invalid_node_name_is_reported_before_anything_runs(runtime: Runtime) -> None:
    @Workflow
    async def flow(w: WorkflowContext) -> None:
        with pytest.raises(ConfigError, match="'no name' is not a valid name for a node"):
            await w.call("no name", int)
        with pytest.raises(ConfigError, match="'' is not a valid name for a node"):
            await w.agent("", ECHO)

    assert (await runtime.run(flow, "Go.")).steps == 0
