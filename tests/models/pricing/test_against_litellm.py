"""Costs are those that litellm computes, for every model of its table."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import anyio
import orjson
import pytest

from agent_runtime.models.base import Price, TokenUsage
from agent_runtime.models.catalog import entry_of, read_table
from agent_runtime.models.litellm import load_litellm
from agent_runtime.models.pricing.charge import cost_of
from agent_runtime.models.pricing.table import price_of

PEAK = datetime(2026, 6, 3, 2, tzinfo=UTC)
"""No provider is cheaper at this hour."""
SERVICES = ("", "flex", "balanced", "priority", "ultrafast")

# Why a cost is not litellm's.
PER_CALL = "litellm leaves out what is charged for each call or piece"
NO_TIERS = "litellm has arithmetic of its own for this provider, without tiers and caching"
NO_SERVICE = "litellm has arithmetic of its own for this provider, without service tiers"
FREE_WRITES = "the table has 0 where writing is not charged apart; ours is the input's price"
UNKNOWN_HOUR = "without an hour's price, litellm takes that of 5 minutes; ours is twice the input"
HEARD = "the price of audio or images is that of text by default; ours is so in each tier"
HEARD_BY_SERVICE = "litellm does not read a service tier's price of audio"
REASONS = (PER_CALL, NO_TIERS, NO_SERVICE, FREE_WRITES, UNKNOWN_HOUR, HEARD, HEARD_BY_SERVICE)


def models() -> dict[str, dict[str, Any]]:
    """Return the table's entries of language models, by name, all decoded."""
    modes = ("chat", "completion", "responses")
    table: dict[str, dict[str, Any]] = orjson.loads(read_table())
    return {name: entry for name, entry in table.items() if entry.get("mode") in modes}


def reason(entry: dict[str, Any], price: Price, usage: TokenUsage, service: str) -> str:
    """Return why a cost may differ from litellm's; empty if it may not."""
    provider = entry["litellm_provider"]
    if price.per_call:
        return PER_CALL
    if provider == "perplexity":
        return NO_TIERS
    if provider == "fireworks_ai" and service:
        return NO_SERVICE
    if usage.cache_write and entry.get("cache_creation_input_token_cost") == 0:
        return FREE_WRITES
    rates = price.of_service(service).rates_of(usage.prompt)
    if usage.cache_write_hour and rates.cache_write_hour is None:
        return UNKNOWN_HOUR
    if usage.audio and f"input_cost_per_audio_token_{service}" in entry:
        return HEARD_BY_SERVICE
    follows = (
        entry.get(f"input_cost_per_{kind}_token") is not None and getattr(rates, kind) is None
        for kind in ("audio", "image")
    )
    return HEARD if usage.audio and any(follows) else ""


def sizes(price: Price) -> list[int]:
    """Return prompt sizes around each border between tiers."""
    borders = {tier.above for one in (price, *dict(price.services).values()) for tier in one.tiers}
    around = (border + more for border in borders for more in (-1, 0, 1, 2, border))
    return sorted({1000, *around})


def usages(prompt: int) -> Iterator[TokenUsage]:
    half, quarter = prompt // 2, prompt // 4
    yield TokenUsage(prompt, 300)
    yield TokenUsage(prompt, 300, cached=quarter, cache_write=half, reasoning=100)
    yield TokenUsage(prompt, 300, cache_write=half, cache_write_hour=quarter)
    yield TokenUsage(prompt, 300, audio=quarter, image=half, audio_output=90, image_output=110)


def as_litellm(usage: TokenUsage) -> Any:
    from litellm.types.utils import (  # pyright: ignore[reportMissingTypeStubs]
        CacheCreationTokenDetails,
        CompletionTokensDetailsWrapper,
        PromptTokensDetailsWrapper,
        Usage,
    )

    hour = usage.cache_write_hour
    by_ttl = CacheCreationTokenDetails(
        ephemeral_5m_input_tokens=usage.cache_write - hour, ephemeral_1h_input_tokens=hour
    )
    return Usage(
        prompt_tokens=usage.prompt,
        completion_tokens=usage.completion,
        total_tokens=usage.prompt + usage.completion,
        prompt_tokens_details=PromptTokensDetailsWrapper(
            cached_tokens=usage.cached,
            cache_creation_tokens=usage.cache_write,
            cache_creation_token_details=by_ttl if hour else None,
            audio_tokens=usage.audio,
            image_tokens=usage.image,
        ),
        completion_tokens_details=CompletionTokensDetailsWrapper(
            reasoning_tokens=usage.reasoning,
            audio_tokens=usage.audio_output,
            image_tokens=usage.image_output,
        ),
    )


@pytest.mark.slow
def test_every_model_costs_what_litellm_computes() -> None:
    litellm = anyio.run(load_litellm)
    from litellm._internal_context import pinned_billing_time

    known: dict[int, list[tuple[TokenUsage, Any]]] = {}
    wrong: list[str] = []
    differing: Counter[str] = Counter()
    compared: set[str] = set()
    table = models()
    for name, entry in table.items():
        price = price_of(entry)
        provider = entry["litellm_provider"]
        if price is None or f"{provider}/{name}" in table:
            # litellm takes the entry with the provider's name, which has its own turn.
            continue
        services = ("", *(one for one in SERVICES if one in dict(price.services)))
        for prompt, service in itertools.product(sizes(price), services):
            if prompt not in known:
                known[prompt] = [(one, as_litellm(one)) for one in usages(prompt)]
            for usage, theirs in known[prompt]:
                with pinned_billing_time(PEAK):
                    dollars = litellm.cost_per_token(
                        model=name,
                        custom_llm_provider=provider,
                        usage_object=theirs,
                        service_tier=service or None,
                    )
                wanted, cost = sum(dollars) * 1e9, cost_of(price, usage, service) or 0
                compared.add(name)
                if abs(cost - wanted) <= 1 + wanted * 1e-9:
                    continue
                why = reason(entry, price, usage, service)
                differing[why] += 1
                if not why:
                    wrong.append(f"{name} {service}: {cost}, not {wanted:.0f}, for {usage}")
    assert not wrong, wrong[:20]
    assert set(differing) == set(REASONS)
    assert len(compared) > 2500


def test_models_without_a_price_have_no_tokens_price_in_the_table() -> None:
    sides = ("input_cost_per_token", "output_cost_per_token")
    for name, entry in models().items():
        listed = all(entry.get(side) is not None for side in sides) or entry.get("tiered_pricing")
        assert (price_of(entry) is not None) == bool(listed), name


def test_an_entry_cut_out_of_the_table_is_the_one_in_it() -> None:
    table = models()
    # Every tenth: each look-up searches the whole file.
    assert {name: entry_of(name) for name in list(table)[::10]} == dict(list(table.items())[::10])
