"""Find the times that a question names, and score how well a moment fits them.

Days, months and years are read in numbers (`2022-05-01`, `3.5.2022`, `2023年5月3日`) and in words
(`1 May 2022`, `May 1st`, `3. Mai`, `3 de mayo`), and times relative to the question's own
(`yesterday`, `last Friday`, `vor zwei Wochen`, `il y a 3 jours`, `上周五`), in the languages of
`date_words`.  Without a year, a day or month means that of any year.  A weekday is the last one
before the question's day; weeks begin on Monday.
"""

from __future__ import annotations

import calendar
import functools
import re
import time
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo

from agent_runtime.memory.recall.date_words import (
    UNSPACED_AGO,
    UNSPACED_DAYS,
    UNSPACED_NUMBERS,
    UNSPACED_UNITS,
    UNSPACED_WEEKDAYS,
    WORDS,
    DateWords,
)

DAYS_AFTER = 14
"""People talk about a day after it: a moment this many days later no longer fits."""
# A question is short, and the patterns of all languages are tried on each of its places.
MOST = 2_000
"""Characters of a text that are read."""

_SHORT: list[str] = [
    "jan",
    "feb",
    "mar",
    "apr",
    "may",
    "jun",
    "jul",
    "aug",
    "sep",
    "oct",
    "nov",
    "dec",
]
_UNITS = ("day", "week", "month", "year")


@dataclass(frozen=True, slots=True)
class NamedDate:
    """A day, month or year as a text names it; None for a part that it leaves out."""

    year: int | None = None
    month: int | None = None
    day: int | None = None

    def fit(self, moment: float, zone: tzinfo = UTC) -> float:
        """Return 1 for a moment within the date, less for one soon after it, else 0.

        Args:
            moment: seconds since the epoch.
            zone: in which the date is meant.
        """
        when = datetime.fromtimestamp(moment, zone).date()
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
                yield first, _end_of_month(first)
            else:
                yield first, date(year, 12, 31)
        except ValueError:
            return


@dataclass(frozen=True, slots=True)
class DateSpan:
    """Some days in a row, such as those of last week."""

    first: date
    last: date

    def fit(self, moment: float, zone: tzinfo = UTC) -> float:
        """Return 1 for a moment within the span, less for one soon after it, else 0."""
        return _fit(self.first, self.last, datetime.fromtimestamp(moment, zone).date())


def dates_named(
    text: str, *, now: float | None = None, zone: tzinfo = UTC
) -> list[NamedDate | DateSpan]:
    """Return the dates that a text names, without repeats.

    Args:
        now: when it was written, in seconds since the epoch; by default now.
        zone: of its author, which decides what "today" is.
    """
    today = datetime.fromtimestamp(time.time() if now is None else now, zone).date()
    text = unicodedata.normalize("NFKC", text[:MOST])
    dates: dict[NamedDate | DateSpan, None] = {}
    for form, read in _forms():

        def take(
            match: re.Match[str],
            read: Callable[[re.Match[str], date], list[NamedDate | DateSpan]] = read,
        ) -> str:
            found = read(match, today)
            dates.update(dict.fromkeys(found))
            # Blanked, so that no later form reads a part of it again.
            return " " * len(match[0]) if found else match[0]

        text = form.sub(take, text)
    return list(dates)


def best_fit(dates: Sequence[NamedDate | DateSpan], moment: float, zone: tzinfo = UTC) -> float:
    """Return the best fit of a moment among dates; 0 without dates."""
    return max((one.fit(moment, zone) for one in dates), default=0.0) if moment > 0 else 0.0


def _fit(first: date, last: date, when: date) -> float:
    if when < first:
        return 0.0
    late = max((when - last).days, 0)
    return max(0.0, 1 - late / DAYS_AFTER)


# Reading a match


def _dated(match: re.Match[str], today: date) -> list[NamedDate | DateSpan]:
    """Read year, month and day."""
    del today
    parts = match.groupdict()
    name = next((parts[one] for one in parts if one.startswith("month") and parts[one]), None)
    month = None if name is None else _month(name.lower())
    year, day = (int(parts[one]) if parts.get(one) else None for one in ("year", "day"))
    if not 1 <= (month or 1) <= 12 or not 1 <= (day or 1) <= 31:
        return []
    return [NamedDate(year, month, day)]


