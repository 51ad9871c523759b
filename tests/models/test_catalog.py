"""What is known of models without importing litellm."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agent_runtime.models import catalog
from agent_runtime.models.base import Price, TokenUsage
from agent_runtime.models.catalog import full_name, model_info, takes_files
from agent_runtime.models.pricing.charge import cost_of


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("anthropic:claude-sonnet-4-5", "anthropic/claude-sonnet-4-5"),
        ("google/gemini-2.5-flash", "gemini/gemini-2.5-flash"),
        ("google:gemini-2.5-flash", "gemini/gemini-2.5-flash"),
        ("ollama/llama3:8b", "ollama/llama3:8b"),
        ("openrouter/google/gemini-2.5-flash", "openrouter/google/gemini-2.5-flash"),
        ("gpt-5", "gpt-5"),
        (" openai/gpt-5 ", "openai/gpt-5"),
    ],
)
def test_spellings(name: str, full: str) -> None:
    assert full_name(name) == full


@pytest.mark.parametrize(
    ("name", "window", "price"),
    [
        ("anthropic/claude-sonnet-4-5", 200_000, Price(3000, 15000, 300, 3750)),
        ("openai/gpt-5", 272_000, Price(1250, 10000, 125, 1250)),
        ("gpt-5-mini", 272_000, Price(250, 2000, 25, 250)),
        ("gemini/gemini-2.5-flash", 1_048_576, Price(300, 2500, 30, 300)),
        ("deepseek/deepseek-chat", 131_072, Price(280, 420, 28, 280)),
    ],
)
def test_windows_and_prices_are_litellms(name: str, window: int, price: Price) -> None:
    info = model_info(name)
    assert info.price is not None
    rates = (info.price.input, info.price.output, info.price.cache_read, info.price.cache_write)
    assert (info.window, Price(*rates)) == (window, price)


def test_a_longer_name_does_not_get_a_shorter_ones_figures() -> None:
    assert model_info("gpt-4").window == 8192
    assert model_info("gpt-4.1").window == 1_047_576
    assert model_info("openai/gpt-4.1-of-tomorrow").window == 1_047_576
    assert model_info("openai/gpt-4.9").window == 128_000


def test_what_is_unknown_is_said_to_be_unknown() -> None:
    info = model_info("openai/my-own-model")
    assert (info.window, info.price) == (128_000, None)


def test_what_is_given_wins() -> None:
    price = Price(1, 2, 3, 4)
    info = model_info("openai/gpt-5", price=price, window=5, max_output=6)
    assert (info.price, info.window, info.max_output) == (price, 5, 6)


@pytest.mark.parametrize(
    ("name", "marks"),
    [
        ("anthropic/claude-sonnet-4-5", 4),
        ("claude-sonnet-4-5", 4),
        ("bedrock/anthropic.claude-sonnet-4-5-20250929-v1:0", 4),
        ("vertex_ai/claude-sonnet-4-5", 4),
        ("gemini/gemini-2.5-flash", 0),
        ("openai/gpt-5", 0),
        ("openai/claude-like", 0),
    ],
)
def test_only_claude_gets_cache_breakpoints(name: str, marks: int) -> None:
    assert model_info(name).cache_marks == marks


def test_the_first_ratio_is_safe_for_the_family() -> None:
    names = ("anthropic/claude-sonnet-4-5", "openai/gpt-5", "mistral/mistral-large-latest")
    assert [model_info(name).start_ratio for name in names] == [1.6, 1.05, 1.3]


def test_files_go_to_models_known_to_take_their_kind() -> None:
    assert takes_files("anthropic/claude-sonnet-4-5") == {"image", "document"}
    assert takes_files("gemini/gemini-2.5-flash") == {"image", "audio", "document"}
    assert takes_files("deepseek/deepseek-chat") == set()
    assert takes_files("openai/my-own-model") == set()
    assert model_info("openai/my-own-model", takes=["image"]).takes == {"image"}


def test_cached_tokens_are_not_paid_twice() -> None:
    price = Price(input=100, output=1000, cache_read=10, cache_write=125)
    cost = cost_of(price, TokenUsage(1000, 10, cached=700, cache_write=200))
    assert cost == 100 * 100 + 700 * 10 + 200 * 125 + 10 * 1000
    assert cost_of(None, TokenUsage(1, 1)) is None


def test_what_a_cache_keeps_for_an_hour_costs_twice_the_input() -> None:
    price = Price(input=100, output=1000, cache_read=10, cache_write=125)
    cost = cost_of(price, TokenUsage(300, 0, cache_write=300, cache_write_hour=200))
    assert cost == 100 * 125 + 200 * 200


@pytest.mark.parametrize("indent", [None, 2, 4])
@pytest.mark.parametrize("name", ["a", "p/b", 'quo"te', "\ud800", "empty", "text", "inner", "last"])
def test_a_table_is_read_however_it_is_written(
    monkeypatch: pytest.MonkeyPatch, indent: int | None, name: str
) -> None:
    table: dict[str, dict[str, Any]] = {
        "a": {"mode": "chat", "max_input_tokens": 1, "inner": {"mode": "chat"}},
        "b": {"mode": "responses", "note": '\n    "last": {\n', "list": [{}, {"x": 1}]},
        'quo"te': {"mode": "chat", "text": {}},
        "empty": {},
        "image": {"mode": "image_generation"},
        "last": {"mode": "completion"},
    }
    monkeypatch.setattr(catalog, "read_table", lambda: json.dumps(table, indent=indent).encode())
    wanted = table.get(name.removeprefix("p/"), {})
    assert catalog.entry_of.__wrapped__(name) == wanted


@pytest.mark.parametrize("name", ["first", "begin", "end", "last"])
def test_an_entry_is_found_though_it_is_not_indented(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    # litellm's table is edited by hand.
    table: dict[str, dict[str, Any]] = {
        key: {"mode": "chat", "max_input_tokens": n, "inner": {"begin": {}}}
        for n, key in enumerate(("first", "begin", "end", "last"))
    }
    text = json.dumps(table, indent=4).replace('    "begin": {\n        "mode"', '"begin": {"mode"')
    before, key, after = text.partition('"end"')
    text = before + key + after.replace("\n    },", "\n},", 1)
    monkeypatch.setattr(catalog, "read_table", text.encode)
    assert catalog.entry_of.__wrapped__(name) == table[name]
