"""Which settings OpenAI's Responses API is sent, and in which form, by the model."""

from __future__ import annotations

from dataclasses import replace

import orjson
import pytest

from agent_runtime.models.base import Json, ModelRequest, ModelSettings
from agent_runtime.models.wire.responses import ResponsesWire
from tests.models.wire.test_responses import GPT, HELLO, OLD, READ, send

SAMPLING = {"temperature": 0.5, "top_p": 0.9}


@pytest.mark.parametrize(
    ("model", "settings", "sent", "ignored"),
    [
        ("gpt-4o", SAMPLING, SAMPLING, ()),
        ("gpt-4o", {"reasoning": "low", "verbosity": "low"}, {}, ("reasoning", "verbosity")),
        ("gpt-4o", {"reasoning": "none"}, {}, ()),
        ("gpt-5", SAMPLING, {}, ("temperature", "top_p")),
        ("gpt-5", {"reasoning": "none"}, {"reasoning": {"effort": "minimal"}}, ()),
        ("gpt-5", {"reasoning": "max"}, {"reasoning": {"effort": "high"}}, ()),
        ("gpt-5-pro", {"reasoning": "low"}, {"reasoning": {"effort": "high"}}, ()),
        ("gpt-5-codex", {"verbosity": "low"}, {}, ("verbosity",)),
        ("gpt-5.1", {"reasoning": "xhigh"}, {"reasoning": {"effort": "high"}}, ()),
        ("gpt-5.1", SAMPLING, SAMPLING, ()),
        ("gpt-5.2", {"reasoning": "low", **SAMPLING}, None, ("temperature", "top_p")),
        ("gpt-5.5", {"reasoning": "max"}, {"reasoning": {"effort": "xhigh"}}, ()),
        ("gpt-5.5", SAMPLING, {}, ("temperature", "top_p")),
        ("gpt-5.6", {"reasoning": "minimal"}, {"reasoning": {"effort": "none"}}, ()),
        (
            "gpt-5.6",
            {"reasoning": 0, **SAMPLING},
            {"reasoning": {"effort": "none"}, **SAMPLING},
            (),
        ),
        ("gpt-5.6-sol", {"reasoning": 20_000}, {"reasoning": {"effort": "high"}}, ()),
        ("gpt-6-astra", {"reasoning": "none"}, {"reasoning": {"effort": "low"}}, ()),
        ("gpt-6-sol", {"reasoning": "max"}, {"reasoning": {"effort": "max"}}, ()),
        ("o3", {"reasoning": "minimal", "temperature": 1.0}, None, ("temperature",)),
        ("o3", {"parallel_calls": False}, {}, ("parallel_calls",)),
        ("grok-4.7", {"reasoning": "max"}, {"reasoning": {"effort": "xhigh"}}, ()),
        ("grok-4.5", {"reasoning": "none", **SAMPLING}, None, ()),
        ("grok-4.3", {"reasoning": "none"}, {"reasoning": {"effort": "none"}}, ()),
        ("grok-4.20-reasoning", {"reasoning": "low"}, {}, ("reasoning",)),
        ("grok-code-fast-1", {"reasoning": "low"}, {}, ("reasoning",)),
        ("grok-4.20-non-reasoning", SAMPLING, SAMPLING, ()),
        ("my-deployment", {"reasoning": "max"}, {"reasoning": {"effort": "max"}}, ()),
        (
            "gpt-5.6",
            {"seed": 1, "stop": ("x",), "cache_ttl": "1h"},
            {},
            ("seed", "stop", "cache_ttl"),
        ),
        ("gpt-5.6", {"verbosity": "low"}, {"text": {"verbosity": "low"}}, ()),
        ("gpt-5.6", {"service_tier": "flex"}, {"service_tier": "flex"}, ()),
        ("gpt-5.6", {"tool_choice": "required"}, {"tool_choice": "required"}, ()),
        (
            "gpt-5.6",
            {"tool_choice": "read"},
            {"tool_choice": {"type": "function", "name": "read"}},
            (),
        ),
        ("gpt-5.6", {"tool_choice": "strange"}, {}, ("tool_choice",)),
        ("gpt-5.6", {"parallel_calls": False}, {"parallel_tool_calls": False}, ()),
        ("gpt-5.6", {"extra_body": {"metadata": {"a": "b"}}}, {"metadata": {"a": "b"}}, ()),
    ],
)
def test_settings_take_the_form_of_the_model(
    model: str, settings: Json, sent: Json | None, ignored: tuple[str, ...]
) -> None:
    entry = {"supports_none_reasoning_effort": True} if model == "gpt-6-sol" else {}
    target = replace(GPT, name=model, model=model, entry=entry)
    wire = ResponsesWire(target)
    plain, asked = (
        ModelRequest((HELLO,), (READ,), settings=one)
        for one in (ModelSettings(), ModelSettings(**settings))
    )
    bodies = [
        wire.request(one, [wire.piece(HELLO, (), mark=False)], wire.tools(one))
        for one in (plain, asked)
    ]
    before, after = (orjson.loads(one.body) for one in bodies)
    assert bodies[1].ignored == ignored
    if sent is not None:
        assert after == {**before, **sent}


def test_settings_for_tools_are_not_sent_without_tools() -> None:
    settings = ModelSettings(tool_choice="required", parallel_calls=False)
    body, ignored = send(ModelRequest((HELLO,), settings=settings))
    assert not body.keys() & {"tools", "tool_choice", "parallel_tool_calls"}
    assert ignored == ()


def test_what_the_user_adds_wins() -> None:
    extra = {"text": {"format": {"type": "text"}}, "max_output_tokens": 99, "store": True}
    settings = ModelSettings(
        verbosity="low", extra_body=extra, extra_headers={"Authorization": "Bearer own", "x-a": "b"}
    )
    wire = ResponsesWire(GPT)
    sent = wire.request(ModelRequest((HELLO,), settings=settings), [], b"[]")
    body = orjson.loads(sent.body)
    assert body["text"] == {"verbosity": "low", "format": {"type": "text"}}
    assert (body["max_output_tokens"], body["store"]) == (99, True)
    assert (sent.headers["authorization"], sent.headers["x-a"]) == ("Bearer own", "b")


@pytest.mark.parametrize(("asked", "sent"), [(1, 16), (500, 500), (10**9, 128_000)])
def test_the_limit_of_an_answer_is_one_that_the_provider_takes(asked: int, sent: int) -> None:
    assert send(ModelRequest((HELLO,), max_output=asked))[0]["max_output_tokens"] == sent


def test_azure_takes_its_key_in_a_header_of_its_own() -> None:
    url = "https://x.openai.azure.com/openai/v1"
    target = replace(GPT, provider="azure", base_url=url, own_host=False)
    sent = ResponsesWire(target).request(ModelRequest((HELLO,), session="a"), [], b"[]")
    assert sent.url == "https://x.openai.azure.com/openai/v1/responses"
    assert sent.headers["api-key"] == GPT.key
    assert "authorization" not in sent.headers
    assert b"prompt_cache_key" in sent.body


def test_models_that_do_not_reason_are_not_asked_for_reasoning() -> None:
    assert "include" not in send(ModelRequest((HELLO,)), OLD)[0]
