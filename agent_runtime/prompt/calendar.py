"""Dates and times as models read them: in the user's time zone. Stored times are in UTC."""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from functools import partial
from zoneinfo import ZoneInfo

from agent_runtime.errors import ConfigError
from agent_runtime.prompt.observation import Observation, ObservationNotes

clock = time.time
"""Returns the seconds since the epoch."""

# In English whatever the locale, and the same in every process.
_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MINUTE = "%Y-%m-%d %H:%M"
_DAY = re.compile(r"\b\d{4}-\d{2}-\d{2}\b")


@dataclass(frozen=True, slots=True)
class Today:
    """What prompts say of the time.

    Attributes:
        day: the day on which an activation was made, in the zone; None if it says nothing of it.
        zone: the IANA name of the zone of the times that prompts show.
        began: the day of the thread's first activation, which the system prompt names: it stays
            the same, so that the provider's cache holds.
    """

    day: date | None = None
    zone: str = "UTC"
    began: date | None = None

    @classmethod
    def now(cls, zone: str, began: date | None = None) -> Today:
        """Return the present day in a zone."""
        return cls(datetime.fromtimestamp(clock(), zone_of(zone)).date(), zone, began)

    @classmethod
    def first(cls, zone: str) -> Today:
        """Return the present day as that on which a thread begins."""
        now = cls.now(zone)
        return replace(now, began=now.day)


def day_note(now: Today, named: Today, notes: Iterable[str]) -> str:
    """Return a note that the day has changed, or an empty text.

    Args:
        named: what the activation says.
        notes: the notes of the day since then, oldest first.
    """
    newest = named.day
    for note in notes:
        if match := _DAY.search(note):
            newest = _day(match[0]) or newest
    if now.day is None or now.day == newest:
        return ""
    return f"It is {named_day(now.day)} now, in {now.zone}."


def began_text(today: Today) -> str:
    """Return what the system prompt says of the day; empty if the thread's first is not known."""
    if today.began is None:
        return ""
    began, zone = named_day(today.began), checked_zone(today.zone)
    return f"It was {began}, in {zone}, when this began; a note tells when the day changes."


def today_text(today: Today) -> str:
    """Return what a state note says of the day; empty if the system prompt says enough."""
    if today.day is None or today.day == today.began:
        return ""
    return f"Today is {named_day(today.day)}, in {checked_zone(today.zone)}."


def named_day(day: date) -> str:
    """Return a day as `Saturday, 2026-11-21`."""
    return f"{_WEEKDAYS[day.weekday()]}, {day.isoformat()}"


def checked_zone(zone: str) -> str:
    """Return the name of a zone; a prompt may come from an imported file.

    Raises:
        ConfigError: no zone has this name.
    """
    zone_of(zone)
    return zone


@functools.lru_cache(maxsize=64)
def zone_of(name: str) -> ZoneInfo:
    """Return the zone of an IANA name.

    Raises:
        ConfigError: no zone of this machine has this name.
    """
    try:
        return ZoneInfo(name)
    # A name that is a folder, or leads out of the database.
    except (KeyError, ValueError, OSError):
        raise ConfigError(
            f"This machine knows no time zone {name[:60]!r}.",
            cure="Set AGENT_RUNTIME_TIMEZONE to an IANA name such as Europe/Berlin; where the "
            "system has no database of zones, pip install tzdata.",
        ) from None


def local_time(at: str, zone: str) -> str:
    """Return a time such as `2026-11-21 14:05` in a zone; a day alone stays as it is."""
    return _converted(at, lambda when: when.replace(tzinfo=UTC).astimezone(zone_of(zone)), zone)


def named_time(at: str, zone: str) -> str:
    """Return a time such as `2026-11-21 14:05` in a zone, with its name."""
    return f"{local_time(at, zone)} {checked_zone(zone)}" if at else "time unknown"


def utc_time(at: str, zone: str, known: Container[str] = ()) -> str:
    """Return a zone's time such as `2026-11-21 14:05` in UTC; a day alone stays as it is.

    Args:
        known: times in UTC; one of them is meant where a time occurs twice, as in autumn.
    """

    def convert(when: datetime, fold: int) -> datetime:
        return when.replace(tzinfo=zone_of(zone), fold=fold).astimezone(UTC)

    # When clocks go back an hour occurs twice, and only the known times can say which one is
    # meant.
    first, second = (_converted(at, partial(convert, fold=fold), zone) for fold in (0, 1))
    return second if first not in known and second in known else first


def notes_in_zone(notes: ObservationNotes, zone: str) -> ObservationNotes:
    """Return notes with their times in a zone."""
    return _with_times(notes, zone, local_time)


def notes_in_utc(notes: ObservationNotes, zone: str, known: Iterable[str] = ()) -> ObservationNotes:
    """Return notes of a zone's times with their times in UTC; see `utc_time`."""
    return _with_times(notes, zone, partial(utc_time, known=frozenset(known)))


def observation_in_zone(observation: Observation, zone: str) -> Observation:
    """Return an observation with its times in a zone."""
    notes = notes_in_zone(observation.notes, zone)
    if (archive := observation.archive) and archive.since and zone != "UTC":
        stored, shown = (
            f"{convert(archive.since)} to {convert(archive.until)}"
            for convert in (str, partial(local_time, zone=zone))
        )
        # The line that points to it has no time of its own.
        lines = (
            line if line.at else replace(line, text=line.text.replace(stored, shown))
            for line in notes.lines
        )
        notes = replace(notes, lines=tuple(lines))
    return observation if notes is observation.notes else replace(observation, notes=notes)


def _with_times(
    notes: ObservationNotes, zone: str, convert: Callable[[str, str], str]
) -> ObservationNotes:
    if zone == "UTC":
        return notes
    lines = tuple(replace(line, at=convert(line.at, zone)) for line in notes.lines)
    return replace(notes, lines=lines)


def _converted(at: str, convert: Callable[[datetime], datetime], zone: str) -> str:
    if zone == "UTC" or " " not in at:
        return at
    try:
        return convert(datetime.strptime(at, _MINUTE)).strftime(_MINUTE)
    # The first and the last day of the calendar have no time in some zones.
    except (ValueError, OverflowError):
        return at


def _day(text: str) -> date | None:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None
