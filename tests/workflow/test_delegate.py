"""`w.delegate`: sub-agents as nodes of a workflow."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_runtime import Assignment, Outcome, Runtime, ScriptedModel, Workflow, WorkflowContext
from agent_runtime.errors import ModelAuthError
from agent_runtime.models.base import ModelAnswer, ModelRequest
from agent_runtime.models.scripted import call, say
from agent_runtime_config import Settings
from agent_runtime_storage.contract.records.log import Run
from tests.workflow.elsewhere import EFFECTS, Effects, delegating, elsewhere
from tests.workflow.helpers import local


def assignment(
    model: ScriptedModel, key: str = "read", *, diagnosis: str = "", fix_applied: str = ""
) -> Assignment:
    """Return a task for a sub-agent, limited to one step."""
    return Assignment(
        role="reader",
        instructions="Read it.",
        task_key=key,
        model=model,
        max_steps=1,
        diagnosis=diagnosis,
        fix_applied=fix_applied,
    )


async def children(runtime: Runtime, run_id: str) -> list[Run]:
    """Return the sub-agents' runs of a run, oldest first."""
    runs = await local(runtime).runs.list(parent_run_id=run_id)
    return sorted(runs, key=lambda run: (run.created_at, run.id))


@pytest.mark.backends("file")
async def test_outcomes_are_returned_in_order_with_observed_facts(runtime: Runtime) -> None:
    models = [ScriptedModel([say("Sea")]), ScriptedModel([ModelAuthError("no key")])]

    @Workflow
    async def both(w: WorkflowContext) -> list[tuple[str, object, str]]:
        tasks = [assignment(one, f"task-{n}") for n, one in enumerate(models)]
        outcomes = await w.gather(*(w.delegate("read", task) for task in tasks))
        assert all(isinstance(outcome, Outcome) for outcome in outcomes)
        assert [w.messages[-1].text, len(w.outputs("read"))] == ["Go.", 2]
        return [(outcome.status, outcome.result, outcome.task_key) for outcome in outcomes]

    result = await runtime.run(both, "Go.")
    assert result.output == [["succeeded", "Sea", "task-0"], ["failed", "", "task-1"]]
    assert len(await children(runtime, result.run_id)) == 2
    assert "Go." not in str(models[0].requests[0].messages)


@pytest.mark.backends("file")
async def test_another_attempt_gets_the_log_of_the_first(runtime: Runtime) -> None:
    def respond(request: ModelRequest) -> ModelAnswer:
        again = "previous_attempts" in request.messages[1].text
        return say("Found it.") if again else call("recall", query="it")

    model = ScriptedModel(respond)

    @Workflow
    async def twice(w: WorkflowContext) -> list[str]:
        first = await w.delegate("read", assignment(model))
        assert (first.ok, first.stop_reason) == (False, "max_steps")
        fix = assignment(model, diagnosis="It searched.", fix_applied="Answer at once.")
        second = await w.delegate("read", fix)
        assert second.attempt == 2
        return [first.status, second.status, str(second.result)]

    result = await runtime.run(twice, "Go.")
    assert result.output == ["failed", "succeeded", "Found it."]
    attempts = model.requests[-1].messages[1].text
    assert "Attempt 1 (failed, max_steps)" in attempts
    assert "- diagnosis: It searched." in attempts and "- fix_applied: Answer at once." in attempts


@pytest.mark.backends("file")
@pytest.mark.parametrize(
    ("stop", "again"), [("first2", []), ("after", ["after"])], ids=["at work", "ended"]
)
async def test_after_a_kill_a_sub_agent_resumes_or_is_not_run_again(
    database_url: str, tmp_path: Path, stop: str, again: list[str]
) -> None:
    effects = Effects(tmp_path / "effects")
    async with elsewhere(database_url, effects.path, stop, "delegating") as other:
        await other.until(f"effect {stop}")
        await other.kill()
    EFFECTS[str(effects.path)] = effects
    async with Runtime.open(Settings(database_url=database_url)) as runtime:
        result = await runtime.resume(other.run_id, delegating, deps=effects)
        runs = await children(runtime, other.run_id)
    assert result.output == ["succeeded", "first is done", 1]
    assert [run.status for run in runs] == ["succeeded"]
    # Work in progress runs again if it is idempotent, as the workflow's function is.
    assert sorted(effects.done()) == sorted(["first1", "first2", "after", *again])
