"""What headers say about rate limits, in the providers' forms and in impossible ones."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from agent_runtime.models.rate_limits.headers import LATEST_RESET, MINUTE, Limit, read_limits

SENT = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)


def anthropic(name: str, most: str, remaining: str, reset: str) -> dict[str, str]:
    """Return a limit in Anthropic's form."""
    begin = f"anthropic-ratelimit-{name}"
    values = {f"{begin}-limit": most, f"{begin}-remaining": remaining, f"{begin}-reset": reset}
    return {**values, "date": format_datetime(SENT, usegmt=True)}


def openai(name: str, most: str, remaining: str, reset: str) -> dict[str, str]:
    """Return a limit in OpenAI's form."""
    return {
        f"x-ratelimit-limit-{name}": most,
        f"x-ratelimit-remaining-{name}": remaining,
        f"x-ratelimit-reset-{name}": reset,
    }


def test_all_limits_of_anthropic_are_read_by_its_own_clock() -> None:
    headers = {
        **anthropic("requests", "50", "49", "2026-03-01T12:00:01Z"),
        **anthropic("input-tokens", "40000", "39000", "2026-03-01T12:00:30.5Z"),
        **anthropic("output-tokens", "8000", "8000", "2026-03-01T12:00:00Z"),
        **anthropic("tokens", "48000", "47000", "2026-03-01T13:01:00+01:00"),
    }
    assert read_limits(headers) == [
        Limit("requests", 50, 49, 1.0),
        Limit("input", 40000, 39000, 30.5),
        Limit("output", 8000, 8000, 0.0),
        Limit("produced", 48000, 47000, 60.0),
    ]


@pytest.mark.parametrize(
    ("reset", "seconds"),
    [
        ("6m0s", 360.0),
        ("120ms", 0.12),
        ("1s", 1.0),
        ("2m59.56s", 179.56),
        ("1h2m3s", 3723.0),
        ("17.5µs", 0.0000175),
        ("0s", 0.0),
        ("7.25", 7.25),
    ],
)
def test_durations_are_read(reset: str, seconds: float) -> None:
    (limit,) = read_limits(openai("tokens", "150000", "149984", reset))
    assert (limit.kind, limit.most, limit.remaining) == ("asked", 150000, 149984)
    assert math.isclose(limit.reset, seconds)


@pytest.mark.parametrize("reset", ["", "soon", "-1s", "1d", "nan", "inf", "1s ago", "1765944000"])
def test_an_impossible_duration_is_ignored(reset: str) -> None:
    assert read_limits(openai("requests", "60", "0", reset)) == []


@pytest.mark.parametrize(
    ("most", "remaining"),
    [
        ("60", "-1"),
        ("60", "nan"),
        ("60", "1e3"),
        ("60", ""),
        ("60", "61"),
        ("0", "0"),
        ("-5", "0"),
        ("many", "1"),
        ("60", "9" * 30),
        ("٦٠", "٦"),
    ],
)
def test_impossible_amounts_are_ignored(most: str, remaining: str) -> None:
    assert read_limits(openai("requests", most, remaining, "1s")) == []
    assert read_limits(anthropic("requests", most, remaining, "2026-03-01T12:00:01Z")) == []


@pytest.mark.parametrize("reset", ["", "12:00", "2026-03-01T12:00:01", "tomorrow", "1765944000"])
def test_an_impossible_time_is_ignored(reset: str) -> None:
    assert read_limits(anthropic("requests", "50", "0", reset)) == []


def test_a_reset_that_is_days_away_is_ignored() -> None:
    far = SENT + timedelta(seconds=LATEST_RESET + 1)
    assert read_limits(anthropic("requests", "50", "0", far.isoformat())) == []
    assert read_limits(openai("requests", "50", "0", "25h")) == []


def test_a_time_in_the_past_has_passed() -> None:
    (limit,) = read_limits(anthropic("requests", "50", "0", "2025-01-01T00:00:00Z"))
    assert limit.reset == 0.0


def test_without_a_usable_date_our_clock_counts() -> None:
    reset = datetime.now(UTC) + timedelta(seconds=90)
    headers = anthropic("requests", "50", "0", reset.isoformat())
    for date in ({}, {"date": "yesterday"}):
        without = {name: value for name, value in headers.items() if name != "date"}
        (limit,) = read_limits({**without, **date})
        assert 0 < limit.reset <= 90


def test_a_missing_reset_is_a_minute_and_a_missing_limit_unknown() -> None:
    assert read_limits({"x-ratelimit-remaining-requests": "7"}) == [
        Limit("requests", None, 7, MINUTE)
    ]


def test_other_headers_say_nothing() -> None:
    assert read_limits({"x-ratelimit-limit": "5", "ratelimit-remaining": "0", "date": "x"}) == []
