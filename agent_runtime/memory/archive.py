"""Archive notes: one line that stands for a whole interval, where condensing it got no further."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from agent_runtime.tokens import count_text

from .kept import critical_lines
from .observation import Line, Notes, Observation
from .rules import shorten

KEPT_TOKENS = 200
"""How much of the critical lines stays beside the archive note, the newest first."""
_LINE_CHARS = 160


def archived(parts: Sequence[Observation]) -> Observation:
    """Return the archive note that stands for the oldest of some observations; the log keeps all.

    It stands for one, or for as many as it takes to be smaller than they are.
    """
    for count in range(1, len(parts) + 1):
        note = _note(parts[:count])
        if note.tokens < sum(part.tokens for part in parts[:count]):
            return note
    return _note(parts)


def _note(parts: Sequence[Observation]) -> Observation:
    first, last = parts[0].first, parts[-1].last
    times = [line.at for part in parts for line in part.notes.lines if line.at]
    spans = f", {min(times)} to {max(times)}" if times else ""
    text = f"Archived: nodes {first} to {last}{spans}; recall opens and searches their messages."
    critical = critical_lines(parts)
    kept: list[Line] = []
    left = min(KEPT_TOKENS, sum(part.tokens for part in parts) // 3)
    for line in reversed(critical):
        shown = replace(line, text=shorten(line.text, _LINE_CHARS))
        left -= count_text(shown.text) + 10
        if left < 0:
            break
        kept.insert(0, shown)
    if len(kept) < len(critical):
        text = f"{text} {len(critical) - len(kept)} critical notes are among them."
    return Observation(
        id=0,
        level=max(part.level for part in parts) + 1,
        parent_id=parts[0].parent_id,
        first=first,
        last=last,
        notes=Notes((Line("", "info", text), *kept)),
        parts=tuple(part.id for part in parts),
        origin="archive",
    )
