"""What a reflection may not lose: critical lines and open tasks, checked without a model.

A line is kept if its identifiers, numbers and quoted words all occur, and some line has most of its
words and each that turns its meaning (not, never, only, must).  A line that was put in other words
entirely is taken for lost; that costs a few tokens, never a fact.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from agent_runtime.prompt.ledger import identifiers
from agent_runtime.prompt.observation import Observation, ObservationLine, ObservationNotes
from agent_runtime.prompt.text import one_line, shorten

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
_THEN = "Task then: "
_SPEAKER = re.compile(r"^(?:User:|\(cont\.\)|The user (?:says|said):)\s*")
_LEAST_STATED = 12


def verbatim_terms(text: str) -> frozenset[str]:
    """Return what of a line has to be kept as it is written: identifiers, numbers, quoted words."""
    quoted = (part for match in _QUOTED.finditer(text) for part in match.groups() if part)
    return frozenset((*identifiers(text), *_NUMBER.findall(text), *map(str.strip, quoted))) - {""}


def critical_lines(
    parts: Sequence[Observation], stated: Sequence[str] = ()
) -> list[ObservationLine]:
    """Return the critical lines of observations, in order, the same words once: the newest.

    Args:
        stated: what prompts say beside the observations; a line that says nothing else is left out.
    """
    newest = {
        " ".join(line.text.split()): line
        for part in parts
        for line in part.notes.lines
        if line.priority == "critical"
    }
    known = {_bare(text) for text in stated}
    return [line for line in newest.values() if not _is_stated(line.text, known)]


def _is_stated(text: str, known: set[str]) -> bool:
    """Return whether all that the user says in a line is known, sentence by sentence."""
    bare = _bare(_SPEAKER.sub("", text))
    if not known or bare in known:
        return bare in known
    # A line of several sentences: what is left of it once the known ones are taken out.
    for one in known:
        if len(one) > _LEAST_STATED:
            bare = bare.replace(one, " ")
    return not _WORD.search(bare)


def _bare(text: str) -> str:
    return " ".join(_WORD.findall(text.casefold()))


def tasks(parts: Sequence[Observation]) -> list[ObservationLine]:
    """Return the tasks of observations but the last one's, as lines at the time they were open."""
    found: dict[str, ObservationLine] = {}
    last = open_task(parts)
    for part in parts:
        task = part.notes.task
        if task and task != last:
            at = next((line.at[:10] for line in reversed(part.notes.lines) if line.at), "")
            text = f"{_THEN}{shorten(one_line(task), TASK_CHARS)}"
            found[task] = ObservationLine(at, "important", text)
    return list(found.values())


def open_task(parts: Sequence[Observation]) -> str:
    """Return the last task that observations name."""
    return next((part.notes.task for part in reversed(parts) if part.notes.task), "")


def restore_lost_lines(
    notes: ObservationNotes, parts: Sequence[Observation], stated: Sequence[str] = ()
) -> ObservationNotes:
    """Return notes with all that they may not lose: what is lost is put in, as it was written.

    A line that stands for a critical one becomes critical itself, or the next reflection could
    lose it.

    Args:
        stated: what prompts say beside the observations, which they may lose.
    """
    notes = replace(notes, task=open_task(parts) or notes.task)
    lines = list(notes.lines)
    known = _Known([line.text for line in lines], notes.task)
    missing: list[ObservationLine] = []
    for line in critical_lines(parts, stated):
        place = known.place_of(line.text)
        if place is None:
            missing.append(line)
        elif lines[place].priority != "critical":
            lines[place] = replace(lines[place], priority="critical")
    for line in tasks(parts):
        told = line.text.removeprefix(_THEN)
        if known.place_of(told) is None and _Known([notes.task], "").place_of(told) is None:
            missing.append(line)
    return replace(notes, lines=_merged(lines, missing))


def lost_critical_lines(
    notes: ObservationNotes, parts: Sequence[Observation], stated: Sequence[str] = ()
) -> list[ObservationLine]:
    """Return the critical lines of observations that no critical line of notes stands for."""
    critical = [line.text for line in notes.lines if line.priority == "critical"]
    others = [line.text for line in notes.lines if line.priority != "critical"]
    known = _Known(critical, "\n".join((*others, notes.task)))
    return [line for line in critical_lines(parts, stated) if known.place_of(line.text) is None]


class _Known:
    """Lines that may stand for others, and what else is told beside them."""

    def __init__(self, texts: Sequence[str], beside: str) -> None:
        self._whole = "\n".join((*texts, beside))
        self._exact = {text: place for place, text in enumerate(texts)}
        self._words = [_words(text) for text in texts]
        self._having: dict[str, list[int]] = {}
        for place, words in enumerate(self._words):
            for word in words:
                self._having.setdefault(word, []).append(place)

    def place_of(self, text: str) -> int | None:
        """Return the place of the line that stands for a text; None if there is none."""
        if text in self._exact:
            return self._exact[text]
        wanted = _words(text)
        if not wanted or any(one not in self._whole for one in verbatim_terms(text)):
            return None
        shared = Counter(place for word in wanted for place in self._having.get(word, ()))
        turning = wanted & _TURNING
        for place, count in shared.most_common():
            if count < OVERLAP * len(wanted):
                break
            if turning <= self._words[place]:
                return place
        return None


def _words(text: str) -> frozenset[str]:
    return frozenset(_told(text))


def _told(text: str) -> Iterator[str]:
    for match in _WORD.finditer(text.lower()):
        if len(match[0]) > 3 or match[0] in _TURNING or not match[0].isascii():
            yield match[0]


def _merged(
    lines: Sequence[ObservationLine], more: Sequence[ObservationLine]
) -> tuple[ObservationLine, ...]:
    """Return lines with more among them, each before the first that is later."""
    merged = list(lines)
    for line in more:
        later = (index for index, one in enumerate(merged) if one.at[:10] > line.at[:10])
        merged.insert(next(later, len(merged)) if line.at else len(merged), line)
    return tuple(merged)
