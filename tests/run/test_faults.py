"""Faults of the model, from the wire to the end of a run: how each run ends, and its resume."""

from __future__ import annotations

import traceback
from typing import Any

import pytest

from agent_runtime import Agent, NativeModel
from agent_runtime.errors import (
    ModelAuthError,
    ModelError,
    ModelNotFound,
    ModelOverflow,
    ModelProtocolError,
    ModelRejected,
    ModelStalled,
    ModelUnavailable,
    RealModelForbidden,
)
from agent_runtime.testing.model_server import (
    Reply,
    failure,
    overflow,
    rate_limited,
    server_error,
    unauthorized,
    unknown_model,
)
from tests.support.worlds import KEY, Serve, double, in_turn

# Faults of a provider are the same over every database.
pytestmark = pytest.mark.backends("file", "postgres")

CALL = Reply(calls=(("double", {"number": 21}),))
OK = Reply(text="It is 42.")
AGENT = Agent(tools=[double], instructions="Be exact.")

# The reply to every attempt after the first tool call, the error, and the number of attempts.
FAULTS = {
    "429": (rate_limited("0"), ModelUnavailable, 3),
    "429 without a wait": (rate_limited(), ModelUnavailable, 3),
    "500": (server_error(), ModelUnavailable, 3),
    "529": (server_error(529), ModelUnavailable, 3),
    "no first byte": (Reply(stall_after=0), ModelStalled, 1),
    "silence in mid-answer": (Reply(text="It is so", stall_after=2), ModelStalled, 1),
    "a broken stream": (Reply(text="It is so", cut_after=2), ModelProtocolError, 3),
    "garbage in the stream": (Reply(text="It is", raw_chunk=b"{no json"), ModelProtocolError, 3),
    "an empty answer": (Reply(), ModelProtocolError, 3),
    "only spaces": (Reply(text=" \n"), ModelProtocolError, 3),
    "a wrong key": (unauthorized(KEY), ModelAuthError, 1),
    "no permission": (failure(403, f"Key {KEY} may not use it"), ModelAuthError, 1),
    "no credit": (
        failure(429, "You exceeded your current quota", code="insufficient_quota"),
        ModelAuthError,
        1,
    ),
    "an unknown model": (unknown_model("test"), ModelNotFound, 1),
    "a bad request": (failure(400, f"Bad schema, key {KEY}"), ModelRejected, 1),
}


@pytest.mark.parametrize(("fault", "error", "attempts"), FAULTS.values(), ids=FAULTS)
async def test_a_fault_ends_the_run_with_a_cure_and_a_resume_continues_it(
    serve: Serve, fault: Reply, error: type[ModelError], attempts: int
) -> None:
    # A silent provider is given up once, after longer than any live answer takes here.
    options: dict[str, Any] = {}
    if error is ModelStalled:
        options = {"first_byte_timeout": 3.0, "idle_timeout": 3.0, "retries": 0}
    async with serve([CALL, fault], **options) as world:
        with pytest.raises(error) as raised:
            await world.run(AGENT)
        assert type(raised.value) is error
        assert raised.value.cure
        assert len(world.server.requests) == 1 + attempts

        run = await world.row()
        assert (run.status, run.stop_reason) == ("failed", "error")
        assert run.detail == str(raised.value)
        assert run.steps == 1
        spent, in_doubt = run.settled.tokens, run.unsettled.tokens
        assert spent <= world.billed("total_tokens") <= spent + in_doubt
        last = world.events[-1]
        assert (last.kind, last.data["status"]) == ("run-finish", "failed")
        retries = [event for event in world.events if event.kind == "model-retry"]
        assert len(retries) == attempts - 1

        world.server.script = in_turn([OK])
        result = await world.resume(AGENT)
        assert (result.ok, result.output, result.steps) == (True, "It is 42.", 2)
        assert await world.results(result.thread_id) == [("ok", "42")]
        shown = repr(world.events) + "".join(traceback.format_exception(raised.value))
    assert KEY not in shown
    assert KEY.encode() not in world.contents()


@pytest.mark.parametrize(
    "fault",
    [rate_limited("0"), server_error(), Reply(text="Half", cut_after=2), Reply()],
    ids=["429", "500", "a broken stream", "an empty answer"],
)
async def test_a_passing_fault_is_a_live_event_and_leaves_no_trace_in_the_log(
    serve: Serve, fault: Reply
) -> None:
    async with serve([fault, CALL, fault, OK]) as world:
        result = await world.run(AGENT)
        assert (result.output, result.steps) == ("It is 42.", 2)
        retries = [event for event in world.events if event.kind == "model-retry"]
        assert [retry.data["attempt"] for retry in retries] == [1, 1]
        assert all(retry.id == 0 and retry.data["reason"] for retry in retries)
        recorded = await world.store.events.list(result.thread_id)
    assert "model-retry" not in {event.kind for event in recorded}
    assert [message["role"] for message in world.sent()[-1]] == [
        "system",
        "user",
        "assistant",
        "tool",
    ]


async def test_a_refused_connection_fails_the_run_and_another_model_resumes_it(
    serve: Serve,
) -> None:
    async with serve([OK]) as closed:
        url = closed.server.base_url
    async with serve([OK]) as world:
        unreachable = NativeModel("openai/test", base_url=url, api_key=KEY, retries=1)
        with pytest.raises(ModelUnavailable, match="cannot be reached") as raised:
            await world.run(Agent(unreachable))
        assert "base URL" in raised.value.cure
        assert (await world.row()).status == "failed"
        assert (await world.resume(Agent())).output == "It is 42."


async def test_a_forbidden_call_is_not_made(serve: Serve) -> None:
    async with serve([OK]) as world:
        with pytest.raises(RealModelForbidden) as raised:
            await world.run(Agent("openai/gpt-5"))
        assert raised.value.cure
        assert (await world.row()).status == "failed"
        assert world.server.requests == []


@pytest.mark.parametrize("memory", [True, False], ids=["memory", "window"])
async def test_an_overflow_shortens_the_prompt_once(serve: Serve, memory: bool) -> None:
    replies = [CALL] * 30
    replies[15] = overflow()
    # A model as observer would take replies of the script.
    settings = {"observational_memory": memory, "observer_model": "extractive"}
    async with serve([*replies, OK], settings=settings) as world:
        result = await world.run(AGENT)
        assert (result.ok, result.steps) == (True, 30)
    causes = [event.data["cause"] for event in world.events if event.kind == "activation"]
    assert causes[:2] == ["start", "overflow"]
    bodies = [len(request.body) for request in world.server.requests]
    assert bodies[16] < bodies[15]
    assert len(bodies) == 31


async def test_a_second_overflow_in_a_row_fails_the_run(serve: Serve) -> None:
    async with serve([*[CALL] * 15, overflow(), overflow(), OK]) as world:
        with pytest.raises(ModelOverflow, match="maximum context length") as raised:
            await world.run(AGENT)
        assert "AGENT_RUNTIME_CONTEXT_WINDOW" in raised.value.cure
        assert len(world.server.requests) == 17
        assert (await world.row()).status == "failed"
        assert (await world.resume(AGENT)).output == "It is 42."


async def test_an_overflow_that_cannot_be_shortened_has_the_providers_message(
    serve: Serve,
) -> None:
    async with serve([overflow()]) as world:
        with pytest.raises(ModelOverflow, match="maximum context length") as raised:
            await world.run(AGENT)
        assert raised.value.cure
        assert (await world.row()).status == "failed"
