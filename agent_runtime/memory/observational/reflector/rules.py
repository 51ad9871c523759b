"""The Reflector without a model: it merges observations into one by rules.

Critical lines stay as they are.  The rest is removed in this order, oldest first: repetitions;
information; the wording of finished work, which is merged by day; the wording of other lines;
finished work; other lines, the user's last.  A line says how many were left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import anyio.lowlevel

from agent_runtime.memory.observational.language.detect import languages_of
from agent_runtime.memory.observational.language.rules import is_rule, split
from agent_runtime.memory.observational.observer.base import ObserverFailed
from agent_runtime.memory.observational.observer.select import without_dropped
from agent_runtime.memory.observational.observer.sentences import (
    density_among,
    gist,
    with_gaps,
)
from agent_runtime.memory.observational.reflector.archive import is_pointer
from agent_runtime.memory.observational.reflector.base import (
    Reflection,
    ReflectorResult,
    notes_tokens,
)
from agent_runtime.memory.observational.reflector.retention import (
    critical_lines,
    open_task,
    restore_lost_lines,
)
from agent_runtime.models.tokens import count_text
from agent_runtime.prompt.observation import (
    Observation,
    ObservationLine,
    ObservationNotes,
    Priority,
)
from agent_runtime.prompt.text import shorten, stamp_of

_INFO_CHARS = 160
_SHORT = (240, 120)
_DONE_CHARS = 90
_FOLDED = 5
# What a line has apart from its text: its time, mark and node.
_LINE_TOKENS = 8
# Characters of a rule that may need the sentence before it.
_BRIEF = 80
_PRONOUN = re.compile(
    r"\b(?:it|its|they|them|their|this|that|these|those|there|he|him|his|she|her|one|ones|so|same|"
    r"such|both|either|neither|former|latter)\b",
    re.IGNORECASE,
)
_SPEAKER = re.compile(r"(?:User:|\(cont\.\)) ")
_LEFT_OUT = re.compile(r"(\d{1,9}) older lines are left out; recall finds their messages\.$")


class RuleReflector:
    """A `Reflector` that needs no model and costs nothing."""

    async def reflect(self, reflection: Reflection, ledger: Sequence[str]) -> ReflectorResult:
        """Return notes written by rules.

        Raises:
            ObserverFailed: what must be retained is too large to be progress.
        """
        await anyio.lowlevel.checkpoint()
        notes = condense_by_rule(reflection.parts, reflection.goal, ledger, reflection.stated)
        if notes_tokens(notes, ledger) > reflection.most:
            raise ObserverFailed("What must stay of the observations cannot be condensed further.")
        return ReflectorResult(notes, origin="rules")

    def bound(self, reflection: Reflection) -> tuple[int, int]:
        """Return zeros: it calls no model."""
        return 0, 0


def condense_by_rule(
    parts: Sequence[Observation],
    goal: int,
    ledger: Sequence[str] = (),
    stated: Sequence[str] = (),
) -> ObservationNotes:
    """Return notes that replace observations, with the ledger about `goal` tokens.

    Critical lines, except those that only repeat `stated`, are retained even if that exceeds it.
    """
    base = ObservationNotes((), open_task(parts))
    # Earlier tasks are what the user said, which lines tell; only the open one is a task.
    parts = [replace(part, notes=replace(part.notes, task="")) for part in parts]
    parts = _joining_dropped(parts)
    lines = list(_distinct(parts, stated))
    # 24 for the line that says how many were left out.
    most = goal - notes_tokens(base, ledger) - 24
    if sum(_Candidate(line, line.text).cost for line in lines) > most:
        # What was said around a rule is no rule, and would leave no room for anything else.
        parts = [_with_lines(part, map(only_rules, part.notes.lines)) for part in parts]
        lines = list(_distinct(parts, stated))
    notes = base
    # Restoring lost lines adds tokens, which are known only afterwards.
    for room in (most, int(most * 0.8), int(most * 0.5)):
        shorter = replace(base, lines=_within(lines, room))
        notes = replace(restore_lost_lines(shorter, parts, stated), task=base.task)
        if notes_tokens(notes, ledger) <= goal:
            break
    return notes


def _joining_dropped(parts: Sequence[Observation]) -> list[Observation]:
    """Return observations in which one line names the nodes of all that there was no room for."""
    split = [without_dropped(part.notes.lines) for part in parts]
    _, joined = without_dropped([line for _, dropped in split for line in dropped])
    kept = [tuple(others) for others, _ in split]
    kept[0] = (*joined, *kept[0])
    return [_with_lines(part, lines) for part, lines in zip(parts, kept, strict=True)]


def _with_lines(part: Observation, lines: Iterable[ObservationLine]) -> Observation:
    return replace(part, notes=replace(part.notes, lines=tuple(lines)))


def only_rules(line: ObservationLine) -> ObservationLine:
    """Return a critical line of the user's words with the sentences that bind, as they were said.

    The sentence before a short one stays as well: it may name what "it" is.
    """
    speaker = _SPEAKER.match(line.text) if line.by_user else None
    if speaker is None or line.priority != "critical":
        return line
    said = line.text[speaker.end() :]
    stamp = stamp_of(said)
    parts = split(said[len(stamp) :])
    kept = {place for place, part in enumerate(parts) if is_rule(part)}
    kept |= {place - 1 for place in kept if place and _refers(parts[place])}
    if not kept or len(kept) == len(parts):
        return line
    shown = with_gaps(parts, {place: parts[place] for place in kept})
    return replace(line, text=f"{speaker[0]}{stamp}{shown}")


def _refers(sentence: str) -> bool:
    """Return whether a rule may be about something that the sentence before it names."""
    if [table.code for table in languages_of(sentence)] == ["en"]:
        return _PRONOUN.search(sentence) is not None
    return len(sentence) <= _BRIEF


@dataclass(slots=True)
class _Candidate:
    """A line, its possibly shortened text, and whether it is kept."""

    line: ObservationLine
    text: str
    kept: bool = True

    @property
    def cost(self) -> int:
        return count_text(self.text) + _LINE_TOKENS


def _within(lines: Sequence[ObservationLine], room: int) -> tuple[ObservationLine, ...]:
    """Shorten and drop lines until they have about `room` tokens; critical ones stay."""
    candidates = [_Candidate(line, line.text) for line in lines]
    used = sum(one.cost for one in candidates)
    used = _shorten(candidates, "info", _INFO_CHARS, used, room)
    used = _drop(candidates, "info", used, room)
    used = _shorten(candidates, "done", _DONE_CHARS, used, room)
    for chars in _SHORT:
        used = _shorten(candidates, "important", chars, used, room)
    used = _drop(candidates, "done", used, room)
    others = [one for one in candidates if not one.line.speaks_for_user]
    used = _drop(others, "important", used, room)
    _drop(_least_first(candidates), "important", used, room)
    return tuple(_rendered(candidates))


def _distinct(parts: Sequence[Observation], stated: Sequence[str]) -> Iterator[ObservationLine]:
    """Yield the lines of observations, dated by day; of equal ones only the last."""
    wanted = {line.text for line in critical_lines(parts, stated)}
    # Pointers are left to `pointing`, which writes one for all archives.
    lines = [line for part in parts for line in part.notes.lines if not is_pointer(line)]
    seen: set[tuple[str, bool]] = set()
    newest: list[ObservationLine] = []
    # From the newest on, so that the last of equal lines stays.
    for line in reversed(lines):
        key = (" ".join(line.text.split()), line.priority == "critical")
        if key in seen or (line.priority == "critical" and line.text not in wanted):
            continue
        seen.add(key)
        newest.append(replace(line, at=line.at[:10]))
    yield from reversed(newest)


def _shorten(
    candidates: Sequence[_Candidate], priority: Priority, chars: int, used: int, room: int
) -> int:
    for one in candidates:
        if used <= room:
            break
        if one.kept and one.line.priority == priority and len(one.text) > chars:
            before = one.cost
            one.text = _shorter(one.line, one.text, chars)
            used -= before - one.cost
    return used


def _shorter(line: ObservationLine, text: str, chars: int) -> str:
    """Return a line's text in fewer characters; what the user said by its sentences."""
    speaker = _SPEAKER.match(text) if line.speaks_for_user else None
    if speaker is None:
        return shorten(text, chars)
    short = f"{speaker[0]}{gist(text[speaker.end() :], chars - speaker.end())}"
    return min(short, text, key=len)


