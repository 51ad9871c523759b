"""Fixtures of the tests of models."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import pytest

from agent_runtime.messages import PromptMessage, ToolSpec
from agent_runtime.models import attempts
from agent_runtime.models.base import ModelAnswer, ModelEvent, ModelRequest
from agent_runtime.models.litellm import LiteLLMModel
from agent_runtime.models.native import NativeModel
from agent_runtime.testing.model_server import OpenAIServer, Reply

KEY = "sk-test-0123456789abcdef"
READ = ToolSpec(
    "read",
    "Reads a file.",
    {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
)


def request(*messages: PromptMessage, **options: Any) -> ModelRequest:
    """Return a request; without messages, a short one."""
    default = (PromptMessage("system", "Be brief."), PromptMessage("user", "Hello."))
    return ModelRequest(messages or default, **options)


@dataclass
class Talk:
    """A model and the server that plays its provider."""

    model: LiteLLMModel | NativeModel
    server: OpenAIServer

    async def events(self, asked: ModelRequest | None = None) -> list[ModelEvent]:
        """Return all events of one call."""
        async with self.model.stream(asked or request()) as events:
            return [event async for event in events]

    async def answer(self, asked: ModelRequest | None = None) -> ModelAnswer:
        """Return the answer of one call."""
        last = (await self.events(asked))[-1]
        assert isinstance(last, ModelAnswer)
        return last


Play: TypeAlias = Callable[..., AbstractAsyncContextManager[Talk]]


Transport: TypeAlias = type[LiteLLMModel] | type[NativeModel]


@pytest.fixture(params=[NativeModel, LiteLLMModel], ids=["native", "litellm"])
def transport(request: pytest.FixtureRequest) -> Transport:
    """Return a model's class: its transport."""
    return request.param


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch, transport: Transport) -> Play:
    """Return a function that serves replies, and a model that talks to the server.

    Retries wait no time, so that only `retry-after` makes a test wait.
    """
    monkeypatch.setattr(attempts, "FIRST_WAIT", 0.0)

    @asynccontextmanager
    async def serve(replies: Sequence[Reply], **options: Any) -> AsyncGenerator[Talk]:
        factor = options.pop("factor", 1.0)
        async with OpenAIServer(lambda _, n: replies[n], factor=factor) as server:
            options = {"base_url": server.base_url, "api_key": KEY} | options
            yield Talk(transport(options.pop("name", "openai/test"), **options), server)

    return serve
