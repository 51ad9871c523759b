"""The format in which a model writes notes, and a tolerant parser for it.

    2026-11-21 14:05 | critical | The user wants the report in French.
    TASK: write the report
    NEXT: translate the summary

Weak models add bullets, code fences, brackets, headings or a table, use other words for priorities,
or omit the time.  All of that is understood; prose is not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date, datetime

from agent_runtime.messages import encodable
from agent_runtime.prompt.observation import ObservationLine, ObservationNotes, Priority

NOTHING = "NOTHING TO OBSERVE"
"""What a model writes if there is nothing to observe."""
LONGEST_LINE = 800
"""Characters above which a line is split."""

_SPELLINGS: dict[Priority, str] = {
    "critical": "critical crit high highest urgent blocker must p0 🔴 !!",
    "important": "important medium med moderate notable warning p1 🟡 🟠 !",
    "info": "info information low minor normal note fyi p2 p3 🟢",
    "done": "done completed complete finished resolved ✅ ✔ +",
}
_WORDS: dict[str, Priority] = {
    word: priority for priority, words in _SPELLINGS.items() for word in words.split()
}
_MONTHS = ("%B %d %Y", "%b %d %Y", "%d %B %Y", "%d %b %Y")

_OPEN, _CLOSE = r"[\[(<*_`\s]*", r"[\])>*_`]*\s*"
_SEPARATOR = r"(?:[|:;,]|[-–—](?=\s))?\s*"
_THOUGHT = re.compile(r"\s*<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)", re.DOTALL | re.IGNORECASE)
# Code fences, tags, rules and the header of a table, which many models put around notes.
_SKIPPED = re.compile(
    r"\s*(?:`{3,}\s*\w*|~{3,}\s*\w*|</?[A-Za-z][\w-]*>|[-=*_|:\s]+"
    r"|\|?\s*(?:date|time|when)\b[^|]*\|\s*priority\s*\|.*)\s*",
    re.IGNORECASE,
)
_BULLET = re.compile(r"\s*(?:(?:[-*•·◦▪‣]|\d{1,3}[.)]|#{1,6})\s+)*")
_DAY = r"(?P<date>\d{4}[-/.]\d{1,2}[-/.]\d{1,2})"
_CLOCK = r"\d{1,2}:\d{2}"
_REST = (
    r"(?::\d{2}(?:[.,]\d+)?)?(?:\s*(?P<half>[AaPp])\.?[Mm]\b\.?)?(?:\s*(?:Z|UTC|GMT|\+00:?00)\b)?"
)
_WHEN = re.compile(
    rf"{_OPEN}(?:{_DAY}(?:(?:T|,?\s+)(?P<time>{_CLOCK}))?|(?P<only>{_CLOCK})){_REST}(?![\w/])"
    rf"{_CLOSE}{_SEPARATOR}"
)
_HEADING = re.compile(r"(?:(?:date|day)\s*:\s*)?(?P<day>[\w\s,./-]{6,30}?)\s*:?", re.IGNORECASE)
_PRIORITY = re.compile(
    rf"(?:priority\s*[:=]\s*)?(?P<open>{_OPEN})(?P<word>!!?|\+|[^\W\d_]{{3,11}}|p[0-3]|[🔴🟡🟠🟢✅✔])\ufe0f?"
    rf"(?P<close>{_CLOSE})(?P<separator>{_SEPARATOR})",
    re.IGNORECASE,
)
_LAST = re.compile(
    r"[*_`\s]*(?:the\s+)?(?:(?P<task>(?:current[\s_-]+|primary[\s_-]+|open[\s_-]+)?tasks?)"
    r"|(?P<next>(?:suggested[\s_-]+)?next(?:[\s_-]+(?:steps?|actions?|response))?))"
    r"[*_`\s]*:[*_`]*\s*(?P<text>.*)",
    re.IGNORECASE | re.DOTALL,
)
_NONE = re.compile(
    r"(?:none|nothing|n/?a|unknown|-+|–|—|null|not applicable)?[.\s]*", re.IGNORECASE
)
_VERDICT = re.compile(
    r"nothing(?:\s+(?:new\s+)?(?:worth\s+)?to\s+(?:be\s+)?observed?)?", re.IGNORECASE
)
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


def parse_notes(text: str) -> ParsedNotes:
    """Parse a model's answer as far as it has the form of notes."""
    parsed = ParsedNotes()
    thought = _THOUGHT.match(text)
    for raw in text[thought.end() if thought else 0 :].splitlines():
        _read(parsed, raw)
    return parsed


