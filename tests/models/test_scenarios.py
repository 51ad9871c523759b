"""Whole runs against strict providers: nothing that is sent may be refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_runtime.models.litellm import LiteLLMModel
from agent_runtime.models.native import NativeModel
from agent_runtime.testing.providers.anthropic import Anthropic
from agent_runtime.testing.providers.gemini import Gemini
from agent_runtime.testing.providers.openai import OpenAI, Quirky
from tests.models.scenario import Played, Transports, play


def claude(*, thinking: bool = False) -> Played:
    """Return a Claude that demands the thinking of a tool loop, if it thinks."""
    return Played(Anthropic(thinking=thinking), "anthropic/claude-sonnet-4-5")


def bound() -> Played:
    """Return a Claude that checks what precedes its thinking."""
    return Played(Anthropic(thinking=True, bound=True), "anthropic/claude-opus-5-5")


def gemini() -> Played:
    """Return a Gemini that demands its signatures."""
    return Played(Gemini(), "gemini/gemini-3-pro-preview")


def quirky(name: str = "openai/test") -> Played:
    """Return a model on a compatible server that demands its reasoning."""
    return Played(Quirky(), name, "/v1")


@pytest.fixture(
    params=[
        pytest.param((NativeModel, NativeModel), id="native"),
        # What both send is compared on every wire in `test_same_meaning`, which is not slow.
        pytest.param((LiteLLMModel, LiteLLMModel), id="litellm", marks=pytest.mark.slow),
        pytest.param((LiteLLMModel, NativeModel), id="litellm-native", marks=pytest.mark.slow),
    ],
)
def transports(request: pytest.FixtureRequest) -> Transports:
    """Return the transports before and after the resume."""
    return request.param


@pytest.mark.parametrize("thinking", [False, True], ids=["plain", "thinking"])
async def test_anthropic(tmp_path: Path, thinking: bool, transports: Transports) -> None:
    await play(claude(thinking=thinking), tmp_path, transports)


async def test_anthropic_where_thinking_is_bound_to_what_precedes_it(
    tmp_path: Path, transports: Transports
) -> None:
    await play(bound(), tmp_path, transports)


async def test_openai(tmp_path: Path, transports: Transports) -> None:
    await play(Played(OpenAI(), "openai/gpt-4o", "/v1"), tmp_path, transports)


@pytest.mark.parametrize(
    "name", ["openai/test", "deepseek/deepseek-chat", "moonshot/kimi-k2-thinking"]
)
async def test_compatible_servers_with_quirks(
    tmp_path: Path, name: str, transports: Transports
) -> None:
    await play(quirky(name), tmp_path, transports)


async def test_gemini(tmp_path: Path, transports: Transports) -> None:
    await play(gemini(), tmp_path, transports)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (claude(thinking=True), gemini()),
        (gemini(), quirky("deepseek/deepseek-chat")),
        (quirky(), Played(Anthropic(thinking=True), "anthropic/claude-opus-4-20250514")),
        (claude(thinking=True), bound()),
    ],
    ids=["claude-gemini", "gemini-deepseek", "compatible-claude", "claude-claude"],
)
async def test_what_one_model_signed_never_goes_to_another(
    tmp_path: Path, one: Played, other: Played, transports: Transports
) -> None:
    await play(one, tmp_path, transports, other)
