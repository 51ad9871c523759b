"""Repair rejected notes: from their good lines if these suffice, else in the same conversation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from agent_runtime.memory.observational.observer.notes_format import format_notes, parse_notes
from agent_runtime.memory.observational.observer.validate import (
    NotesRejected,
    NotesSource,
    RejectionReason,
    max_notes_tokens,
    validate_notes,
)
from agent_runtime.messages import PromptMessage
from agent_runtime.models.tokens import count_text
from agent_runtime.prompt.observation import ObservationLine, ObservationNotes, render_notes

_REPAIRABLE: tuple[RejectionReason, ...] = (
    "contradictory",
    "malformed",
    "repetitive",
    "too long",
    "echo",
)
LEAST_DISTINCT = 3
"""Notes that say each thing more often than this are a loop, of which nothing is kept."""
LONGEST = 1.5
"""Notes longer than this share of their limit are condensed by the model, not by us."""
COPIED = 40
"""Characters from which on a line that is in the instructions too was copied from them."""
MOST_CHARS = 40
"""Longer answers, in characters for each allowed token, are not worth parsing."""


def salvage_notes(
    text: str, rejected: NotesRejected, source: NotesSource
) -> ObservationNotes | None:
    """Return the good lines of whole but rejected notes, or None if they do not suffice.

    Dropped are prose, repetitions, copied instructions, marks of the transcript and, if little is
    too much, the oldest lines of information.
    """
    most = max_notes_tokens(source.tokens)
    if rejected.reason not in _REPAIRABLE or len(text) > most * MOST_CHARS:
        return None
    unmarked = [line for line in text.splitlines() if not (source.nonce and source.nonce in line)]
    parsed = parse_notes("\n".join(unmarked), source.zone)
    if parsed.proper <= parsed.loose + parsed.joined + parsed.stray:
        return None
    written = parsed.notes
    lines = _distinct(written.lines)
    if len(lines) * LEAST_DISTINCT < len(written.lines):
        return None
    instructions = _plain(source.instructions)
    original = [
        line for line in lines if len(line.text) < COPIED or _plain(line.text) not in instructions
    ]
    if not original:
        return None
    notes = _within(replace(written, lines=tuple(original)), most)
    # The repaired notes pass the same checks as those of a model, so that a repair cannot let a
    # bad line through.
    again = validate_notes(format_notes(notes), source)
    return again if isinstance(again, ObservationNotes) else None


def follow_up(answer: str, request: str, nonce: str, most: int) -> tuple[PromptMessage, ...]:
    """Return a rejected answer and the next request as further messages of the conversation.

    Args:
        most: the most tokens of the answer that are shown.
    """
    # The answer may repeat data, in which the code would make every mark look real.
    shown = answer.replace(nonce, "[code]").strip() or "(an empty answer)"
    if (len(shown) > most // 4 and count_text(shown[: most * 8]) > most) or len(shown) > most * 8:
        shown = f"{_head(shown, most)}\n[...]"
    return PromptMessage("assistant", shown), PromptMessage("user", request)


def _head(text: str, most: int) -> str:
    """Return the begin of a text, of at most `most` tokens."""
    head = text[: most * 8]
    while (tokens := count_text(head)) > most:
        # A tenth less than the proportion asks for, so that one or two rounds suffice.
        head = head[: len(head) * most * 9 // (tokens * 10)]
    return head


def _distinct(lines: Sequence[ObservationLine]) -> list[ObservationLine]:
    return list({_plain(line.text): line for line in reversed(lines)}.values())[::-1]


def _within(notes: ObservationNotes, most: int) -> ObservationNotes:
    """Return the notes without the oldest lines of information, if few are too many."""
    excess = count_text(render_notes(notes)) - most
    if excess <= 0 or excess > most * (LONGEST - 1):
        return notes
    kept: list[ObservationLine] = []
    for line in notes.lines:
        if excess > 0 and line.priority == "info":
            excess -= count_text(line.text)
        else:
            kept.append(line)
    return replace(notes, lines=tuple(kept))


def _plain(text: str) -> str:
    return " ".join(text.lower().split())
