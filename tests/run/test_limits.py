"""Limits of a run in steps, time, tokens and dollars; and the recorded usage."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from agent_runtime import Agent, tool
from agent_runtime.errors import ConfigError, ModelProtocolError
from agent_runtime.models.base import Price
from agent_runtime.models.scripted import call, say
from agent_runtime.testing.model_server import Reply
from tests.support.worlds import Play, Serve, Served, double

CALL = Reply(calls=(("double", {"number": 21}),))
BROKEN = Reply(text="It is so", cut_after=2)
AGENT = Agent(tools=[double])
PRICE = Price(input=3000, output=15_000, cache_read=300, cache_write=3000)
ENDLESS = 400
"""More calls than any limit here allows."""


async def test_max_steps_end_a_run_and_a_resume_gives_as_many_again(play: Play) -> None:
    script = [call("double", number=1)] * 5 + [say("Done.")]
    async with play(script, settings={"max_steps": 3}) as world:
        result = await world.run(AGENT)
        assert (result.status, result.stop_reason, result.steps) == ("failed", "max_steps", 3)
        assert "3 steps" in result.detail
        again = await world.resume(AGENT)
    assert (again.ok, again.output, again.steps) == (True, "Done.", 6)


async def test_an_agents_max_steps_override_the_setting(play: Play) -> None:
    async with play([call("double", number=1)] * 5, settings={"max_steps": 4}) as world:
        result = await world.run(Agent(tools=[double], max_steps=2))
    assert (result.stop_reason, result.steps) == ("max_steps", 2)


async def test_a_timeout_interrupts_the_tool_and_the_run_resumes(
    play: Play,
) -> None:
    @tool
    async def hang() -> str:
        """Never end."""
        await anyio.sleep_forever()
        return "ended"

    agent = Agent(tools=[hang])
    async with play([call("hang"), say("Done.")], settings={"run_timeout": 2.0}) as world:
        result = await world.run(agent)
        assert (result.status, result.stop_reason) == ("failed", "timeout")
        ((outcome, _),) = await world.results(result.thread_id)
        assert outcome == "interrupted"
        assert (await world.resume(agent)).output == "Done."


async def _billed(world: Served) -> tuple[int, int]:
    """Return the tokens and nanodollars that the server charges for all its answers."""
    tokens = world.billed("total_tokens")
    cost = 0
    for usage in world.server.billed:
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        cost += (usage["prompt_tokens"] - cached) * PRICE.input + cached * PRICE.cache_read
        cost += usage["completion_tokens"] * PRICE.output
    return tokens, cost


@pytest.mark.parametrize("factor", [1.0, 1.38])
@pytest.mark.parametrize("fault", [None, BROKEN], ids=["", "with broken streams"])
async def test_a_budget_of_tokens_is_never_exceeded(
    serve: Serve, factor: float, fault: Reply | None
) -> None:
    budget = 40_000
    replies = [BROKEN if fault and n % 7 == 3 else CALL for n in range(ENDLESS)]
    async with serve(replies, factor=factor, settings={"budget_tokens": budget}) as world:
        result = await world.run(AGENT)
        run = await world.row()
        tokens, _ = await _billed(world)
    assert (result.status, result.stop_reason) == ("failed", "budget")
    assert run.reserved.tokens == 0
    assert run.settled.tokens <= tokens <= run.settled.tokens + run.unsettled.tokens <= budget
    assert (run.unsettled.tokens > 0) == (fault is not None)
    if fault is None:
        # It worked as long as it could: the next call would have needed its whole bound.
        assert tokens > budget * 0.8


@pytest.mark.parametrize("factor", [1.0, 1.38])
@pytest.mark.parametrize("fault", [None, BROKEN], ids=["", "with broken streams"])
async def test_a_budget_of_dollars_is_never_exceeded(
    serve: Serve, factor: float, fault: Reply | None
) -> None:
    dollars = 0.05
    replies = [BROKEN if fault and n % 7 == 3 else CALL for n in range(ENDLESS)]
    limit = {"budget_usd": dollars}
    async with serve(replies, factor=factor, settings=limit, price=PRICE) as world:
        result = await world.run(AGENT)
        run = await world.row()
        _, cost = await _billed(world)
    assert (result.status, result.stop_reason) == ("failed", "budget")
    assert run.settled.cost <= cost <= run.settled.cost + run.unsettled.cost <= dollars * 1e9
    assert len(world.server.requests) < ENDLESS


async def test_broken_streams_count_at_their_bound_as_unsettled(
    serve: Serve,
) -> None:
    async with serve([CALL, BROKEN], settings={"budget_tokens": 200_000}) as world:
        with pytest.raises(ModelProtocolError):
            await world.run(AGENT)
        run = await world.row()
        tokens, _ = await _billed(world)
    assert run.reserved.tokens == 0
    assert run.settled.tokens < tokens <= run.settled.tokens + run.unsettled.tokens


@pytest.mark.parametrize("name", ["openai/test", "openai/no-such-model-1"])
async def test_a_budget_of_dollars_needs_a_price(serve: Serve, name: str) -> None:
    async with serve([CALL], settings={"budget_usd": 1.0}, name=name) as world:
        with pytest.raises(ConfigError, match="price") as raised:
            await world.run(AGENT)
        assert "AGENT_RUNTIME_PRICE_INPUT" in raised.value.cure
        assert world.server.requests == []
        assert await world.store.runs.list() == []


async def test_unknown_price_tokens_allows_a_model_without_a_price(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {"budget_usd": 0.000001, "unknown_price": "tokens"}
    async with serve([CALL, Reply(text="Done.")], settings=settings, name="openai/new-1") as world:
        result = await world.run(AGENT)
        run = await world.store.runs.get(result.run_id)
        assert result.ok and result.usage.cost == 0
        assert run.settled.cost == 0 < run.settled.tokens
    assert "The price of openai/new-1 is unknown" in caplog.text

    limited = settings | {"budget_tokens": 1}
    async with serve([CALL], settings=limited, name="openai/new-1") as world:
        assert (await world.run(AGENT)).stop_reason == "budget"
        assert world.server.requests == []


async def test_usage_equals_what_the_server_billed(serve: Serve) -> None:
    replies = [CALL] * 12 + [Reply(text="Done.")]
    async with serve(replies, factor=1.13, price=PRICE) as world:
        result = await world.run(AGENT)
        _, cost = await _billed(world)
        by_thread = await world.store.spending.usage_total(thread_id=result.thread_id)
    usage = result.usage
    assert usage == by_thread
    assert usage.calls == len(world.server.requests) == 13
    assert usage.prompt_tokens == world.billed("prompt_tokens")
    assert usage.completion_tokens == world.billed("completion_tokens")
    cached = sum(billed["prompt_tokens_details"]["cached_tokens"] for billed in world.server.billed)
    assert usage.cached_tokens == cached > 0
    assert usage.cost == cost
    assert result.cost_usd == pytest.approx(cost / 1e9)


async def test_an_unknown_cost_is_none_and_not_zero(serve: Serve) -> None:
    async with serve([Reply(text="Done.")]) as world:
        result = await world.run(Agent())
    assert result.cost_usd is None
    assert result.usage.unpriced_calls == 1


async def test_unreported_usage_counts_at_its_bound(serve: Serve) -> None:
    silent = Reply(text="Done.", usage=False)
    async with serve([silent], settings={"budget_tokens": 100_000}) as world:
        result = await world.run(Agent())
        run = await world.row()
        tokens, _ = await _billed(world)
    assert result.usage.unreported_calls == 1
    assert run.settled.tokens == 0
    assert tokens <= run.unsettled.tokens


async def test_no_call_is_made_on_a_budget_too_small_for_one(serve: Serve) -> None:
    async with serve([CALL], settings={"budget_tokens": 50}) as world:
        result = await world.run(AGENT)
    assert (result.stop_reason, result.steps) == ("budget", 0)
    assert world.server.requests == []


async def test_output_limits_shrink_with_the_remaining_budget(serve: Serve) -> None:
    async with serve([CALL] * ENDLESS, settings={"budget_tokens": 20_000}) as world:
        await world.run(AGENT)
    limits: list[Any] = [request.json["max_tokens"] for request in world.server.requests]
    assert limits[0] > limits[-1] >= 256
