"""The dates that a question names, and how well a moment fits them.

Read are days, months and years as they are written in English or in numbers: `1 May 2022`,
`May 1st`, `in July`, `2022-05-01`, `in 2021`.  Without a year a day or month of any year is meant.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

TOLD_WITHIN = 14
"""People tell of what happened afterwards: so many days later a moment does not fit any more."""

_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_NUMBERS = {name[:length]: number for number, name in enumerate(_MONTHS, 1) for length in (3, 9)}
_NUMBERS["Sept"] = 9
_MONTH = rf"(?P<month>{'|'.join(sorted(_NUMBERS, key=len, reverse=True))})\b\.?"
_DAY = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?\b"
_YEAR = r"(?P<year>(?:19|20)\d\d)"
_FORMS = tuple(
    re.compile(form)
    for form in (
        rf"\b{_YEAR}[-/](?P<month>\d\d?)[-/](?P<day>\d\d?)\b",
        rf"\b{_DAY}(?: of)? {_MONTH}(?:,? {_YEAR}\b)?",
        rf"\b{_MONTH} {_DAY}(?:,? {_YEAR}\b)?",
        rf"\b{_MONTH},? {_YEAR}\b",
        # Not a question's first word: "May I ask …".
        rf"(?<=\w )\b{_MONTH}(?!\w)",
        rf"\b{_YEAR}\b",
    )
)


@dataclass(frozen=True, slots=True)
class Named:
    """A day, a month or a year that was named, as far as it was."""

    year: int | None = None
    month: int | None = None
    day: int | None = None

    def fit(self, moment: float) -> float:
        """Return 1 for a moment within it, less for one soon after it, else 0.

        Args:
            moment: in seconds since the epoch.
        """
        when = datetime.fromtimestamp(moment, UTC).date()
        years = (self.year,) if self.year else (when.year - 1, when.year, when.year + 1)
        return max((_fit(one, when) for year in years for one in self._days(year)), default=0.0)

    def _days(self, year: int) -> Iterator[tuple[date, date]]:
        """Yield its first and its last day in a year that has them."""
        try:
            first = date(year, self.month or 1, self.day or 1)
            if self.day:
                yield first, first
            elif self.month:
                following = date(year + self.month // 12, self.month % 12 + 1, 1)
                yield first, following - timedelta(1)
            else:
                yield first, date(year, 12, 31)
        except ValueError:
            return


def dates_named(text: str) -> list[Named]:
    """Return the dates that a text names, each once."""
    found: dict[Named, None] = {}

    def take(match: re.Match[str]) -> str:
        parts = match.groupdict()
        month = parts.get("month")
        one = Named(
            int(parts["year"]) if parts.get("year") else None,
            None if month is None else _NUMBERS.get(month) or int(month),
            int(parts["day"]) if parts.get("day") else None,
        )
        if not 1 <= (one.month or 1) <= 12 or not 1 <= (one.day or 1) <= 31:
            return match[0]
        found[one] = None
        # What is read is not read again as a part of another form.
        return " " * len(match[0])

    for form in _FORMS:
        text = form.sub(take, text)
    return list(found)


def best_fit(dates: Sequence[Named], moment: float) -> float:
    """Return how well a moment fits the one of the dates that it fits best; 0 without any."""
    return max((one.fit(moment) for one in dates), default=0.0) if moment > 0 else 0.0


def _fit(days: tuple[date, date], when: date) -> float:
    first, last = days
    if when < first:
        return 0.0
    late = max((when - last).days, 0)
    return max(0.0, 1 - late / TOLD_WITHIN)
