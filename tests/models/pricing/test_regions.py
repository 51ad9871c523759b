"""Prices that depend on the region or the hour count at the dearer one."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from agent_runtime.models.base import TokenUsage
from agent_runtime.models.catalog import entry_of, model_info, read_table
from agent_runtime.models.pricing.charge import cost_of, most_cost
from agent_runtime.models.pricing.table import price_of

GPT = "openai/gpt-5.6"
GEMINI = "vertex_ai/gemini-3.5-flash"
USAGE = TokenUsage(prompt=1000, completion=100, cached=500)


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unset what names a region."""
    for name in ("VERTEXAI_LOCATION", "VERTEX_LOCATION", "OPENAI_BASE_URL", "OPENAI_API_BASE"):
        monkeypatch.delenv(name, raising=False)


def cost(name: str, base_url: str | None = None) -> int:
    """Return the cost of the usage at an address."""
    price = model_info(name, base_url=base_url).price
    assert price is not None
    found = cost_of(price, USAGE)
    assert found is not None
    assert found <= most_cost(price, USAGE.prompt, USAGE.completion)
    return found


@pytest.mark.parametrize(
    ("url", "dearer"),
    [
        (None, False),
        ("https://api.openai.com/v1", False),
        ("https://eu.api.openai.com/v1", True),
        ("https://us.api.openai.com/v1", True),
        # A gateway may call any region.
        ("https://gateway.example.com/v1", True),
        ("https://api.openai.com.example.com/v1", True),
    ],
)
def test_openais_regions_cost_more(url: str | None, dearer: bool) -> None:
    assert cost(GPT, url) == round(cost(GPT) * (1.1 if dearer else 1))


def test_a_region_in_the_environment_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = cost(GPT)
    monkeypatch.setenv("OPENAI_BASE_URL", "https://eu.api.openai.com/v1")
    assert cost(GPT) == round(plain * 1.1)


@pytest.mark.parametrize("location", ["", "us-central1", "europe-west4"])
def test_vertex_costs_more_outside_the_global_endpoint(
    monkeypatch: pytest.MonkeyPatch, location: str
) -> None:
    monkeypatch.setenv("VERTEXAI_LOCATION", "global")
    everywhere = cost(GEMINI)
    monkeypatch.setenv("VERTEXAI_LOCATION", location)
    assert cost(GEMINI) == round(everywhere * 1.1)


def test_tiers_and_services_cost_more_too() -> None:
    plain, dearer = (model_info(GPT, base_url=url).price for url in (None, "https://here/v1"))
    assert plain and dearer and plain.tiers and plain.services
    assert dearer.tiers[0].rates.input == pytest.approx(plain.tiers[0].rates.input * 1.1)
    for (_, one), (_, other) in zip(plain.services, dearer.services, strict=True):
        assert other.output == pytest.approx(one.output * 1.1)


def test_no_hour_is_dearer_than_what_counts() -> None:
    table: dict[str, dict[str, Any]] = orjson.loads(read_table())
    hourly = [one for one in table.values() if one.get("off_peak_pricing")]
    assert hourly
    for entry in hourly:
        price, other = price_of(entry), entry["off_peak_pricing"]
        assert price is not None
        assert price.input >= other["input_cost_per_token"] * 1e9
        assert price.output >= other["output_cost_per_token"] * 1e9


def test_a_table_whose_named_hours_are_the_dearer_ones() -> None:
    entry = dict(entry_of("deepseek/deepseek-chat"))
    plain = price_of(entry)
    night = {"input_cost_per_token": 1e-5, "output_cost_per_token": 0.0}
    price = price_of(entry | {"off_peak_pricing": night})
    assert plain is not None and price is not None
    assert (price.input, price.output) == (10_000, plain.output)
