"""What went wrong in a model call: litellm's exceptions as errors of ours, without secrets.

They are told apart by status code and by the few class names that mean one thing only: litellm
reports a refused connection and a missing key alike as an internal server error, and some wrong
keys as a bad request.
"""

from __future__ import annotations

import email.utils
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import cast

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
from agent_runtime.messages import encodable

_SECRETS = re.compile(
    r"(?i)\bbearer\s+\S+"
    r"|\bsk[-_][\w\-*.]{6,}"
    r"|\b(?:pk|rk|gsk|xai|hf|r8)[-_]\w{16,}"
    r"|\bAIza[\w\-]{20,}"
    r"|\bAKIA[A-Z0-9]{12,}"
    r"|(?<=[?&]key=)[^&\s]+"
)
_NOISE = re.compile(r"^(?:litellm\.\w+:\s*|\w+(?:Error|Exception):?\s*-?\s*)+")
_LONGEST = 400
_OVERFLOW = re.compile(
    r"context_length_exceeded|maximum context length|prompt is too long|too many tokens"
    r"|exceeds? the (?:maximum|context|model)|input (?:token count|is too long)",
    re.IGNORECASE,
)
_KEY_TROUBLE = re.compile(
    r"api[ _-]?key|x-api-key|unauthori[sz]ed|authentication|credentials", re.IGNORECASE
)
_QUOTA = re.compile(r"insufficient_quota|exceeded your current quota|credit balance", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed attempt.

    Attributes:
        error: what to raise if it is the last attempt.
        retry: whether another attempt may succeed.
        wait: how many seconds the provider asks to wait; None where it does not say.
        billed: whether the provider may charge for it although it reported nothing.
    """

    error: ModelError
    retry: bool
    wait: float | None = None
    billed: bool = False


def scrub(text: str, secrets: Iterable[str] = ()) -> str:
    """Return the text without keys: those given, and whatever looks like one."""
    for secret in secrets:
        if len(secret) >= 8:
            text = text.replace(secret, "***")
    return _SECRETS.sub("***", text)


def failure_of(
    error: Exception, model: str, *, streaming: bool, secrets: Iterable[str] = ()
) -> Failure:
    """Return what an exception of litellm means.

    Args:
        streaming: whether the answer had begun to arrive, so that it may be charged.
        secrets: keys that must not appear in the text.
    """
    raw = str(getattr(error, "message", "") or error)
    text = _said(raw, secrets)
    refused = _refusal(error, raw, text, model)
    if refused is not None:
        return Failure(refused, retry=False)
    status = _status(error)
    if status == 429:
        limited = ModelUnavailable(
            f"{model} is rate-limited: {text}",
            cure="Wait, lower the number of runs at a time, or raise the limit at the provider.",
        )
        return Failure(limited, retry=True, wait=_retry_after(_headers(error)))
    if streaming:
        broken = ModelProtocolError(
            f"The answer of {model} broke off in the middle: {text}",
            cure="Try again; if it persists, look at the connection and at the provider's status.",
        )
        return Failure(broken, retry=True, billed=True)
    if status == 408:
        late = ModelStalled(
            f"{model} did not answer in time: {text}",
            cure="Try again, or raise AGENT_RUNTIME_FIRST_BYTE_TIMEOUT.",
        )
        return Failure(late, retry=True, billed=True)
    down = ModelUnavailable(
        f"{model} cannot be reached or failed: {text}",
        cure="Check the network, the base URL and the provider's status, then try again.",
    )
    return Failure(down, retry=True, wait=_retry_after(_headers(error)))


def _refusal(error: Exception, raw: str, text: str, model: str) -> ModelError | None:
    """Return the error that no further attempt can change; None if one may."""
    status, kinds = _status(error), {kind.__name__ for kind in type(error).__mro__}
    asked = f"{model} refuses the request: {text}"
    if "ContextWindowExceededError" in kinds or (
        status in (400, 413, 422) and _OVERFLOW.search(raw)
    ):
        return ModelOverflow(
            f"The prompt is too long for {model}: {text}",
            cure="Set AGENT_RUNTIME_CONTEXT_WINDOW to the model's real window.",
        )
    if "ContentPolicyViolationError" in kinds:
        return ModelRejected(asked, cure="The provider's content policy refuses it: rephrase it.")
    if _QUOTA.search(raw):
        return ModelAuthError(
            f"The account for {model} has no credit left: {text}",
            cure="Add credit at the provider, or use another key.",
        )
    wrong_key = status in (400, 500) and _KEY_TROUBLE.search(raw) is not None
    if status in (401, 403) or wrong_key or "AuthenticationError" in kinds:
        return ModelAuthError(
            f"{model} does not accept the key: {text}",
            cure="Check the provider's key variable, and that the key may use this model.",
        )
    if status == 404 or "LLM Provider NOT provided" in raw:
        return ModelNotFound(
            f"The provider does not know {model}: {text}",
            cure="Write it as provider/model, such as anthropic/claude-sonnet-4-5.",
        )
    if status is not None and 400 <= status < 500 and status not in (408, 409, 425, 429):
        return ModelRejected(asked, cure="See what the provider says; the request is not retried.")
    return None


def _said(raw: str, secrets: Iterable[str]) -> str:
    """Return what the provider said: one line, without litellm's prefixes and without keys."""
    text = scrub(encodable(raw), secrets).split("Traceback (most recent call last)")[0]
    text = _NOISE.sub("", " ".join(text.split()))
    if len(text) > _LONGEST:
        return text[:_LONGEST] + "…"
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _status(error: Exception) -> int | None:
    status = getattr(error, "status_code", None)
    return status if isinstance(status, int) else None


def _headers(error: Exception) -> Mapping[str, str]:
    for source in (error, getattr(error, "response", None)):
        for name in ("litellm_response_headers", "headers"):
            found = getattr(source, name, None)
            if found:
                return cast("Mapping[str, str]", found)
    return {}


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that the header `retry-after` asks for: a number, or a date."""
    value = next((v for k, v in headers.items() if k.lower() == "retry-after"), None)
    if value is None:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, TypeError):
        return None
