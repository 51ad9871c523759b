"""Whole runs against the strict server of OpenAI's Responses API."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_runtime.models.native import NativeModel
from agent_runtime.testing.providers.responses import Responses
from tests.models.scenario import Played, play

NATIVE = (NativeModel, NativeModel)


def gpt(name: str = "gpt-5.6") -> Played:
    """Return a model whose messages have phases."""
    return Played(Responses(), f"openai/responses/{name}", "/v1")


def grok() -> Played:
    """Return a model of xAI's, which takes no files in results."""
    provider = Responses(("high", "low"), phased=False, plain_results=True)
    return Played(provider, "xai/grok-4.7", "/v1")


@pytest.mark.parametrize("played", [gpt(), grok()], ids=["openai", "xai"])
async def test_nothing_is_refused_and_reasoning_comes_back(tmp_path: Path, played: Played) -> None:
    await play(played, tmp_path, NATIVE)
    provider = played.provider
    assert isinstance(provider, Responses)
    # What was made right before an activation does not come back.
    assert len(provider.returned) > len(provider.reasoned) * 0.6


@pytest.mark.parametrize(
    ("one", "other"), [(gpt(), gpt("gpt-6-sol")), (grok(), gpt())], ids=["openai", "xai-openai"]
)
async def test_another_models_reasoning_is_not_sent(
    tmp_path: Path, one: Played, other: Played
) -> None:
    await play(one, tmp_path, NATIVE, other)
