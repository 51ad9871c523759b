"""Runs with a strict Mistral, which is called through litellm."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_runtime.errors import ModelOverflow
from agent_runtime.messages import PromptMessage, ToolCall
from agent_runtime.models.base import ModelAnswer
from agent_runtime.models.litellm import LiteLLMModel
from agent_runtime.testing.providers.anthropic import Anthropic
from agent_runtime.testing.providers.mistral import Mistral
from agent_runtime.testing.providers.server import Say, StrictServer
from tests.models.conftest import request
from tests.models.scenario import Played, play

LITELLM = (LiteLLMModel, LiteLLMModel)


def mistral() -> Played:
    """Return a model that thinks in parts of its content."""
    return Played(Mistral(), "mistral/magistral-medium-latest", "/v1")


def model_of(server: StrictServer) -> LiteLLMModel:
    """Return a model on a server."""
    url = f"{server.url}/v1"
    return LiteLLMModel("mistral/mistral-large-latest", base_url=url, api_key="unused", retries=0)


async def test_nothing_is_refused(tmp_path: Path) -> None:
    meaning = await play(mistral(), tmp_path, LITELLM)
    assert {usage[2:] for usage in meaning.usage} == {(9, 0, 2)}


async def test_it_continues_what_another_model_began(tmp_path: Path) -> None:
    claude = Played(Anthropic(thinking=True), "anthropic/claude-sonnet-4-5")
    await play(claude, tmp_path, LITELLM, mistral())


async def test_a_users_message_may_follow_a_result() -> None:
    call = ToolCall("abcdefghi", "look", {"number": 1})
    messages = (
        PromptMessage("user", "Look."),
        PromptMessage("assistant", "", calls=(call,)),
        PromptMessage("tool", "Nothing.", call_id="abcdefghi", name="look"),
        PromptMessage("user", "And now?"),
    )
    async with (
        StrictServer(Mistral(), lambda child, n: (Say("Nothing."),)) as server,
        model_of(server).stream(request(*messages)) as events,
    ):
        last = [event async for event in events][-1]
    assert server.violations == []
    assert isinstance(last, ModelAnswer) and last.text == "Nothing."


async def test_a_prompt_that_is_too_long_is_an_overflow() -> None:
    async with StrictServer(Mistral(window=10), lambda child, n: (Say("No."),)) as server:
        with pytest.raises(ModelOverflow):
            async with model_of(server).stream(request()) as events:
                _ = [event async for event in events]
