"""Servers that ask the user in the middle of a call."""

from __future__ import annotations

from typing import Any

import pytest
from mcp_types import (
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    InputRequiredResult,
    ListRootsRequest,
)

from agent_runtime import Agent, ToolContext, tool
from agent_runtime.models.scripted import call, calls, raw_call, say
from agent_runtime.tools.mcp.elicitation import MAX_ROUNDS, NOBODY, NotAskable, awaiting, reply_of
from agent_runtime.tools.questions import ToolAnswer
from tests.support.worlds import Play
from tests.tools.mcp.serving import sums

pytestmark = pytest.mark.backends("file")


def form(properties: dict[str, Any]) -> ElicitRequest:
    schema = {"type": "object", "properties": properties}
    return ElicitRequest(params=ElicitRequestFormParams(message="M", requested_schema=schema))


def link(url: str) -> ElicitRequest:
    return ElicitRequest(params=ElicitRequestURLParams(message="M", url=url, elicitation_id="1"))


async def test_the_questions_of_a_server_reach_a_person_and_the_call_goes_on(play: Play) -> None:
    agent = Agent(tools=[sums()])
    async with play([call("sums__send", what="it"), say("Done.")]) as world:
        result = await world.run(agent, thread="t")
        assert result.stop_reason == "awaiting_user"
        asked: list[str] = []
        answers = {"single": ["yes"], "text": ["no JSON", '{"city": "Ulm", "floor": 3}']}
        while result.questions:
            for question in result.questions:
                asked.append(question.text)
                assert question.call_id
                await world.runtime.answer(question.id, answers[question.kind].pop(0))
            result = await world.resume(agent)
        assert result.ok
        assert await world.results("t") == [("ok", "it to Ulm, floor 3, sure: True")]
    start = "The MCP server sums, in a call of send, asks: "
    assert f"{start}Really send it?" in asked
    form = f"{start}Where to?\n- city (string)\n- floor (integer)"
    assert f"{form}\nAnswer with a JSON object of these, or `decline`." in asked
    assert any(one.startswith("Not usable: it is not JSON. ") for one in asked)


async def test_a_question_that_is_declined_ends_the_call(play: Play) -> None:
    async with play([call("sums__send", what="it"), say("Done.")]) as world:
        result = await world.run(Agent(tools=[sums()]), thread="t")
        for question in result.questions:
            await world.runtime.answer(question.id, "decline")
        assert (await world.resume(Agent(tools=[sums()]))).ok
        [(outcome, text)] = await world.results("t")
        assert outcome == "error" and "decline" in text


async def test_a_call_that_asked_and_was_cancelled_may_have_had_an_effect(play: Play) -> None:
    # The other call waits for an approval, and has not begun.
    both = calls(raw_call("sums__send", what="it"), raw_call("sums__add", a=1, b=2))
    async with play([both], settings={"approve": "sums__add"}) as world:
        result = await world.run(Agent(tools=[sums()]), thread="t")
        assert {one.tool for one in result.questions} >= {"sums__add"}
        await world.runtime.cancel(result.run_id)
        (asked, text), (waiting, _) = await world.results("t")
        assert (asked, waiting) == ("interrupted", "cancelled")
        assert "ran until it asked a person" in text and "unverified" in text


async def test_where_nobody_can_be_asked_the_call_is_refused(play: Play) -> None:
    @tool
    async def below(context: ToolContext) -> str:
        """Run an agent that nobody can be asked for."""
        return str((await context.run_agent(Agent(tools=[sums()]), "Send it.")).thread_id)

    script = [call("below"), call("sums__send", what="it"), say("Done."), say("Done.")]
    async with play(script) as world:
        assert (await world.run(Agent(tools=[below]), thread="t")).ok
        [(_, thread)] = await world.results("t")
        [(outcome, text)] = await world.results(thread)
        assert outcome == "refused" and text.startswith(NOBODY)


async def test_what_an_older_server_asks_is_refused_to_it(play: Play) -> None:
    async with play([call("sums__old"), say("Done.")]) as world:
        assert (await world.run(Agent(tools=[sums()]), thread="t")).ok
        [(outcome, _)] = await world.results("t")
        assert outcome == "error"


@pytest.mark.parametrize(
    ("kind", "answer", "content"),
    [
        ({"type": "integer"}, "7", 7),
        ({"type": "number"}, "nan", None),
        ({"type": "number"}, "1.5", 1.5),
        ({"type": "boolean"}, "no", False),
        ({"type": "array"}, "a, b", ["a", "b"]),
        ({"type": "string", "enum": ["a"]}, "b", None),
        ({"type": "integer"}, "1.5", None),
    ],
)
def test_an_answer_gets_the_type_that_is_asked_for(
    kind: dict[str, object], answer: str, content: object
) -> None:
    state: dict[str, Any] = {
        "round": 1, "key": "k", "request_state": "s", "properties": {"x": kind},
        "required": [], "asked": "Which?", "kept": {},
    }  # fmt: skip
    reply = reply_of([ToolAnswer(state, answer)])
    if content is None:
        [again] = reply.again
        assert again.text.startswith("Not usable: x is not of the type") and not reply.responses
    else:
        assert reply.responses["k"].content == {"x": content} and reply.state == "s"
    assert reply_of([ToolAnswer(state, None)]).responses["k"].action == "cancel"


@pytest.mark.parametrize(
    ("requests", "done", "problem"),
    [
        ({}, 0, "again and again"),
        ({"k": ListRootsRequest()}, 0, "roots/list"),
        ({"k": form({"x": {"type": "string"}})}, MAX_ROUNDS, "rounds"),
        ({str(n): form({}) for n in range(6)}, 0, "more questions"),
        ({"k": form({str(n): {} for n in range(21)})}, 0, "more fields"),
        ({"k": form({"x": 1})}, 0, "fields that the protocol does not have"),
        ({"k": form({"x": {"enum": 5}})}, 0, "fields that the protocol does not have"),
        ({"k": form({"x": {"default": 1 << 70}})}, 0, "cannot be stored"),
        ({"k": form({"x": {"title": "\ud800"}})}, 0, "cannot be stored"),
        ({"k": link("javascript:alert(1)")}, 0, "something else than a web page"),
        ({"k": link("https://example.com/" + "a" * 2000)}, 0, "an address of more than 2,000"),
    ],
)
def test_what_no_person_is_asked_is_refused(
    requests: dict[str, Any], done: int, problem: str
) -> None:
    result = InputRequiredResult(input_requests=requests, request_state="s")
    with pytest.raises(NotAskable, match=problem):
        awaiting(result, "It", done, str)


async def test_a_server_that_has_forgotten_what_it_asked_fails_the_call(play: Play) -> None:
    async with play([call("sums__send", what="it")]) as world:
        result = await world.run(Agent(tools=[sums()]), thread="t")
        for question in result.questions:
            answer = "yes" if question.kind == "single" else '{"city": "Ulm", "floor": 3}'
            await world.runtime.answer(question.id, answer)
    # Another process, with another one of the server, whose states are its own.
    async with play([say("Done.")]) as world:
        [run] = await world.store.runs.list(thread_id="t")
        assert (await world.runtime.resume(run.id, Agent(tools=[sums()]))).ok
        [(outcome, _)] = await world.results("t")
        assert outcome == "error"
