"""Reservations cover their bills when a prompt grows into a dearer tier."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent_runtime import Agent
from agent_runtime.models.base import ModelAnswer, ModelRequest, ModelSettings, Price, TokenUsage
from agent_runtime.models.pricing.charge import cost_of
from agent_runtime.models.pricing.price import Rates, Tier
from agent_runtime.models.scripted import ScriptedModel, call
from agent_runtime.models.tokens import count_message, count_tools
from tests.support.worlds import Play, double

pytestmark = pytest.mark.backends("file")

PRICE = Price(
    input=1000,
    output=2000,
    cache_read=100,
    cache_write=1250,
    tiers=(Tier(900, Rates(9000, 18_000, 900, 11_000)),),
    services=(("priority", Price(4000, 8000, 400, 5000)),),
)


@pytest.mark.parametrize(
    "asked",
    [
        ModelSettings(),
        ModelSettings(cache_ttl="1h"),
        ModelSettings(cache_ttl="1h", service_tier="priority"),
        ModelSettings(extra_body={"service_tier": "priority"}),
    ],
)
async def test_no_bill_exceeds_what_was_reserved_for_it(play: Play, asked: ModelSettings) -> None:
    prompts: list[int] = []

    async def dearest(request: ModelRequest) -> ModelAnswer:
        """Call a tool without end, by the dearest usage that was asked for."""
        prompt = count_tools(request.tools) + sum(map(count_message, request.messages))
        hour = prompt if asked.cache_ttl else 0
        usage = TokenUsage(
            prompt, request.max_output, cache_write=prompt, cache_write_hour=hour, reasoning=50
        )
        cost = cost_of(PRICE, usage, asked.service)
        reserved = (await world.store.spending.of_thread("t")).reserved
        assert cost is not None and cost <= reserved.cost
        prompts.append(prompt)
        return replace(call("double", number=len(request.messages)), usage=usage)

    agent = Agent(ScriptedModel(dearest, price=PRICE), tools=[double], model_settings=asked)
    async with play(settings={"budget_usd": 0.3, "max_output_tokens": 300}) as world:
        result = await world.run(agent, thread="t")
        spent = (await world.store.spending.of_thread("t")).spent
    assert result.stop_reason == "budget", result.detail
    assert prompts[0] < 900 < prompts[-1]
    assert 200_000_000 < spent.cost <= 300_000_000
