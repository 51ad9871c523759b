"""Changing the budget of a run while it works, or after the budget has ended it."""

from __future__ import annotations

import pytest

from agent_runtime import Agent, ScriptedModel, ToolContext, tool
from agent_runtime.errors import ConfigError, Conflict, NotFound
from agent_runtime.messages import Note, NoteSource, UserMessage
from agent_runtime.models.base import ModelRequest
from agent_runtime.models.scripted import Scripted, call, say
from agent_runtime.prompt.view import Entry
from agent_runtime.run.wrap_up import ROOM_AGAIN, WrapUp
from agent_runtime_storage.contract.records.log import Amount, Budget
from tests.run.test_wrap_up import NEARLY_USED_UP, notes
from tests.support.elsewhere import agent, elsewhere
from tests.support.worlds import Play, double

pytestmark = pytest.mark.backends("file")
SHARED = pytest.mark.backends("file", "postgres")
LEAST = {"budget_tokens": 30_000}


def limit_notes(request: ModelRequest) -> list[str]:
    """Return the notes about limits in a request, in order."""
    texts = [message.text for message in request.messages]
    return [known for text in texts for known in (NEARLY_USED_UP, ROOM_AGAIN) if known in text]


def works_until_room(request: ModelRequest) -> Scripted:
    """Work, whatever the notes say, until there is room again."""
    if limit_notes(request)[-1:] == [ROOM_AGAIN]:
        return say("Done.")
    return call("double", number=len(request.messages))


async def test_a_run_that_its_budget_ended_resumes_with_a_larger_one(play: Play) -> None:
    worker = Agent(ScriptedModel(works_until_room), tools=[double])
    async with play(settings=LEAST) as world:
        ended = await world.run(worker)
        assert ended.stop_reason == "budget"
        # Unchanged, the budget does not let it continue.
        assert (await world.resume(worker)).stop_reason == "budget"

        await world.runtime.set_budget(ended.run_id, tokens=200_000)
        result = await world.resume(worker)
        assert (result.output, result.stop_reason) == ("Done.", "completed")
        assert result.steps == ended.steps + 1
        [first, again] = await notes(world, result.thread_id)
        assert NEARLY_USED_UP in first and ROOM_AGAIN in again
        row = await world.row()
        assert row.budget == Budget(200_000) and row.settled.tokens > ended.usage.prompt_tokens


async def test_a_working_run_learns_that_there_is_room_again(play: Play) -> None:
    seen: list[list[str]] = []

    def respond(request: ModelRequest) -> Scripted:
        seen.append(limit_notes(request))
        if len(seen[-1]) == 2:
            return say("Done.")
        return call("raised", when=len(seen[-1]) == 1)

    @tool
    async def raised(context: ToolContext, when: bool) -> str:
        """Wait until another process raises the budget."""
        if when:
            await world.runtime.set_budget(context.run_id, tokens=300_000)
        return "So it is."

    async with play(settings=LEAST) as world:
        result = await world.run(Agent(ScriptedModel(respond), tools=[raised]))
        assert result.output == "Done."
        assert seen[-1] == [NEARLY_USED_UP, ROOM_AGAIN]
        assert len(await notes(world, result.thread_id)) == 2


async def test_a_run_that_gets_more_steps_learns_so(play: Play) -> None:
    worker = Agent(ScriptedModel(works_until_room), tools=[double], max_steps=10)
    async with play() as world:
        assert (await world.run(worker)).stop_reason == "max_steps"
        result = await world.resume(worker)
        assert (result.output, result.steps) == ("Done.", 11)


async def test_a_budget_below_what_is_spent_ends_the_run_at_its_next_call(play: Play) -> None:
    @tool
    async def lower(context: ToolContext) -> str:
        """Lower the budget below what is spent."""
        await world.runtime.set_budget(context.run_id, tokens=1)
        return "Lower."

    async with play([call("lower"), say("Done.")], settings=LEAST) as world:
        result = await world.run(Agent(tools=[lower]))
        assert (result.stop_reason, result.steps) == ("budget", 1)
        assert "of 1 tokens" in result.detail


@SHARED
async def test_another_process_limits_a_run_at_work_and_lifts_the_limit(play: Play) -> None:
    async with play() as world:
        async with elsewhere(world.database_url) as other:
            run_id = str((await other.until("tool-start"))["run_id"])
            await world.runtime.set_budget(run_id, tokens=1)
            await other.release()
            ended = await other.until("run-finish")
        # The call that was in progress is in the log: only the next one is refused.
        assert ended["data"]["stop_reason"] == "budget" and "of 1 tokens" in ended["data"]["detail"]
        assert [result for result, _ in await world.results("t")] == ["ok"]

        # This process, which takes the run over, sees the same limit until it is lifted.
        again = agent("wait")
        assert (await world.runtime.resume(run_id, again)).stop_reason == "budget"
        await world.runtime.set_budget(run_id, tokens=None)
        assert (await world.runtime.resume(run_id, again)).output == "done"
        assert (await world.store.runs.get(run_id)).budget == Budget()


