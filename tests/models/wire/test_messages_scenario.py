"""Whole runs with strict Claudes that are asked to think: nothing that is sent may be refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from agent_runtime import Agent, ModelSettings
from agent_runtime.models.native import NativeModel
from agent_runtime.testing.providers.anthropic import Anthropic
from agent_runtime.testing.providers.openai import Quirky
from agent_runtime.testing.providers.server import StrictServer
from tests.models.scenario import Played, Transport, play

SETTINGS = ModelSettings(reasoning="high", temperature=0.5, cache_ttl="1h", tool_choice="auto")
NATIVE = (NativeModel, NativeModel)


class Thinking(Played):
    """A Claude that is asked to think."""

    def agent(self, server: StrictServer, transport: Transport) -> Agent:
        """Return the agent of the scenario."""
        return replace(Played.agent(self, server, transport), model_settings=SETTINGS)


def sonnet() -> Thinking:
    """Return a Claude that thinks within a budget."""
    return Thinking(Anthropic(thinking=True), "anthropic/claude-sonnet-4-5")


def opus() -> Thinking:
    """Return a Claude that decides itself how much to think."""
    return Thinking(Anthropic(thinking=True, bound=True), "anthropic/claude-opus-5-5")


@pytest.mark.parametrize("one", [sonnet(), opus()], ids=["budget", "adaptive"])
async def test_a_run_with_thinking(tmp_path: Path, one: Thinking) -> None:
    await play(one, tmp_path, NATIVE)


@pytest.mark.parametrize(
    "one", [Played(Quirky(), "openai/test", "/v1"), opus()], ids=["compatible", "claude"]
)
async def test_a_run_that_another_model_began(tmp_path: Path, one: Played) -> None:
    await play(one, tmp_path, NATIVE, sonnet())
