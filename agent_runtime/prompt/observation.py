"""An observation: what stands for an interval of the log once its messages have left the prompt.

It is immutable.  At level 0 an Observer wrote it of nodes; above that a Reflector wrote it of
observations, and an archive note is one too.  What it says was derived from data by a model or by
rules, so prompts show it between fences; it is rendered the same, byte for byte, ever after.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from agent_runtime.models.tokens import count_text

if TYPE_CHECKING:
    from pydantic import TypeAdapter

Priority = Literal["critical", "important", "info", "done"]
Origin = Literal["model", "rules", "archive"]

MARKS: dict[Priority, str] = {"critical": "!!", "important": "!", "info": "-", "done": "+"}
"""How a line's priority is shown; a token each."""
LEGEND = "!! critical, ! important, - information, + done"


@dataclass(frozen=True, slots=True)
class ObservationLine:
    """One thing that was observed.

    Attributes:
        at: when it happened, as `2026-11-21 14:05` in UTC, never relative; empty if unknown.
        text: without a line break.
    """

    at: str
    priority: Priority
    text: str


@dataclass(frozen=True, slots=True)
class ObservationNotes:
    """What an Observer or a Reflector wrote.

    Attributes:
        task: what the agent was working on at the interval's end.
        next_step: what it was about to do.
    """

    lines: tuple[ObservationLine, ...]
    task: str = ""
    next_step: str = ""


@dataclass(frozen=True, slots=True)
class Archive:
    """What an observation only points to: notes that were left out of it for good.

    Attributes:
        first, last: the nodes that the notes were of.
        lines, critical: how many lines there were, and how many of them were critical.
        since, until: the times of the oldest and the newest one; empty if unknown.
    """

    first: int
    last: int
    lines: int
    critical: int
    since: str = ""
    until: str = ""


@dataclass(frozen=True)
class Observation:
    """Notes that stand for an interval of a branch.

    Attributes:
        id: counts up within the thread; 0 before it is committed.
        level: 0 over nodes, one more than its parts over observations.
        parent_id: the node before the first; None if that is the root.
        first: the first node that it stands for.
        last: the last one; what it covers is that node and its ancestors down to `first`.
        parts: the observations that it replaces, in order; empty at level 0.
        ledger: identifiers seen in the interval, as they were written.
        origin: whether a `model` wrote the notes, or `rules`, or it is an `archive` note.
        provisional: whether a model is to write it again when it can.
        model: which one wrote it; empty for rules.
        archive: what it points to, all that its parts pointed to included.
    """

    id: int
    level: int
    parent_id: int | None
    first: int
    last: int
    notes: ObservationNotes
    ledger: tuple[str, ...] = ()
    parts: tuple[int, ...] = ()
    origin: Origin = "model"
    provisional: bool = False
    model: str = ""
    archive: Archive | None = None

    @functools.cached_property
    def text(self) -> str:
        """What prompts show of it, without a fence."""
        return render_observation_body(self)

    @functools.cached_property
    def tokens(self) -> int:
        """Our own count of that."""
        return count_text(self.text)


def render_observation_body(observation: Observation) -> str:
    """Return what prompts show of an observation: its lines under their day, then the ledger."""
    shown = [render_notes(observation.notes)]
    if observation.ledger:
        shown.append(f"Seen: {' '.join(observation.ledger)}")
    return "\n".join(part for part in shown if part)


def render_notes(notes: ObservationNotes) -> str:
    """Return notes as lines of `time mark text`, each day named once, task and next step last."""
    shown: list[str] = []
    day = ""
    for line in notes.lines:
        date, _, time = line.at.partition(" ")
        if date and date != day:
            day = date
            shown.append(f"{date}:")
        shown.append(" ".join(part for part in (time, MARKS[line.priority], line.text) if part))
    if notes.task:
        shown.append(f"Task: {notes.task}")
    if notes.next_step:
        shown.append(f"Next: {notes.next_step}")
    return "\n".join(shown)


@dataclass(frozen=True, slots=True)
class _Body:
    """What the store keeps of an observation beside its columns."""

    notes: ObservationNotes
    ledger: tuple[str, ...]
    origin: Origin
    model: str
    archive: Archive | None = None


@functools.cache
def _body() -> TypeAdapter[_Body]:
    from pydantic import TypeAdapter

    return TypeAdapter(_Body)


def encode_body(observation: Observation) -> bytes:
    """Return what the store keeps of an observation beside its columns: JSON."""
    body = _Body(
        observation.notes,
        observation.ledger,
        observation.origin,
        observation.model,
        observation.archive,
    )
    return _body().dump_json(body)


def decode_body(
    body: bytes,
    *,
    identity: int,
    level: int,
    parent_id: int | None,
    first: int,
    last: int,
    parts: Sequence[int],
    provisional: bool,
) -> Observation:
    """Return the observation that a row stands for."""
    kept = _body().validate_json(body)
    return Observation(
        id=identity,
        level=level,
        parent_id=parent_id,
        first=first,
        last=last,
        notes=kept.notes,
        ledger=kept.ledger,
        parts=tuple(parts),
        origin=kept.origin,
        provisional=provisional,
        model=kept.model,
        archive=kept.archive,
    )
