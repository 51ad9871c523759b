"""Check without a model that a reflection loses no critical line and no open task.

A line is retained if all its identifiers and quoted words occur, and one line says the same: it has
its numbers and most of its words, and denies, requires and limits as much.  A line that was
completely reworded counts as lost and is put back: that costs a few tokens, never a fact.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from agent_runtime.memory.observational.language.statement import covers, read_statement
from agent_runtime.prompt.ledger import identifiers
from agent_runtime.prompt.observation import Observation, ObservationLine, ObservationNotes
from agent_runtime.prompt.text import one_line, shorten

CONTEXT = 500
"""Characters of notes by which the language of a short line is known."""
CANDIDATES = 12
"""How many lines of notes are compared with a line, those that share most with it."""
TASK_CHARS = 300
"""Characters of an earlier task that are retained."""

_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
_QUOTED = re.compile(
    r"`([^`]{1,200})`|\"([^\"]{1,200})\"|“([^”]{1,200})”|(?<!\w)'([^']{2,200})'(?!\w)"
)
_WORD = re.compile(r"[^\W_]+")
_THEN = "Task then: "
_SPEAKER = re.compile(r"^(?:User:|\(cont\.\)|The user (?:says|said):)\s*")
# Shorter sentences ("Stop.") occur inside others by chance.
_LEAST_STATED = 12


def verbatim_terms(text: str) -> frozenset[str]:
    """Return what a text names literally: identifiers, numbers and quoted words."""
    return frozenset((*literal_terms(text), *_NUMBER.findall(text)))


def literal_terms(text: str) -> frozenset[str]:
    """Return what must be retained literally: identifiers and quoted words."""
    quoted = (part for match in _QUOTED.finditer(text) for part in match.groups() if part)
    return frozenset((*identifiers(text), *map(str.strip, quoted))) - {""}


def critical_lines(
    parts: Sequence[Observation], stated: Sequence[str] = ()
) -> list[ObservationLine]:
    """Return the critical lines of observations in order, of equal ones only the newest.

    Args:
        stated: constraints that prompts show anyway; lines that say nothing else are omitted.
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
    """Return whether a line says only what is known, sentence by sentence."""
    bare = _bare(_SPEAKER.sub("", text))
    if not known or bare in known:
        return bare in known
    # A line may hold several sentences: remove the known ones and see whether words remain.
    for one in known:
        if len(one) > _LEAST_STATED:
            bare = bare.replace(one, " ")
    return not _WORD.search(bare)


def _bare(text: str) -> str:
    return " ".join(_WORD.findall(text.casefold()))


def tasks(parts: Sequence[Observation]) -> list[ObservationLine]:
    """Return the earlier tasks of observations, as lines at the time they were open."""
    earlier: dict[str, ObservationLine] = {}
    last = open_task(parts)
    for part in parts:
        task = part.notes.task
        if task and task != last:
            at = next((line.at[:10] for line in reversed(part.notes.lines) if line.at), "")
            text = f"{_THEN}{shorten(one_line(task), TASK_CHARS)}"
            earlier[task] = ObservationLine(at, "important", text)
    return list(earlier.values())


def open_task(parts: Sequence[Observation]) -> str:
    """Return the last task that observations name."""
    return next((part.notes.task for part in reversed(parts) if part.notes.task), "")


def restore_lost_lines(
    notes: ObservationNotes, parts: Sequence[Observation], stated: Sequence[str] = ()
) -> ObservationNotes:
    """Put back the critical lines and tasks that notes have lost, as they were written.

    A line that covers a critical one becomes critical itself, or the next reflection could lose it.

    Args:
        stated: constraints that prompts show anyway, which the notes may lose.
    """
    # The task as it was noted, not as the model reworded it.
    notes = replace(notes, task=open_task(parts) or notes.task)
    lines = list(notes.lines)
    index = _CoverageIndex([line.text for line in lines], notes.task)
    missing: list[ObservationLine] = []
    for line in critical_lines(parts, stated):
        place = index.line_covering(line.text)
        if place is None:
            missing.append(line)
        elif lines[place].priority != "critical":
            lines[place] = replace(lines[place], priority="critical")
    for line in tasks(parts):
        task = line.text.removeprefix(_THEN)
        in_task = _CoverageIndex([notes.task], "").line_covering(task)
        if index.line_covering(task) is None and in_task is None:
            missing.append(line)
    return replace(notes, lines=_merged(lines, missing))


def lost_critical_lines(
    notes: ObservationNotes, parts: Sequence[Observation], stated: Sequence[str] = ()
) -> list[ObservationLine]:
    """Return the critical lines of observations that no critical line of notes covers."""
    critical = [line.text for line in notes.lines if line.priority == "critical"]
    # Other lines may hold its names, but a line that is not critical may be dropped next time.
    others = [line.text for line in notes.lines if line.priority != "critical"]
    index = _CoverageIndex(critical, "\n".join((*others, notes.task)))
    wanted = critical_lines(parts, stated)
    return [line for line in wanted if index.line_covering(line.text) is None]


class _CoverageIndex:
    """Index of lines that may cover others, with the rest of the text they occur in."""

    def __init__(self, texts: Sequence[str], rest: str) -> None:
        self._whole = "\n".join((*texts, rest))
        self._context = self._whole[:CONTEXT]
        self._exact = {text: place for place, text in enumerate(texts)}
        self._lines = [read_statement(_SPEAKER.sub("", text), self._context) for text in texts]
        self._having: dict[str, list[int]] = {}
        for place, line in enumerate(self._lines):
            for key in line.keys:
                self._having.setdefault(key, []).append(place)

    def line_covering(self, text: str) -> int | None:
        """Return the index of the line that covers a text, or None."""
        if text in self._exact:
            return self._exact[text]
        # Names may be in another line than the words: a model joins and splits lines.
        if any(term not in self._whole for term in literal_terms(text)):
            return None
        statement = read_statement(_SPEAKER.sub("", text), self._context)
        # Comparing all pairs would take quadratic time, and only like lines can cover one.
        shared = Counter(place for key in statement.keys for place in self._having.get(key, ()))
        for place, _ in shared.most_common(CANDIDATES):
            if covers(statement, self._lines[place]):
                return place
        return None


def _merged(
    lines: Sequence[ObservationLine], more: Sequence[ObservationLine]
) -> tuple[ObservationLine, ...]:
    """Insert more lines, each before the first that has a later day."""
    merged = list(lines)
    for line in more:
        later = (index for index, one in enumerate(merged) if one.at[:10] > line.at[:10])
        merged.insert(next(later, len(merged)) if line.at else len(merged), line)
    return tuple(merged)
