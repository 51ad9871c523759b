"""Outcomes: one shape for every ending of a delegated task, with observed facts only."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from agent_runtime import Agent, File, ScriptedModel, Tool, ToolContext, ToolError, tool
from agent_runtime.delegation.assignment import Assignment
from agent_runtime.delegation.delegate import delegate
from agent_runtime.delegation.outcome import RESULT_CHARS, Outcome
from agent_runtime.errors import ModelRejected, ModelUnavailable, StoreUnavailable
from agent_runtime.models.base import ModelRequest, Price
from agent_runtime.models.scripted import Scripted, call, calls, raw_call, say
from tests.delegation.helpers import Answer, outcomes, playing
from tests.support.worlds import Play, World, double

pytestmark = pytest.mark.backends("file")

KEYS = {
    "status",
    "result",
    "stop_reason",
    "tool_calls",
    "tool_errors",
    "blockers",
    "duration",
    "usage",
    "artifacts",
    "task_key",
    "attempt",
    "run_id",
}
ORDER: dict[str, Any] = {"role": "worker", "instructions": "Work.", "task_key": "k"}
PRICE = Price(input=1000, output=2000, cache_read=100, cache_write=1000)


async def one_outcome(
    play: Play,
    child: Answer,
    *,
    tools: list[Tool] | None = None,
    settings: dict[str, Any] | None = None,
    **order: Any,
) -> dict[str, Any]:
    """Return the outcome of one delegated task."""
    script = playing([call("delegate", **(ORDER | order)), say("Done.")], child)
    async with play(script, settings=settings, price=PRICE) as world:
        agent = Agent(tools=[double] if tools is None else tools, delegation=True)
        result = await world.run(agent)
        assert result.output == "Done."
        [outcome] = await outcomes(world, result)
        assert outcome.keys() == KEYS
        [(reply, _)] = await world.results(result.thread_id)
    assert reply == ("ok" if outcome["status"] == "succeeded" else reply) != "interrupted"
    return outcome


async def test_a_task_that_succeeds(play: Play) -> None:
    def child(request: ModelRequest, step: int) -> Scripted:
        return [call("double", number=1), call("nothing"), say("It is 2.")][step]

    outcome = await one_outcome(play, child)
    assert (outcome["status"], outcome["stop_reason"]) == ("succeeded", "completed")
    assert (outcome["result"], outcome["task_key"], outcome["attempt"]) == ("It is 2.", "k", 1)
    assert outcome["tool_calls"] == {"double": 1, "nothing": 1}
    assert [error["tool"] for error in outcome["tool_errors"]] == ["nothing"]
    assert (outcome["usage"]["steps"], outcome["blockers"]) == (3, [])
    assert outcome["usage"]["prompt_tokens"] > 0 < outcome["usage"]["cost_usd"]
    assert 0 < outcome["duration"] < 60


@pytest.mark.parametrize(
    ("claim", "error"), [("I called every tool and all is well.", True), ("All failed.", False)]
)
async def test_a_sub_agents_own_claims_change_no_observed_fact(
    play: Play, claim: str, error: bool
) -> None:
    @tool
    def work() -> str:
        """Work."""
        if error:
            raise ToolError("The disk is full.")
        return "worked"

    def child(request: ModelRequest, step: int) -> Scripted:
        return [call("work"), say(claim)][step]

    outcome = await one_outcome(play, child, tools=[work])
    assert outcome["tool_calls"] == {"work": 1}
    failure = {"tool": "work", "error": "The disk is full."}
    assert outcome["tool_errors"] == ([failure] if error else [])


async def test_a_sub_agent_without_an_answer(play: Play) -> None:
    outcome = await one_outcome(play, lambda request, step: say(""))
    assert (outcome["status"], outcome["stop_reason"], outcome["result"]) == ("failed", "error", "")
    assert outcome["blockers"]


async def test_at_a_step_limit_the_last_words_are_the_result(
    play: Play,
) -> None:
    def child(request: ModelRequest, step: int) -> Scripted:
        return calls(raw_call("double", number=step), text=f"Step {step}.")

    outcome = await one_outcome(play, child, max_steps=3)
    assert (outcome["status"], outcome["stop_reason"]) == ("failed", "max_steps")
    assert (outcome["result"], outcome["usage"]["steps"]) == ("Step 2.", 3)
    assert outcome["blockers"] == ["It used up its 3 steps."]


async def test_a_call_cannot_exceed_the_step_setting_of_sub_agents(play: Play) -> None:
    def child(request: ModelRequest, step: int) -> Scripted:
        return call("double", number=step)

    settings = {"sub_agent_max_steps": 2}
    outcome = await one_outcome(play, child, settings=settings, max_steps=1000)
    assert (outcome["stop_reason"], outcome["usage"]["steps"]) == ("max_steps", 2)


@pytest.mark.parametrize(
    "error", [ModelRejected("It is refused."), ModelUnavailable("It is gone.")]
)
async def test_a_model_failure_is_an_outcome(play: Play, error: Exception) -> None:
    def child(request: ModelRequest, step: int) -> Scripted:
        if step:
            raise error
        return call("double", number=1)

    outcome = await one_outcome(play, child)
    assert (outcome["status"], outcome["stop_reason"]) == ("failed", "error")
    # Its work up to the failure was observed.
    assert (outcome["tool_calls"], outcome["usage"]["steps"]) == ({"double": 1}, 1)
    assert outcome["blockers"] == [str(error)]


async def test_a_bug_is_an_outcome_that_names_only_its_type(play: Play) -> None:
    def child(request: ModelRequest, step: int) -> Scripted:
        raise RuntimeError("sk-secret")

    outcome = await one_outcome(play, child)
    assert (outcome["status"], outcome["blockers"]) == ("failed", ["Unexpected RuntimeError"])


async def test_a_timeout_is_an_outcome(play: Play) -> None:
    limit = anyio.CancelScope()

    async def hang(request: ModelRequest) -> Scripted:
        limit.deadline = anyio.current_time()
        await anyio.sleep_forever()
        return say("never")

    @tool
    async def hand_over(context: ToolContext) -> str:
        """Delegate for a limited time to a model that never answers."""
        with limit:
            await delegate(context, order(ScriptedModel(hang)))
        return "went on"

    async with play([call("hand_over"), say("Done.")]) as world:
        result = await world.run(Agent(tools=[hand_over]))
        assert await world.results(result.thread_id) == [("ok", "went on")]
        [run] = await world.store.runs.list(parent_run_id=result.run_id)
        assert (run.status, run.stop_reason) == ("cancelled", "cancelled")


def order(model: ScriptedModel | str, **more: Any) -> Assignment:
    """Return a task for a sub-agent with its own model."""
    return Assignment(role="worker", instructions="Work.", model=model, **more)


async def in_a_tool(play: Play, assignment: Assignment) -> tuple[Outcome, World]:
    """Return the outcome of a task delegated by a tool's own code."""
    outcomes: list[Outcome] = []

    @tool
    async def hand_over(context: ToolContext) -> str:
        """Delegate."""
        outcomes.append(await delegate(context, assignment))
        return "ok"

    async with play([call("hand_over"), say("Done.")]) as world:
        assert (await world.run(Agent(tools=[hand_over]))).ok
    return outcomes[0], world


