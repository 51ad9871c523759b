"""What came into a thread's inbox, as a run's model reads it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import anyio.to_thread

from agent_runtime.delegation.background import JOB
from agent_runtime.files.attach import MAX_BYTES
from agent_runtime.files.long_texts import NOTE_CHARS, keep_long_text
from agent_runtime.human.pause import PAUSE
from agent_runtime.human.posting import InboxLimits
from agent_runtime.messages import Note, NoteSource
from agent_runtime.models.tokens import count_text
from agent_runtime.prompt.truncate import share_result_budget
from agent_runtime.tools.workspace.background_commands import JOB as COMMAND_JOB
from agent_runtime_config import Settings
from agent_runtime_storage.contract.records.log import InboxItem
from agent_runtime_storage.contract.store import UserStore

LEAST_TOKENS = 150
"""What a note takes that shows little more than where the rest of it is."""


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
        elif item.kind in (JOB, COMMAND_JOB):
            notes.append(Note(text, source="background"))
        elif item.kind != PAUSE:
            notes.append(Note(text))
    return notes


async def fit_notes(
    store: UserStore, thread_id: str, notes: Sequence[Note], most: int
) -> list[Note]:
    """Return notes of about `most` of our tokens together; longer texts are kept as files.

    Notes are not truncated later, so ones that fill the window would end every run of the thread.
    """
    # A token has at least one byte.
    if sum(len(note.text.encode()) for note in notes) <= most:
        return list(notes)
    # In a thread: dense texts take long to count.
    whole, shown = await anyio.to_thread.run_sync(_fitting, notes, most)
    return [
        replace(
            one,
            text=await keep_long_text(store, thread_id, one.text, chars, MAX_BYTES, name="message"),
        )
        for one, chars in zip(whole, shown, strict=True)
    ]


def _fitting(notes: Sequence[Note], most: int) -> tuple[Sequence[Note], list[int]]:
    """Return the notes, and how many characters of each are shown."""
    if sum(count_text(note.text) for note in notes) <= most:
        return notes, [len(note.text) for note in notes]
    if len(notes) * LEAST_TOKENS > most:
        # Not even their beginnings have room: one note for each source.
        by_source = dict[NoteSource, list[str]]()
        for note in notes:
            by_source.setdefault(note.source, []).append(note.text)
        notes = [Note("\n\n".join(parts), source) for source, parts in by_source.items()]
    texts = [note.text for note in notes]
    shown = share_result_budget(texts, most, count_text)
    return notes, [
        len(text) if chars is None else chars for text, chars in zip(texts, shown, strict=True)
    ]
