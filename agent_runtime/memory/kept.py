"""What a reflection may not lose: critical lines and open tasks, checked without a model.

A line is kept if its identifiers, numbers and quoted words all occur, and some line has most of its
words and each that turns its meaning (not, never, only, must).  A line that was put in other words
entirely is taken for lost; that costs a few tokens, never a fact.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from .ledger import identifiers
from .observation import Line, Notes, Observation
from .rules import one_line, shorten

OVERLAP = 0.5
"""What share of a line's words has to occur in the line that stands for it."""
TASK_CHARS = 300
"""How much of an earlier task is kept."""

_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
_QUOTED = re.compile(
    r"`([^`]{1,200})`|\"([^\"]{1,200})\"|“([^”]{1,200})”|(?<!\w)'([^']{2,200})'(?!\w)"
)
_WORD = re.compile(r"[^\W_]+")
_TURNING = frozenset(
    ("not", "never", "no", "only", "must", "always", "without", "unless", "except", "don", "cannot")
)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}(?: \d{2}:\d{2})?")


def substance(text: str) -> frozenset[str]:
    """Return what of a line has to be kept as it is written: identifiers, numbers, quoted words."""
    quoted = (part for match in _QUOTED.finditer(text) for part in match.groups() if part)
    return frozenset((*identifiers(text), *_NUMBER.findall(text), *map(str.strip, quoted))) - {""}


def critical_lines(parts: Sequence[Observation]) -> list[Line]:
    """Return the critical lines of observations, in order, the same words once: the newest."""
    newest = {
        " ".join(line.text.split()): line
        for part in parts
        for line in part.notes.lines
        if line.priority == "critical"
    }
    return list(newest.values())


def tasks(parts: Sequence[Observation]) -> list[Line]:
    """Return the tasks of observations but the last one's, as lines at the time they were open."""
    found: dict[str, Line] = {}
    last = open_task(parts)
    for part in parts:
        task = part.notes.task
        if task and task != last:
            at = next((line.at for line in reversed(part.notes.lines) if line.at), "")
            text = f"Task then: {shorten(one_line(task), TASK_CHARS)}"
            found[task] = Line(at, "important", text)
    return list(found.values())


def open_task(parts: Sequence[Observation]) -> str:
    """Return the last task that observations name."""
    return next((part.notes.task for part in reversed(parts) if part.notes.task), "")


def restored(notes: Notes, parts: Sequence[Observation]) -> Notes:
    """Return notes with all that they may not lose: what is lost is put in, as it was written.

    A line that stands for a critical one becomes critical itself, or the next reflection could
    lose it.
    """
    notes = replace(notes, task=open_task(parts) or notes.task)
    lines = list(notes.lines)
    known = [_words(line.text) for line in lines]
    whole = "\n".join((*(line.text for line in lines), notes.task))
    missing: list[Line] = []
    for line in critical_lines(parts):
        place = _stands_for(line.text, known, whole)
        if place is None:
            missing.append(line)
        elif lines[place].priority != "critical":
            lines[place] = replace(lines[place], priority="critical")
    for line in tasks(parts):
        told = line.text.removeprefix("Task then: ")
        if _stands_for(told, [*known, _words(notes.task)], whole) is None:
            missing.append(line)
    return replace(notes, lines=_merged(lines, missing))


def lost(notes: Notes, parts: Sequence[Observation]) -> list[Line]:
    """Return the critical lines of observations that notes have lost."""
    known = [_words(line.text) for line in notes.lines if line.priority == "critical"]
    whole = "\n".join((*(line.text for line in notes.lines), notes.task))
    return [line for line in critical_lines(parts) if _stands_for(line.text, known, whole) is None]


def _stands_for(text: str, known: Sequence[frozenset[str]], whole: str) -> int | None:
    """Return the place of the line that stands for a text; None if there is none."""
    if any(one not in whole for one in substance(_DATE.sub("", text))):
        return None
    wanted = _words(text)
    if not wanted:
        return None
    best, place = 0.0, None
    for index, words in enumerate(known):
        shared = len(wanted & words) / len(wanted)
        if shared > best and wanted & _TURNING <= words:
            best, place = shared, index
    return place if best >= OVERLAP else None


def _words(text: str) -> frozenset[str]:
    return frozenset(_told(text))


def _told(text: str) -> Iterator[str]:
    for match in _WORD.finditer(text.lower()):
        if len(match[0]) > 3 or match[0] in _TURNING or not match[0].isascii():
            yield match[0]


def _merged(lines: Sequence[Line], more: Sequence[Line]) -> tuple[Line, ...]:
    """Return lines with more among them, each before the first that is later."""
    merged = list(lines)
    for line in more:
        later = (index for index, one in enumerate(merged) if one.at[:10] > line.at[:10])
        merged.insert(next(later, len(merged)) if line.at else 0, line)
    return tuple(merged)
