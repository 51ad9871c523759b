"""Select note lines, and the length of each, within a token budget."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from agent_runtime.memory.observational.observer.sentences import binding
from agent_runtime.models.tokens import count_text
from agent_runtime.prompt.observation import (
    ObservationLine,
    ObservationNotes,
    Priority,
    render_lines,
    render_notes,
)
from agent_runtime.prompt.text import numbers, one_line, shorten

LINE_CHARS = 500
"""Characters above which a statement is split into lines."""
STATEMENT = (100, 500, 1600, 6000)
"""Lengths, in characters, to which a statement of the user may be shortened."""

ItemKind = Literal["user", "error", "plan", "conclusion", "said", "action", "background"]

# Tokens of a line apart from its text: the time, the priority, the separators.
_LINE_TOKENS = 10
# In rounds, so that the newest item does not take the room of all others' names.
_FIRST_ROUNDS = (8, 20)
_LAST_ROUNDS = (40, 240)

# What is said of the nodes of items that there was no room for.
_DROPPED: dict[ItemKind, str] = {
    "user": "The user also wrote",
    "error": "There were also errors in",
}
_DROPPED_LINE = re.compile(
    rf"({'|'.join(_DROPPED.values())}) nodes (\d+)\b.*?(\d+)?: recall opens them\.$"
)

# The order in which forms are granted, the newest item of each kind first: (kind, form).
_REQUIRED: tuple[tuple[ItemKind, int], ...] = (("user", 0), ("error", 0), ("user", 1))
_WANTED: tuple[tuple[ItemKind, int], ...] = (
    ("plan", 0),
    ("user", 2),
    ("conclusion", 0),
    ("action", 0),
    ("said", 0),
    ("error", 1),
    ("background", 0),
    ("action", 1),
)


@dataclass(slots=True)
class NoteItem:
    """A candidate for a line of notes.

    Attributes:
        forms: its text, from the shortest useful form to the whole.
        names: its identifiers, the likeliest to be needed first.
        granted: the selected form; -1 for none.
        added: the names that are appended to it.
        reached: how many of its names have been considered.
        times: how often it happened.
        answers: whether it is the user's answer to a question, which reflections keep.
        shared: tokens of its text that the line before it has already, so that it is not shown.
    """

    at: str
    seq: int
    kind: ItemKind
    priority: Priority
    forms: tuple[str, ...]
    names: tuple[str, ...] = ()
    granted: int = -1
    added: list[str] = field(default_factory=list[str])
    reached: int = 0
    times: int = 1
    answers: bool = False
    shared: int = 0

    def text(self) -> str:
        """Return the text of the selected form, with its count and names."""
        text = self.forms[self.granted]
        if self.times > 1:
            text = f"{text} ({self.times} times)"
        return f"{text}; {', '.join(self.added)}" if self.added else text


def select_notes(
    items: Sequence[NoteItem],
    base: ObservationNotes,
    wanted: int,
    limit: int,
    *,
    answers: int = 0,
) -> ObservationNotes:
    """Return notes of about `wanted` tokens, at most `limit`.

    Args:
        base: the task and the next step, which prompts show once and not in each observation.
        answers: tokens for what the agent answers, whatever the user's statements take.
    """
    about = count_text(base.task) + count_text(base.next_step) + 8
    spare = wanted - 8
    notes = base
    # Items are counted one by one, which is cheap but differs from the count of the whole.
    # Again with less room where the whole has more tokens than its items were counted at.
    for most in (limit - about, int((limit - about) * 0.85), int((limit - about) * 0.6)):
        selected, dropped = _granted(items, min(spare, most), most, answers)
        notes = replace(base, lines=_lines(selected, dropped))
        size = count_text(render_lines(notes.lines))
        if size < wanted:
            # The estimates were too high: there is room for more names.
            _name(selected, size + _LINE_TOKENS, wanted, _LAST_ROUNDS)
            notes = replace(notes, lines=_lines(selected, dropped))
        if count_text(render_notes(notes)) <= limit:
            return notes
    return _shortest(notes, limit)


def _granted(
    items: Sequence[NoteItem], wanted: int, limit: int, answers: int
) -> tuple[list[NoteItem], dict[ItemKind, list[int]]]:
    """Select a form of each item; return the selected items, and the nodes of dropped ones.

    The user's statements and errors may take up to `limit` tokens; everything else up to `wanted`.
    """
    used = 0
    for item in items:
        item.granted, item.added, item.reached = -1, [], 0
    for kind, form in _REQUIRED:
        # Room for the lines that name the nodes of what is dropped, and for what was answered.
        kept = 40 + (answers if form else 0)
        used = _grant(items, kind, form, used, limit - kept)
    wanted = min(limit, max(wanted, used + answers))
    for kind, form in _WANTED:
        used = _grant(items, kind, form, used, wanted)
    selected = [item for item in items if item.granted >= 0]
    used = _name(selected, used, wanted, _FIRST_ROUNDS)
    used = _grant(items, "user", len(STATEMENT) - 1, used, wanted)
    _name(selected, used, wanted, _LAST_ROUNDS)
    dropped: dict[ItemKind, list[int]] = {}
    for item in items:
        if item.granted < 0 and item.kind in ("user", "error"):
            dropped.setdefault(item.kind, []).append(item.seq)
    return selected, dropped


def _grant(items: Sequence[NoteItem], kind: ItemKind, form: int, used: int, limit: int) -> int:
    """Grant a form to the items of a kind, newest first; return the tokens used so far."""
    for item in reversed(items):
        if item.kind != kind or not item.granted < form < len(item.forms):
            continue
        # A longer form only for what has its shortest: others would be dropped for it.
        if form and item.granted < 0:
            continue
        cost = _cost(item.forms[form]) - (
            _cost(item.forms[item.granted]) if item.granted >= 0 else item.shared
        )
        if used + cost <= limit:
            used += cost
            item.granted = form
    return used


def _cost(text: str) -> int:
    return count_text(text) + _LINE_TOKENS * (1 + len(text) // LINE_CHARS)


def _name(selected: Sequence[NoteItem], used: int, limit: int, rounds: Sequence[int]) -> int:
    """Append identifiers to items, newest first, none twice; return the tokens used so far.

    Args:
        rounds: the most names of an item after each round.
    """
    text = "\n".join(item.text() for item in selected)
    for most in rounds:
        for item in reversed(selected):
            while item.reached < len(item.names) and len(item.added) < most:
                name = item.names[item.reached]
                item.reached += 1
                if name in text:
                    continue
                cost = count_text(f", {name}")
                if used + cost > limit:
                    # No name is shorter, so the rest need not be tried.
                    if limit - used < 3:
                        return used
                    continue
                used += cost
                item.added.append(name)
                text = f"{text}\n{name}"
    return used


def _lines(
    selected: Sequence[NoteItem], dropped: dict[ItemKind, list[int]]
) -> tuple[ObservationLine, ...]:
    lines: list[ObservationLine] = []
    for kind, seqs in dropped.items():
        text = f"{_DROPPED[kind]} nodes {shorten(numbers(seqs), 60)}: recall opens them."
        lines.append(ObservationLine("", "critical" if kind == "user" else "important", text))
    for item in selected:
        lines += _lines_of(item)
    return tuple(lines)


def without_dropped(
    lines: Sequence[ObservationLine],
) -> tuple[list[ObservationLine], list[ObservationLine]]:
    """Return lines without those that name the nodes of dropped items, and these as one a kind."""
    others: list[ObservationLine] = []
    spans: dict[str, tuple[ObservationLine, int, int]] = {}
    for line in lines:
        found = None if line.at or line.node else _DROPPED_LINE.match(line.text)
        if found is None:
            others.append(line)
            continue
        first, last = int(found[2]), int(found[3] or found[2])
        known = spans.get(found[1], (line, first, last))
        spans[found[1]] = (line, min(first, known[1]), max(last, known[2]))
    joined = [
        replace(line, text=f"{what} nodes {first}, ..., {last}: recall opens them.")
        if first < last
        else line
        for what, (line, first, last) in spans.items()
    ]
    return others, joined


def _lines_of(item: NoteItem) -> Iterator[ObservationLine]:
    text = item.text()
    if item.kind != "user":
        yield ObservationLine(item.at, item.priority, one_line(text), item.seq)
        return
    for number, piece in enumerate(_pieces(text)):
        critical = binding(piece) or (item.answers and not number)
        priority: Priority = "critical" if critical else "important"
        text = f"{'(cont.)' if number else 'User:'} {piece}"
        # Also where it continues: by its node the whole statement is the user's.
        yield ObservationLine(item.at, priority, text, item.seq, by_user=True)


def _pieces(text: str) -> Iterator[str]:
    """Yield a text in pieces of at most `LINE_CHARS`, split between lines or else words."""
    piece = ""
    for line in text.splitlines():
        rest = one_line(line)
        while rest:
            room = LINE_CHARS - len(piece) - 1
            if len(rest) <= room:
                piece, rest = f"{piece} {rest}".strip(), ""
            elif piece:
                yield piece
                piece = ""
            else:
                stop = rest.rfind(" ", room // 2, room)
                stop = room if stop < 0 else stop
                yield rest[:stop]
                rest = rest[stop:].lstrip()
    if piece:
        yield piece


def _shortest(notes: ObservationNotes, limit: int) -> ObservationNotes:
    """Return the most important lines that fit into `limit` tokens."""
    order: dict[Priority, int] = {"critical": 0, "important": 1, "info": 2, "done": 3}
    ranked = sorted(range(len(notes.lines)), key=lambda i: (order[notes.lines[i].priority], -i))
    left = limit - count_text(notes.task) - count_text(notes.next_step) - 40
    chosen: list[int] = []
    for index in ranked:
        cost = count_text(notes.lines[index].text) + _LINE_TOKENS
        if cost <= left:
            left -= cost
            chosen.append(index)
    return ObservationNotes(
        tuple(notes.lines[i] for i in sorted(chosen)), notes.task, notes.next_step
    )
