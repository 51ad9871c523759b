"""What came into a thread's inbox, as a run's model reads it."""

from __future__ import annotations

from collections.abc import Sequence

from agent_runtime.delegation.background import JOB
from agent_runtime.files.long_texts import NOTE_CHARS
from agent_runtime.human.pause import PAUSE
from agent_runtime.human.posting import InboxLimits
from agent_runtime.messages import Note
from agent_runtime_config import Settings
from agent_runtime_storage.contract.records.log import InboxItem


def inbox_limits(settings: Settings) -> InboxLimits:
    """Return the limits that the settings set."""
    return InboxLimits(
        chars=min(settings.max_message_chars, NOTE_CHARS),
        messages=settings.max_inbox_messages,
        of_user=settings.max_user_inbox_messages,
        file_bytes=settings.max_file_bytes,
    )


def inbox_notes(items: Sequence[InboxItem], run_id: str) -> list[Note]:
    """Return the items of the inbox as notes for a run's model."""
    notes: list[Note] = []
    for item in items:
        text = item.body.decode()
        if item.kind == "steer":
            when = "while you work" if item.run_id in (None, run_id) else "to an earlier run"
            notes.append(Note(f"The user says, {when}: {text}", source="steer"))
        elif item.kind == JOB:
            notes.append(Note(text, source="background"))
        elif item.kind != PAUSE:
            notes.append(Note(text))
    return notes
