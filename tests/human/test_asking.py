"""The model's questions to the user: asked, waited for, and answered from any process."""

from __future__ import annotations

from typing import Any

import pytest

from agent_runtime import Agent, Decision, Event, Question, Runtime, ToolContext, tool
from agent_runtime.errors import (
    InvalidAnswer,
    NotFound,
    QuestionClosed,
    QuestionsOpen,
    ThreadBusy,
)
from agent_runtime.human.ask_user import NOBODY
from agent_runtime.models.scripted import call, calls, raw_call, say
from tests.human.elsewhere import AT_ONCE
from tests.support.worlds import Play, World, double

ASKING = Agent(tools=[double], asking=True)
COLOUR = raw_call("ask_user", question="Which colour?", kind="single", choices=["red", "blue"])
ASK = [calls(COLOUR, raw_call("double", number=2), text="I need to know."), say("Done.")]


async def test_a_question_suspends_the_run_and_its_answer_is_the_calls_result(play: Play) -> None:
    async with play(ASK) as world:
        suspended = await world.run(ASKING, thread="t")

        assert (suspended.status, suspended.stop_reason, suspended.ok) == (
            "suspended",
            "awaiting_user",
            False,
        )
        [question] = suspended.questions
        assert (question.kind, question.text) == ("single", "Which colour?")
        assert (question.choices, question.why) == (("red", "blue"), "I need to know.")
        # Calls without a question have run; the exchange stays open, and the lease is free.
        row = await world.row()
        assert row.open_node is not None and row.owner is None
        node = await world.store.log.node("t", row.open_node)
        assert [one.status for one in node.calls] == ["pending", "done"]

        assert await world.runtime.answer(question.id, "blue")
        result = await world.resume(ASKING)

        assert result.ok and result.output == "Done."
        assert await world.results("t") == [("ok", "blue"), ("ok", "4")]
        kinds = [event.kind for event in await world.store.events.list("t")]
        assert (kinds.count("question"), kinds.count("run-suspend")) == (1, 1)
        assert kinds.count("run-finish") == 1


@pytest.mark.backends("file")
async def test_questions_of_one_exchange_wait_for_the_last_answer(play: Play) -> None:
    more = raw_call("ask_user", question="What else?", kind="multiple", choices=["a", "b", "c"])
    text = raw_call("ask_user", question="Say it.", kind="text")
    async with play([calls(COLOUR, more, text), say("Done.")]) as world:
        suspended = await world.run(ASKING)
        first, second, third = suspended.questions

        assert not await world.runtime.answer(second.id, ["c", "a"])
        with pytest.raises(QuestionsOpen) as refused:
            await world.resume(ASKING)
        assert refused.value.questions == (first.id, third.id)
        assert not await world.runtime.answer(first.id, "red")
        assert await world.runtime.answer(third.id, "Whatever.")
        result = await world.resume(ASKING)

        assert result.ok
        assert [one for _, one in await world.results(result.thread_id)] == [
            "red", "c\na", "Whatever.",
        ]  # fmt: skip


BAD_ANSWERS: dict[str, tuple[Any, str]] = {
    "no choice of these": ("green", "red; blue"),
    "several": (["red", "blue"], "Choose one"),
    "none": ([], "red; blue"),
    "a decision": (True, "red; blue"),
    "another decision": (Decision(True), "red; blue"),
}


@pytest.mark.backends("file")
@pytest.mark.parametrize(("answer", "cure"), BAD_ANSWERS.values(), ids=BAD_ANSWERS)
async def test_an_invalid_answer_leaves_the_question_open(
    play: Play, answer: Any, cure: str
) -> None:
    async with play(ASK) as world:
        [question] = (await world.run(ASKING)).questions

        with pytest.raises(InvalidAnswer) as refused:
            await world.runtime.answer(question.id, answer)

        assert cure in refused.value.cure
        assert [one.id for one in await world.runtime.questions()] == [question.id]


async def test_a_question_is_answered_once_and_only_by_its_owner(play: Play) -> None:
    async with play(ASK) as world:
        [question] = (await world.run(ASKING)).questions
        with pytest.raises(NotFound):
            await world.runtime.answer(question.id, "red", user="mallory")
        assert await world.runtime.questions(user="mallory") == []
        assert await world.runtime.answer(question.id, "red")

        with pytest.raises(QuestionClosed, match="answered before"):
            await world.runtime.answer(question.id, "blue")
        with pytest.raises(NotFound):
            await world.runtime.resume(world.run_id, ASKING, user="mallory")

        assert (await world.resume(ASKING)).ok
        assert (await world.results(question.thread_id))[0] == ("ok", "red")


@pytest.mark.backends("file")
async def test_a_late_answer_is_refused_and_counts_as_a_refusal(play: Play) -> None:
    async with play(ASK, settings={"answer_timeout": AT_ONCE}) as world:
        suspended = await world.run(ASKING)
        [question] = await world.runtime.questions(status=None)
        assert question.status == "expired" and suspended.questions == ()

        with pytest.raises(QuestionClosed, match="expired"):
            await world.runtime.answer(question.id, "red")
        result = await world.resume(ASKING)

        assert result.ok
        outcome, text = (await world.results(question.thread_id))[0]
        assert outcome == "refused" and "Nobody answered in time" in text


