"""Find the dates that a question names, and score how well a moment fits them.

Days, months and years are read in English or in numbers: `1 May 2022`, `May 1st`, `in July`,
`2022-05-01`, `in 2021`.  Without a year, a day or month means that of any year.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

DAYS_AFTER = 14
"""People talk about a day after it: a moment this many days later no longer fits."""

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
class NamedDate:
    """A day, month or year as a text names it; None for a part that it leaves out."""

    year: int | None = None
    month: int | None = None
    day: int | None = None

    def fit(self, moment: float) -> float:
        """Return 1 for a moment within the date, less for one soon after it, else 0.

        Args:
            moment: seconds since the epoch.
        """
        when = datetime.fromtimestamp(moment, UTC).date()
        # A moment early in January may be just after a day of the December before.
        years = (self.year,) if self.year else (when.year - 1, when.year)
        spans = [span for year in years for span in self._span(year)]
        return max((_fit(first, last, when) for first, last in spans), default=0.0)

    def _span(self, year: int) -> Iterator[tuple[date, date]]:
        """Yield the first and last day in a year; nothing for one without them (29 February)."""
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


def dates_named(text: str) -> list[NamedDate]:
    """Return the dates that a text names, without repeats."""
    dates: dict[NamedDate, None] = {}

    def take(match: re.Match[str]) -> str:
        parts = match.groupdict()
        month = parts.get("month")
        named = NamedDate(
            int(parts["year"]) if parts.get("year") else None,
            None if month is None else _NUMBERS.get(month) or int(month),
            int(parts["day"]) if parts.get("day") else None,
        )
        if not 1 <= (named.month or 1) <= 12 or not 1 <= (named.day or 1) <= 31:
            return match[0]
        dates[named] = None
        # Blanked, so that no later form reads a part of it again.
        return " " * len(match[0])

    # In order: a full date is taken before its year or month could be read alone.
    for form in _FORMS:
        text = form.sub(take, text)
    return list(dates)


def best_fit(dates: Sequence[NamedDate], moment: float) -> float:
    """Return the best fit of a moment among dates; 0 without dates."""
    return max((named.fit(moment) for named in dates), default=0.0) if moment > 0 else 0.0


def _fit(first: date, last: date, when: date) -> float:
    if when < first:
        return 0.0
    late = max((when - last).days, 0)
    return max(0.0, 1 - late / DAYS_AFTER)
