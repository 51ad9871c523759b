"""An observation: the immutable notes that replace an interval of the log in prompts.

At level 0 an Observer wrote it of nodes; above, a Reflector wrote it of observations, or it is an
archive note.  Its content is derived from data by a model or by rules, so prompts fence it.  It is
always rendered the same, byte for byte.
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
"""Marks of the priorities in prompts; one token each."""
LEGEND = "!! critical, ! important, - information, + done"


@dataclass(frozen=True, slots=True)
class ObservationLine:
    """One line of notes.

    Attributes:
        at: when it happened, as `2026-11-21 14:05` in UTC or as a date; empty if unknown.
        text: without a line break.
    """

    at: str
    priority: Priority
    text: str


@dataclass(frozen=True, slots=True)
class ObservationNotes:
    """Notes of an interval.

    Attributes:
        task: what the agent was working on at the interval's end.
        next_step: what it was about to do.
    """

    lines: tuple[ObservationLine, ...]
    task: str = ""
    next_step: str = ""


@dataclass(frozen=True, slots=True)
class Archive:
    """Notes that an observation dropped for good and only points to.

    Attributes:
        first, last: the nodes that the notes were of.
        lines, critical: how many lines were dropped, and how many of these were critical.
        since, until: the times of the oldest and the newest line; empty if unknown.
    """

    first: int
    last: int
    lines: int
    critical: int
    since: str = ""
    until: str = ""


# Without slots, which `cached_property` cannot use.
@dataclass(frozen=True)
class Observation:
    """Notes that replace an interval of a branch in prompts.

    Attributes:
        id: counts up within the thread; 0 before it is committed.
        level: 0 over nodes, one more than its parts over observations.
        parent_id: the node before `first`; None if `first` is the root.
        first: the first node that it covers.
        last: the last node that it covers, with its ancestors down to `first`.
        parts: the observations that it replaces, in order; empty at level 0.
        ledger: identifiers in the interval, as they were written.
        origin: whether a `model` or `rules` wrote the notes, or it is an `archive` note.
        provisional: whether a model should rewrite it when it can.
        model: the model that wrote it; empty for rules.
        archive: what it points to, including what its parts pointed to.
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
        """Its text in prompts, without the fence."""
        return render_observation_body(self)

    @functools.cached_property
    def tokens(self) -> int:
        """Tokens of that, in our count."""
        return count_text(self.text)


def render_observation_body(observation: Observation) -> str:
    """Render an observation for prompts: its lines under their day, then the ledger."""
    shown = [render_notes(observation.notes)]
    if observation.ledger:
        shown.append(f"Seen: {' '.join(observation.ledger)}")
    return "\n".join(part for part in shown if part)


def render_notes(notes: ObservationNotes) -> str:
    """Render notes as lines of `time mark text` under their day, then task and next step."""
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
    """The fields of an observation without columns, which are stored as JSON."""

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
    """Encode what an observation stores apart from its columns, as JSON."""
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
    """Return the observation of a stored row."""
    stored = _body().validate_json(body)
    return Observation(
        id=identity,
        level=level,
        parent_id=parent_id,
        first=first,
        last=last,
        notes=stored.notes,
        ledger=stored.ledger,
        parts=tuple(parts),
        origin=stored.origin,
        provisional=provisional,
        model=stored.model,
        archive=stored.archive,
    )