@pytest.mark.backends("file")
async def test_a_suspended_run_holds_its_thread_and_names_its_question(play: Play) -> None:
    async with play(ASK) as world:
        [question] = (await world.run(ASKING, thread="t")).questions

        with pytest.raises(ThreadBusy, match=question.id):
            await world.run(ASKING, thread="t")

        assert (await world.row()).status == "suspended"


async def test_a_cancel_withdraws_the_questions_and_late_answers_reach_no_newer_run(
    play: Play,
) -> None:
    async with play([*ASK[:1], *ASK]) as world:
        [stale] = (await world.run(ASKING, thread="t")).questions
        assert await world.runtime.cancel(world.run_id) == [world.run_id]
        assert (await world.row()).status == "cancelled"
        newer = await world.run(ASKING, thread="t")

        with pytest.raises(QuestionClosed, match="withdrawn"):
            await world.runtime.answer(stale.id, "red")

        [question] = newer.questions
        assert (await world.runtime.questions()) == [question]
        assert await world.runtime.answer(question.id, "blue")
        assert (await world.resume(ASKING)).ok
        finishes = [
            event.run_id
            for event in await world.store.events.list("t")
            if event.kind == "run-finish"
        ]
        assert finishes == [stale.run_id, newer.run_id]


@pytest.mark.backends("file")
async def test_a_callback_is_called_while_the_run_is_suspended(play: Play) -> None:
    seen: list[str] = []
    async with play([*ASK[:1], *ASK]) as world:

        async def answer(question: Question) -> str:
            row = await world.store.runs.get(question.run_id)
            seen.append(row.status)
            return "red"

        result = await world.run(ASKING, on_question=answer)

        assert result.ok and seen == ["suspended"] * 2
        assert result.questions == ()


@pytest.mark.backends("file")
async def test_a_callback_that_returns_none_leaves_the_run_suspended(play: Play) -> None:
    async def leave(question: Question) -> None:
        del question

    async with play(ASK) as world:
        result = await world.run(ASKING, on_question=leave)

        assert result.status == "suspended" and len(result.questions) == 1


@pytest.mark.backends("file")
async def test_a_stream_continues_after_the_answer(play: Play) -> None:
    events: list[Event] = []

    async def answer(question: Question) -> str:
        return question.choices[0]

    async with (
        play(ASK) as world,
        world.runtime.stream(ASKING, "Work.", on_question=answer) as stream,
    ):
        events += [event async for event in stream]

    assert stream.result.ok
    kinds = [event.kind for event in events]
    assert kinds.index("question") < kinds.index("run-suspend") < kinds.index("run-finish")


BAD_QUESTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "no question": ({"kind": "text"}, "question is missing"),
    "a long one": ({"question": "x" * 5000, "kind": "text"}, "longer than"),
    "no kind of these": ({"question": "x", "kind": "maybe"}, "single, multiple, text"),
    "no choices": ({"question": "x", "kind": "single"}, "2 to 20 choices"),
    "one choice": ({"question": "x", "kind": "single", "choices": ["a"]}, "2 to 20 choices"),
    "the same twice": ({"question": "x", "kind": "multiple", "choices": ["a", "a"]}, "twice"),
    "no list": ({"question": "x", "kind": "single", "choices": "a, b"}, "list of texts"),
    "choices of a text": ({"question": "x", "kind": "text", "choices": ["a", "b"]}, "no choices"),
}


@pytest.mark.backends("file")
@pytest.mark.parametrize(("arguments", "says"), BAD_QUESTIONS.values(), ids=BAD_QUESTIONS)
async def test_an_invalid_question_is_an_error_for_the_model(
    play: Play, arguments: dict[str, Any], says: str
) -> None:
    async with play([call("ask_user", **arguments), say("Done.")]) as world:
        result = await world.run(ASKING)

        assert result.ok
        [(outcome, text)] = await world.results(result.thread_id)
        assert outcome == "error" and says in text
        assert await world.runtime.questions(status=None) == []


@pytest.mark.backends("file")
async def test_a_sub_agent_cannot_ask_and_gets_an_error(play: Play) -> None:
    @tool
    async def child(context: ToolContext) -> str:
        """Run a sub-agent that asks."""
        ran = await context.run_agent(ASKING, "Ask.")
        return f"{ran.status} {ran.thread_id}"

    async with play([call("child"), calls(COLOUR), say("Assumed red."), say("Done.")]) as world:
        result = await world.run(Agent(tools=[child]))

        assert result.ok
        [(_, text)] = await world.results(result.thread_id)
        status, thread = text.split()
        assert status == "succeeded"
        assert await world.results(thread) == [("refused", NOBODY)]


@pytest.mark.backends("file")
async def test_a_message_to_a_suspended_run_is_read_after_it_resumes(play: Play) -> None:
    async with play(ASK) as world:
        [question] = (await world.run(ASKING)).questions
        await world.runtime.steer(world.run_id, "Hurry up.")
        await world.runtime.answer(question.id, "red")

        await world.resume(ASKING)

        model: Any = world.model
        assert "Hurry up." in str(model.requests[-1].messages)


@pytest.mark.backends("file")
async def test_another_runtime_on_the_same_store_resumes(play: Play) -> None:
    async with play(ASK) as world:
        [question] = (await world.run(ASKING)).questions
        run_id, settings = world.run_id, world.runtime.settings
        model = world.model

    async with Runtime.open(settings, model=model) as other:
        assert await other.answer(question.id, "blue")
        result = await other.resume(run_id, ASKING)
        again = World(other, model, "", bytes)
        assert (await again.results(result.thread_id))[0] == ("ok", "blue")
