"""The Reflector without a model: it folds observations into one by rule.

Critical lines stay as they are.  What else has to go goes in this order, the oldest first: what was
said twice; information; the wording of finished work, which is folded by day; the wording of the
rest; finished work; the rest, at last what the user said.  A line tells how much is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import anyio.lowlevel

from agent_runtime.memory.observational.observer.base import ObserverFailed
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
from agent_runtime.prompt.text import shorten

_INFO_CHARS = 160
_SHORT = (240, 120)
_DONE_CHARS = 90
_FOLDED = 5
_LINE_TOKENS = 8
_LEFT_OUT = re.compile(r"(\d{1,9}) older lines are left out; recall finds their messages\.$")


class RuleReflector:
    """A `Reflector` that needs no model and costs nothing."""

    async def reflect(self, reflection: Reflection, ledger: Sequence[str]) -> ReflectorResult:
        """Return notes by rule.

        Raises:
            NotObserved: what must stay is no progress by itself.
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
    """Return notes that stand for observations, with the ledger about `goal` tokens.

    Critical lines alone may make it more, but for what prompts say beside the observations.
    """
    base = ObservationNotes((), open_task(parts))
    fold = _Fold(list(_distinct(parts, stated)))
    beside = notes_tokens(base, ledger) + 24
    notes = base
    for room in (goal - beside, int((goal - beside) * 0.8), int((goal - beside) * 0.5)):
        notes = restore_lost_lines(replace(base, lines=fold.within(room)), parts, stated)
        if notes_tokens(notes, ledger) <= goal:
            break
    return notes


@dataclass(slots=True)
class _Told:
    """A line, and how it is told."""

    line: ObservationLine
    text: str
    kept: bool = True

    @property
    def cost(self) -> int:
        return count_text(self.text) + _LINE_TOKENS


@dataclass(slots=True)
class _Fold:
    """The lines of several observations, as they become fewer."""

    lines: list[ObservationLine]

    def within(self, room: int) -> tuple[ObservationLine, ...]:
        """Return the lines with about `room` tokens at most; the critical ones in any case."""
        told = [_Told(line, line.text) for line in self.lines]
        used = sum(one.cost for one in told)
        used = _shorten(told, "info", _INFO_CHARS, used, room)
        used = _drop(told, "info", used, room)
        used = _shorten(told, "done", _DONE_CHARS, used, room)
        for chars in _SHORT:
            used = _shorten(told, "important", chars, used, room)
        used = _drop(told, "done", used, room)
        # Whatever wrote the lines, what the user said begins so.
        others = [one for one in told if not one.line.text.startswith(("User", "The user"))]
        used = _drop(others, "important", used, room)
        _drop(told, "important", used, room)
        return tuple(_rendered(told))


def _distinct(parts: Sequence[Observation], stated: Sequence[str]) -> Iterator[ObservationLine]:
    """Yield the lines of observations by their day, the same words once: where they came last."""
    wanted = {line.text for line in critical_lines(parts, stated)}
    lines = [line for part in parts for line in part.notes.lines if not is_pointer(line)]
    seen: set[tuple[str, bool]] = set()
    newest: list[ObservationLine] = []
    for line in reversed(lines):
        key = (" ".join(line.text.split()), line.priority == "critical")
        if key in seen or (line.priority == "critical" and line.text not in wanted):
            continue
        seen.add(key)
        newest.append(replace(line, at=line.at[:10]))
    yield from reversed(newest)


def _shorten(told: Sequence[_Told], priority: Priority, chars: int, used: int, room: int) -> int:
    for one in told:
        if used <= room:
            break
        if one.kept and one.line.priority == priority and len(one.text) > chars:
            before = one.cost
            one.text = shorten(one.text, chars)
            used -= before - one.cost
    return used


def _drop(told: Sequence[_Told], priority: Priority, used: int, room: int) -> int:
    for one in told:
        if used <= room:
            break
        if one.kept and one.line.priority == priority:
            one.kept = False
            used -= one.cost
    return used


def _rendered(told: Sequence[_Told]) -> Iterator[ObservationLine]:
    """Yield what is told; finished work of a day that was shortened is one line."""
    # What was left out before is counted still.
    left_out = sum(int(found[1]) for one in told if (found := _LEFT_OUT.match(one.line.text)))
    told = [one for one in told if not _LEFT_OUT.match(one.line.text)]
    left_out += sum(not one.kept for one in told)
    if left_out:
        yield ObservationLine(
            "", "info", f"{left_out} older lines are left out; recall finds their messages."
        )
    done: list[_Told] = []
    for one in told:
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


def _joined(done: Sequence[_Told]) -> ObservationLine:
    return replace(done[0].line, text="; ".join(one.text for one in done))
