"""The format in which a model writes notes, and a tolerant parser for it.

    2026-11-21 14:05 | critical | The user wants the report in French.
    TASK: write the report
    NEXT: translate the summary

Weak models add bullets, code fences, brackets, headings or a table, use other words for priorities
or another language, greet and sign off, write JSON, or omit the time.  All of that is understood;
prose is not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from agent_runtime.errors import ConfigError
from agent_runtime.memory.observational.language.note_times import plain_of, read_time
from agent_runtime.memory.observational.language.note_words import (
    is_word,
    priority_of,
    says_nothing,
)
from agent_runtime.memory.observational.observer.json_notes import without_json
from agent_runtime.messages import encodable
from agent_runtime.prompt.calendar import local_time, utc_time
from agent_runtime.prompt.observation import ObservationLine, ObservationNotes, Priority

NOTHING = "NOTHING TO OBSERVE"
"""What a model writes if there is nothing to observe."""
LONGEST_LINE = 800
"""Characters above which a line is split."""

_OPEN, _CLOSE = r"[\[(<*_`\s]*", r"[\])>*_`]*\s*"
_SEPARATOR = r"(?:[|:;,]|[-–—・](?=\s))?\s*"
_THOUGHT = re.compile(r"\s*<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)", re.DOTALL | re.IGNORECASE)
# Code fences, tags, rules and the header of a table, which many models put around notes.
_SKIPPED = re.compile(
    r"\s*(?:`{3,}\s*\w*|~{3,}\s*\w*|</?[A-Za-z][\w-]*>|[-=*_|:\s]+"
    r"|\|?\s*(?:date|time|when)\b[^|]*\|\s*priority\s*\|.*)\s*",
    re.IGNORECASE,
)
_ORDINAL = re.compile(r"\s*\d{1,2}\. ")
_SAYING = re.compile(r"[^\W_]")
_OPENING = re.compile(_OPEN)
# A symbol without a meaning may stand before a priority.
_SYMBOLS = re.compile(r"[\[(<*_`\s\u2600-\u27bf\u2b00-\u2bff\ufe0f\U0001f300-\U0001faff]*")
_CLOSING = re.compile(_CLOSE + _SEPARATOR)
_BULLET = re.compile(r"\s*(?:(?:[-*•·◦▪‣]|>(?=\s*[-*\d\[|])|\d{1,3}[.)]|#{1,6})\s+)*")
_HEADING = re.compile(r"[\[(*_`\s]*(?:(?:date|day)\s*:\s*)?(.{6,40}?)[\])*_`\s:]*", re.IGNORECASE)
_SIGN = re.compile(rf"{_OPEN}(?P<word>!!?|\+|[🔴🟡🟠🟢✅✔])\ufe0f?{_CLOSE}{_SEPARATOR}")
# An IANA name behind a time, or whatever else says which time it is, before a bar.
_ZONE = re.compile(r"\s*[(\[]?(?P<name>[A-Z][A-Za-z]+(?:/[A-Z][\w+-]*){1,2})(?![\w/])[)\]]?")
_AFTER_TIME = re.compile(r"[^|\d]{1,30}\|\s*")
_NAMED = re.compile(r"priority\s*[:=]\s*", re.IGNORECASE)
# A field ends here; within a field, words are joined by slashes or spaces.
_FIELD_END = re.compile(rf"\s*(?:[\])>*_`]+\s*{_SEPARATOR}|[|:;,\t]\s*|[-–—・]\s+)")
_LABEL = re.compile(
    r"[*_`\s]*(?:the\s+)?(?P<label>[^:|*`]{1,40}?)[*_`\s]*:[*_`]*\s*", re.IGNORECASE
)
_LONGEST_FIELD = 60
_SIGN_OFF = re.compile(r"[^\d`|/\\]{4,100}[.!?…。！？؟।]\W{0,3}")
_ENDED = (".", "!", "?", "…", "。", "！", "？", "।", ")", "）", '"')
_NONE = re.compile(
    r"(?:none|nothing|n/?a|unknown|-+|–|—|null|not applicable)?[.\s]*", re.IGNORECASE
)
_VERDICT = re.compile(
    r"nothing(?:\s+(?:new\s+|else\s+)?(?:worth\s+\w+|of\s+note|noteworthy|(?:worth\s+)?to\s+(?:be\s+)?\w+))?"
    r"(?:\s+(?:here|so far|yet|this time))?",
    re.IGNORECASE,
)
# Marks of direction and spaces without width, which hide the form of a line.
_INVISIBLE = re.compile("[\u200b\u200e\u200f\u202a-\u202e\u2060\u2066-\u2069\ufeff]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")


@dataclass(slots=True)
class ParsedNotes:
    """A model's answer, read line by line.

    Attributes:
        nothing: whether a line says that there is nothing to observe.
        proper: lines with a time or a priority.
        loose: bullets with neither, which are taken for information.
        joined: lines that continue the line before.
        stray: lines that are not notes, which are dropped.
        day: the newest day that a heading or a line named.
        last: the texts of `task` and `next`.
        open: what a line without a form continues: a `line`, the `task` or the `next` step.
        zone: of times that name none.
    """

    nothing: bool = False
    proper: int = 0
    loose: int = 0
    joined: int = 0
    stray: int = 0
    day: str = ""
    lines: list[ObservationLine] = field(default_factory=list[ObservationLine])
    last: dict[str, str] = field(default_factory=dict[str, str])
    open: str = ""
    zone: str = "UTC"

    @property
    def notes(self) -> ObservationNotes:
        """What was understood of the answer."""
        lines = tuple(part for line in self.lines for part in _split(line))
        task, following = (_value(self.last.get(name, "")) for name in ("task", "next"))
        return ObservationNotes(lines, task, following)


def format_notes(notes: ObservationNotes) -> str:
    """Format notes as a model should write them."""
    shown = [f"{line.at or 'unknown'} | {line.priority} | {line.text}" for line in notes.lines]
    if notes.task:
        shown.append(f"TASK: {notes.task}")
    if notes.next_step:
        shown.append(f"NEXT: {notes.next_step}")
    return "\n".join(shown)


def parse_notes(text: str, zone: str = "UTC") -> ParsedNotes:
    """Parse a model's answer as far as it has the form of notes.

    Args:
        zone: of times that name none; the others are converted to it.
    """
    parsed = ParsedNotes(zone=zone)
    text = _INVISIBLE.sub("", text)
    thought = _THOUGHT.match(text)
    lines = without_json(text[thought.end() if thought else 0 :].rstrip()).splitlines()
    for place, raw in enumerate(lines):
        if place + 1 == len(lines) and _signs_off(parsed, raw):
            parsed.stray += 1
        else:
            _read(parsed, raw)
    return parsed


def _signs_off(parsed: ParsedNotes, raw: str) -> bool:
    """Return whether the last line is a phrase behind the notes, in any language."""
    if parsed.open != "line" or raw[:1].isspace() or (bullet := _BULLET.match(raw)) is None:
        return False
    before = parsed.lines[-1].text
    whole = bullet.end() == 0 and _SIGN_OFF.fullmatch(raw) and before.endswith(_ENDED)
    return bool(whole) and _line(raw, parsed) is None and _label(raw) is None


def _label(body: str) -> tuple[str, int] | None:
    """Return `task` or `next`, and where its text begins, if a line begins with that."""
    match = _LABEL.match(plain_of(body[:100]))
    if match is None:
        return None
    if is_word(match["label"], "task"):
        return "task", match.end()
    return ("next", match.end()) if is_word(match["label"], "next") else None


def _read(parsed: ParsedNotes, raw: str) -> None:
    if not raw.strip():
        # An empty line ends what could be continued, except a task whose text has yet to begin.
        if not (parsed.open in parsed.last and not parsed.last[parsed.open]):
            parsed.open = ""
        return
    # Bounded: the pattern backtracks, and nothing to skip is longer.
    if len(raw) < 200 and _SKIPPED.fullmatch(raw):
        return
    if parsed.open != "line" and not _SAYING.search(raw):
        parsed.stray += 1
        return
    # "21. November" begins a date, no list.
    dated = _ORDINAL.match(raw) and read_time(plain_of(raw.strip()), "")
    start = None if dated and dated.day else _BULLET.match(raw)
    bullet = raw[: start.end()].strip() if start else ""
    body = raw[start.end() :].rstrip() if start else raw.strip()
    plain = body.strip(" *_`.\"'")
    if (len(plain) < 40 and _VERDICT.fullmatch(plain)) or says_nothing(plain):
        parsed.nothing, parsed.open = True, ""
    elif label := _label(body):
        parsed.open = label[0]
        parsed.last[parsed.open] = _clean(body[label[1] :])
    elif day := _heading(plain):
        parsed.day, parsed.open = day, ""
    elif line := _line(body, parsed):
        parsed.lines.append(line)
        # A line with only a clock time is of the day that was named last.
        parsed.day = line.at[:10] or parsed.day
        parsed.proper, parsed.open = parsed.proper + 1, "line"
    elif parsed.open in parsed.last:
        parsed.last[parsed.open] = f"{parsed.last[parsed.open]} {_clean(body)}".strip()
    # An indented bullet is a detail of the line before; one at the margin is a new note.
    elif parsed.open == "line" and (not bullet or raw[0].isspace()):
        before = parsed.lines[-1]
        parsed.lines[-1] = ObservationLine(
            before.at, before.priority, f"{before.text} {_clean(body)}"
        )
        parsed.joined += 1
    elif bullet and not bullet.endswith("#") and _clean(body):
        parsed.lines.append(ObservationLine("", "info", _clean(body)))
        parsed.loose, parsed.open = parsed.loose + 1, "line"
    else:
        parsed.stray += 1


def _line(body: str, parsed: ParsedNotes) -> ObservationLine | None:
    """Parse a line that begins with a time or a priority; None if it begins with neither."""
    plain = plain_of(body)
    at, timed, sign = "", False, False
    priority: Priority | None = None
    place = len(plain) - len(plain.lstrip("| "))
    # A time, a sign and a word, in any order.
    for _ in range(3):
        if not timed and (when := _timed(plain, place, parsed)):
            at, place, timed = *when, True
        if priority is None and (match := _SIGN.match(plain, place)):
            priority, sign, place = priority_of(match["word"]), True, match.end()
        if (priority is None or sign) and (named := _priority(plain, place)):
            # A sign is often followed by the same priority in words.
            (priority, place), sign = named, False
    text = body[place:]
    # A row of a table is closed by a bar.
    text = _clean(text.rstrip().removesuffix("|") if body.startswith("|") else text)
    if not text or not (timed or priority):
        return None
    return ObservationLine(at, priority or "info", text)


def _timed(plain: str, place: int, parsed: ParsedNotes) -> tuple[str, int] | None:
    """Return the time at a place, or an empty one if it is said to be unknown, and its end."""
    start = _OPENING.match(plain, place)
    begin = start.end() if start else place
    if when := read_time(plain[begin : begin + 200], parsed.day):
        place = begin + when.end
        at = local_time(when.at, parsed.zone) if when.utc else when.at
        if when.clock and (named := _ZONE.match(plain, place)):
            if not when.utc:
                at = _from_zone(at, named["name"], parsed.zone)
            place = named.end()
        end = _CLOSING.match(plain, place)
        place = end.end() if end else place
        after = _AFTER_TIME.match(plain, place) if end and "|" not in end[0] else None
        # As in "14:05 local time | critical | ...".
        if after and not _priority(plain, place) and _priority(plain, after.end()):
            place = after.end()
        return at, place
    end = _FIELD_END.search(plain, begin, begin + _LONGEST_FIELD)
    if end is None or not (end.start() > begin):
        return None
    word = plain[begin : end.start()].strip()
    unknown = _NONE.fullmatch(word) or is_word(word, "unknown_time")
    if not unknown and "|" in end[0] and not any(map(str.isdigit, word)):
        # Whatever stands before a priority between bars is its time.
        named = _priority(plain, end.end())
        unknown = named is not None and "|" in plain[end.end() : named[1]] and not priority_of(word)
    return ("", end.end()) if unknown and end[0].strip() not in ("", ",") else None


def _from_zone(at: str, name: str, zone: str) -> str:
    """Return a time of a named zone in another one; as it is if no zone has the name."""
    if name == zone:
        return at
    try:
        return local_time(utc_time(at, name), zone)
    except ConfigError:
        return at


def _priority(plain: str, place: int) -> tuple[Priority, int] | None:
    """Return the priority that a field at a place names, and where the field ends."""
    start = _SYMBOLS.match(plain, place)
    begin = start.end() if start else place
    if named := _NAMED.match(plain, begin):
        begin = named.end()
    end = _FIELD_END.search(plain, begin, begin + _LONGEST_FIELD)
    if end is None or not (priority := priority_of(plain[begin : end.start()])):
        return None
    return priority, end.end()


def _heading(plain: str) -> str:
    """Return the day if the line names nothing else; else an empty text."""
    match = _HEADING.fullmatch(plain_of(plain)) if len(plain) < 60 else None
    when = read_time(match[1], "") if match else None
    if match is None or when is None or when.clock or when.end < len(match[1].rstrip(" .:")):
        return ""
    return when.at


def _value(text: str) -> str:
    text = _clean(text)
    return "" if _NONE.fullmatch(text) else text[:LONGEST_LINE]


def _clean(text: str) -> str:
    return _CONTROL.sub(" ", encodable(text)).strip()


def _split(line: ObservationLine) -> Iterator[ObservationLine]:
    """Split a line that is too long."""
    text = line.text
    while len(text) > LONGEST_LINE:
        end = text.rfind(". ", LONGEST_LINE // 2, LONGEST_LINE) + 1
        end = end or text.rfind(" ", LONGEST_LINE // 2, LONGEST_LINE)
        # A text without spaces, such as Chinese or a long path, is split anywhere.
        end = end if end > 0 else LONGEST_LINE
        yield ObservationLine(line.at, line.priority, text[:end].strip())
        text = text[end:].strip()
    if text:
        yield ObservationLine(line.at, line.priority, text)
