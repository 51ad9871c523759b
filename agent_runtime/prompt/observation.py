"""An observation: the immutable notes that replace an interval of the log in prompts.

At level 0 an Observer wrote it of nodes; above, a Reflector wrote it of observations, or it is an
archive note.  Its content is derived from data by a model or by rules, so prompts fence it.  It is
always rendered the same, byte for byte.

It also has slots and a ledger, which rules make whoever wrote the notes.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from agent_runtime.models.tokens import count_text
from agent_runtime.prompt.ledger import ROOT
from agent_runtime.prompt.slots import NO_SLOTS, NotedChange, Slots, render_slots
from agent_runtime.prompt.text import date_of

if TYPE_CHECKING:
    from pydantic import TypeAdapter

Priority = Literal["critical", "important", "info", "done"]
Origin = Literal["model", "rules", "archive"]

MARKS: dict[Priority, str] = {"critical": "!!", "important": "!", "info": "-", "done": "+"}
"""Marks of the priorities in prompts; one token each."""
_OF_USER = ("User:", "(cont.)", "The user ", "User ")
_USER = "User: "
LEGEND = "!! critical, ! important, - information, + done"


@dataclass(frozen=True, slots=True)
class ObservationLine:
    """One line of notes.

    Attributes:
        at: when it happened, as `2026-11-21 14:05` in UTC or as a date; empty if unknown.
        text: without a line break.
        node: the node that it is about; 0 if unknown, as in lines of earlier versions.
        by_user: whether the user said it in that node.
    """

    at: str
    priority: Priority
    text: str
    node: int = 0
    by_user: bool = False

    @property
    def speaks_for_user(self) -> bool:
        """Whether it tells what the user said: by its node, or if that is unknown by its words."""
        return self.by_user or (not self.node and self.text.startswith(_OF_USER))


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
        slots: verdicts, changes and agreements of the interval.
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
    slots: Slots = NO_SLOTS

    @functools.cached_property
    def text(self) -> str:
        """Its text in prompts, without the fence."""
        return render_observation_body(self)

    @functools.cached_property
    def tokens(self) -> int:
        """Tokens of that, in our count."""
        return count_text(self.text)


def render_observation_body(observation: Observation) -> str:
    """Render an observation for prompts: its lines under their day, the slots, then the ledger.

    Task and next step are left out: only the newest hold, and the state note shows those.
    """
    ledger = observation.ledger
    root = ledger[0].removeprefix(ROOT) if ledger and ledger[0].startswith(ROOT) else ""
    lines, slots = observation.notes.lines, observation.slots
    if root:
        # The ledger names this folder anyway.
        lines = tuple(_under(line, f"{root}/") for line in lines)
        slots = replace(slots, changes=tuple(_beside(one, f"{root}/") for one in slots.changes))
    shown = [render_lines(lines), render_slots(slots)]
    if ledger:
        shown.append(f"Seen: {' '.join(ledger)}")
    return "\n".join(part for part in shown if part)


def _under(line: ObservationLine, root: str) -> ObservationLine:
    # What is critical stays in the words in which it was said.
    if line.priority in ("critical", "important") or root not in line.text:
        return line
    return replace(line, text=line.text.replace(root, "$/"))


def _beside(one: NotedChange, root: str) -> NotedChange:
    if not one.change.target.startswith(root):
        return one
    target = f"$/{one.change.target.removeprefix(root)}"
    return replace(one, change=replace(one.change, target=target))


def render_lines(lines: Sequence[ObservationLine]) -> str:
    """Render lines as `time mark (node) text` under their day.

    The node stands before important lines only.  A node, a time, and a date in brackets before the
    user's words stand once where several lines in a row have the same.
    """
    shown: list[str] = []
    day, before, node, stamp = "", "", 0, ""
    for line in lines:
        date, _, time = line.at.partition(" ")
        if date and date != day:
            day, before = date, ""
            shown.append(f"{date}:")
        time, before = ("" if time == before else time), time
        text = line.text
        if line.by_user and text.startswith(_USER):
            said = text.removeprefix(_USER)
            known, stamp = stamp, date_of(said)
            text = f"{_USER}{said.removeprefix(known)}" if known else text
        about = ""
        if line.node and line.node != node and line.priority in ("critical", "important"):
            node, about = line.node, f"({line.node})"
        shown.append(" ".join(filter(None, (time, MARKS[line.priority], about, text))))
    return "\n".join(shown)


def render_notes(notes: ObservationNotes) -> str:
    """Render notes: the lines, then task and next step."""
    shown = [render_lines(notes.lines)] if notes.lines else []
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
    slots: Slots = NO_SLOTS


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
        observation.slots,
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
        slots=stored.slots,
    )
