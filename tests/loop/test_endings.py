"""What becomes of runs by how their model's answers end, with servers that stream as providers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pytest

from agent_runtime import Agent, LiteLLMModel, Runtime, Settings
from agent_runtime.models import litellm
from tests.models.provider_server import Answers, ProviderServer, gemini

from .conftest import KEY, REPEATING, World, double

CLAUDE = "anthropic/claude-sonnet-4-5"
GEMINI = "gemini/gemini-2.5-flash"
GPT = "openai/gpt-4.1"
BASES = {GEMINI: "/v1beta", GPT: "/v1"}
AGENT = Agent(tools=[double])


@dataclass
class Provided(World):
    """A world whose model is a server that streams as its provider does."""

    server: ProviderServer = field(default_factory=lambda: ProviderServer([]))


Provide: TypeAlias = Callable[..., AbstractAsyncContextManager[Provided]]


@pytest.fixture
def provide(
    database_url: str, database_contents: Callable[[], bytes], monkeypatch: pytest.MonkeyPatch
) -> Provide:
    """Return what opens a runtime whose model answers as its provider streams."""
    monkeypatch.setattr(litellm, "FIRST_WAIT", 0.0)
    monkeypatch.setenv("AGENT_RUNTIME_FORBID_REAL_MODELS", "1")

    @asynccontextmanager
    async def open_provided(
        name: str, answers: Answers, *, settings: dict[str, Any] | None = None, **options: Any
    ) -> AsyncGenerator[Provided]:
        async with ProviderServer(answers) as server:
            url = server.url + BASES.get(name, "")
            model = LiteLLMModel(name, base_url=url, api_key=KEY, **({"retries": 2} | options))
            given = Settings(database_url=database_url, **(REPEATING | (settings or {})))
            async with Runtime.open(given, model=model) as runtime:
                yield Provided(runtime, model, database_url, database_contents, server=server)

    return open_provided


async def test_gemini_works_through_a_run(provide: Provide) -> None:
    answers = [
        gemini("Doubling.", ("double", '{"number": 21}')),
        gemini("It is", end=None),
        gemini("It is 42.", late_usage=True),
    ]
    async with provide(GEMINI, answers) as world:
        result = await world.run(AGENT)
        assert (result.ok, result.output, result.steps) == (True, "It is 42.", 2)
        assert await world.results(result.thread_id) == [("ok", "42")]
        assert len(world.server.requests) == 3
