"""What providers' error responses mean, through the real client, in the bytes that they send."""

# ruff: noqa: E501  # A response stays on one line.

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.abc
import orjson
import pytest

from agent_runtime.errors import ModelAuthError, ModelError, ModelRejected, ModelUnavailable
from agent_runtime.models import attempts, litellm
from agent_runtime.models.base import Retrying
from agent_runtime.models.litellm import LiteLLMModel
from agent_runtime.testing.model_server import OpenAIServer, Reply
from tests.models.conftest import KEY, request

OPENAI, ANTHROPIC, GEMINI = "openai/gpt-5", "anthropic/claude-haiku-4-5", "gemini/gemini-2.5-flash"
DEEPSEEK, OPENROUTER = "deepseek/deepseek-chat", "openrouter/openai/gpt-4.1"
MISTRAL, GROQ, OWN = "mistral/mistral-large-latest", "groq/llama-3.3-70b", "openai/own"
XAI, TOGETHER, MOONSHOT = "xai/grok-4", "together_ai/meta-llama/Llama-3-8b", "moonshot/kimi-k2"
CURRENT_QUOTA = "You exceeded your current quota, please check your plan and billing details."


def _openai(message: str, kind: str, code: str | None) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def _anthropic(kind: str, message: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}


def _gemini(quota: str, delay: str = "", *, value: str = "10", said: str = "") -> dict[str, Any]:
    kind = "type.googleapis.com/google.rpc"
    violation = {
        "quotaMetric": "generativelanguage.googleapis.com/generate_content_free_tier_requests",
        "quotaId": quota,
        "quotaDimensions": {"location": "global", "model": "gemini-2.5-flash"},
        "quotaValue": value,
    }
    details: list[dict[str, Any]] = [
        {"@type": f"{kind}.QuotaFailure", "violations": [violation]},
        {"@type": f"{kind}.Help", "links": [{"description": "Learn more", "url": "https://a.b/c"}]},
    ]
    if delay:
        details.append({"@type": f"{kind}.RetryInfo", "retryDelay": delay})
    text = f"{CURRENT_QUOTA}\n* Quota exceeded for metric: x, limit: {value}\n{said}"
    error = {"code": 429, "message": text, "status": "RESOURCE_EXHAUSTED", "details": details}
    return {"error": error}


PER_MINUTE = "GenerateRequestsPerMinutePerProjectPerModel-FreeTier"
PER_DAY = "GenerateRequestsPerDayPerProjectPerModel-FreeTier"
TPM = "Rate limit reached for gpt-5 on tokens per min (TPM): Limit 30000, Used 29000. "


@dataclass(frozen=True)
class Case:
    """A response, and what it asks for: to wait so long (None for a backoff of ours)."""

    model: str
    status: int
    body: Any
    wait: float | None = None
    headers: dict[str, str] = field(default_factory=dict[str, str])
    says: str = ""


