"""Which server a role's model is called at, with which key, through the real loop."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from agent_runtime import Agent, FallbackModel, Runtime, Settings, load_settings, model_from_name
from agent_runtime.errors import ConfigError, ModelNotFound, RealModelForbidden
from agent_runtime.messages import PromptMessage
from agent_runtime.models.access import ModelAccess
from agent_runtime.models.base import ModelRequest
from agent_runtime.models.litellm import LiteLLMModel, load_litellm
from agent_runtime.models.native import NativeModel
from agent_runtime.testing.model_server import OpenAIServer, Reply

MAIN, OWN, CLAUDE = "sk-of-the-main-model", "sk-of-the-observer", "sk-ant-of-claude-only"


def _settings(folder: Path, **given: str) -> Settings:
    variables = {f"AGENT_RUNTIME_{name.upper()}": value for name, value in given.items()}
    return load_settings({"AGENT_RUNTIME_DATABASE_URL": f"file:{folder / 'runs.db'}"} | variables)


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    monkeypatch.setenv("ANTHROPIC_API_KEY", CLAUDE)
    monkeypatch.setenv("OPENAI_API_KEY", MAIN)


@asynccontextmanager
async def _two() -> AsyncGenerator[tuple[OpenAIServer, OpenAIServer]]:
    def answer(request: dict[str, Any], n: int) -> Reply:
        return Reply(text="Noted: the user wrote words.")

    async with OpenAIServer(answer) as first, OpenAIServer(answer) as second:
        yield first, second


def _sent(server: OpenAIServer) -> set[tuple[str, str]]:
    return {(one.json["model"], one.headers["authorization"]) for one in server.requests}


async def test_the_observer_has_a_server_and_a_key_of_its_own(tmp_path: Path) -> None:
    async with _two() as (main, own):
        settings = _settings(
            tmp_path,
            model="openai/main",
            model_base_url=main.base_url,
            observer_model="openai/small",
            observer_base_url=own.base_url,
            observer_api_key=OWN,
            observer_message_tokens="1000",
            reflector_model="extractive",
            last_messages="2",
        )
        async with Runtime.open(settings) as runtime:
            for n in range(5):
                await runtime.run(Agent(), f"Turn {n}. " + "word " * 700, thread="t")
            await runtime.memory.observe(Agent(), "t")
        assert _sent(main) == {("main", f"Bearer {MAIN}")}
        assert _sent(own) == {("small", f"Bearer {OWN}")}


@pytest.mark.parametrize("role", ["observer", "reflector", "sub_agent"])
def test_another_providers_model_takes_neither_address_nor_key(tmp_path: Path, role: Any) -> None:
    settings = _settings(
        tmp_path,
        model="openai/main",
        model_base_url="http://127.0.0.1:9/v1",
        model_api_key=MAIN,
        context_window="5000",
        max_output_tokens="77",
        price_input="3",
        price_output="4",
    )
    for name in ("anthropic/claude-haiku-4-5", "claude-haiku-4-5", "gemini/gemini-2.5-flash"):
        access = _access(model_from_name(name, settings, role=role))
        assert (access.base_url, access.api_key) == (None, None)
    access = _access(model_from_name("openai/other", settings, role=role))
    assert (access.base_url, access.api_key) == ("http://127.0.0.1:9/v1", MAIN)


async def test_window_limit_and_prices_are_of_one_model(tmp_path: Path) -> None:
    settings = _settings(
        tmp_path,
        model="openai/main",
        model_base_url="http://127.0.0.1:9/v1",
        context_window="5000",
        max_output_tokens="77",
        price_input="3",
        price_output="4",
        observer_model="openai/small",
        observer_context_window="9000",
        observer_price_input="1",
        observer_price_output="2",
    )
    main = await model_from_name("openai:main", settings, role="sub_agent").info()
    small = await model_from_name("openai/small", settings, role="observer").info()
    other = await model_from_name("openai/unknown", settings).info()
    assert (main.window, main.max_output) == (5000, 77)
    assert main.price is not None and (main.price.input, main.price.output) == (3000, 4000)
    assert (small.window, small.max_output) == (9000, 8192)
    assert small.price is not None and (small.price.input, small.price.output) == (1000, 2000)
    assert (other.window, other.price) == (128_000, None)


async def test_a_model_named_in_code_has_its_own_provider(tmp_path: Path) -> None:
    async with _two() as (main, _):
        settings = _settings(tmp_path, model="openai/main", model_base_url=main.base_url)
        async with Runtime.open(settings) as runtime:
            # Anthropic's own host may not be called in tests.
            with pytest.raises(RealModelForbidden):
                await runtime.run(Agent("anthropic/claude-haiku-4-5"), "Hello.")
    assert main.requests == []


def test_an_address_for_nobody_is_refused(tmp_path: Path) -> None:
    settings = _settings(tmp_path, model_base_url="http://127.0.0.1:9/v1")
    assert _access(model_from_name("openai/own", settings)).base_url
    with pytest.raises(ConfigError, match="without AGENT_RUNTIME_MODEL"):
        model_from_name("anthropic/claude-haiku-4-5", settings)
    with pytest.raises(ConfigError, match="OBSERVER_MODEL names no model of its own"):
        _settings(tmp_path, observer_base_url="http://127.0.0.1:9/v1")
    with pytest.raises(ConfigError, match="own host"):
        LiteLLMModel("replicate/x", base_url="http://127.0.0.1:9/v1")


@pytest.mark.parametrize(
    ("name", "variable"),
    [
        ("gemini/gemini-2.5-flash", "GOOGLE_API_KEY"),
        ("together_ai/x/y", "TOGETHER_API_KEY"),
        ("together_ai/x/y", "TOGETHERAI_API_KEY"),
        ("bedrock/anthropic.claude-haiku-4-5", "AWS_ACCESS_KEY_ID"),
        ("openai/x", "OPENAI_API_KEY"),
    ],
)
async def test_credentials_of_ones_own_are_not_replaced(
    monkeypatch: pytest.MonkeyPatch, name: str, variable: str
) -> None:
    monkeypatch.setenv(variable, "value-of-this-test")
    access = ModelAccess.of(name, base_url="http://127.0.0.1:9/v1", api_key=None, local_only=True)
    assert "api_key" not in access.arguments(await load_litellm())


@pytest.mark.parametrize("name", ["zai/glm", "ai21/jamba", "baseten/x", "custom_openai/x"])
async def test_openais_key_does_not_reach_another_provider(name: str) -> None:
    async with _two() as (server, _):
        model = LiteLLMModel(name, base_url=server.base_url, retries=0)
        async with model.stream(ModelRequest((PromptMessage("user", "Hi."),))) as events:
            _ = [event async for event in events]
        assert [one.headers["authorization"] for one in server.requests] == ["Bearer none"]


@pytest.mark.parametrize("end", ["", "/", "/v1", "/v1/"])
async def test_the_version_stands_once_in_an_address(end: str) -> None:
    async with _two() as (server, _):
        base = server.base_url.removesuffix("/v1") + end
        model = LiteLLMModel("anthropic/claude-haiku-4-5", base_url=base, api_key=OWN, retries=0)
        with pytest.raises(ModelNotFound):
            async with model.stream(ModelRequest((PromptMessage("user", "Hi."),))) as events:
                _ = [event async for event in events]
        assert [one.path for one in server.requests] == ["/v1/messages"]


def _access(model: LiteLLMModel | NativeModel | FallbackModel) -> ModelAccess:
    assert not isinstance(model, FallbackModel)
    return model._access  # pyright: ignore[reportPrivateUsage]
