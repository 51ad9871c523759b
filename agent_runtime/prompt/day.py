"""The note that the day has changed, so that prompts name the present one and only grow."""

from __future__ import annotations

from agent_runtime.messages import DATE, Note
from agent_runtime.prompt.calendar import Today, day_note
from agent_runtime.prompt.view import View


def date_notes(view: View, timezone: str) -> list[Note]:
    """Return a note of the present day, if the prompt names another one or none."""
    anchor = view.anchor or 0
    since = [entry.message for entry in view.entries if entry.seq > anchor]
    named = [one.text for one in since if isinstance(one, Note) and one.source == DATE]
    text = day_note(Today.now(timezone), view.start.today, named)
    return [Note(text, source=DATE)] if text else []
