"""A workflow that waits for a person is killed, closed or cancelled, or asks twice at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
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
from agent_runtime.errors import QuestionClosed, QuestionsOpen
from agent_runtime.models.base import ModelRequest
from agent_runtime.models.scripted import Scripted, call, say
from tests.workflow.asking_elsewhere import asker, asking, flow

FILE = pytest.mark.backends("file")


def effects(path: Path) -> list[str]:
    """Return the effects so far."""
    return path.read_text().splitlines() if path.exists() else []


@pytest.mark.parametrize(
    ("way", "answered_first"),
    [
        ("agent", False),
        pytest.param("agent", True, marks=pytest.mark.slow),
        pytest.param("workflow", False, marks=pytest.mark.slow),
        pytest.param("workflow", True, marks=pytest.mark.slow),
        pytest.param("delegate", False, marks=pytest.mark.slow),
        pytest.param("delegate", True, marks=pytest.mark.slow),
    ],
)
@pytest.mark.backends("file", "postgres")
async def test_after_a_kill_the_question_is_answered_and_the_workflow_resumes(
    database_url: str, tmp_path: Path, way: str, answered_first: bool
) -> None:
    """One node asks and another one works when the process is killed."""
    path = tmp_path / "effects"
    async with Runtime.open(Settings(database_url=database_url)) as runtime:
        async with asking(database_url, path, way) as other:
            while (await other.line())["kind"] != "run-suspend":
                pass
            await other.kill()
        [root] = await runtime.store_of().runs.list(thread_id="t")
        [question] = await runtime.questions(thread="t")
        assert root.status == "running" and effects(path) == []
        if answered_first:
            assert await runtime.answer(question.id, True)
        else:
            waits = await runtime.resume(root.id, flow(path, way))
            # The same question, asked once.
            assert list(waits.questions) == [question]
            assert await runtime.questions(thread="t", status=None) == [question]
            assert (await runtime.sweep()).resumable == ()
            assert await runtime.answer(question.id, True)
            assert [run.id for run in (await runtime.sweep()).resumable] == [root.id]
        result = await runtime.resume(root.id, flow(path, way))
        runs = await runtime.store_of().runs.list(root_run_id=root.id)

    [done, sibling] = result.require_output()
    assert sibling == "sibling" and "a is done" in str(done)
    assert effects(path) == ["a"]
    assert len(runs) == 2 and {run.status for run in runs} == {"succeeded"}


@FILE
@pytest.mark.parametrize("first", [0, 1])
async def test_two_nodes_that_ask_at_once_are_answered_in_either_order(
    runtime: Runtime, tmp_path: Path, first: int
) -> None:
    path = tmp_path / "effects"

    async def outer(w: WorkflowContext) -> list[Any]:
        return await w.gather(*(w.agent(name, asker(path, name), "Go.") for name in ("a", "b")))

    both = Workflow(outer, name="both")
    waits = await runtime.run(both, "Go.", thread="t")
    questions = sorted(waits.questions, key=lambda one: str(one.arguments["name"]))
    assert [one.arguments["name"] for one in questions] == ["a", "b"]
    # The first to be answered is refused, the other one allowed.
    assert not await runtime.answer(questions[first].id, Decision(False, "Not this."))
    with pytest.raises(QuestionsOpen, match=questions[1 - first].id):
        await runtime.resume(waits.run_id, both)
    with pytest.raises(QuestionClosed):
        await runtime.answer(questions[first].id, True)
    assert effects(path) == []
    assert await runtime.answer(questions[1 - first].id, True)

    result = await runtime.resume(waits.run_id, both)

    texts = result.require_output()
    assert "Not this." in texts[first] and "is done" in texts[1 - first]
    assert effects(path) == ["ab"[1 - first]]
    runs = await runtime.store_of().runs.list(root_run_id=waits.run_id)
    assert len(runs) == 3 and {run.status for run in runs} == {"succeeded"}


def delegating(path: Path, began: anyio.Event | None = None) -> Workflow:
    """Return a workflow whose sub-agent works, then asks; it works on for ever with an event."""

    @tool(idempotent=True)
    async def work() -> str:
        """Work."""
        if began is not None:
            began.set()
            await anyio.sleep_forever()
        return "worked"

    def respond(request: ModelRequest) -> Scripted:
        results = [message.text for message in request.messages if message.role == "tool"]
        if not results:
            return call("work")
        return call("effect", name="a") if len(results) == 1 else say(results[-1])

    agent = asker(path, "a")

    async def outer(w: WorkflowContext) -> str:
        order = Assignment(
            role="doer",
            instructions="Do it.",
            tools=[*agent.tools, work],
            model=ScriptedModel(respond),
        )
        return str((await w.delegate("ask", order)).result)

    return Workflow(outer, name="outer")


@pytest.mark.backends("file", "postgres")
async def test_a_closing_runtime_leaves_a_workflow_that_delegates_resumable(
    database_url: str, tmp_path: Path
) -> None:
    path, began = tmp_path / "effects", anyio.Event()
    settings = Settings(database_url=database_url, drain_timeout=0, pause_timeout=0)
    async with Runtime.open(settings) as runtime:
        # Closed while the sub-agent works.
        started = await runtime.start(delegating(path, began), "Go.", thread="t")
        await began.wait()
    async with Runtime.open(settings) as runtime:
        runs = await runtime.store_of().runs.list(root_run_id=started.run_id)
        assert [run.status for run in runs] == ["suspended"] * 2
        assert {run.stop_reason for run in runs} == {"interrupted"}
        waits = await runtime.resume(started.run_id, delegating(path))
        assert waits.stop_reason == "awaiting_user"
    async with Runtime.open(settings) as runtime:
        # Closed while it waits: that changes nothing.
        [question] = await runtime.questions(thread="t")
        assert effects(path) == [] and question.role == "doer"
        assert await runtime.answer(question.id, True)
        result = await runtime.resume(started.run_id, delegating(path))
        runs = await runtime.store_of().runs.list(root_run_id=started.run_id)
    assert result.output == "a is done" and effects(path) == ["a"]
    assert len(runs) == 2 and {run.status for run in runs} == {"succeeded"}


@FILE
@pytest.mark.parametrize("way", ["agent", "workflow", "delegate"])
async def test_an_answer_after_a_cancellation_is_refused(
    runtime: Runtime, tmp_path: Path, way: str
) -> None:
    path = tmp_path / "effects"
    waits = await runtime.run(flow(path, way), "Go.", thread="t")
    [question] = waits.questions
    assert len(await runtime.cancel(waits.run_id)) == 2
    with pytest.raises(QuestionClosed, match="withdrawn"):
        await runtime.answer(question.id, True)
    runs = await runtime.store_of().runs.list(root_run_id=waits.run_id)
    assert {run.status for run in runs} == {"cancelled"} and effects(path) == []
    # Resumed all the same, a function asks again, and a model reads that its call did not run.
    again = await runtime.resume(waits.run_id, flow(path, way))
    assert len(again.questions) == (way == "workflow") and effects(path) == []


@FILE
async def test_an_agent_of_a_workflow_asks_the_user(runtime: Runtime) -> None:
    agent = Agent(
        ScriptedModel([call("ask_user", question="Which?", kind="text"), say("That one.")]),
        asking=True,
    )

    async def outer(w: WorkflowContext) -> str:
        return await w.agent("ask", agent, "Go.")

    asks = Workflow(outer, name="asks")
    waits = await runtime.run(asks, "Go.")
    await runtime.answer(waits.questions[0].id, "The blue one.")
    assert (await runtime.resume(waits.run_id, asks)).output == "That one."
