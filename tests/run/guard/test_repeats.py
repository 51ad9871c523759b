"""Runs that repeat a call: the model is warned, then the run stops or asks a person."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from agent_runtime import Agent, Decision, QuestionsOpen, ToolContext, tool
from agent_runtime.log import branches
from agent_runtime.models.scripted import call, calls, raw_call, say
from agent_runtime.run.guard.repeats import NUDGE
from tests.human.elsewhere import AT_ONCE
from tests.support.worlds import Play, World, double

SAME = call("double", number=1)
GUARD: dict[str, Any] = {"loop_limit": 3}


async def note_sources(world: World) -> list[str]:
    """Return the sources of the thread's notes."""
    events = await world.store.events.list("t")
    return [str(event.data["source"]) for event in events if event.kind == "note"]


def count_warned_requests(world: World) -> int:
    """Return how many requests hold the guard's note."""
    model: Any = world.model
    return sum(NUDGE.format(count=3)[:40] in str(request.messages) for request in model.requests)


async def test_the_model_is_warned_first_and_then_the_run_stops(play: Play) -> None:
    async with play(itertools.repeat(SAME), settings=GUARD) as world:
        result = await world.run(Agent(tools=[double]), thread="t")

        assert (result.status, result.stop_reason) == ("failed", "no_progress")
        assert result.steps == 6 and "6 times in a row" in result.detail
        assert await note_sources(world) == ["guard"]
        # The fourth, fifth and sixth request hold it.
        assert count_warned_requests(world) == 3
        kinds = [event.kind for event in await world.store.events.list("t")]
        assert kinds.count("run-finish") == 1


@pytest.mark.backends("file")
@pytest.mark.parametrize(
    "other",
    [
        call("double", number=2),
        calls(raw_call("double", number=1), raw_call("double", number=1)),
        call("count"),
    ],
    ids=["other arguments", "another number of calls", "another result each time"],
)
async def test_a_run_that_varies_its_calls_is_not_stopped(play: Play, other: Any) -> None:
    numbers = itertools.count()

    @tool
    def count() -> int:
        """Count."""
        return next(numbers)

    script = [*[SAME, SAME, other] * 4, *[call("count")] * 8, say("Done.")]
    async with play(script, settings=GUARD) as world:
        result = await world.run(Agent(tools=[double, count]), thread="t")

        assert result.ok and await note_sources(world) == []


@pytest.mark.backends("file")
async def test_without_a_limit_no_run_is_stopped(play: Play) -> None:
    async with play([*[SAME] * 12, say("Done.")], settings={"loop_limit": 0}) as world:
        assert (await world.run(Agent(tools=[double]), thread="t")).ok


@pytest.mark.backends("file")
async def test_a_resumed_run_counts_the_same(play: Play) -> None:
    async with play([*[SAME] * 12], settings=GUARD) as world:
        short = await world.run(Agent(tools=[double], max_steps=4), thread="t")
        assert short.stop_reason == "max_steps"

        result = await world.resume(Agent(tools=[double], max_steps=100))

        assert (result.stop_reason, result.steps) == ("no_progress", 6)
        assert await note_sources(world) == ["guard"]


@pytest.mark.backends("file")
async def test_calls_that_left_the_prompt_count_too(play: Play) -> None:
    """Two recent messages and a small window: only the log holds the earlier calls."""

    @tool
    def read() -> str:
        """Read a page."""
        return "the same page " * 150

    agent = Agent(tools=[read], last_messages=2, context_window=3000)
    settings = GUARD | {"observational_memory": False, "response_reserve": 500}
    async with play(itertools.repeat(call("read")), settings=settings) as world:
        result = await world.run(agent, thread="t")

        assert (result.stop_reason, result.steps) == ("no_progress", 6)
        activations = await world.store.log.activations("t")
        assert len(activations) > 1


@pytest.mark.backends("file")
async def test_a_person_is_asked_whether_the_run_continues(play: Play) -> None:
    asks = Agent(tools=[double], asking=True)
    script = [*[SAME] * 6, call("double", number=5), say("Done.")]
    async with play(script, settings=GUARD) as world:
        stopped = await world.run(asks, thread="t")

        assert (stopped.status, stopped.stop_reason) == ("suspended", "no_progress")
        [question] = stopped.questions
        assert question.kind == "continue"
        await world.runtime.answer(question.id, Decision(True, "Try five."))
        result = await world.resume(asks)

        assert result.ok
        model: Any = world.model
        assert "Try five." in str(model.requests[-1].messages)


