"""Read a provider's error response: its message, its codes, and how long to wait.

litellm's exceptions carry the response somewhere in their chain, or its body inside their text, as
JSON or as the repr of bytes.
"""

from __future__ import annotations

import ast
import contextlib
import email.utils
import html
import math
import re
import time
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, cast

import orjson

from agent_runtime.errors import AgentRuntimeError

_Object: TypeAlias = dict[str, Any]

# Levels of nesting, and exceptions in a chain, that are looked through.
_DEPTH = 8
_MESSAGES = ("message", "msg", "detail", "error_description", "title", "error")
_CODES = ("code", "type", "status", "reason", "__type", "quotaId", "error")
_USED_UP = frozenset(
    {
        "account_balance_insufficient",
        "arrearage",
        "billing_error",
        "billing_hard_limit_reached",
        "billing_not_active",
        "credit_balance_exhausted",
        "credits_exhausted",
        "exceeded_current_quota_error",
        "insufficient_balance",
        "insufficient_credits",
        "insufficient_funds",
        "insufficient_quota",
        "organization_spend_limit_exceeded",
        "organization_usage_limit_exceeded",
        "payment_required",
        "paymentrequired",
        "project_spend_limit_exceeded",
        "1113",  # Z.AI's and Zhipu's: no balance.
    }
)
_LIMITED = frozenset(
    {
        "rate_limit_error",
        "rate_limit_exceeded",
        "rate_limit_reached_error",
        "resource_exhausted",
        "throttlingexception",
        "too_many_requests",
    }
)
# For providers without a code.  Gemini says "exceeded your current quota" for limits per minute
# too, so these words are not among them.
_NO_CREDIT = re.compile(
    r"credit balance is too low|insufficient (?:account )?balance|insufficient credits?"
    r"|used all available credits|reached (?:your specified api usage|its monthly spending) limit",
    re.IGNORECASE,
)
_DURATION = re.compile(
    r"\b(?:try again|retry|wait)\b[^.\d]{0,20}"
    r"((?:\d{1,9}(?:\.\d{1,12})? ?(?:milliseconds?|ms|hours?|h|minutes?|mins?|m|seconds?|secs?|s)"
    r"(?![a-z]),? ?){1,4})",
    re.IGNORECASE,
)
_PART = re.compile(r"(\d+(?:\.\d+)?) ?(ms|milli|h|m|s)", re.IGNORECASE)
_UNITS = {"ms": 0.001, "milli": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True, slots=True)
class ErrorBody:
    """A provider's description of a failure.

    Attributes:
        status: of HTTP; None where there was no response.
        message: for people; empty if there is none.
        codes: its codes, types, statuses and reasons, in lower case.
        wait: the seconds that it asks to wait; None if it does not say.
        used_up: whether its account has no credit left, or a quota longer than minutes is used up.
    """

    status: int | None = None
    message: str = ""
    codes: frozenset[str] = frozenset()
    wait: float | None = None
    used_up: bool = False

    @property
    def limited(self) -> bool:
        """Whether the provider limits the rate of calls or tokens."""
        return self.status == 429 or bool(self.codes & _LIMITED)


def read_error(error: BaseException) -> ErrorBody:
    """Return the error body in the response behind an exception of litellm."""
    status: int | None = None
    headers: Mapping[str, str] = {}
    body: object = None
    for one in _chain(error):
        response: Any = getattr(one, "response", None)
        text = _text(response)
        if text or body is None:
            body = _parsed(text) or _given(one) or body
        headers = headers or _headers(one) or _headers(response)
        if text and status is None:
            status = _int(getattr(response, "status_code", None))
    if body is None:
        body = _parsed(str(getattr(error, "message", "") or error))
    return _read(status or _int(getattr(error, "status_code", None)), headers, body)


def read_response(status: int, headers: Mapping[str, str], text: str) -> ErrorBody:
    """Return the error body of a response, or of an error in mid-stream.

    Args:
        headers: by names in lower case.
        text: the whole body, or the beginning of a long one.
    """
    body = _parsed(text)
    said = _read(status, headers, body)
    return said if said.message or body is not None else replace(said, message=text.strip())


def _read(status: int | None, headers: Mapping[str, str], body: object) -> ErrorBody:
    objects = list(_objects(body))
    inner = next((code for one in objects if (code := _http_code(one))), None)
    if inner is not None and (status is None or status in (200, 500)):
        # An error inside a stream that began as a success.
        status = inner
    codes = frozenset(code for one in objects for code in _codes(one))
    message = next((text for one in objects if (text := _message(one))), "")
    return ErrorBody(
        status=status,
        message=message,
        codes=codes,
        wait=_asked(headers, objects, message),
        used_up=_is_used_up(status, codes, message, objects),
    )


def strip_markup(text: str) -> str:
    """Return a text without the markup of a web page, on one line."""
    if re.search(r"<(?:!doctype|html|head|body)\b", text, re.IGNORECASE):
        text = re.sub(r"(?is)<(script|style)\b.*?</\1>|<[^<>]*>", " ", text)
        text = html.unescape(text)
    return " ".join(text.split())


def _chain(error: BaseException) -> Generator[BaseException]:
    one: BaseException | None = error
    for _ in range(_DEPTH):
        # An error of ours in the chain belongs to an earlier call.
        if one is None or isinstance(one, AgentRuntimeError):
            return
        yield one
        one = one.__cause__ or (None if one.__suppress_context__ else one.__context__)