LIMITED = [
    Case(GEMINI, 429, _gemini(PER_MINUTE, "2s", said="Please retry in 2.1s."), 2.1),
    Case(GEMINI, 429, _gemini(PER_MINUTE, "37s"), 37, says="exceeded your current quota"),
    Case(GEMINI, 429, _gemini("GenerateContentInputTokensPerModelPerMinute-PaidTier", "1.5s"), 1.5),
    Case(GEMINI, 429, {"error": {"code": 429, "message": "Resource exhausted. Try later."}}),
    Case(GEMINI, 503, {"error": {"code": 503, "message": "Overloaded.", "status": "UNAVAILABLE"}}),
    Case(OPENAI, 429, _openai(TPM, "tokens", "rate_limit_exceeded"), 0.25, {"retry-after-ms": "250", "retry-after": "1"}),
    Case(OPENAI, 429, _openai(f"{TPM}Please try again in 1.2s.", "tokens", "rate_limit_exceeded"), 1.2),
    Case(OPENAI, 429, _openai(f"{TPM}Please try again in 20ms.", "tokens", "rate_limit_exceeded"), 0.02),
    Case(OPENAI, 429, _openai("Requests have exceeded the limit. Please retry after 6 seconds.", "x", "429"), 6),
    Case(OWN, 429, {"detail": "Too many requests"}, 3, {"retry-after": "3"}, "Too many requests"),
    Case(OWN, 429, "Slow down", 3, {"retry-after": "3"}, "Slow down"),
    Case(OWN, 502, "<html><head><title>502 Bad Gateway</title></head><body></body></html>", says="502 Bad Gateway"),
    Case(ANTHROPIC, 429, _anthropic("rate_limit_error", "Number of request tokens has exceeded your rate limit."), 8, {"retry-after": "8"}),
    Case(ANTHROPIC, 529, _anthropic("overloaded_error", "Overloaded"), says="Overloaded."),
    Case(DEEPSEEK, 429, _openai("Rate limit reached", "x", None)),
    Case(DEEPSEEK, 503, _openai("Server overloaded", "x", None)),
    Case(OPENROUTER, 429, {"error": {"message": "Provider returned error", "code": 429, "metadata": {"raw": "{\"error\": {\"message\": \"Upstream is busy, retry in 4s\"}}", "provider_name": "P"}}, "user_id": "u"}, 4, says="Upstream is busy"),
    Case(MISTRAL, 429, {"object": "error", "message": "Requests rate limit exceeded", "type": "rate_limited", "param": None, "code": "1300"}),
    Case(GROQ, 429, _openai("Rate limit reached for model. Please try again in 7m12.5s.", "tokens", "rate_limit_exceeded"), 60),
    Case(TOGETHER, 429, {"id": "o", "error": {"message": "You have reached the rate limit", "type": "model_rate_limit", "param": None, "code": None}}),
    Case(MOONSHOT, 429, {"error": {"message": "max RPM: 3, please try again after 1 seconds", "type": "rate_limit_reached_error"}}, 1),
]  # fmt: skip
USED_UP = [
    Case(OPENAI, 429, _openai(CURRENT_QUOTA, "insufficient_quota", "insufficient_quota")),
    Case(OPENAI, 429, _openai("Billing hard limit has been reached", "x", "billing_hard_limit_reached")),
    Case(ANTHROPIC, 400, _anthropic("invalid_request_error", "Your credit balance is too low to access the Anthropic API.")),
    Case(ANTHROPIC, 400, _anthropic("invalid_request_error", "You have reached your specified API usage limits.")),
    Case(ANTHROPIC, 402, _anthropic("billing_error", "There's an issue with your billing.")),
    Case(DEEPSEEK, 402, _openai("Insufficient Balance", "unknown_error", "invalid_request_error")),
    Case(OPENROUTER, 402, {"error": {"message": "This request requires more credits.", "code": 402, "metadata": {"provider_name": None}}}),
    Case(GEMINI, 429, _gemini(PER_DAY, "43s", said="Please retry in 43.1s.")),
    Case(GEMINI, 429, _gemini(PER_MINUTE, "10s", value="0")),
    Case(XAI, 429, {"code": "Some resource has been exhausted", "error": "Your team has used all available credits."}),
    Case(MOONSHOT, 429, {"error": {"message": "Your account is suspended", "type": "exceeded_current_quota_error"}}),
]  # fmt: skip
REFUSED: list[tuple[Case, type[ModelError]]] = [
    (Case(ANTHROPIC, 401, _anthropic("authentication_error", "invalid x-api-key")), ModelAuthError),
    (Case(GEMINI, 400, {"error": {"code": 400, "message": "API key not valid.", "status": "INVALID_ARGUMENT", "details": [{"reason": "API_KEY_INVALID"}]}}), ModelAuthError),
    (Case(ANTHROPIC, 400, _anthropic("invalid_request_error", "messages: at least one")), ModelRejected),
    (Case(OPENAI, 400, _openai("Invalid schema for function 'rate_limit': 429 is not a type", "invalid_request_error", None)), ModelRejected),
    (Case(MISTRAL, 422, {"object": "error", "message": {"detail": [{"msg": "Input should be 1"}]}, "type": "x"}), ModelRejected),
]  # fmt: skip