def _either_order(match: re.Match[str], today: date) -> list[NamedDate | DateSpan]:
    """Read `3/5/2022`, which is a day of May or of March."""
    del today
    one, other, year = int(match[1]), int(match[2]), int(match[3])
    orders = [(one, other), (other, one)]
    return [NamedDate(year, month, day) for month, day in orders if 1 <= month <= 12 and day <= 31]


def _on_day(back: int) -> Callable[[re.Match[str], date], list[NamedDate | DateSpan]]:
    def read(match: re.Match[str], today: date) -> list[NamedDate | DateSpan]:
        del match
        return _days_back(today, back)

    return read


def _on_weekday(match: re.Match[str], today: date) -> list[NamedDate | DateSpan]:
    """Read the newest such weekday before today."""
    for number, form in enumerate(_weekday_forms()):
        if form.fullmatch(match["weekday"].lower()):
            return _days_back(today, (today.weekday() - number - 1) % 7 + 1)
    return []


def _on_unspaced_weekday(match: re.Match[str], today: date) -> list[NamedDate | DateSpan]:
    days = {"zh": "一二三四五六日", "ja": "月火水木金土日", "ko": "월화수목금토일"}
    [(name, day)] = [(name, day) for name, day in match.groupdict().items() if day]
    number = days[name].index(day.replace("天", "日"))
    return _days_back(today, (today.weekday() - number - 1) % 7 + 1)


def _in_unit(
    unit: str, *, last: bool
) -> Callable[[re.Match[str], date], list[NamedDate | DateSpan]]:
    def read(match: re.Match[str], today: date) -> list[NamedDate | DateSpan]:
        del match
        match unit:
            case "week":
                # `last` is a flag: 0 or 1 weeks back.
                monday = today - timedelta(today.weekday() + 7 * last)
                return [DateSpan(monday, monday + timedelta(6))]
            case "month":
                first = today.replace(day=1)
                first = (first - timedelta(1)).replace(day=1) if last else first
                return [NamedDate(first.year, first.month)]
            case "year":
                return [NamedDate(today.year - last)]
            case _:
                return []

    return read