def _read(parsed: ParsedNotes, raw: str) -> None:
    if not raw.strip():
        # An empty line ends what could be continued, except a task whose text has yet to begin.
        if not (parsed.open in parsed.last and not parsed.last[parsed.open]):
            parsed.open = ""
        return
    # Bounded: the pattern backtracks, and nothing to skip is longer.
    if len(raw) < 200 and _SKIPPED.fullmatch(raw):
        return
    start = _BULLET.match(raw)
    bullet = raw[: start.end()].strip() if start else ""
    body = raw[start.end() :].rstrip() if start else raw.strip()
    plain = body.strip(" *_`.\"'")
    if len(plain) < 40 and _VERDICT.fullmatch(plain):
        parsed.nothing, parsed.open = True, ""
    elif match := _LAST.fullmatch(body):
        parsed.open = "task" if match["task"] else "next"
        parsed.last[parsed.open] = _clean(match["text"])
    elif day := _heading(plain):
        parsed.day, parsed.open = day, ""
    elif line := _line(body, parsed.day):
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


def _line(body: str, day: str) -> ObservationLine | None:
    """Parse a line that begins with a time or a priority; None if it begins with neither."""
    fields = body.strip("|" if body.startswith("|") else "").split("|", 2)
    if len(fields) == 3:
        # Weak models swap the two fields.
        for first, second in ((0, 1), (1, 0)):
            priority = _WORDS.get(fields[second].strip(" *_`[]()").lower())
            when = _WHEN.fullmatch(fields[first].strip())
            if priority and (when or _NONE.fullmatch(fields[first].strip())):
                at = _time(when, day) if when else ""
                text = _clean(fields[2])
                return ObservationLine(at, priority, text) if text else None
    at, rest, timed = "", body.lstrip("| "), False
    priority: Priority | None = None
    sign = False
    # A time, a sign and a word, in any order.
    for _ in range(3):
        if not timed and (when := _WHEN.match(rest)):
            at, rest, timed = _time(when, day), rest[when.end() :], True
        if (priority is None or sign) and (match := _PRIORITY.match(rest)) and _marks(match):
            # A sign is often followed by the same priority in words.
            priority, sign = _WORDS[match["word"].lower()], not match["word"].isalnum()
            rest = rest[match.end() :]
    text = _clean(rest)
    if not text or not (timed or priority):
        return None
    return ObservationLine(at, priority or "info", text)


def _marks(match: re.Match[str]) -> bool:
    """Return whether a word is a priority: a known one, set apart from what follows."""
    word = match["word"]
    if word.lower() not in _WORDS:
        return False
    apart = match["separator"].strip() or set(match["open"] + match["close"]) & set("[(<*_`")
    return bool(apart) or not word.isalnum()


def _heading(plain: str) -> str:
    """Return the day if the line names nothing else; else an empty text."""
    match = _HEADING.fullmatch(plain) if len(plain) < 40 else None
    if match is None:
        return ""
    day = match["day"].strip()
    if re.fullmatch(_DAY, day):
        return _date(day)
    for form in _MONTHS:
        try:
            return (
                datetime.strptime(" ".join(day.replace(",", " ").split()), form).date().isoformat()
            )
        except ValueError:
            continue
    return ""


def _time(when: re.Match[str], day: str) -> str:
    """Return a time as `2026-11-21 14:05`, or only its day; empty if it is neither."""
    day = _date(when["date"]) if when["date"] else day
    clock = when["time"] or when["only"]
    if not day or not clock:
        return day
    hours, minutes = (int(part) for part in clock.split(":"))
    if half := (when["half"] or "").lower():
        hours = hours % 12 + (12 if half == "p" else 0)
    return f"{day} {hours:02}:{minutes:02}" if hours < 24 and minutes < 60 else day


def _date(text: str) -> str:
    try:
        return date(*(int(part) for part in re.split(r"[-/.]", text))).isoformat()
    except ValueError:
        return ""


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
        end = end if end > 0 else LONGEST_LINE
        yield ObservationLine(line.at, line.priority, text[:end].strip())
        text = text[end:].strip()
    if text:
        yield ObservationLine(line.at, line.priority, text)
