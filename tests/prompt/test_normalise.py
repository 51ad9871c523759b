"""Normalising answers: the log holds a form of them that every provider accepts."""

from __future__ import annotations

import pytest

from agent_runtime import Agent, Runtime, ScriptedModel, Settings, tool
from agent_runtime.messages import Opaque, encodable
from agent_runtime.models.base import ModelAnswer, Price, RawCall, TokenUsage
from agent_runtime.models.scripted import call, say
from agent_runtime.prompt.normalise import MAX_DEPTH, normalise_answer, parse_object


def answer(text: str = "", *calls: RawCall, opaque: Opaque | None = None) -> ModelAnswer:
    """Return a raw answer."""
    return ModelAnswer(text, calls, "tool_calls" if calls else "stop", "m", opaque=opaque)


def nested(depth: int) -> str:
    """Return a JSON object of this depth."""
    return '{"a": ' * (depth - 1) + "{}" + "}" * (depth - 1)


def test_arguments_that_are_too_deep_stay_text() -> None:
    assert parse_object(nested(MAX_DEPTH)) is not None
    deep = nested(300)
    message = normalise_answer(answer("", RawCall("t", deep)), 1)
    assert (message.calls[0].arguments, message.calls[0].raw) == ({}, deep)


@pytest.mark.parametrize(
    ("text", "clean"), [("a\ud83d\ude00b", "a\U0001f600b"), ("a\ud83db", "a\ufffdb"), ("ä", "ä")]
)
def test_surrogates_are_joined_or_replaced(text: str, clean: str) -> None:
    assert encodable(text) == clean
    opaque = Opaque("m", {"thinking_blocks": [{"thinking": text}]})
    message = normalise_answer(answer(text, RawCall(text, text), opaque=opaque), 1)
    assert message.text == clean
    assert message.calls[0].raw == clean
    assert message.opaque is not None
    assert message.opaque.data == {"thinking_blocks": [{"thinking": clean}]}


async def test_a_thread_survives_surrogates_and_deep_arguments(database_url: str) -> None:
    @tool
    def odd(x: str = "") -> str:
        """Return text that no file can hold."""
        return "\ud800" + x

    script = [answer("", RawCall("odd", nested(300))), call("odd"), say("done \ud83d")]
    async with Runtime.open(Settings(database_url=database_url)) as runtime:
        first = await runtime.run(
            Agent(ScriptedModel(script), tools=[odd], instructions="\ud800", name="n\ud800"),
            "Go \udfff",
            thread="t",
        )
        assert first.output == "done \ufffd"
        again = await runtime.run(Agent(ScriptedModel([say("ok")]), tools=[odd]), "On.", thread="t")
        assert again.ok


async def test_an_absurd_usage_report_does_not_block_later_prompts(database_url: str) -> None:
    absurd = ModelAnswer("done", (), "stop", "m", usage=TokenUsage(9_000_000, 1))
    async with Runtime.open(Settings(database_url=database_url)) as runtime:
        long = "word " * 2000
        await runtime.run(Agent(ScriptedModel([absurd])), long)
        assert (await runtime.run(Agent(ScriptedModel([say("ok")])), long)).ok


async def test_a_later_run_may_raise_last_messages(database_url: str) -> None:
    @tool
    def work() -> str:
        """Work."""
        return "r"

    async with Runtime.open(Settings(database_url=database_url, loop_limit=0)) as runtime:
        script = [*[call("work")] * 12, say("done")]
        few = Agent(ScriptedModel(script), tools=[work], last_messages=4)
        many = Agent(ScriptedModel(script), tools=[work], last_messages=40)
        assert (await runtime.run(few, "Go.", thread="t")).ok
        assert (await runtime.run(many, "On.", thread="t")).ok


async def test_a_resumed_runs_budget_holds_without_the_setting(database_url: str) -> None:
    @tool
    def work() -> str:
        """Work."""
        return "r" * 400

    price = Price(1000, 1000, 1000, 1000)
    async with Runtime.open(Settings(database_url=database_url, budget_tokens=9000)) as runtime:
        script = ScriptedModel([call("work")] * 2, price=price)
        first = await runtime.run(Agent(script, tools=[work], max_steps=1), "Go.")
    async with Runtime.open(Settings(database_url=database_url)) as runtime:
        endless = ScriptedModel(lambda request: call("work"), price=price)
        result = await runtime.resume(first.run_id, Agent(endless, tools=[work], max_steps=400))
        assert result.stop_reason == "budget"
        run = await runtime.store.of("local").runs.get(first.run_id)
        assert run.settled.tokens + run.unsettled.tokens <= 9000