def _text(response: Any) -> str:
    try:
        text = response.text
    except Exception:
        # The body of a stream that was not read, or whatever else a client's class does not give.
        return ""
    return text if isinstance(text, str) else ""


def _given(error: BaseException) -> object:
    """Return a body that the client has parsed already."""
    body = getattr(error, "body", None)
    return cast(object, body) if isinstance(body, dict | list) else None


def _headers(source: Any) -> Mapping[str, str]:
    for name in ("litellm_response_headers", "headers"):
        found = getattr(source, name, None)
        if found:
            return cast("Mapping[str, str]", found)
    return {}


def _parsed(text: str) -> object:
    """Return the first JSON object or array in a text; None if there is none."""
    begin = re.search(r"""\bb(?P<quote>['"])\s*(?=[{\[])""", text)
    if begin is not None:
        end = text.rfind(begin["quote"])
        with contextlib.suppress(ValueError, SyntaxError, AttributeError):
            # litellm writes some bodies as Python's `b'...'`.
            text = cast(bytes, ast.literal_eval(text[begin.start() : end + 1])).decode()
    for opening, closing in ("{}", "[]"):
        first, last = text.find(opening), text.rfind(closing)
        if 0 <= first < last:
            try:
                return orjson.loads(text[first : last + 1])
            except orjson.JSONDecodeError:
                continue
    return None


def _objects(body: object, depth: int = 0) -> Iterator[_Object]:
    """Yield the objects of a body that may have a message or a code, innermost first."""
    if depth > _DEPTH:
        return
    if isinstance(body, list):
        # The first ones: a list of a hundred details says the same a hundred times.
        for one in cast("list[object]", body)[:8]:
            yield from _objects(one, depth + 1)
    if not isinstance(body, dict):
        return
    found = cast(_Object, body)
    metadata = found.get("metadata")
    if isinstance(metadata, dict) and isinstance(raw := cast(_Object, metadata).get("raw"), str):
        # OpenRouter's: what the provider behind it said.
        yield from _objects(_parsed(raw), depth + 1)
    if isinstance(found.get("error"), str):
        yield from _objects(_parsed(found["error"]), depth + 1)
    yield from _objects(found.get("error"), depth + 1)
    yield found
    for name in ("errors", "details", "violations", "detail", "message"):
        yield from _objects(found.get(name), depth + 1)


def _message(one: _Object) -> str:
    for name in _MESSAGES:
        text = one.get(name)
        if isinstance(text, str) and text.strip():
            within = next((m for o in _objects(_parsed(text)) if (m := _message(o))), "")
            return within or text.strip()
    return ""


def _codes(one: _Object) -> Iterator[str]:
    for name in _CODES:
        code = one.get(name)
        if isinstance(code, str | int) and not isinstance(code, bool):
            # Bedrock's: `com.amazon.coral.service#ThrottlingException`.
            yield str(code).rpartition("#")[2].lower()


def _http_code(one: _Object) -> int | None:
    code = _int(one.get("code")) or _int(one.get("status"))
    return code if code is not None and 400 <= code < 600 else None


def _int(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _is_used_up(
    status: int | None, codes: frozenset[str], message: str, objects: list[_Object]
) -> bool:
    if status == 402 or codes & _USED_UP or _NO_CREDIT.search(message):
        return True
    # Google's: a limit by the minute passes; one by the day, or of nothing, does not.
    return any(
        re.search(r"per(?:day|week|month)", str(one.get("quotaId")), re.IGNORECASE)
        or one.get("quotaValue") in ("0", 0)
        for one in objects
        if "quotaId" in one
    )


def _asked(headers: Mapping[str, str], objects: list[_Object], message: str) -> float | None:
    lower = {name.lower(): value for name, value in headers.items()}
    for asked in (_seconds(lower.get("retry-after-ms"), 0.001), _after(lower.get("retry-after"))):
        if asked is not None:
            return asked
    delays = [_delay(one["retryDelay"]) for one in objects if "retryDelay" in one]
    if (in_text := _DURATION.search(message)) is not None:
        parts = _PART.findall(in_text[1])
        delays.append(sum(float(number) * _UNITS[unit.lower()] for number, unit in parts))
    # The longest of several: a shorter wait would meet the other limit.
    return max((delay for delay in delays if delay is not None), default=None)


def _seconds(value: str | None, unit: float = 1.0) -> float | None:
    try:
        seconds = float(value or "") * unit
    except ValueError:
        return None
    return max(0.0, seconds) if math.isfinite(seconds) else None


def _after(value: str | None) -> float | None:
    """Return the seconds of a header `retry-after`: a number, or a date."""
    if value is None:
        return None
    if (seconds := _seconds(value)) is not None:
        return seconds
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError):
        return None


def _delay(value: object) -> float | None:
    """Return the seconds of Google's `retryDelay`: `2.1s`, or its parts."""
    if isinstance(value, str):
        return _seconds(value.strip().removesuffix("s"))
    if isinstance(value, dict):
        parts = cast(_Object, value)
        whole, nanos = _seconds(str(parts.get("seconds", 0))), _int(parts.get("nanos")) or 0
        return None if whole is None else whole + nanos / 1e9
    return None
