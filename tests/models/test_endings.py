"""How answers end, as each provider says it, through litellm's whole path on loopback."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from agent_runtime.errors import ModelProtocolError
from agent_runtime.models import attempts
from agent_runtime.models.base import FinishReason, ModelAnswer, RawCall, Retrying
from agent_runtime.models.finish_reasons import FinishReader, reason_of
from agent_runtime.models.litellm import LiteLLMModel
from tests.models.conftest import KEY, request
from tests.support.providers.scripted_server import (
    Answers,
    ProviderServer,
    anthropic,
    gemini,
    ollama,
    openai_chat,
    responses,
)

CLAUDE = "anthropic/claude-sonnet-4-5"
GEMINI = "gemini/gemini-2.5-flash"
GPT = "openai/gpt-4.1"
GPT_BY_RESPONSES = "openai/responses/gpt-5"
LLAMA = "ollama_chat/llama3"
BASES = {GEMINI: "/v1beta", GPT: "/v1", GPT_BY_RESPONSES: "/v1"}


async def ask(name: str, answers: Answers, *, retries: int = 0) -> tuple[ModelAnswer, list[str]]:
    """Return the answer of a model, and why it was asked again."""
    async with ProviderServer(answers) as server:
        url = server.url + BASES.get(name, "")
        model = LiteLLMModel(name, base_url=url, api_key=KEY, retries=retries)
        reasons: list[str] = []
        last = None
        async with model.stream(request()) as events:
            async for last in events:
                if isinstance(last, Retrying):
                    reasons.append(last.reason)
    assert isinstance(last, ModelAnswer)
    return last, reasons


@pytest.mark.parametrize("late_usage", [False, True])
async def test_an_answer_of_geminis_is_an_answer(late_usage: bool) -> None:
    answer, _ = await ask(GEMINI, [gemini("Hello there.", late_usage=late_usage)])
    assert (answer.text, answer.finish) == ("Hello there.", "stop")
    assert answer.usage is not None


async def test_calls_of_geminis_are_calls() -> None:
    pieces = gemini("Reading.", ("read", '{"path": "a"}'), ("read", '{"path": "b"}'))
    answer, _ = await ask(GEMINI, [pieces])
    assert answer.finish == "tool_calls"
    assert answer.calls == (RawCall("read", '{"path": "a"}'), RawCall("read", '{"path": "b"}'))


BROKEN = {
    "anthropic": (CLAUDE, anthropic("Half", end=None), anthropic("Whole.")),
    "anthropic, of no reason": (CLAUDE, anthropic("Half", end=""), anthropic("Whole.")),
    "gemini": (GEMINI, gemini("Half", end=None), gemini("Whole.")),
    "openai": (GPT, openai_chat("Half", end=None), openai_chat("Whole.")),
    "responses": (GPT_BY_RESPONSES, responses("Half")[:-1], responses("Whole.")),
    "ollama": (LLAMA, ollama("Half", end=None), ollama("Whole.")),
    "ollama, only loaded": (LLAMA, ollama(end="load"), ollama("Whole.")),
}


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
@pytest.mark.parametrize(("name", "half", "whole"), BROKEN.values(), ids=BROKEN)
async def test_a_stream_that_breaks_off_is_asked_for_again_and_else_an_error(
    monkeypatch: pytest.MonkeyPatch, name: str, half: list[bytes], whole: list[bytes]
) -> None:
    monkeypatch.setattr(attempts, "FIRST_WAIT", 0.0)
    answer, reasons = await ask(name, [half, whole], retries=1)
    assert (answer.text, answer.lost) == ("Whole.", 1)
    assert "broke off" in reasons[0]
    with pytest.raises(ModelProtocolError, match="broke off"):
        await ask(name, [half])


ENDS: dict[str, tuple[str, list[bytes], FinishReason, str]] = {
    "anthropic end_turn": (CLAUDE, anthropic("So."), "stop", "end_turn"),
    "anthropic refusal": (CLAUDE, anthropic("So.", end="refusal"), "refusal", "refusal"),
    "anthropic pause": (CLAUDE, anthropic("So.", end="pause_turn"), "pause", "pause_turn"),
    "anthropic window": (
        CLAUDE,
        anthropic("So.", end="model_context_window_exceeded"),
        "window",
        "model_context_window_exceeded",
    ),
    "anthropic length": (CLAUDE, anthropic("So.", end="max_tokens"), "length", "max_tokens"),
    "anthropic new": (CLAUDE, anthropic("So.", end="bored"), "unknown", "bored"),
    "gemini safety": (GEMINI, gemini("So.", end="SAFETY"), "content_filter", "SAFETY"),
    "gemini recitation": (GEMINI, gemini("So.", end="RECITATION"), "content_filter", "RECITATION"),
    "gemini malformed": (
        GEMINI,
        gemini("So.", end="MALFORMED_FUNCTION_CALL"),
        "malformed",
        "MALFORMED_FUNCTION_CALL",
    ),
    "gemini length": (GEMINI, gemini("So.", end="MAX_TOKENS"), "length", "MAX_TOKENS"),
    "gemini new": (GEMINI, gemini("So.", end="BORED"), "unknown", "BORED"),
    "openai filter": (
        GPT,
        openai_chat("So.", end="content_filter"),
        "content_filter",
        "content_filter",
    ),
    "openai refusal": (GPT, openai_chat(refusal="So."), "refusal", "stop"),
    "openai length": (GPT, openai_chat("So.", end="length"), "length", "length"),
    "openai new": (GPT, openai_chat("So.", end="bored"), "unknown", "bored"),
    "openai calls that are missing": (
        GPT,
        openai_chat("So.", end="tool_calls"),
        "malformed",
        "tool_calls",
    ),
    "responses": (GPT_BY_RESPONSES, responses("So."), "stop", "completed"),
    "responses length": (
        GPT_BY_RESPONSES,
        responses("So.", incomplete="max_output_tokens"),
        "length",
        "max_output_tokens",
    ),
    "responses filter": (
        GPT_BY_RESPONSES,
        responses("So.", incomplete="content_filter"),
        "content_filter",
        "content_filter",
    ),
    "responses refusal": (GPT_BY_RESPONSES, responses(refusal="So."), "refusal", "completed"),
    "ollama length": (LLAMA, ollama("So.", end="length"), "length", "length"),
}


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
@pytest.mark.parametrize(("name", "pieces", "finish", "word"), ENDS.values(), ids=ENDS)
async def test_the_reason_is_the_providers_own(
    name: str, pieces: list[bytes], finish: FinishReason, word: str
) -> None:
    answer, _ = await ask(name, [pieces])
    assert (answer.text, answer.finish, answer.word) == ("So.", finish, word)


@pytest.mark.parametrize("blocked", ["SAFETY", "OTHER", "PROHIBITED_CONTENT", "SOMETHING_NEW"])
async def test_a_prompt_that_gemini_blocks_is_filtered(blocked: str) -> None:
    answer, _ = await ask(GEMINI, [gemini(blocked=blocked)])
    assert (answer.text, answer.finish) == ("", "content_filter")
    assert blocked in answer.word


def test_a_word_counts_in_any_case_and_an_unknown_one_is_no_success() -> None:
    assert reason_of("MAX_TOKENS") == reason_of("max_tokens") == "length"
    assert reason_of("") == reason_of("FINISH_REASON_UNSPECIFIED") == "unknown"


def test_the_whole_of_a_response_says_what_was_refused_too() -> None:
    ending = FinishReader()
    part = {"type": "refusal", "refusal": "I will not."}
    output = [{"type": "reasoning", "content": None}, {"type": "message", "content": [part]}]
    ending.read_chunk({"type": "response.completed", "response": {"output": output}})
    assert (ending.word, ending.refusal) == ("completed", "I will not.")


def test_events_that_only_litellm_understands_are_left_to_it() -> None:
    ending = FinishReader()
    ending.read_chunk({"type": "content-delta", "delta": {}})
    ending.read_chunk({"is_finished": True, "finish_reason": "COMPLETE"})
    assert ending.of(SimpleNamespace(received_finish_reason="length")) == "length"
    ending.read_chunk({"type": "message-end", "delta": {"finish_reason": "MAX_TOKENS"}})
    assert ending.of(SimpleNamespace(received_finish_reason="stop")) == "MAX_TOKENS"
