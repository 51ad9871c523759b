"""A price that bounds several models' prices, whatever a call uses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_runtime.models.catalog import model_info
from agent_runtime.models.pricing.charge import CallTerms, cost_of, most_cost
from agent_runtime.models.pricing.dearest import dearest
from agent_runtime.models.pricing.price import Price
from agent_runtime.models.pricing.usage import TokenUsage

NAMES = (
    "anthropic/claude-sonnet-4-5",
    "gemini/gemini-2.5-pro",
    "openai/gpt-5",
    "gemini/gemini-2.5-flash",
)


def _known(name: str) -> Price:
    price = model_info(name).price
    assert price is not None
    return price


PRICES = [_known(name) for name in NAMES]


@given(
    prompt=st.integers(0, 400_000),
    cached=st.floats(0, 1),
    written=st.floats(0, 1),
    output=st.integers(0, 64_000),
    reasoning=st.floats(0, 1),
    service=st.sampled_from(["", "flex", "priority"]),
    models=st.sets(st.sampled_from(range(len(NAMES))), min_size=2),
)
def test_no_model_charges_more_than_the_bound(
    prompt: int,
    cached: float,
    written: float,
    output: int,
    reasoning: float,
    service: str,
    models: set[int],
) -> None:
    read = int(prompt * cached)
    usage = TokenUsage(
        prompt=prompt,
        completion=output,
        cached=read,
        cache_write=int((prompt - read) * written),
        reasoning=int(output * reasoning),
    )
    bound = dearest([PRICES[index] for index in models])
    assert bound is not None
    most = most_cost(bound, prompt, output, CallTerms(service=service, cache_hour=True))
    for index in models:
        cost = cost_of(PRICES[index], usage, service)
        assert cost is not None and cost <= most, NAMES[index]


def test_an_unknown_price_has_no_bound() -> None:
    assert dearest([PRICES[0], None]) is None
    assert dearest([]) is None


def test_a_price_alone_bounds_itself() -> None:
    assert dearest([Price(1, 2, 3, 4)]) is not None
    with pytest.raises(TypeError):
        Price()  # pyright: ignore[reportCallIssue]