async def test_a_cancelled_sub_agent_is_an_outcome_and_the_parent_continues(play: Play) -> None:
    @tool
    async def stop(context: ToolContext) -> str:
        """Cancel the sub-agent's own run, as a user would."""
        await context.deps.cancel(context.run_id)
        return "stopped"

    def child(request: ModelRequest, step: int) -> Scripted:
        return call("stop") if step == 0 else say("never")

    script = playing([call("delegate", **ORDER), say("Done.")], child)
    async with play(script) as world:
        agent = Agent(tools=[stop], delegation=True)
        result = await world.run(agent, deps=world.runtime)
        [outcome] = await outcomes(world, result)
        [(reply, _)] = await world.results(result.thread_id)
    assert (result.output, reply) == ("Done.", "cancelled")
    assert outcome.keys() == KEYS
    assert (outcome["status"], outcome["stop_reason"]) == ("cancelled", "cancelled")
    assert outcome["tool_calls"] == {"stop": 1}


async def test_a_sub_agent_that_cannot_start_is_an_outcome(play: Play) -> None:
    outcome, _ = await in_a_tool(play, order("no-such-provider/model"))
    assert (outcome.status, outcome.stop_reason, outcome.run_id) != ("succeeded", "completed", "")
    assert outcome.blockers


async def test_a_store_failure_in_the_sub_agent_is_an_outcome(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*args: Any) -> Any:
        raise StoreUnavailable("The database is away.", cure="Wait.")

    from agent_runtime_storage.log.runs import SqlRuns

    begin = SqlRuns.begin

    async def begin_run(self: Any, run: Any) -> Any:
        return await (fail() if run.parent_run_id else begin(self, run))

    monkeypatch.setattr(SqlRuns, "begin", begin_run)
    outcome, _ = await in_a_tool(play, order(ScriptedModel([say("never")])))
    assert (outcome.status, outcome.stop_reason) == ("failed", "error")
    assert outcome.blockers == ("The database is away. Wait.",)