class Refusing:
    """A server that answers every request with the response of the case that is on."""

    def __init__(self) -> None:
        self.url = ""
        self.asked = 0
        self._answer = b""

    def model(self, case: Case) -> LiteLLMModel:
        """Put a case on, and return its model."""
        raw = case.body.encode() if isinstance(case.body, str) else _json(case)
        kind = "text/html" if isinstance(case.body, str) else "application/json; charset=UTF-8"
        head = {"content-type": kind, "content-length": str(len(raw)), "connection": "close"}
        lines = [f"{name}: {value}" for name, value in (head | case.headers).items()]
        self._answer = "\r\n".join([f"HTTP/1.1 {case.status} No", *lines, "", ""]).encode() + raw
        self.asked = 0
        return LiteLLMModel(case.model, base_url=self.url, api_key=KEY, retries=1)

    async def serve(self, stream: anyio.abc.SocketStream) -> None:
        """Answer one request."""
        async with stream:
            received = b""
            while not _whole(received):
                try:
                    received += await stream.receive()
                except (anyio.EndOfStream, anyio.BrokenResourceError):
                    return
            self.asked += 1
            await stream.send(self._answer)


@pytest.fixture
async def refusing() -> AsyncGenerator[Refusing]:
    """Return the server."""
    server = Refusing()
    # The server around it closes litellm's clients when all is over.
    async with OpenAIServer(lambda _, n: Reply()):
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        async with listener, anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, server.serve)
            port = listener.extra(anyio.abc.SocketAttribute.local_port)
            server.url = f"http://127.0.0.1:{port}"
            yield server
            tasks.cancel_scope.cancel()


def _json(case: Case) -> bytes:
    # Google writes it over many lines.
    return orjson.dumps(case.body, option=orjson.OPT_INDENT_2 if case.model == GEMINI else 0)


def _whole(received: bytes) -> bool:
    head, end, body = received.partition(b"\r\n\r\n")
    sizes = [
        line.split(b":")[1] for line in head.lower().split(b"\r\n") if b"content-length" in line
    ]
    return bool(end) and len(body) >= int(sizes[0] if sizes else 0)


async def _call(model: LiteLLMModel) -> tuple[list[Retrying], ModelError]:
    retries: list[Retrying] = []
    with pytest.raises(ModelError) as raised:
        async with model.stream(request()) as events:
            async for event in events:
                assert isinstance(event, Retrying)
                retries.append(event)
    return retries, raised.value


def _readable(text: str) -> bool:
    return not any(
        sign in text for sign in ('{"', "b'", 'b"', "\\n", '": ', "<html", KEY, "litellm")
    )


async def test_what_passes_is_waited_for_as_the_provider_asks(
    monkeypatch: pytest.MonkeyPatch, refusing: Refusing
) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(attempts, "FIRST_WAIT", 0.0)
    await litellm.load_litellm()
    monkeypatch.setattr("agent_runtime.models.litellm.anyio.sleep", sleep)
    for case in LIMITED:
        slept.clear()
        retries, error = await _call(refusing.model(case))
        assert type(error) is ModelUnavailable, case
        assert (refusing.asked, slept) == (2, [pytest.approx(case.wait or 0.0)]), case
        assert _readable(error.message) and _readable(retries[0].reason), case
        assert case.says in error.message, case


async def test_a_used_up_account_ends_the_call_at_once(refusing: Refusing) -> None:
    for case in USED_UP:
        retries, error = await _call(refusing.model(case))
        assert type(error) is ModelAuthError, case
        assert "no credit or quota left" in error.message and "Add credit" in error.cure, case
        assert (refusing.asked, retries) == (1, []), case
        assert _readable(error.message), case


async def test_a_refusal_is_neither_a_limit_nor_a_matter_of_credit(refusing: Refusing) -> None:
    for case, kind in REFUSED:
        _, error = await _call(refusing.model(case))
        assert type(error) is kind, case
        assert refusing.asked == 1 and "no credit" not in error.message, case
        assert _readable(error.message), case
