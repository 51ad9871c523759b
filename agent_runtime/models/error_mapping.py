"""Map error responses and litellm's exceptions to our errors, without secrets in their texts.

The status and codes of the provider's response decide, and the few class names that are
unambiguous: litellm reports both a refused connection and a missing key as an internal server
error, and some wrong keys as a bad request.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

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
from agent_runtime.models.error_bodies import ErrorBody, read_error, strip_markup

_SECRETS = re.compile(
    r"(?i)\bbearer\s+\S+"
    # Not "basic authentication".
    r"|\bbasic\s+(?=[A-Za-z+/]{0,80}[0-9=])[A-Za-z0-9+/]{8,}=*"
    r"|\bsk[-_][\w\-*.]{6,}"
    # Of providers, code hosts, chats and packages.
    r"|\b(?:pk|rk|gsk|xai|hf|r8|csk|fw|pa|tgp|nvapi|pplx|glpat|gh[a-z]|github_pat|npm)[-_][\w-]{16,}"
    r"|\bxox[a-z]-[\w-]{10,}"
    # Web tokens.
    r"|\beyJ[\w-]{8,400}\.[\w-]+\.[\w-]*"
    r"|\bya29\.[\w-]{16,}"
    r"|\bAIza[\w\-]{20,}"
    r"|\b(?:AKIA|ASIA)[A-Z0-9]{12,}"
    r"|-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----"
    r"(?:[\s\S]{0,8000}?-----END [A-Z ]{0,30}PRIVATE KEY-----|[\w\s+/=:,.\\\-]{0,8000})"
    r"|(?<=[?&]key=)[^&\s]+"
)
_HEADER = re.compile(
    r"((?:authorization|api-key)['\"]?\s{0,9}[:=]\s{0,9}b?['\"]?(?:(?:bearer|basic)\s+)?)"
    r"[^\s'\",}]{8,}",
    re.IGNORECASE,
)
_NOISE = re.compile(r"^(?:litellm\.\w+:\s*|\w+(?:Error|Exception):?\s*-?\s*)+")
# Characters of a provider's text in an error, which stands in rows, events and prompts.
_LONGEST = 400
_OVERFLOW = re.compile(
    r"context_length_exceeded|maximum context length|prompt is too long|too many tokens"
    r"|exceeds? the (?:maximum|context|model)|input (?:token count|is too long)",
    re.IGNORECASE,
)
_KEY_TROUBLE = re.compile(
    r"api[ _-]?key|x-api-key|unauthori[sz]ed|authentication|credentials", re.IGNORECASE
)

# litellm's exceptions that are unambiguous.
_KINDS = {
    "AuthenticationError": "key",
    "ContentPolicyViolationError": "policy",
    "ContextWindowExceededError": "overflow",
}
_POLICY = frozenset({"content_filter", "content_policy_violation", "moderation_blocked"})


@dataclass(frozen=True, slots=True)
class AttemptFailure:
    """One failed attempt.

    Attributes:
        error: what to raise if it is the last attempt.
        retry: whether another attempt may succeed.
        wait: the seconds that the provider asks to wait; None if it does not say.
        billed: whether the provider may charge for it without a report.
    """

    error: ModelError
    retry: bool
    wait: float | None = None
    billed: bool = False


def scrub(text: str, secrets: Iterable[str] = ()) -> str:
    """Return the text without the given secrets and without anything that looks like a key."""
    for secret in secrets:
        # Shorter ones, such as "none", are words that would be blanked anywhere.
        if len(secret) >= 8:
            text = text.replace(secret, "***")
    return _SECRETS.sub("***", _HEADER.sub(r"\1***", text))


def failure_of(
    error: Exception, model: str, *, streaming: bool, secrets: Iterable[str] = ()
) -> AttemptFailure:
    """Return the failure that an exception of litellm means.

    Args:
        streaming: whether the answer had begun to arrive, so that it may be charged.
        secrets: keys that must not appear in the text.
    """
    said = read_error(error)
    raw = said.message or str(getattr(error, "message", "") or error)
    kinds = {_KINDS[kind.__name__] for kind in type(error).__mro__ if kind.__name__ in _KINDS}
    if "LLM Provider NOT provided" in str(error):
        kinds.add("unknown")
    return failure_of_body(said, raw, model, kinds=kinds, streaming=streaming, secrets=secrets)


def failure_of_body(
    said: ErrorBody,
    raw: str,
    model: str,
    *,
    kinds: Collection[str] = (),
    streaming: bool,
    secrets: Iterable[str] = (),
) -> AttemptFailure:
    """Return the failure that an error response means.

    Args:
        raw: its text, for people.
        kinds: what is known of the error otherwise: `overflow`, `policy`, `key` or `unknown`.
        streaming: whether the answer had begun to arrive, so that it may be charged.
        secrets: keys that must not appear in the text.
    """
    text = _said(raw, secrets)
    refused = _refusal(said, text, model, kinds)
    if refused is not None:
        return AttemptFailure(refused, retry=False)
    if said.limited and not streaming:
        limited = ModelUnavailable(
            f"{model} is rate-limited: {text}",
            cure="Wait, lower the number of runs at a time, or raise the limit at the provider.",
        )
        return AttemptFailure(limited, retry=True, wait=said.wait)
    if streaming:
        broken = ModelProtocolError(
            f"The answer of {model} broke off in the middle: {text}",
            cure="Try again; if it persists, look at the connection and at the provider's status.",
        )
        return AttemptFailure(broken, retry=True, wait=said.wait, billed=True)
    if said.status == 408:
        late = ModelStalled(
            f"{model} did not answer in time: {text}",
            cure="Try again, or raise AGENT_RUNTIME_FIRST_BYTE_TIMEOUT.",
        )
        return AttemptFailure(late, retry=True, billed=True)
    down = ModelUnavailable(
        f"{model} cannot be reached or failed: {text}",
        cure="Check the network, the base URL and the provider's status, then try again.",
    )
    return AttemptFailure(down, retry=True, wait=said.wait)


def _refusal(said: ErrorBody, text: str, model: str, kinds: Collection[str]) -> ModelError | None:
    """Return an error that retries cannot change; None if they may help."""
    status = said.status
    asked = f"{model} refuses the request: {text}"
    if said.used_up:
        return ModelAuthError(
            f"The account for {model} has no credit or quota left: {text}",
            cure="Add credit or raise the quota at the provider, or use another key or model.",
        )
    if "overflow" in kinds or (
        status in (400, 413, 422) and _OVERFLOW.search(f"{text} {' '.join(said.codes)}")
    ):
        return ModelOverflow(
            f"The prompt is too long for {model}: {text}",
            cure="Set AGENT_RUNTIME_CONTEXT_WINDOW to the model's real window.",
        )
    if "policy" in kinds or said.codes & _POLICY:
        return ModelRejected(asked, cure="The provider's content policy refuses it: rephrase it.")
    # Before the key: by its codes a rate limit may come with another status than 429.
    if said.limited:
        return None
    # Some providers answer a wrong key as a bad request, and litellm reports it as a server
    # error.
    wrong_key = status in (400, 500) and _KEY_TROUBLE.search(text) is not None
    if status in (401, 403) or wrong_key or "key" in kinds:
        return ModelAuthError(
            f"{model} does not accept the key: {text}",
            cure="Check the provider's key variable, and that the key may use this model.",
        )
    if status == 404 or "unknown" in kinds:
        return ModelNotFound(
            f"The provider does not know {model}: {text}",
            cure="Write it as provider/model, such as anthropic/claude-sonnet-4-5.",
            model=model,
        )
    # Timeouts, conflicts and "too early" pass; all else is the request's own fault.
    if status is not None and 400 <= status < 500 and status not in (408, 409, 425):
        return ModelRejected(asked, cure="See what the provider says; the request is not retried.")
    return None


def _said(raw: str, secrets: Iterable[str]) -> str:
    """Return the provider's text on one line, without litellm's prefixes and without keys."""
    text = scrub(encodable(raw), secrets).split("Traceback (most recent call last)")[0]
    text = _NOISE.sub("", strip_markup(text))
    if len(text) > _LONGEST:
        return text[:_LONGEST] + "…"
    return text if text.endswith((".", "!", "?")) else f"{text}."
