"""Archive notes: one line that replaces an interval's notes when condensing made no progress.

The line stays in front of whatever replaces the interval later, and counts all archived notes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from agent_runtime.memory.observational.reflector.retention import critical_lines
from agent_runtime.models.tokens import count_text
from agent_runtime.prompt.observation import Archive, Observation, ObservationLine, ObservationNotes
from agent_runtime.prompt.slots import Slots, fit_slots, newest_verdicts
from agent_runtime.prompt.text import shorten

KEPT_TOKENS = 200
"""Tokens of critical lines that stay with the archive note, the newest first."""
# Characters of a critical line that stays: enough for its subject, and recall finds the rest.
_LINE_CHARS = 160
_POINTER = "Archived: nodes "


def archived(
    parts: Sequence[Observation], *, least: int = 0, stated: Sequence[str] = ()
) -> Observation:
    """Return an archive note of the oldest of these observations; the log keeps everything.

    It replaces as few of them as make it smaller than they are.

    Args:
        least: by how many tokens it should be smaller.
        stated: constraints that prompts show anyway.
    """
    before, note = 0, None
    for count, part in enumerate(parts, 1):
        before += part.tokens
        note = _note(parts[:count], stated)
        if part.origin == "archive" and count == 1 < len(parts):
            # Archiving an archive note alone would only drop its critical lines.
            continue
        if note.tokens < before and before - note.tokens >= least:
            return note
    # Not small enough: the caller compares the sizes and gives up.
    return note or _note(parts, stated)


def _note(parts: Sequence[Observation], stated: Sequence[str]) -> Observation:
    lines = [line for part in parts for line in part.notes.lines if not is_pointer(line)]
    critical = critical_lines(parts, stated)
    kept: list[ObservationLine] = []
    # A third, or the note of short observations would not be smaller than they are.
    left = min(KEPT_TOKENS, sum(part.tokens for part in parts) // 3)
    for line in reversed(critical):
        shown = replace(line, text=shorten(line.text, _LINE_CHARS))
        # Ten tokens for its time and priority.
        left -= count_text(shown.text) + 10
        if left < 0:
            break
        kept.insert(0, shown)
    times = [line.at for line in lines if line.at]
    # Counted without the lines that earlier archives hid: `_joined` adds those.
    own = Archive(
        first=parts[0].first,
        last=parts[-1].last,
        lines=len(lines) - len(kept),
        critical=len(critical) - len(kept),
        since=min(times, default=""),
        until=max(times, default=""),
    )
    archive = _joined([*(part.archive for part in parts if part.archive), own])
    notes = pointing(ObservationNotes(tuple(kept)), archive)
    # What fails still fails, however old its verdict is.
    known = newest_verdicts(one for part in parts for one in part.slots.verdicts)
    failed = tuple(one for one in known if not one.verdict.passed)
    slots = fit_slots(Slots(failed), min(KEPT_TOKENS, sum(part.tokens for part in parts) // 6))
    return replace(covering(parts), notes=notes, origin="archive", archive=archive, slots=slots)


def covering(parts: Sequence[Observation]) -> Observation:
    """Return an observation without notes that covers exactly the interval of its parts."""
    return Observation(
        id=0,
        level=max(part.level for part in parts) + 1,
        parent_id=parts[0].parent_id,
        first=parts[0].first,
        last=parts[-1].last,
        notes=ObservationNotes(()),
        parts=tuple(part.id for part in parts),
    )


def archive_of(parts: Sequence[Observation]) -> Archive | None:
    """Return one archive for all that observations point to."""
    archives = [part.archive for part in parts if part.archive]
    return _joined(archives) if archives else None


def _joined(archives: Sequence[Archive]) -> Archive:
    return Archive(
        first=min(one.first for one in archives),
        last=max(one.last for one in archives),
        lines=sum(one.lines for one in archives),
        critical=sum(one.critical for one in archives),
        since=min((one.since for one in archives if one.since), default=""),
        until=max(one.until for one in archives),
    )


def pointing(notes: ObservationNotes, archive: Archive | None) -> ObservationNotes:
    """Return notes with exactly one line that points to an archive, the first."""
    lines = tuple(line for line in notes.lines if not is_pointer(line))
    if archive is None:
        return replace(notes, lines=lines)
    return replace(notes, lines=(ObservationLine("", "info", pointer(archive)), *lines))


def pointer(archive: Archive) -> str:
    """Return the line that points to an archive."""
    spans = f", {archive.since} to {archive.until}" if archive.since else ""
    nodes = f"{_POINTER}{archive.first} to {archive.last}{spans}"
    text = f"{nodes}; recall finds their {archive.lines} notes."
    if archive.critical:
        text = f"{text} {archive.critical} critical notes are among them."
    return text


def is_pointer(line: ObservationLine) -> bool:
    """Return whether a line points to an archive; notes that quote such a line have a time."""
    return not line.at and line.priority == "info" and line.text.startswith(_POINTER)
