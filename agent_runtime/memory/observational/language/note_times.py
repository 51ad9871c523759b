"""The time at the beginning of a line of notes, in the ways of many languages.

A time with an offset or a named zone is converted to UTC, one without stays as it is, and a range
means its beginning.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from agent_runtime.memory.observational.language.note_words import month_of, words_of

# Each counterpart has one character, so that places in both texts are the same.
_PLAIN = str.maketrans(
    {
        **{chr(0xFF01 + place): chr(0x21 + place) for place in range(94)},
        **{chr(0x660 + place): str(place) for place in range(10)},
        **{chr(0x6F0 + place): str(place) for place in range(10)},
        **{chr(0x966 + place): str(place) for place in range(10)},
        "\u3000": " ",
        "\u00a0": " ",
        "\u202f": " ",
        "【": "[",
        "】": "]",
        "「": "[",
        "」": "]",
        "،": ",",
        "、": ",",
        "〜": "~",
        "│": "|",
        "٫": ".",
        "İ": "I",
    }
)
# Minutes east of UTC; of names in use in several places, the commonest.
_ZONES = {
    **dict.fromkeys(("utc", "gmt", "z", "wet"), 0),
    **dict.fromkeys(("cet", "mez", "bst", "west"), 60),
    **dict.fromkeys(("cest", "mesz", "eet", "sast"), 120),
    **dict.fromkeys(("eest", "msk", "мск", "trt", "ast riyadh"), 180),
    "gst": 240,
    "pkt": 300,
    "ist": 330,
    **dict.fromkeys(("ict", "wib"), 420),
    **dict.fromkeys(("hkt", "sgt", "awst"), 480),
    **dict.fromkeys(("jst", "kst"), 540),
    "aest": 600,
    "aedt": 660,
    "nzst": 720,
    "nzdt": 780,
    **dict.fromkeys(("brt", "art", "adt"), -180),
    "ast": -240,
    **dict.fromkeys(("est", "cdt"), -300),
    "edt": -240,
    **dict.fromkeys(("cst", "mdt"), -360),
    **dict.fromkeys(("mst", "pdt"), -420),
    "pst": -480,
    "akst": -540,
    "hst": -600,
}
_DATES = (
    re.compile(r"(?P<y>\d{4})[-/.](?P<m>\d{1,2})[-/.](?P<d>\d{1,2})(?!\d)"),
    re.compile(r"(?P<y>\d{4}) ?[年년] ?(?P<m>\d{1,2}) ?[月월] ?(?P<d>\d{1,2}) ?[日일号]?"),
    re.compile(r"(?P<d>\d{1,2})[-/.](?P<m>\d{1,2})[-/.](?P<y>\d{4})(?!\d)"),
    re.compile(
        r"(?P<d>\d{1,2})(?:\.|st|nd|rd|th|er|º|ª|-го)? (?:de |d')?"
        r"(?P<name>[^\W\d_][^\s\d,]{1,14}?)\.?"
        r",? (?:de |del )?(?P<y>\d{4})(?: ?[гr](?!\w)\.?)?(?!\d)"
    ),
    re.compile(
        r"(?P<name>[^\W\d_][^\s\d]{1,14}?)\.? "
        r"(?P<d>\d{1,2})(?:st|nd|rd|th)?,? (?P<y>\d{4})(?!\d)"
    ),
)
_APART = re.compile(r"[*_`\s]*(?:[|\])–—・~:;\[(*]|-\s|$)")
_WEEKDAY = re.compile(r"[^\W\d_]{2,12}\.?, ")


@dataclass(frozen=True, slots=True)
class NoteTime:
    """A time that was read.

    Attributes:
        at: as `2026-11-21 14:05`, only its day, or empty.
        day: the day as it was written, to which later lines of the same day refer.
        end: how many characters it takes.
        clock: whether it has a time of day.
        utc: whether it named an offset or a zone, and was converted.
    """

    at: str
    day: str
    end: int
    clock: bool
    utc: bool = False


def plain_of(text: str) -> str:
    """Return a text of the same length with ASCII digits and punctuation."""
    return text.translate(_PLAIN)


def read_time(plain: str, day: str) -> NoteTime | None:
    """Read the time at the beginning of a line; None if there is none.

    Args:
        plain: the line, as `plain_of` returns it.
        day: what a time without a date belongs to.
    """
    # A time is never longer, and the patterns backtrack.
    lower = plain[:120].lower()
    start = match.end() if (match := _WEEKDAY.match(lower)) else 0
    found, end = _date(lower, start)
    if not end and start:
        start = 0
        found, end = _date(lower, 0)
    clock = _clock().match(lower, end)
    # A time alone may be a number of the text: it needs a separator behind it.
    if not end and (clock is None or not _is_apart(lower, clock)):
        return None
    if clock is None or not (moment := _moment(clock, found or day)):
        at = found or ("" if end else day)
        return NoteTime(at, at, clock.end() if clock else end, False)
    utc = bool(clock["zone"] or clock["offset"])
    return NoteTime(moment, found or day, clock.end(), True, utc)


def _is_apart(lower: str, clock: re.Match[str]) -> bool:
    # `10.25` may be a price.
    return ":" in clock["time"] or bool(_APART.match(lower, clock.end()))


def _date(lower: str, start: int) -> tuple[str, int]:
    for form in _DATES:
        if match := form.match(lower, start):
            parts = match.groupdict()
            name = parts.get("name")
            month = month_of(name) if name else int(parts["m"])
            days = int(parts["d"])
            # Month and day are swapped, as Americans write dates.
            if month and month > 12 >= days:
                month, days = days, month
            if month is None:
                continue
            try:
                return date(int(parts["y"]), month, days).isoformat(), match.end()
            except ValueError:
                return "", match.end()
    return "", 0


@functools.cache
def _clock() -> re.Pattern[str]:
    before, after = words_of("morning"), words_of("afternoon")
    around = words_of("clock")
    zone = "|".join(map(re.escape, sorted(_ZONES, key=len, reverse=True)))
    hour = r"(?: ?(?:uhr|uur|h|heures?|horas|ore|час\w*|ч|시|时|時|点|點|बजे)(?!\w))"
    time = (
        r"\d{1,2}(?: ?(?:[:.h]|시|时|時|点|點|час\w*) ?(?:\d{2}|\d(?= ?[分분]))(?: ?[分분])?"
        r"(?::\d{2}(?:[.,]\d+)?)?"
        rf"|(?= ?[ap]\.? ?m\b)|(?={hour}))"
    )
    return re.compile(
        rf"(?:t|,?\s*)(?:(?:{around})\s*)?(?:(?P<am>{before})|(?P<pm>{after}))?\s*"
        rf"(?P<time>{time})(?!\d)(?:{hour}|\s*hrs(?!\w))?"
        rf"(?:\s*(?:(?P<am2>a\.? ?m\.?|{before})|(?P<pm2>p\.? ?m\.?|{after}))(?!\w))?"
        rf"(?:(?:[-–—~]|\s+(?:[-–—~]|to|bis|à|a|до)\s+){time}(?!\d)(?:\s*(?:uhr|uur|h)(?!\w))?)?"
        rf"\s*[(\[]?\s*(?:(?:(?P<zone>{zone})(?!\w))?\s*(?P<offset>[+\u2212-]\d{{1,2}}(?::?\d{{2}})?)?(?![\w]))?"
        r"\s*[)\]]?(?![\w/])"
    )


def _moment(clock: re.Match[str], day: str) -> str:
    """Return a moment, in UTC if it names its zone; empty if it is none."""
    hours, minutes = (int(part) for part in [*re.findall(r"\d+", clock["time"]), "0"][:2])
    if clock["pm"] or clock["pm2"]:
        hours = hours % 12 + 12 if hours <= 12 else hours
    elif (clock["am"] or clock["am2"]) and hours == 12:
        hours = 0
    if hours > 23 or minutes > 59 or not day:
        return ""
    east = _ZONES.get(clock["zone"] or "", 0)
    if offset := clock["offset"]:
        digits = re.sub(r"\D", "", offset)
        whole, part = (digits[:-2], digits[-2:]) if len(digits) > 2 else (digits, "0")
        east = (int(whole) * 60 + int(part)) * (1 if offset[0] == "+" else -1)
    try:
        moment = datetime.fromisoformat(day) + timedelta(hours=hours, minutes=minutes - east)
    except (ValueError, OverflowError):
        return day
    return f"{moment.year:04}-{moment.month:02}-{moment.day:02} {moment.hour:02}:{moment.minute:02}"
