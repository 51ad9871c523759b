"""Runs with a strict Claude on Bedrock, which is called through litellm."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from agent_runtime import Agent
from agent_runtime.models.litellm import LiteLLMModel
from agent_runtime.testing.providers.bedrock import Bedrock
from agent_runtime.testing.providers.server import StrictServer
from tests.models.scenario import FIRST, Played, Transport, fail, look, play

NAME = "bedrock/invoke/us.anthropic.claude-sonnet-4-5-20250929-v1:0"


@dataclass(frozen=True, slots=True)
class Signed(Played):
    """A model that is called with the keys of the environment, which sign each request."""

    def agent(self, server: StrictServer, transport: Transport) -> Agent:
        """Return the agent of the scenario."""
        model = LiteLLMModel(self.model, base_url=server.url, retries=0)
        return Agent(model, tools=[look, fail], delegation=True, last_messages=4, max_steps=FIRST)


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set keys that sign requests to a server which does not know them."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIATEST0123456789AB")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret0123456789secret0123456789secret01")
    monkeypatch.setenv("AWS_REGION_NAME", "us-east-1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


async def test_nothing_is_refused(tmp_path: Path) -> None:
    played = Signed(Bedrock(thinking=False), NAME)
    await play(played, tmp_path, (LiteLLMModel, LiteLLMModel))
