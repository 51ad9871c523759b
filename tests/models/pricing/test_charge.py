"""What calls cost by tier, and that no bound is below a bill."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_runtime.files.references import FileKind
from agent_runtime.models.base import ModelInfo, Price, TokenUsage
from agent_runtime.models.catalog import model_info
from agent_runtime.models.cost import affordable_output, max_call_cost
from agent_runtime.models.pricing.charge import (
    CallTerms,
    affordable_prompt,
    cost_of,
    most_cost,
)
from agent_runtime.models.pricing.price import Rates, Tier
from agent_runtime_config.request_settings import ModelSettings
from agent_runtime_storage.contract.records.log import Amount

GEMINI = "gemini/gemini-2.5-pro"


def price_of(name: str) -> Price:
    price = model_info(name).price
    assert price is not None
    return price


@pytest.mark.parametrize(
    ("name", "prompt", "into", "out"),
    [
        (GEMINI, 200_000, 1250, 10_000),
        (GEMINI, 200_001, 2500, 15_000),
        # xAI's tier begins with this many tokens, not above them.
        ("xai/grok-4.20-0309-reasoning", 199_999, 1250, 2500),
        ("xai/grok-4.20-0309-reasoning", 200_000, 2500, 5000),
        ("dashscope/qwen-flash", 256_000, 50, 400),
        ("dashscope/qwen-flash", 256_001, 250, 2000),
        ("dashscope/qwen-flash", 2_000_000, 250, 2000),
    ],
)
def test_the_whole_prompt_pays_by_the_tier_that_it_falls_into(
    name: str, prompt: int, into: int, out: int
) -> None:
    cost = cost_of(price_of(name), TokenUsage(prompt, 100))
    assert cost == prompt * into + 100 * out


def test_cached_tokens_count_for_the_tier() -> None:
    cost = cost_of(price_of(GEMINI), TokenUsage(300_000, 0, cached=299_000))
    assert cost == 1000 * 2500 + 299_000 * 250


def test_the_service_tier_that_served_a_call_sets_its_price() -> None:
    price, usage = price_of(GEMINI), TokenUsage(1000, 0)
    assert cost_of(price, usage, "priority") == 1000 * 2250
    assert cost_of(price, usage, "Flex") == 1000 * 625
    assert cost_of(price, usage, "unheard-of") == 1000 * 1250
    served = TokenUsage(1000, 0, service="default")
    assert cost_of(price, served, "priority") == 1000 * 1250


@pytest.mark.parametrize(
    ("request_settings", "service"),
    [
        (ModelSettings(), ""),
        (ModelSettings(service_tier="flex"), "flex"),
        (ModelSettings(service_tier="flex", extra_body={"service_tier": "priority"}), "priority"),
        (ModelSettings(extra_body={"serviceTier": "priority"}), "priority"),
        (ModelSettings(extra_body={"service_tier": {"type": "reserved"}}), ""),
    ],
)
def test_the_body_that_wins_names_the_service_tier(
    request_settings: ModelSettings, service: str
) -> None:
    assert request_settings.service == service


def test_each_kind_of_token_has_its_price() -> None:
    price = Price(
        10, 100, 1, 12, cache_write_hour=20, reasoning=50, audio=30, cached_audio=3, image=40
    )
    usage = TokenUsage(
        prompt=1000,
        completion=100,
        cached=300,
        cache_write=200,
        cache_write_hour=150,
        reasoning=60,
        audio=250,
        cached_audio=100,
        image=50,
    )
    fresh = 300 * 10 + 150 * 30 + 50 * 40
    cached = 200 * 1 + 100 * 3 + 50 * 12 + 150 * 20
    assert cost_of(price, usage) == fresh + cached + 60 * 50 + 40 * 100


def test_fractions_of_a_nanodollar_add_up_and_round_up() -> None:
    price = Price(37.5, 0.001, 0, 0)
    assert cost_of(price, TokenUsage(2, 0)) == 75
    assert cost_of(price, TokenUsage(2, 1)) == 76
    assert cost_of(price, TokenUsage(2, 1000)) == 76


def test_a_price_of_ones_own_has_no_tiers() -> None:
    price = Price(1, 2, 3, 4)
    assert cost_of(price, TokenUsage(5_000_000, 10), "priority") == 5_000_020
    assert most_cost(price, 5_000_000, 10, CallTerms("priority")) == 5_000_000 * 4 + 20


def test_what_a_call_asks_for_raises_its_bound() -> None:
    claude = price_of("anthropic/claude-sonnet-4-5")
    assert most_cost(claude, 1000, 0) == 3_750_000
    assert most_cost(claude, 1000, 0, CallTerms(cache_hour=True)) == 6_000_000
    flash = price_of("gemini/gemini-2.5-flash")
    assert most_cost(flash, 1000, 0) == 300_000
    assert most_cost(flash, 1000, 0, CallTerms(files=frozenset({"audio"}))) == 1_000_000
    assert most_cost(flash, 1000, 0, CallTerms("priority")) > 300_000
    # A provider may serve a call by its default tier, which costs more than this one.
    assert most_cost(flash, 1000, 0, CallTerms("flex")) == 300_000


def test_where_and_how_fast_claude_computes_sets_its_price() -> None:
    claude = price_of("anthropic/claude-opus-4-8")
    plain = cost_of(claude, TokenUsage(1000, 100))
    assert plain is not None
    assert cost_of(claude, TokenUsage(1000, 100, factors=("global", "standard"))) == plain
    assert cost_of(claude, TokenUsage(1000, 100, factors=("us", "standard"))) == plain * 11 // 10
    assert cost_of(claude, TokenUsage(1000, 100, factors=("us", "fast"))) == plain * 22 // 10
    # The account may compute in the dearest place without being asked.
    bound = most_cost(claude, 1000, 0)
    assert bound == 1000 * claude.cache_write * 11 // 10
    assert most_cost(claude, 1000, 0, CallTerms(fast=True)) == 2 * bound
    assert price_of("bedrock/anthropic.claude-opus-4-8").factors == ()


def test_pieces_that_are_charged_each_are_never_free() -> None:
    assert cost_of(price_of("gemini/lyria-3-pro-preview"), TokenUsage(10, 10)) == 80_000_000


# No bill is above its bound.

RATES = st.one_of(st.integers(0, 100_000), st.integers(0, 10**8).map(lambda n: n / 1000))
MAYBE = st.one_of(st.none(), RATES)
FILES: frozenset[FileKind] = frozenset({"image", "audio"})


@st.composite
def rates(draw: st.DrawFn) -> Rates:
    return Rates(*(draw(RATES) for _ in range(4)), *(draw(MAYBE) for _ in range(7)))


@st.composite
def prices(draw: st.DrawFn, *, services: bool = True) -> Price:
    base = draw(rates())
    borders = sorted(draw(st.sets(st.integers(1, 1000), max_size=3)))
    named = ("flex", "priority")
    return Price(
        **{name: getattr(base, name) for name in Rates.__slots__},
        per_call=draw(st.integers(0, 1000)),
        factors=draw(st.sampled_from(((), (("us", 1.1),), (("us", 1.1), ("fast", 2.0))))),
        tiers=tuple(Tier(border, draw(rates())) for border in borders),
        services=tuple((one, draw(prices(services=False))) for one in named) if services else (),
    )


@st.composite
def usages(draw: st.DrawFn, prompt: int, completion: int) -> TokenUsage:
    prompt = draw(st.integers(0, prompt))
    completion = draw(st.integers(0, completion))
    cached = draw(st.integers(0, prompt))
    written = draw(st.integers(0, prompt - cached))
    cached_audio = draw(st.integers(0, cached))
    return TokenUsage(
        prompt,
        completion,
        cached=cached,
        cache_write=written,
        cache_write_hour=draw(st.integers(0, written)),
        reasoning=draw(st.integers(0, completion)),
        audio=cached_audio + draw(st.integers(0, prompt)),
        cached_audio=cached_audio,
        image=draw(st.integers(0, prompt)),
        audio_output=draw(st.integers(0, completion)),
        image_output=draw(st.integers(0, completion)),
        service=draw(st.sampled_from(("", "default"))),
        factors=draw(st.sampled_from(((), ("global", "standard"), ("us", "fast")))),
    )


@settings(max_examples=150, deadline=None)
@given(st.data(), prices(), st.integers(0, 2000), st.integers(0, 500))
def test_no_bill_is_above_its_bound(
    data: st.DataObject, price: Price, prompt: int, output: int
) -> None:
    service = data.draw(st.sampled_from(("", "flex", "priority", "other")))
    usage = data.draw(usages(prompt, output))
    terms = CallTerms(service, cache_hour=True, files=FILES, fast="fast" in usage.factors)
    cost = cost_of(price, usage, service)
    assert cost is not None
    assert cost <= most_cost(price, prompt, output, terms)


@settings(max_examples=150, deadline=None)
@given(st.data(), prices(), st.integers(0, 2000), st.integers(0, 10**8))
def test_what_is_afforded_fits_and_no_more_would(
    data: st.DataObject, price: Price, prompt: int, left: int
) -> None:
    terms = CallTerms(data.draw(st.sampled_from(("", "flex"))))
    info = ModelInfo("m", 10**9, 10**9, price)
    output = affordable_output(info, prompt, Amount(10**9, left), terms)
    if output >= 0:
        assert max_call_cost(info, prompt, output, terms).cost <= left
    if output < 10**9 - prompt:
        assert max_call_cost(info, prompt, output + 1, terms).cost > left
    longest = affordable_prompt(price, left, 100, terms)
    if longest is None:
        assert most_cost(price, 10**9, 100, terms) <= left
        return
    assert longest < 0 or most_cost(price, longest, 100, terms) <= left
    assert most_cost(price, longest + 1, 100, terms) > left
