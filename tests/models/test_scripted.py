"""The scripted model, and how a name becomes a model."""

from __future__ import annotations

from typing import Literal

import pytest

from agent_runtime.errors import ConfigError, ModelProtocolError, ModelUnavailable
from agent_runtime.messages import PromptMessage
from agent_runtime.models import model_from_name
from agent_runtime.models.base import ModelAnswer, ModelEvent, ModelRequest, RawCall, TextDelta
from agent_runtime.models.litellm import LiteLLMModel
from agent_runtime.models.native import NativeModel
from agent_runtime.models.scripted import ScriptedModel, call, calls, raw_call, say
from agent_runtime_config import Settings
from tests.models.conftest import READ, request


async def ask(model: ScriptedModel, asked: ModelRequest | None = None) -> list[ModelEvent]:
    async with model.stream(asked or request()) as events:
        return [event async for event in events]


async def answer(model: ScriptedModel, asked: ModelRequest | None = None) -> ModelAnswer:
    last = (await ask(model, asked))[-1]
    assert isinstance(last, ModelAnswer)
    return last


async def test_answers_come_in_order_and_requests_are_kept() -> None:
    both = calls(raw_call("read", path="b"), raw_call("now"), text="Two:")
    model = ScriptedModel([call("read", path="a"), both, say("Done.")])
    first, second, third = [await answer(model) for _ in range(3)]
    assert first.calls == (RawCall("read", '{"path":"a"}'),)
    assert first.finish == "tool_calls"
    assert (second.text, len(second.calls)) == ("Two:", 2)
    assert (third.text, third.calls, third.finish) == ("Done.", (), "stop")
    assert model.requests == [request()] * 3


async def test_a_script_takes_short_forms() -> None:
    model = ScriptedModel(["Hi.", raw_call("a"), [raw_call("a"), raw_call("b")]])
    texts = [await answer(model) for _ in range(3)]
    assert [(one.text, len(one.calls)) for one in texts] == [("Hi.", 0), ("", 1), ("", 2)]


async def test_text_is_streamed_line_by_line() -> None:
    *deltas, _ = await ask(ScriptedModel(["one\ntwo"]))
    assert deltas == [TextDelta("one\n"), TextDelta("two")]


async def test_a_function_sees_the_request() -> None:
    async def later(asked: ModelRequest) -> str:
        return asked.messages[-1].text.upper()

    assert (await answer(ScriptedModel(lambda asked: asked.messages[-1].text))).text == "Hello."
    assert (await answer(ScriptedModel(later))).text == "HELLO."


async def test_a_script_can_fail() -> None:
    model = ScriptedModel([ModelUnavailable("gone")])
    with pytest.raises(ModelUnavailable, match="gone"):
        await ask(model)
    with pytest.raises(ModelProtocolError, match="no more answers"):
        await ask(model)


async def test_usage_is_counted_and_the_repeated_part_is_cached() -> None:
    model = ScriptedModel(lambda _: "Fine.", name="offline")
    first = await answer(model, request(tools=(READ,)))
    more = (*request().messages, PromptMessage("user", "More."))
    second = await answer(model, request(*more, tools=(READ,)))
    assert first.model == "offline"
    assert first.usage is not None
    assert second.usage is not None
    assert (first.usage.cached, first.cost) == (0, 0)
    assert second.usage.cached == first.usage.prompt < second.usage.prompt
    assert first.usage.completion == 2


@pytest.mark.parametrize(
    ("name", "transport", "kind"),
    [
        ("openai:my-model", "auto", NativeModel),
        ("openai:my-model", "native", NativeModel),
        ("openai:my-model", "litellm", LiteLLMModel),
        ("bedrock/my-model", "auto", LiteLLMModel),
        # There is a wire for it, but no address.
        ("hosted_vllm/my-model", "auto", LiteLLMModel),
    ],
)
def test_the_transport_follows_the_provider_and_the_setting(
    name: str, transport: Literal["auto", "native", "litellm"], kind: type[object]
) -> None:
    assert type(model_from_name(name, Settings(model_transport=transport))) is kind


def test_a_provider_without_a_native_wire_is_refused_where_it_is_demanded() -> None:
    with pytest.raises(ConfigError, match="no native wire for bedrock/my-model"):
        model_from_name("bedrock/my-model", Settings(model_transport="native"))


async def test_a_name_becomes_a_model_with_the_settings() -> None:
    settings = Settings(context_window=50_000, price_input=1.0, price_output=2.5)
    model = model_from_name("openai:my-model", settings)
    info = await model.info()
    assert (info.name, info.window) == ("openai/my-model", 50_000)
    assert info.price is not None
    assert (info.price.input, info.price.cache_read, info.price.output) == (1000, 1000, 2500)


async def test_a_price_in_the_settings_completes_the_known_one() -> None:
    model = model_from_name("openai/gpt-5", Settings(price_output=1.0))
    price = (await model.info()).price
    assert price is not None
    assert (price.input, price.output, price.cache_read) == (1250, 1000, 125)


def test_half_a_price_of_an_unknown_model_is_refused() -> None:
    with pytest.raises(ConfigError, match="PRICE_OUTPUT"):
        model_from_name("openai/my-model", Settings(price_input=1.0))


@pytest.mark.parametrize("name", ["", "scripted", "offline"])
def test_the_offline_model_is_made_elsewhere(name: str) -> None:
    with pytest.raises(ConfigError, match="no language model"):
        model_from_name(name)