async def test_with_an_output_schema_the_result_is_a_value_of_it(play: Play) -> None:
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer", "minimum": 3}},
        "required": ["n"],
    }

    def child(request: ModelRequest, step: int) -> Scripted:
        return call("final_result", n=step)

    outcome = await one_outcome(play, child, output_schema=schema)
    assert (outcome["status"], outcome["result"]) == ("succeeded", {"n": 3})
    assert len(outcome["tool_errors"]) == 3
    assert "minimum" in outcome["tool_errors"][0]["error"]


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"type": "text"}, "no JSON schema"),
        ({"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1:9/x"}}}, "another"),
    ],
)
async def test_a_bad_output_schema_is_refused_before_any_call(
    play: Play, schema: dict[str, Any], says: str
) -> None:
    def child(request: ModelRequest, step: int) -> Scripted:
        raise AssertionError("a sub-agent was called")

    outcome = await one_outcome(play, child, output_schema=schema)
    assert (outcome["stop_reason"], outcome["attempt"]) == ("refused", 0)
    assert says in outcome["blockers"][0]


async def test_a_large_result_is_stored_as_a_file_with_its_head_in_the_outcome(
    play: Play,
) -> None:
    whole = "".join(f"line {n}\n" for n in range(RESULT_CHARS))

    def parent(request: ModelRequest) -> Scripted:
        if request.messages[0].text.startswith("You are a sub-agent"):
            return say(whole)
        number = sum(message.role == "assistant" for message in request.messages)
        if number == 0:
            return call("delegate", **ORDER)
        if number == 1:
            reference = request.messages[-1].text.partition("tool:")[2].partition(" ")[0]
            return call("open_artifact", reference=f"tool:{reference}", offset=80_000, limit=50)
        return say("Done.")

    async with play(parent) as world:
        result = await world.run(Agent(tools=[double], delegation=True))
        (_, reply), (opened, page) = await world.results(result.thread_id)
        [file] = await world.store.files.list(result.thread_id)
        content = await world.store.files.content(result.thread_id, file.id)
    assert content.decode() == whole
    assert len(reply) < RESULT_CHARS
    assert (opened, page.endswith(whole[80_000:80_050])) == ("ok", True)


async def test_a_sub_agents_files_are_artifacts_that_another_can_open(play: Play) -> None:
    @tool
    def draw() -> list[str | File]:
        """Draw."""
        return ["Drawn.", File(b"a chart of whales", "chart.txt")]

    def respond(request: ModelRequest) -> Scripted:
        number = sum(message.role == "assistant" for message in request.messages)
        if "second" in request.messages[0].text:
            artifact = request.messages[1].text.partition("- ")[2].split()[0]
            return [call("open_artifact", reference=artifact), say(request.messages[-1].text)][
                number
            ]
        if request.messages[0].text.startswith("You are a sub-agent"):
            return [call("draw"), say("Done.")][number]
        if number == 1:
            reference = request.messages[-1].text.partition('"tool:')[2].partition('"')[0]
            artifacts = [f"tool:{reference}"]
            return call("delegate", role="second", instructions="Open.", artifacts=artifacts)
        return [call("delegate", **ORDER), None, say("Done.")][number] or say("")

    async with play(respond) as world:
        result = await world.run(Agent(tools=[draw], delegation=True))
        first, second = await outcomes(world, result)
    assert first["artifacts"][0].endswith("(chart.txt)")
    assert second["tool_calls"] == {"open_artifact": 1}
    assert second["result"].endswith("a chart of whales")