async def test_a_run_that_gets_a_limit_at_work_is_told_to_finish_before_it_is_reached(
    play: Play,
) -> None:
    @tool
    async def limit(context: ToolContext) -> str:
        """Give the run a budget."""
        await world.runtime.set_budget(context.run_id, tokens=LEAST["budget_tokens"])
        return "Limited."

    def respond(request: ModelRequest) -> Scripted:
        if len(request.messages) == 2:
            return call("limit")
        return say("Done.") if limit_notes(request) else call("double", number=1)

    async with play() as world:
        worker = Agent(ScriptedModel(respond), tools=[limit, double])
        result = await world.run(worker)
        assert result.output == "Done." and len(await notes(world, result.thread_id)) == 1


async def test_a_sub_agent_at_work_obeys_a_limit_given_to_its_root(play: Play) -> None:
    @tool
    async def limit(context: ToolContext) -> str:
        """Give the root of this tree a budget."""
        run = await world.store.runs.get(context.run_id)
        await world.runtime.set_budget(run.root_run_id, tokens=1)
        return "Limited."

    @tool
    async def delegate(context: ToolContext) -> str:
        """Run a sub-agent."""
        model = ScriptedModel([call("limit"), say("Not reached.")])
        child = Agent(model, tools=[limit], name="child")
        return (await context.run_agent(child, "Work.")).stop_reason or ""

    async with play([call("delegate"), say("Not reached.")]) as world:
        result = await world.run(Agent(tools=[delegate]))
        assert result.stop_reason == "budget"
        assert await world.results(result.thread_id) == [("ok", "budget")]


async def test_dollars_cannot_limit_a_run_at_work_whose_model_has_no_price(play: Play) -> None:
    @tool
    async def limit(context: ToolContext) -> str:
        """Limit the dollars of the run."""
        await world.runtime.set_budget(context.run_id, usd=5.0)
        return "Limited."

    model = ScriptedModel([call("limit"), say("Done.")], name="unpriced", price=None)
    async with play() as world:
        result = await world.run(Agent(model, tools=[limit]))
        assert result.stop_reason == "budget" and "'unpriced' is unknown" in result.detail
        await world.runtime.set_budget(result.run_id, usd=None)
        assert (await world.resume(Agent(model, tools=[limit]))).output == "Done."


async def test_only_the_budget_of_a_resumable_root_can_change(play: Play) -> None:
    refusals: list[str] = []

    @tool
    async def limit(context: ToolContext) -> str:
        """Limit a sub-agent."""
        child = await context.run_agent(Agent(ScriptedModel([say("Done.")]), name="child"), "Work.")
        with pytest.raises(Conflict) as refused:
            await world.runtime.set_budget(child.run_id, tokens=5)
        refusals.append(str(refused.value))
        return "No."

    async with play([call("limit"), say("Done.")]) as world:
        result = await world.run(Agent(tools=[limit]))
        assert result.ok
        assert "which it works for" in refusals[0]
        with pytest.raises(Conflict, match="is over: succeeded"):
            await world.runtime.set_budget(result.run_id, tokens=5)
        with pytest.raises(NotFound):
            await world.runtime.set_budget(result.run_id, tokens=5, user="somebody else")


@pytest.mark.parametrize(
    ("tokens", "usd"),
    [(0, None), (-1, None), (10**19, None), (None, 0.0), (None, float("nan")), (None, 1e300)],
)
async def test_an_amount_out_of_range_is_refused(
    play: Play, tokens: int | None, usd: float | None
) -> None:
    async with play() as world:
        with pytest.raises(ConfigError, match="out of range"):
            await world.runtime.set_budget("any", tokens=tokens, usd=usd)


def test_a_shorter_prompt_does_not_mean_room_again() -> None:
    wrap_up = WrapUp()

    def notes_after(made: int, limit: int) -> list[Note]:
        return wrap_up.notes(steps=[(made, limit)], budgets=(), call=Amount())

    assert [NEARLY_USED_UP in note.text for note in notes_after(90, 100)] == [True]
    assert notes_after(10, 100) == []
    assert [note.text for note in notes_after(11, 200)] == [ROOM_AGAIN]
    assert notes_after(12, 200) == []
    assert [NEARLY_USED_UP in note.text for note in notes_after(180, 200)] == [True]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        # The newest note says to wrap up: now that there is room, the second one follows.
        ("limits", ["limits_raised"]),
        # The newest note says that there is room, whatever its words are.
        ("limits_raised", []),
    ],
)
def test_a_resumed_run_knows_its_newest_note_by_its_source(
    source: NoteSource, expected: list[NoteSource]
) -> None:
    wrap_up = WrapUp()
    task, note = UserMessage("Work."), Note("Any words.", source=source)
    wrap_up.start(None, [Entry(1, None, task), Entry(2, 1, note)])
    later = wrap_up.notes(steps=[(1, 100)], budgets=(), call=Amount())
    assert [one.source for one in later] == expected
    assert wrap_up.notes(steps=[(2, 100)], budgets=(), call=Amount()) == []
