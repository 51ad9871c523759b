"""Read what the headers of a response say about rate limits.

Anthropic's are `anthropic-ratelimit-requests-remaining` with resets as times; those of OpenAI, and
of the many servers that follow it, are `x-ratelimit-remaining-requests` with resets as durations.
"""

from __future__ import annotations

import email.utils
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["requests", "input", "output", "produced", "asked"]
"""What a limit counts.

`requests`; `input`: the tokens of prompts; `output`: those of answers, as they are produced;
`produced`: both; `asked`: those of prompts, and as many of answers as requests allow.
"""

MINUTE = 60.0
"""Seconds until a reset that is not named: what nearly all limits refer to."""
LATEST_RESET = 86_400.0
"""Seconds: a reset that is further away is not believed."""

# A larger number is no limit of tokens but an error, or stands for "unlimited".
_MOST = 10**15
# Anthropic counts the output that is produced, OpenAI the output that a request allows.
_ANTHROPIC: tuple[tuple[str, Kind], ...] = (
    ("requests", "requests"),
    ("input-tokens", "input"),
    ("output-tokens", "output"),
    ("tokens", "produced"),
)
_OPENAI: tuple[tuple[str, Kind], ...] = (("requests", "requests"), ("tokens", "asked"))
_NUMBER = re.compile(r"\d{1,16}(?:\.0+)?", re.ASCII)
_DURATION = re.compile(r"(?:\d{1,12}(?:\.\d{1,12})?(?:ns|us|µs|ms|h|m|s))+", re.ASCII)
_PART = re.compile(r"(\d+(?:\.\d+)?)(ns|us|µs|ms|h|m|s)", re.ASCII)
_SECONDS = re.compile(r"\d{1,12}(?:\.\d{1,12})?", re.ASCII)
_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit, as a response reports it.

    Attributes:
        most: how much there is after a reset; None if it is not named.
        remaining: how much is left now.
        reset: seconds until all of it is there again.
    """

    kind: Kind
    most: int | None
    remaining: int
    reset: float


def read_limits(headers: Mapping[str, str]) -> list[Limit]:
    """Return the limits in a response's headers, whose names are in lower case.

    What is unknown or absurd is left out: the provider decides then.
    """
    limits: list[Limit] = []
    for name, kind in _ANTHROPIC:
        remaining = headers.get(f"anthropic-ratelimit-{name}-remaining")
        if remaining is None:
            continue
        most = headers.get(f"anthropic-ratelimit-{name}-limit")
        reset = headers.get(f"anthropic-ratelimit-{name}-reset")
        seconds = MINUTE if reset is None else _until(reset, headers.get("date"))
        limits += _limit(kind, most, remaining, seconds)
    for name, kind in _OPENAI:
        remaining = headers.get(f"x-ratelimit-remaining-{name}")
        if remaining is None:
            continue
        reset = headers.get(f"x-ratelimit-reset-{name}")
        seconds = MINUTE if reset is None else _duration(reset)
        limits += _limit(kind, headers.get(f"x-ratelimit-limit-{name}"), remaining, seconds)
    return limits


def _limit(kind: Kind, most: str | None, remaining: str, reset: float | None) -> list[Limit]:
    """Return the limit, or nothing if a value of it cannot be."""
    left = _count(remaining)
    whole = None if most is None else _count(most)
    if left is None or reset is None or reset > LATEST_RESET:
        return []
    # Believed, such numbers would hold back requests that the provider takes.
    if most is not None and (whole is None or whole == 0 or left > whole):
        return []
    return [Limit(kind, whole, left, reset)]


def _count(text: str) -> int | None:
    """Return a number of requests or tokens; None if it is none."""
    text = text.strip()
    if not _NUMBER.fullmatch(text):
        return None
    number = int(text.partition(".")[0])
    return number if number <= _MOST else None


def _duration(text: str) -> float | None:
    """Return the seconds of a duration such as `6m0s`, `120ms` or `1.5`; None if it is none."""
    text = text.strip()
    if _DURATION.fullmatch(text):
        return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))
    return float(text) if _SECONDS.fullmatch(text) else None


def _until(text: str, date: str | None) -> float | None:
    """Return the seconds until a time of RFC 3339; None if it is none.

    Args:
        date: when the response was made, by the provider's clock; ours may differ from it.
    """
    try:
        reset = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    if reset.tzinfo is None:
        return None
    try:
        return max(0.0, reset.timestamp() - _sent(date))
    except (OverflowError, ValueError):
        return None


def _sent(date: str | None) -> float:
    """Return the time of a response's header `date`, or the time now."""
    if date is not None:
        try:
            return email.utils.parsedate_to_datetime(date).timestamp()
        except (ValueError, TypeError, OverflowError):
            pass
    return time.time()
