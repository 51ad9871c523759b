"""What litellm's exceptions mean, and that no key gets through."""

from __future__ import annotations

import time
from email.utils import formatdate
from types import SimpleNamespace
from typing import Any

import pytest

from agent_runtime.errors import (
    ModelAuthError,
    ModelError,
    ModelNotFound,
    ModelOverflow,
    ModelProtocolError,
    ModelRejected,
    ModelStalled,
    ModelUnavailable,
)
from agent_runtime.models.error_mapping import failure_of, scrub
from agent_runtime.models.litellm import load_litellm

WHO: dict[str, Any] = {"model": "m", "llm_provider": "p"}


@pytest.mark.parametrize(
    ("kind", "message", "error", "retry"),
    [
        ("AuthenticationError", "no", ModelAuthError, False),
        ("BadRequestError", "Invalid x-api-key", ModelAuthError, False),
        ("InternalServerError", "Missing API key", ModelAuthError, False),
        ("NotFoundError", "no such model", ModelNotFound, False),
        ("BadRequestError", "LLM Provider NOT provided. Pass in…", ModelNotFound, False),
        ("ContextWindowExceededError", "long", ModelOverflow, False),
        ("BadRequestError", "prompt is too long: 210000 tokens", ModelOverflow, False),
        ("BadRequestError", "input token count exceeds the maximum", ModelOverflow, False),
        ("ContentPolicyViolationError", "no", ModelRejected, False),
        ("BadRequestError", "messages: at least one", ModelRejected, False),
        ("RateLimitError", "slow down", ModelUnavailable, True),
        ("ServiceUnavailableError", "overloaded", ModelUnavailable, True),
        ("InternalServerError", "Connection error.", ModelUnavailable, True),
        ("Timeout", "timed out", ModelStalled, True),
    ],
)
async def test_every_failure_has_a_type(
    kind: str, message: str, error: type[ModelError], retry: bool
) -> None:
    litellm = await load_litellm()
    raised = getattr(litellm.exceptions, kind)(message=message, **WHO)
    failure = failure_of(raised, "p/m", streaming=False)
    assert type(failure.error) is error
    assert failure.retry is retry
    assert failure.error.cure
    assert message.rstrip(".…") in failure.error.message
    assert "litellm" not in failure.error.message


def test_a_reason_that_cannot_be_encoded_is_mended() -> None:
    failure = failure_of(RuntimeError("says \ud83d"), "m", streaming=False)
    assert "says \ufffd." in failure.error.message


async def test_a_failure_in_the_middle_may_be_billed() -> None:
    litellm = await load_litellm()
    error = litellm.exceptions.MidStreamFallbackError(message="cut", **WHO)
    failure = failure_of(error, "p/m", streaming=True)
    assert type(failure.error) is ModelProtocolError
    assert (failure.retry, failure.billed) == (True, True)


@pytest.mark.parametrize(
    ("header", "least", "most"),
    [("7", 7, 7), ("0.5", 0.5, 0.5), ("-3", 0, 0), (formatdate(4e9), 1e6, 4e9)],
)
def test_retry_after_is_a_number_or_a_date(header: str, least: float, most: float) -> None:
    error = RuntimeError("slow down")
    response = SimpleNamespace(headers={"Retry-After": header})
    error.__dict__.update(status_code=429, response=response)
    wait = failure_of(error, "m", streaming=False).wait
    assert wait is not None
    assert least <= wait <= most


@pytest.mark.parametrize(
    "text",
    [
        "Incorrect API key provided: sk-proj-abc*****xyz.",
        "Authorization: Bearer abc.def-ghi",
        "key AIzaSyA1234567890abcdefghijklmnopqrstuv is invalid",
        "GET https://host/v1?key=abcdef123&alt=sse",
        "my own token hunter2222 leaked",
        "AKIAIOSFODNN7EXAMPLE",
        "gsk_abc1234567890abcdef",
        "ghp_abcdefghij0123456789",
        "glpat-abcdefghij0123456789",
        "xoxb-abc123456789-abcdefghij",
        "token eyJhbGciabc.eyJzdWIabc.abc",
        "{'x-api-key': 'abcdefgh1234'}",
        "authorization=Basic abcFVTRVI6UGFzcw==",
        "api-key: abcdef-1234",
    ],
)
def test_no_key_gets_through(text: str) -> None:
    clean = scrub(text, ["hunter2222"])
    assert "***" in clean
    for secret in ("abc", "AIzaSy", "hunter", "AKIA"):
        assert secret not in clean


def test_plain_words_stay() -> None:
    text = "Bad schema for task-runner: the key_of_the_map 'sk' in hf_models is missing."
    for one in (text, "Basic authentication failed; the x-api-key: header is required."):
        assert scrub(one) == one


def test_a_long_text_is_scrubbed_in_one_pass() -> None:
    begun = time.thread_time()
    for part in ("eyJ-", "api-key:", "basic ", "authorization:  ", "ghp_"):
        scrub(part * (50_000 // len(part)))
    assert time.thread_time() - begun < 2
