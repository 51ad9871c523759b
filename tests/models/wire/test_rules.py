"""Prompts that a provider would refuse fail the test that built them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import orjson
import pytest

from agent_runtime import Agent, Runtime, Settings, tool
from agent_runtime.errors import InvariantError
from agent_runtime.messages import PromptMessage, ToolCall, ToolSpec
from agent_runtime.models.base import Json, ModelRequest
from agent_runtime.models.wire.rules import chat, gemini, messages, responses
from agent_runtime.models.wire.rules.check import check_request
from agent_runtime.models.wire.rules.refusal import RefusedError
from agent_runtime.models.wire.rules.switch import check_if_asked, checked_requests
from agent_runtime.prompt import build
from agent_runtime.testing import ScriptedModel, call, say

CALL = ToolCall("c00000001", "look", {"number": 1})
ASKED = PromptMessage("assistant", "", calls=(CALL,))
RESULT = PromptMessage("tool", "seen", call_id=CALL.id, name="look")
GOOD = (PromptMessage("system", "Be brief."), PromptMessage("user", "Look."), ASKED, RESULT)
WIRES = ("anthropic/claude-sonnet-4-5", "openai/gpt-4o", "openai/gpt-5.4", "gemini/gemini-3-pro")


def asked(*shown: PromptMessage) -> ModelRequest:
    """Return a request with a tool."""
    return ModelRequest(shown, (ToolSpec("look", "Looks."),))


@pytest.mark.parametrize("model", [*WIRES, "scripted", "bedrock/anthropic.claude-sonnet-4-5"])
def test_a_right_prompt_suits_every_provider(model: str) -> None:
    check_request(asked(*GOOD), model)


@pytest.mark.parametrize("model", [*WIRES, "scripted", "openai/test,gemini/gemini-3-pro"])
@pytest.mark.parametrize(
    "shown",
    [
        pytest.param(GOOD[:-1], id="open exchange"),
        pytest.param((*GOOD[:2], RESULT), id="result without its call"),
        pytest.param((*GOOD, RESULT), id="two results"),
        pytest.param((*GOOD[:3], replace(RESULT, call_id="c00000002")), id="another call"),
    ],
)
def test_no_provider_takes_a_broken_exchange(shown: tuple[PromptMessage, ...], model: str) -> None:
    with pytest.raises(InvariantError, match="would refuse the request"):
        check_request(asked(*shown), model)


def test_only_tests_pay_for_the_check() -> None:
    with checked_requests(), pytest.raises(InvariantError):
        check_if_asked(asked(*GOOD[:-1]), "scripted")


async def test_a_run_fails_whose_prompt_a_provider_would_refuse(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    @tool
    def look() -> str:
        """Look."""
        return "seen"

    real = build.build_prompt

    def broken(*given: object, **options: object) -> object:
        # As a bug would that loses results after the runtime's own checks.
        prompt = real(*given, **options)  # pyright: ignore[reportArgumentType]
        return replace(prompt, messages=tuple(m for m in prompt.messages if m.role != "tool"))

    monkeypatch.setattr("agent_runtime.run.loop.build_prompt", broken)
    monkeypatch.setattr("agent_runtime.run.loop.check_prompt", unchecked)
    model = ScriptedModel([call("look"), say("Done.")])
    async with Runtime.open(Settings(database_url=f"file:{tmp_path}/run.db")) as runtime:
        with pytest.raises(InvariantError, match="would refuse the request"):
            await runtime.run(Agent(model, tools=[look]), "Look.")


def unchecked(*_: object, **__: object) -> None:
    """Check nothing."""


# The rules


def _anthropic() -> Json:
    use: Json = {"type": "tool_use", "id": "t1", "name": "look", "input": {}}
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "s"}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "seen"}
    return {
        "model": "claude-sonnet-4-5",
        "max_tokens": 4096,
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Look."}]},
            {"role": "assistant", "content": [thought, use]},
            {"role": "user", "content": [result]},
        ],
    }


def _chat() -> Json:
    function = {"name": "look", "arguments": "{}"}
    used = {"id": "c1", "type": "function", "function": function}
    return {
        "model": "gpt-4o",
        "messages": [
            {"role": "user", "content": "Look."},
            {"role": "assistant", "content": None, "tool_calls": [used]},
            {"role": "tool", "tool_call_id": "c1", "content": "seen"},
        ],
    }


def _responses() -> Json:
    used = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"}
    thought: Json = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"}
    return {
        "model": "gpt-5.4",
        "store": False,
        "stream": True,
        "input": [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "?"}]},
            thought,
            used,
            {"type": "function_call_output", "call_id": "c1", "output": "seen"},
        ],
    }


def _gemini() -> Json:
    used: Json = {
        "functionCall": {"id": "1", "name": "look", "args": {}},
        "thoughtSignature": "cw==",
    }
    result = {"functionResponse": {"id": "1", "name": "look", "response": {"output": "seen"}}}
    return {
        "contents": [
            {"role": "user", "parts": [{"text": "Look."}]},
            {"role": "model", "parts": [used]},
            {"role": "user", "parts": [result]},
        ]
    }


BODIES: dict[str, tuple[Callable[[], Json], Callable[[Json], None]]] = {
    "messages": (_anthropic, messages.check_request),
    "chat": (_chat, chat.check_request),
    "responses": (
        _responses,
        lambda body: responses.check_request(body, responses.ResponsesModel()),
    ),
    "gemini": (_gemini, lambda body: gemini.check_request(body, "gemini-3-pro")),
}
PNG = {"type": "base64", "media_type": "image/tiff", "data": "AA=="}
TWO = {"type": "text", "text": "And now?"}

SPOILT: list[tuple[str, Callable[[Json], object], str]] = [
    ("messages", lambda b: b["messages"].pop(), "must end with a user"),
    ("messages", lambda b: b["messages"].pop(0), "first must be user"),
    ("messages", lambda b: b["messages"].append(b["messages"][2]), "roles must alternate"),
    ("messages", lambda b: b["messages"][1]["content"].pop(0), "Expected `thinking`"),
    ("messages", lambda b: b["messages"][1]["content"].reverse(), "cannot be `thinking`"),
    ("messages", lambda b: b["messages"][1]["content"][0].pop("signature"), "signature"),
    ("messages", lambda b: b["messages"][1]["content"][1].update(id="t 1"), "bad pattern"),
    ("messages", lambda b: b["messages"][0]["content"][0].update(text=" "), "non-whitespace"),
    ("messages", lambda b: b["messages"][2]["content"].insert(0, TWO), "results come first"),
    (
        "messages",
        lambda b: b["messages"][0]["content"].append({"type": "image", "source": PNG}),
        "image/tiff",
    ),
    ("chat", lambda b: b["messages"].pop(), "must be followed by tool messages"),
    ("chat", lambda b: b["messages"].pop(1), "must be a response to"),
    ("chat", lambda b: b["messages"][1].pop("tool_calls"), "got null"),
    ("chat", lambda b: b["messages"][1]["tool_calls"][0].update(id="c" * 41), "too long"),
    ("chat", lambda b: b["messages"][0].update(content=[]), "too short"),
    ("chat", lambda b: b["messages"][0].update(role="note"), "Invalid value: 'note'"),
    ("chat", lambda b: b["messages"][2].update(content=[{"type": "image_url"}]), "image_url"),
    ("responses", lambda b: b["input"].pop(), "No tool output found"),
    ("responses", lambda b: b["input"].pop(2), "without its required following item"),
    ("responses", lambda b: b["input"][1].pop("summary"), "Missing required parameter"),
    ("responses", lambda b: b["input"][1].pop("encrypted_content"), "are not persisted"),
    ("responses", lambda b: b["input"][1].update(id="fc_1"), "Invalid 'input[1].id'"),
    ("responses", lambda b: b["input"][2].update(call_id="c" * 65), "too long"),
    ("responses", lambda b: b["input"][0].update(content=[]), "empty content"),
    ("gemini", lambda b: b["contents"].pop(), "number of function response parts"),
    ("gemini", lambda b: b["contents"].pop(0), "first must be user"),
    ("gemini", lambda b: b["contents"][1]["parts"][0].pop("thoughtSignature"), "missing a thought"),
    ("gemini", lambda b: b["contents"][0]["parts"][0].update(text=""), "text parameter"),
    ("gemini", lambda b: b["contents"][2]["parts"].append({"text": "x"}), "stand alone"),
    ("gemini", lambda b: b["contents"][0]["parts"].clear(), "must not be empty"),
]


@pytest.mark.parametrize("name", BODIES)
def test_the_bodies_to_spoil_are_right(name: str) -> None:
    made, check = BODIES[name]
    check(orjson.loads(orjson.dumps(made())))


@pytest.mark.parametrize(("name", "spoil", "text"), SPOILT)
def test_a_rule_refuses(name: str, spoil: Callable[[Json], object], text: str) -> None:
    made, check = BODIES[name]
    body = orjson.loads(orjson.dumps(made()))
    spoil(body)
    with pytest.raises(RefusedError) as refused:
        check(body)
    assert text in str(refused.value)
