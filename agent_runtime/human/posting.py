"""Send messages to runs, within limits."""

from __future__ import annotations

from dataclasses import dataclass

from agent_runtime.files.long_texts import HEAD_CHARS, NOTE_CHARS, split_long_text
from agent_runtime.messages import encodable
from agent_runtime_storage.contract.records.log import Run
from agent_runtime_storage.contract.store import UserStore

STEER = "steer"
"""The kind of these items in a thread's inbox."""


@dataclass(frozen=True, slots=True)
class InboxLimits:
    """What may wait to be read.

    Attributes:
        chars: of a message, and of all that wait on a thread; of what is longer only the beginning
            is sent.
        messages: how many may wait on a thread.
        of_user: how many may wait on all threads of a user.
        file_bytes: the largest text that can be kept.
    """

    chars: int = NOTE_CHARS
    messages: int = 100
    of_user: int = 1_000
    file_bytes: int = 20_000_000


async def post_message(store: UserStore, run: Run, text: str, limits: InboxLimits) -> None:
    """Put a message into the inbox of a run's thread.

    Raises:
        InboxFull: too many wait there.
        InvalidFile: the text is larger than a file may be.
    """
    waiting = [one for one in await store.inbox.pending(run.thread_id) if one.kind == STEER]
    # All that waits is read in one step, and has to fit into one prompt together.
    room = limits.chars - sum(len(one.body) for one in waiting)
    most = limits.chars if len(text) <= room else max(room, HEAD_CHARS)
    text, file = await split_long_text(text, most, limits.file_bytes, name="message")
    await store.inbox.post(
        run.thread_id,
        STEER,
        encodable(text).encode(),
        run_id=run.id,
        # Checked in the insert itself, as several senders may post at once.
        most=limits.messages,
        most_of_user=limits.of_user,
        file=file,
    )