def _least_first(candidates: Sequence[_Candidate]) -> list[_Candidate]:
    """Return candidates, those that tell least for their length first."""
    density = density_among([one.text for one in candidates])
    return sorted(candidates, key=lambda one: density(one.text))


def _drop(candidates: Sequence[_Candidate], priority: Priority, used: int, room: int) -> int:
    for one in candidates:
        if used <= room:
            break
        if one.kept and one.line.priority == priority:
            one.kept = False
            used -= one.cost
    return used


def _rendered(candidates: Sequence[_Candidate]) -> Iterator[ObservationLine]:
    """Yield the kept lines; shortened lines of finished work are merged by day."""
    # Lines that an earlier reflection left out are counted again.
    counts = [_LEFT_OUT.match(one.line.text) for one in candidates]
    candidates = [one for one, count in zip(candidates, counts, strict=True) if count is None]
    left_out = sum(int(count[1]) for count in counts if count)
    left_out += sum(not one.kept for one in candidates)
    if left_out:
        yield ObservationLine(
            "", "info", f"{left_out} older lines are left out; recall finds their messages."
        )
    done: list[_Candidate] = []
    for one in candidates:
        if not one.kept:
            continue
        folds = one.line.priority == "done" and one.text != one.line.text
        if done and (not folds or done[0].line.at != one.line.at or len(done) == _FOLDED):
            yield _joined(done)
            done = []
        if folds:
            done.append(one)
        else:
            yield replace(one.line, text=one.text)
    if done:
        yield _joined(done)


def _joined(done: Sequence[_Candidate]) -> ObservationLine:
    return replace(done[0].line, text="; ".join(one.text for one in done))
