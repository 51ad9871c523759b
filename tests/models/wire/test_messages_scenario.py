"""Whole runs with strict Claudes by our own wire: nothing that is sent may be refused."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from agent_runtime import Agent, ModelSettings
from agent_runtime.models.base import NO_SETTINGS
from agent_runtime.models.native import NativeModel
from tests.models.scenario import FIRST, Played, fail, look, play
from tests.support.providers.anthropic import Anthropic
from tests.support.providers.openai import Quirky
from tests.support.providers.server import StrictServer

SONNET, OPUS = "anthropic/claude-sonnet-4-5", "anthropic/claude-opus-5-5"


@dataclass(frozen=True, slots=True)
class Native(Played):
    """A provider that our own wire calls.

    Attributes:
        settings: what is asked of the model in each call.
    """

    settings: ModelSettings = NO_SETTINGS

    def agent(self, server: StrictServer) -> Agent:
        """Return the agent of the scenario."""
        model = NativeModel(
            self.model, base_url=server.url, api_key="sk-test-0123456789", retries=0
        )
        return Agent(
            model,
            tools=[look, fail],
            delegation=True,
            last_messages=4,
            max_steps=FIRST,
            model_settings=self.settings,
        )


THINKS = ModelSettings(reasoning="high", temperature=0.5, cache_ttl="1h", tool_choice="auto")


@pytest.mark.parametrize(
    "one",
    [
        Native(Anthropic(thinking=False), SONNET),
        Native(Anthropic(thinking=True), SONNET, settings=THINKS),
        Native(Anthropic(thinking=True, bound=True), OPUS, settings=THINKS),
    ],
    ids=["plain", "thinking", "bound"],
)
async def test_a_run_with_claude(tmp_path: Path, one: Native) -> None:
    await play(one, tmp_path)


async def test_a_run_that_litellm_began(tmp_path: Path) -> None:
    provider = Anthropic(thinking=True, bound=True)
    await play(Played(provider, OPUS), tmp_path, Native(provider, OPUS, settings=THINKS))


async def test_a_run_that_another_model_began(tmp_path: Path) -> None:
    claude = Native(Anthropic(thinking=True), SONNET, settings=THINKS)
    bound = replace(claude, model=OPUS, provider=Anthropic(thinking=True, bound=True))
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    await play(Played(Quirky(), "openai/test", "/v1"), tmp_path / "one", claude)
    await play(claude, tmp_path / "two", bound)
