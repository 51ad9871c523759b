"""A workflow waits for a person with the agents that are its nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent_runtime import (
    Agent,
    Assignment,
    Decision,
    Runtime,
    ScriptedModel,
    Settings,
    Workflow,
    WorkflowContext,
    tool,
)
from agent_runtime.errors import QuestionsOpen
from agent_runtime.models.base import ModelRequest
from agent_runtime.models.scripted import Scripted, call, say

ran: list[str] = []


@pytest.fixture(autouse=True)
def forget() -> None:
    """Clear the record of calls."""
    ran.clear()


@tool(needs_approval=True)
def deploy(version: str) -> str:
    """Deploy a version."""
    ran.append(version)
    return f"{version} is live"


def respond(request: ModelRequest) -> Scripted:
    """Deploy once, then repeat the call's result."""
    results = [message.text for message in request.messages if message.role == "tool"]
    return say(results[-1]) if results else call("deploy", version="7")


def flow(way: str) -> Workflow:
    """Return a workflow, made again as another process would, with an agent that deploys."""
    agent = Agent(ScriptedModel(respond), tools=[deploy], name="deployer")

    def count() -> str:
        ran.append("counted")
        return "one"

    async def inner(w: WorkflowContext) -> str:
        return await w.agent("deploy", agent, "Deploy it.")

    async def outer(w: WorkflowContext) -> list[Any]:
        if way == "agent":
            work: Any = inner(w)
        elif way == "workflow":
            work = w.workflow("inside", Workflow(inner, name="inner"), "Go.")
        else:
            order = Assignment(
                role="deployer",
                instructions="Deploy it.",
                tools=[deploy],
                model=ScriptedModel(respond),
            )
            work = w.delegate("deploy", order)
        return [*await w.gather(work, w.call("count", count)), await w.call("last", count)]

    return Workflow(outer, name="outer")


@pytest.mark.parametrize("allow", [True, False])
@pytest.mark.parametrize("way", ["agent", "workflow", "delegate"])
async def test_a_workflow_waits_with_a_node_that_needs_an_approval(
    tmp_path: Path, way: str, allow: bool
) -> None:
    settings = Settings(database_url=str(tmp_path / "runs.db"))
    async with Runtime.open(settings) as runtime:
        waits = await runtime.run(flow(way), "Go.", thread="t")
        [question] = waits.questions
        assert (waits.status, waits.stop_reason) == ("suspended", "awaiting_user")
        assert question.arguments == {"version": "7"} and ran == ["counted"]
        assert await runtime.questions(thread="t") == [question]
        with pytest.raises(QuestionsOpen):
            await runtime.resume(waits.run_id, flow(way))

    async with Runtime.open(settings) as runtime:
        assert await runtime.answer(question.id, Decision(allow))
        assert [run.id for run in (await runtime.sweep()).resumable] == [waits.run_id]
        result = await runtime.resume(waits.run_id, flow(way))
        [first, *rest] = result.require_output()
        text = first["result"] if way == "delegate" else first
        runs = await runtime.store.of("local").runs.list(root_run_id=waits.run_id)

    assert ("7 is live" if allow else "did not allow") in text
    # Neither the sibling node nor the approved call ran twice.
    assert rest == ["one", "one"]
    assert ran == ["counted", *(["7"] if allow else []), "counted"]
    assert {run.status for run in runs} == {"succeeded"}
    assert len(runs) == (3 if way == "workflow" else 2)


async def test_a_question_that_is_answered_in_the_same_call_continues_the_workflow(
    tmp_path: Path,
) -> None:
    async def allow(question: Any) -> Decision:
        return Decision(True)

    async with Runtime.open(Settings(database_url=str(tmp_path / "runs.db"))) as runtime:
        result = await runtime.run(flow("agent"), "Go.", on_question=allow)
    assert result.require_output() == ["7 is live", "one", "one"]
    assert ran == ["counted", "7", "counted"]
