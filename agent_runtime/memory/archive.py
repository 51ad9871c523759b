"""Archive notes: one line that stands for a whole interval, where condensing it got no further."""

from __future__ import annotations

from dataclasses import replace

from agent_runtime.tokens import count_text

from .kept import critical_lines
from .observation import Line, Notes, Observation
from .rules import shorten

KEPT_TOKENS = 200
"""How much of the critical lines stays beside the archive note, the newest first."""
_LINE_CHARS = 160


def archived(part: Observation) -> Observation:
    """Return the archive note that stands for an observation; the log keeps all.

    It is smaller than the observation, unless that is hardly more than a line itself.
    """
    times = [line.at for line in part.notes.lines if line.at]
    spans = f", {times[0]} to {times[-1]}" if times else ""
    text = (
        f"Archived: nodes {part.first} to {part.last}{spans}. "
        f"recall opens and searches the messages of these nodes."
    )
    critical = critical_lines([part])
    kept: list[Line] = []
    left = min(KEPT_TOKENS, part.tokens // 3)
    for line in reversed(critical):
        shown = replace(line, text=shorten(line.text, _LINE_CHARS))
        left -= count_text(shown.text) + 10
        if left < 0:
            break
        kept.insert(0, shown)
    if len(kept) < len(critical):
        text = f"{text} {len(critical) - len(kept)} critical notes are among them."
    first = Line("", "info", text)
    return Observation(
        id=0,
        level=part.level + 1,
        parent_id=part.parent_id,
        first=part.first,
        last=part.last,
        notes=Notes((first, *kept)),
        parts=(part.id,),
        origin="archive",
    )