@pytest.mark.backends("file")
@pytest.mark.parametrize("answered", [True, False])
async def test_a_refusal_and_an_unanswered_question_both_stop_the_run(
    play: Play, answered: bool
) -> None:
    asks = Agent(tools=[double], asking=True)
    settings = GUARD | {"answer_timeout": 3600 if answered else AT_ONCE}
    async with play([*[SAME] * 6], settings=settings) as world:
        await world.run(asks, thread="t")
        [question] = await world.runtime.questions(status=None)
        if answered:
            await world.runtime.answer(question.id, Decision(False, "Enough."))

        result = await world.resume(asks)

        assert (result.status, result.stop_reason) == ("failed", "no_progress")
        assert ("Enough." if answered else "nobody said in time") in result.detail


@pytest.mark.backends("file")
@pytest.mark.parametrize("allowed", [True, False])
async def test_a_run_that_used_up_its_steps_asks_whether_to_continue(
    play: Play, allowed: bool
) -> None:
    asks = Agent(tools=[double], asking=True, max_steps=2)
    script = [*[call("double", number=number) for number in range(3)], say("Done.")]
    async with play(script) as world:
        stopped = await world.run(asks, thread="t")

        assert (stopped.status, stopped.stop_reason) == ("suspended", "max_steps")
        [question] = stopped.questions
        assert (question.kind, "used up its 2 steps" in question.text) == ("continue", True)
        with pytest.raises(QuestionsOpen):
            await world.resume(asks)
        await world.runtime.answer(question.id, Decision(allowed, "Be quick."))
        result = await world.resume(asks)

        if allowed:
            assert (result.status, result.steps) == ("succeeded", 4)
            model: Any = world.model
            assert "Be quick." in str(model.requests[-1].messages)
        else:
            assert (result.status, result.stop_reason, result.steps) == ("failed", "max_steps", 2)
            assert (
                "the user stopped it: Be quick. With a limit of more than 2 steps" in result.detail
            )


@pytest.mark.backends("file")
@pytest.mark.parametrize("about", ["steps", "repeats"])
async def test_a_refused_run_goes_on_with_a_larger_limit_on_request(play: Play, about: str) -> None:
    steps = 2 if about == "steps" else 9
    asks = Agent(tools=[double], asking=True, max_steps=steps)
    more = Agent(tools=[double], asking=True, max_steps=steps + 1)
    calls = [call("double", number=1)] * 2 if about == "steps" else [SAME] * 6
    async with play([*calls, say("Done.")], settings=GUARD) as world:
        [question] = (await world.run(asks, thread="t")).questions
        await world.runtime.answer(question.id, Decision(False, "Enough."))
        # The refusal holds for this resume, whatever its limit, and for each with the same one.
        for again in (more, asks):
            refused = await world.resume(again)
            assert (refused.status, "more than" in refused.detail) == ("failed", True)
        result = await world.resume(more)
        assert (result.output, result.steps) == ("Done.", len(calls) + 1)
        model: Any = world.model
        assert "lets you make more steps" in str(model.requests[-1].messages)


@pytest.mark.backends("file")
async def test_a_message_of_the_user_restarts_the_count(play: Play) -> None:
    @tool
    async def heard(context: ToolContext) -> str:
        """Have the user send a message at the third call."""
        if context.step == 3:
            await context.store.inbox.post(context.thread_id, "steer", b"Once more.")
        return "heard"

    script = [*[call("heard")] * 5, say("Done.")]
    async with play(script, settings=GUARD) as world:
        result = await world.run(Agent(tools=[heard]), thread="t")

        # The message comes with the third call, so only two calls follow it.
        assert result.ok and await note_sources(world) == ["steer", "guard"]


@pytest.mark.backends("file")
async def test_each_branch_is_counted_separately(play: Play) -> None:
    script = [*[SAME] * 5, say("A."), *[SAME] * 5, say("B.")]
    async with play(script, settings=GUARD) as world:
        agent = Agent(tools=[double])
        assert (await world.run(agent, thread="t")).ok
        await branches.fork(world.store, "t", 4)

        result = await world.run(agent, "Again.", thread="t")

        assert result.ok and await note_sources(world) == ["guard", "guard"]