def _ago(
    words: DateWords | None,
) -> Callable[[re.Match[str], date], list[NamedDate | DateSpan]]:
    def read(match: re.Match[str], today: date) -> list[NamedDate | DateSpan]:
        parts = match.groupdict()
        number = _number(parts["n"].lower(), words)
        unit = next(one for one in _UNITS if parts.get(one))
        try:
            if unit == "day":
                return _days_back(today, number)
            if unit == "week":
                # People round: two weeks ago is any day of about that week.
                middle = today - timedelta(7 * number)
                return [DateSpan(middle - timedelta(3), middle + timedelta(3))]
            if unit == "year":
                return [NamedDate(today.year - number)]
            months = today.year * 12 + today.month - 1 - number
            return [NamedDate(months // 12, months % 12 + 1)]
        except (OverflowError, ValueError):
            # Before the first year of the calendar.
            return []

    return read


def _days_back(today: date, days: int) -> list[NamedDate | DateSpan]:
    day = today - timedelta(days)
    return [NamedDate(day.year, day.month, day.day)]


def _number(text: str, words: DateWords | None) -> int:
    if text.isdecimal():
        return int(text)
    if words is None:
        return UNSPACED_NUMBERS[text]
    for value, form in enumerate(_entries(words.numbers), 1):
        if re.fullmatch(form, text):
            return value
    return 1


def _month(name: str) -> int:
    if name.isdecimal():
        return int(name)
    if name in (*_SHORT, "sept"):
        return _SHORT.index(name[:3]) + 1
    return next(
        (number for number, form in enumerate(_month_forms(), 1) if form.fullmatch(name)), 0
    )


def _end_of_month(day: date) -> date:
    return day.replace(day=calendar.monthrange(day.year, day.month)[1])


# The forms


@functools.cache
def _forms() -> tuple[
    tuple[re.Pattern[str], Callable[[re.Match[str], date], list[NamedDate | DateSpan]]], ...
]:
    """Return the forms of dates with their readers, the most exact first."""
    months = "|".join(form.pattern for form in _month_forms())
    month = rf"(?P<month>(?:{months}|sept|{'|'.join(_SHORT)})(?!\w))\.?"
    # A name that stands alone is a month only in English, or behind a preposition.
    names = [*_entries(WORDS["en"].months), *_SHORT, "sept"]
    english = _any(*(name.capitalize() for name in names))
    # Of its own language: "we" is such a preposition in Polish.
    inside = _any(
        *(
            rf"(?:{words.inside}) (?P<month{place}>{_any(*_entries(words.months))})"
            for place, words in enumerate(WORDS.values())
        )
    )
    day = r"(?P<day>\d{1,2})(?:st|nd|rd|th|er|º|\.)?(?!\w)"
    year, of = r"(?P<year>(?:19|20)\d\d)(?!\d)", r"(?: (?:of|de|den|del))?"
    dated = (
        rf"(?<!\d){year}[-/.](?P<month>\d\d?)[-/.](?P<day>\d\d?)(?!\d)",
        rf"(?<![\d.])(?P<day>\d\d?)\.\s?(?P<month>\d\d?)\.\s?{year}",
        rf"{year}\s?[年년]\s?(?P<month>\d\d?)\s?[月월](?:\s?(?P<day>\d\d?)\s?[日号號일])?",
        r"(?<!\d)(?P<month>\d\d?)\s?[月월]\s?(?P<day>\d\d?)\s?[日号號일]",
        rf"(?<!\d){day}{of} {month}(?:,?{of} {year})?",
        rf"(?<!\w){month} {day}(?:,? {year})?",
        rf"(?<!\w){month},?{of} {year}",
    )
    loose = (
        # Capital letters, and not a question's first word: "May I ask …", "they march".
        rf"(?<=\w )(?P<month>(?-i:{english}))(?!\w)",
        rf"(?<!\w)(?:{inside})(?!\w)",
        rf"(?<!\w){year}(?:(?!\w)|(?=\s?[年년]))",
        r"(?<!\d)(?P<month>\d\d?)\s?[月월]",
    )
    compiled = [
        *((form, _dated) for form in dated),
        (r"(?<!\d)(\d\d?)/(\d\d?)/((?:19|20)\d\d)(?!\d)", _either_order),
        *_relative_forms(),
        *((form, _dated) for form in loose),
    ]
    return tuple((re.compile(form, re.IGNORECASE), read) for form, read in compiled)


def _relative_forms() -> Iterator[
    tuple[str, Callable[[re.Match[str], date], list[NamedDate | DateSpan]]]
]:
    for back in (2, 1, 0):
        yield _word(_any(*(words.days[back] for words in WORDS.values()))), _on_day(back)
        yield UNSPACED_DAYS[back], _on_day(back)
    yield UNSPACED_AGO, _ago(None)
    yield UNSPACED_WEEKDAYS, _on_unspaced_weekday
    for words in WORDS.values():
        numbers = _any(*_entries(words.numbers))
        unit = "|".join(
            rf"(?P<{name}>{form})" for name, form in zip(_UNITS, words.units, strict=True)
        )
        for ago in words.ago.split("|{n}"):
            ago = ago if "{n}" in ago else "{n}" + ago
            number = rf"(?P<n>\d{{1,3}}|{numbers})"
            yield _word(ago.replace("{n}", number).replace("{unit}", f"(?:{unit})")), _ago(words)
    yield _word(rf"(?P<weekday>{_any(*(form.pattern for form in _weekday_forms()))})"), _on_weekday
    for place, unit in enumerate(_UNITS):
        if unit == "day":
            continue
        for last in (True, False):
            for words in WORDS.values():
                before = words.last if last else words.this
                after = words.last_after if last else words.this_after
                name = words.units[place]
                orders = ([rf"(?:{before}) (?:{name})"] if before else []) + (
                    [rf"(?:{name}) (?:{after})"] if after else []
                )
                for order in orders:
                    yield _word(order), _in_unit(unit, last=last)
            yield UNSPACED_UNITS[unit][0 if last else 1], _in_unit(unit, last=last)


@functools.cache
def _month_forms() -> tuple[re.Pattern[str], ...]:
    return _by_place(words.months for words in WORDS.values())


@functools.cache
def _weekday_forms() -> tuple[re.Pattern[str], ...]:
    return _by_place(words.weekdays for words in WORDS.values())


def _by_place(lists: Iterator[str]) -> tuple[re.Pattern[str], ...]:
    """Return for each place of the lists the pattern of all languages' words at it."""
    rows = zip(*map(_entries, lists), strict=True)
    return tuple(re.compile(_any(*row)) for row in rows)


def _entries(words: str) -> list[str]:
    """Return the entries of a list; blanks within brackets belong to an entry."""
    return re.findall(r"(?:\([^)]*\)|\S)+", words)


def _any(*forms: str) -> str:
    return "|".join(f"(?:{form})" for form in forms)


def _word(form: str) -> str:
    return rf"(?<!\w)(?:{form})(?!\w)"
