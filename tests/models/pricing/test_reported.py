"""What providers report of a call that sets its price, by each wire."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from agent_runtime.models.base import Json, TokenUsage
from agent_runtime.models.openai_format import Collector
from agent_runtime.models.wire.base import ServerEvent, Target
from agent_runtime.models.wire.chat import ChatWire
from agent_runtime.models.wire.gemini import GeminiWire
from agent_runtime.models.wire.messages import MessagesWire
from agent_runtime.models.wire.responses_stream import ResponsesDecoder


def read(decoder: Any, *events: Json) -> TokenUsage | None:
    for event in events:
        list(decoder.feed(ServerEvent("", orjson.dumps(event))))
    return decoder.answer().usage


def of_chat(usage: Json, **more: Any) -> TokenUsage | None:
    target = Target("openai/gpt-5", "openai", "gpt-5", "https://host/v1", key="key")
    choice = {"index": 0, "delta": {"content": "Hi."}, "finish_reason": "stop"}
    decoder = ChatWire(target).decoder()
    list(decoder.feed(ServerEvent("", orjson.dumps({"choices": [choice]}))))
    list(decoder.feed(ServerEvent("", orjson.dumps({"choices": [], "usage": usage} | more))))
    list(decoder.feed(ServerEvent("", b"[DONE]")))
    return decoder.answer().usage


def test_chat_completions() -> None:
    usage = {
        "prompt_tokens": 100,
        "completion_tokens": 50,
        "total_tokens": 150,
        "prompt_tokens_details": {"cached_tokens": 60, "audio_tokens": 20},
        "completion_tokens_details": {"reasoning_tokens": 30, "audio_tokens": 10},
    }
    assert of_chat(usage, service_tier="priority") == TokenUsage(
        100, 50, cached=60, reasoning=30, audio=20, audio_output=10, service="priority"
    )


@pytest.mark.parametrize(("total", "completion"), [(180, 80), (150, 50), (None, 50)])
def test_reasoning_that_is_not_in_the_completion_is_charged_too(
    total: int | None, completion: int
) -> None:
    usage = {
        "prompt_tokens": 100,
        "completion_tokens": 50,
        "total_tokens": total,
        "completion_tokens_details": {"reasoning_tokens": 30},
    }
    assert of_chat(usage) == TokenUsage(100, completion, reasoning=30)


def test_responses() -> None:
    usage = {
        "input_tokens": 100,
        "output_tokens": 50,
        "input_tokens_details": {"cached_tokens": 60},
        "output_tokens_details": {"reasoning_tokens": 30},
    }
    content = [{"type": "output_text", "text": "Hi."}]
    item = {"type": "message", "id": "msg_0", "role": "assistant", "content": content}
    response = {"status": "completed", "output": [item], "usage": usage, "service_tier": "flex"}
    events = (
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": response},
    )
    assert read(ResponsesDecoder("openai/gpt-5"), *events) == TokenUsage(
        100, 50, cached=60, reasoning=30, service="flex"
    )


def test_gemini() -> None:
    usage = {
        "promptTokenCount": 100,
        "cachedContentTokenCount": 40,
        "candidatesTokenCount": 20,
        "thoughtsTokenCount": 30,
        "promptTokensDetails": [
            {"modality": "TEXT", "tokenCount": 10},
            {"modality": "AUDIO", "tokenCount": 60},
            {"modality": "IMAGE", "tokenCount": 30},
        ],
        "cacheTokensDetails": [{"modality": "AUDIO", "tokenCount": 40}],
        "candidatesTokensDetails": [{"modality": "IMAGE", "tokenCount": 15}, {}],
    }
    name = "gemini-2.5-flash"
    wire = GeminiWire(Target(f"gemini/{name}", "gemini", name, "https://host", key="key"))
    content = {"role": "model", "parts": [{"text": "Hi."}]}
    candidate = {"content": content, "finishReason": "STOP"}
    assert read(wire.decoder(), {"candidates": [candidate], "usageMetadata": usage}) == TokenUsage(
        100, 50, cached=40, reasoning=30, audio=60, cached_audio=40, image=30, image_output=15
    )


def test_messages() -> None:
    target = Target("anthropic/m", "anthropic", "m", "https://host", key="key")
    usage = {"input_tokens": 10, "output_tokens": 1, "inference_geo": "us", "speed": "fast"}
    start = {"type": "message_start", "message": {"usage": usage}}
    end = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage}
    block = {
        "type": "content_block_start",
        "index": 0,
        "content_block": {"type": "text", "text": ""},
    }
    delta = {
        "type": "content_block_delta",
        "index": 0,
        "delta": {"type": "text_delta", "text": "Hi"},
    }
    said = (block, delta, {"type": "content_block_stop", "index": 0})
    stop = {"type": "message_stop"}
    reported = read(MessagesWire(target).decoder(), start, *said, end, stop)
    assert reported == TokenUsage(10, 1, factors=("us", "fast"))


def test_litellm() -> None:
    by_ttl = SimpleNamespace(ephemeral_5m_input_tokens=10, ephemeral_1h_input_tokens=20)
    prompt = SimpleNamespace(
        cached_tokens=40, cache_creation_token_details=by_ttl, audio_tokens=None, image_tokens=5
    )
    usage = SimpleNamespace(
        inference_geo="US",
        prompt_tokens=100,
        completion_tokens=50,
        cache_creation_input_tokens=30,
        prompt_tokens_details=prompt,
        completion_tokens_details=SimpleNamespace(reasoning_tokens=30),
    )
    delta = SimpleNamespace(content="Hi.", tool_calls=None)
    choice = SimpleNamespace(delta=delta, finish_reason="stop")
    collector = Collector("m")
    list(collector.add(SimpleNamespace(model="m", choices=[choice])))
    last = SimpleNamespace(model="m", choices=[], usage=usage, service_tier="default")
    list(collector.add(last))
    assert collector.answer("stop", reported=True).usage == TokenUsage(
        100,
        50,
        cached=40,
        cache_write=30,
        cache_write_hour=20,
        reasoning=30,
        image=5,
        service="default",
        factors=("us",),
    )
