"""Our names are those of the conventions' package."""

from __future__ import annotations

import importlib
from types import ModuleType

import pytest

from agent_runtime.models.telemetry import conventions

MODULES = (
    "_incubating.attributes.gen_ai_attributes",
    "_incubating.metrics.gen_ai_metrics",
    "attributes.error_attributes",
)


def module(name: str) -> ModuleType:
    """Return a module of the conventions, most of which have no types."""
    return importlib.import_module(f"opentelemetry.semconv.{name}")


KNOWN = {
    value for name in MODULES for value in vars(module(name)).values() if isinstance(value, str)
}
PROVIDERS = {one.value for one in module(MODULES[0]).GenAiProviderNameValues}


def test_every_name_is_the_conventions_or_begins_with_ours() -> None:
    ours = [
        value
        for name, value in vars(conventions).items()
        if name.isupper() and isinstance(value, str)
    ]
    assert len(ours) > 30
    assert [one for one in ours if one not in KNOWN and not one.startswith("agent_runtime.")] == []
    assert set(conventions.PROVIDERS.values()) <= PROVIDERS


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("anthropic/claude-sonnet-4-5", ("anthropic", "claude-sonnet-4-5")),
        ("gemini/gemini-2.5-pro,openai/gpt-5", ("gcp.gemini", "gemini-2.5-pro")),
        ("openrouter/qwen/qwen3", ("openrouter", "qwen/qwen3")),
        ("scripted", ("unknown", "scripted")),
    ],
)
def test_a_models_name_gives_provider_and_model(name: str, expected: tuple[str, str]) -> None:
    assert conventions.provider_and_model(name) == expected
