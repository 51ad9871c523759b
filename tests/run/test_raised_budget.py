"""The budget of a run that is changed while it works, or after that has ended it."""

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
from tests.run.test_wrap_up import TOLD, notes
from tests.support.worlds import Play, double

pytestmark = pytest.mark.backends("file")
LEAST = {"budget_tokens": 30_000}
UNLIMITED = "is at work, and began without such a limit"


def told(request: ModelRequest) -> list[str]:
    """Return which of the two texts on limits a request has, in order."""
    texts = [one.text for one in request.messages]
    return [known for text in texts for known in (TOLD, ROOM_AGAIN) if known in text]


def works_until_room(request: ModelRequest) -> Scripted:
    """Work on, whatever it is told, until there is room again."""
    if told(request)[-1:] == [ROOM_AGAIN]:
        return say("Done.")
    return call("double", number=len(request.messages))


async def test_a_run_that_its_budget_ended_goes_on_with_a_larger_one(play: Play) -> None:
    agent = Agent(ScriptedModel(works_until_room), tools=[double])
    async with play(settings=LEAST) as world:
        ended = await world.run(agent)
        assert ended.stop_reason == "budget"
        # As it is, it cannot go on.
        assert (await world.resume(agent)).stop_reason == "budget"

        await world.runtime.set_budget(ended.run_id, tokens=200_000)
        result = await world.resume(agent)
        assert (result.output, result.stop_reason) == ("Done.", "completed")
        assert result.steps == ended.steps + 1
        [first, again] = await notes(world, result.thread_id)
        assert TOLD in first and ROOM_AGAIN in again
        row = await world.row()
        assert row.budget == Budget(200_000) and row.settled.tokens > ended.usage.prompt_tokens


async def test_who_is_at_work_is_told_that_there_is_room_again(play: Play) -> None:
    seen: list[list[str]] = []

    def respond(request: ModelRequest) -> Scripted:
        seen.append(told(request))
        if len(seen[-1]) == 2:
            return say("Done.")
        return call("raised", when=len(seen[-1]) == 1)

    @tool
    async def raised(context: ToolContext, when: bool) -> str:
        """Wait for somebody who gives more."""
        if when:
            await world.runtime.set_budget(context.run_id, tokens=300_000)
        return "So it is."

    async with play(settings=LEAST) as world:
        result = await world.run(Agent(ScriptedModel(respond), tools=[raised]))
        assert result.output == "Done."
        assert seen[-1] == [TOLD, ROOM_AGAIN]
        assert len(await notes(world, result.thread_id)) == 2


async def test_a_run_that_gets_more_steps_is_told_so(play: Play) -> None:
    agent = Agent(ScriptedModel(works_until_room), tools=[double], max_steps=10)
    async with play() as world:
        assert (await world.run(agent)).stop_reason == "max_steps"
        result = await world.resume(agent)
        assert (result.output, result.steps) == ("Done.", 11)


async def test_a_budget_below_what_is_spent_ends_the_run_at_its_next_call(play: Play) -> None:
    @tool
    async def lower(context: ToolContext) -> str:
        """Take it all back."""
        await world.runtime.set_budget(context.run_id, tokens=1)
        return "Lower."

    async with play([call("lower"), say("Done.")], settings=LEAST) as world:
        result = await world.run(Agent(tools=[lower]))
        assert (result.stop_reason, result.steps) == ("budget", 1)
        assert "of 1 tokens" in result.detail


async def test_only_roots_that_can_go_on_have_a_budget_to_change(play: Play) -> None:
    refusals: list[str] = []

    @tool
    async def limit(context: ToolContext) -> str:
        """Limit what began without a limit."""
        with pytest.raises(Conflict) as refused:
            await world.runtime.set_budget(context.run_id, usd=1.0)
        refusals.append(str(refused.value))
        child = await context.run_agent(Agent(ScriptedModel([say("Done.")]), name="child"), "Work.")
        with pytest.raises(Conflict) as refused:
            await world.runtime.set_budget(child.run_id, tokens=5)
        refusals.append(str(refused.value))
        return "No."

    async with play([call("limit"), say("Done.")]) as world:
        result = await world.run(Agent(tools=[limit]))
        assert result.ok
        assert UNLIMITED in refusals[0] and "which it works for" in refusals[1]
        with pytest.raises(Conflict, match="is over: succeeded"):
            await world.runtime.set_budget(result.run_id, tokens=5)
        with pytest.raises(NotFound):
            await world.runtime.set_budget(result.run_id, tokens=5, user="somebody else")


@pytest.mark.parametrize(
    ("tokens", "usd"),
    [(0, None), (-1, None), (10**19, None), (None, 0.0), (None, float("nan")), (None, 1e300)],
)
async def test_an_amount_that_cannot_be_kept_is_refused(
    play: Play, tokens: int | None, usd: float | None
) -> None:
    async with play() as world:
        with pytest.raises(ConfigError, match="out of range"):
            await world.runtime.set_budget("any", tokens=tokens, usd=usd)


def test_a_prompt_that_became_shorter_is_no_room_again() -> None:
    wrap_up = WrapUp()

    def look(made: int, most: int) -> list[Note]:
        return wrap_up.notes(steps=[(made, most)], budgets=(), call=Amount())

    assert [TOLD in note.text for note in look(90, 100)] == [True]
    assert look(10, 100) == []
    assert [note.text for note in look(11, 200)] == [ROOM_AGAIN]
    assert look(12, 200) == []
    assert [TOLD in note.text for note in look(180, 200)] == [True]


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
