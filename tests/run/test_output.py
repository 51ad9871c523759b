"""Structured output: accepted values, refused ones, and those that end the run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field

from agent_runtime import Agent
from agent_runtime.errors import ConfigError
from agent_runtime.models.base import RawCall
from agent_runtime.models.scripted import call, calls, raw_call, say
from agent_runtime.testing.model_server import Reply
from agent_runtime.tools.output import FINAL, RETRIES
from tests.support.worlds import Play, Serve, double

# An answer is validated before any database sees it.
pytestmark = pytest.mark.backends("file", "postgres")


class City(BaseModel):
    """A city."""

    name: str
    people: int = Field(gt=0)


@dataclass
class Point:
    x: float
    y: float


OSLO: dict[str, Any] = {"name": "Oslo", "people": 717_710}
CITY = City(name="Oslo", people=717_710)
VALUES: dict[str, tuple[Any, dict[str, Any], Any]] = {
    "a pydantic model": (City, OSLO, CITY),
    "a dataclass": (Point, {"x": 1, "y": 2.5}, Point(1.0, 2.5)),
    "a number": (int, {"value": 42}, 42),
    "a list of models": (list[City], {"value": [OSLO]}, [CITY]),
    "one of several texts": (Literal["yes", "no"], {"value": "no"}, "no"),
    "one of several types": (int | City, {"value": OSLO}, CITY),
    "nothing": (City | None, {"value": None}, None),
}


@pytest.mark.parametrize(("output_type", "arguments", "value"), VALUES.values(), ids=VALUES)
async def test_the_output_is_a_value_of_the_output_type(
    serve: Serve, output_type: Any, arguments: dict[str, Any], value: Any
) -> None:
    async with serve([Reply(calls=((FINAL, arguments),))]) as world:
        result = await world.run(Agent(output_type=output_type))
        run = await world.row()
    assert result.ok
    assert result.output == value
    assert type(result.output) is type(value)
    assert run.status == "succeeded"
    (tool,) = world.server.requests[0].json["tools"]
    assert tool["function"]["parameters"]["type"] == "object"


@pytest.mark.parametrize(
    ("output_type", "text", "value"),
    [
        (City, '{"name": "Oslo", "people": 717710}', CITY),
        (City, '```json\n{"name": "Oslo", "people": 717710}\n```', CITY),
        (int, " 42\n", 42),
        (list[int], "[1, 2]", [1, 2]),
    ],
    ids=["object", "in a code fence", "number", "list"],
)
async def test_text_that_is_a_valid_value_is_accepted(
    play: Play, output_type: Any, text: str, value: Any
) -> None:
    async with play([text]) as world:
        result = await world.run(Agent(output_type=output_type))
    assert (result.ok, result.output, result.steps) == (True, value, 1)


async def test_an_invalid_output_is_returned_to_the_model_with_the_errors(serve: Serve) -> None:
    wrong = Reply(calls=((FINAL, {"name": "Oslo", "people": -1}),))
    async with serve([wrong, Reply(text="It is Oslo."), Reply(calls=((FINAL, OSLO),))]) as world:
        result = await world.run(Agent(output_type=City))
    assert (result.output, result.steps) == (CITY, 3)
    refusal = world.sent()[1][-1]
    assert refusal["role"] == "tool"
    assert "people" in refusal["content"]
    assert "greater than 0" in refusal["content"]
    reminder = world.sent()[2][-1]
    assert reminder["role"] == "user"
    assert FINAL in reminder["content"]


NEVER = {
    "a wrong value": call(FINAL, name="Oslo", people=0),
    "a missing value": call(FINAL),
    "text": say("It is Oslo."),
    "text that is another JSON": say('{"city": "Oslo"}'),
    "arguments that are no JSON": calls(RawCall(FINAL, '{"name":')),
}


@pytest.mark.parametrize("answer", NEVER.values(), ids=NEVER)
async def test_an_output_that_is_never_valid_fails_the_run(play: Play, answer: Any) -> None:
    async with play([answer] * 20) as world:
        result = await world.run(Agent(output_type=City))
        run = await world.row()
    assert (result.ok, result.output, result.stop_reason) == (False, None, "error")
    assert f"{RETRIES + 1} attempts" in result.detail
    assert result.steps == RETRIES + 1
    assert (run.status, run.stop_reason) == ("failed", "error")


async def test_work_between_two_invalid_outputs_resets_the_attempts(play: Play) -> None:
    bad, work = call(FINAL, name="Oslo", people=0), call("double", number=1)
    script = [bad, bad, bad, work, bad, bad, bad, call(FINAL, **OSLO)]
    async with play(script) as world:
        result = await world.run(Agent(tools=[double], output_type=City))
    assert result.output == CITY


async def test_other_calls_of_the_same_answer_still_run(play: Play) -> None:
    both = calls(raw_call(FINAL, **OSLO), raw_call("double", number=4))
    async with play([both]) as world:
        result = await world.run(Agent(tools=[double], output_type=City))
        results = await world.results(result.thread_id)
    assert result.output == CITY
    assert ("ok", "8") in results


async def test_a_type_without_a_schema_is_refused_before_the_run(play: Play) -> None:
    class Opaque:
        pass

    async with play() as world:
        with pytest.raises(ConfigError, match="output_type") as raised:
            await world.run(Agent(output_type=Opaque))
    assert raised.value.cure
    assert world.events == []
