"""Notes about a run's context that prompts keep: where the agent is, and the instructions it has.

Each note has a topic, and the newest one of a topic holds.  When its node leaves the prompt, the
note moves to the front, after the system prompt.  Like other notes they are the runtime's words, so
nothing in them counts as a constraint of the user.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from agent_runtime.messages import Note
from agent_runtime.prompt.view import Entry, View


def standing_notes(view: View) -> dict[str, Note]:
    """Return the notes that hold on a branch, by topic."""
    return {topic: note for topic, (_, note) in _newest(view).items() if _holds(note)}


def left_context(view: View, first: int | None) -> tuple[Entry, ...]:
    """Return the notes that hold and whose nodes are before the first raw node, in order."""
    if first is None:
        return ()
    found = [entry for entry, note in _newest(view).values() if _holds(note) and entry.seq < first]
    # As a reload gives them: they are rendered again in front.
    return tuple(
        replace(entry, prompt=(), tokens=0) for entry in sorted(found, key=lambda entry: entry.seq)
    )


def changed_notes(standing: Mapping[str, Note], current: Iterable[Note]) -> list[Note]:
    """Return what to append so that the current notes hold: what is new, and what ended."""
    wanted = {note.topic: note for note in current if note.topic is not None}
    ended = [
        Note(f"What the note on {topic} said holds no longer.", "context_ended", topic=topic)
        for topic in standing
        if topic not in wanted
    ]
    return [*ended, *(note for topic, note in wanted.items() if standing.get(topic) != note)]


def _newest(view: View) -> dict[str, tuple[Entry, Note]]:
    return {note.topic: (entry, note) for entry, note in _notes(view) if note.topic is not None}


def _notes(view: View) -> Iterator[tuple[Entry, Note]]:
    for entry in (*view.context, *view.entries):
        if isinstance(entry.message, Note):
            yield entry, entry.message


def _holds(note: Note) -> bool:
    # The other source, `context_ended`, takes a note back.
    return note.source == "context"
