"""Long messages: their text is kept as a file of the thread, and a part stands in the message.

Counting and sending a message takes time and room at each step, and one that fills the window would
end every further run of its thread.
"""

from __future__ import annotations

import re

from agent_runtime.files.attach import File, store_file
from agent_runtime.messages import encodable
from agent_runtime_storage.contract.store import UserStore

MESSAGE_CHARS = 200_000
"""The default limit of a message's characters."""
NOTE_CHARS = 20_000
"""The most characters of a message to a run at work."""
HEAD_CHARS = 500
"""How much stands in such a message when others wait that fill the room."""

_KEPT = re.compile(
    r"\n\[\.\.\. (?P<length>[\d,]+) characters in all, of which the first [\d,]+ stand here; "
    r'recall\("(?P<uri>upload:[0-9a-f-]{36})"\) opens the whole text \.\.\.\]\Z'
)


async def keep_long_text(
    store: UserStore, thread_id: str, text: str, most: int, max_bytes: int, *, name: str
) -> str:
    """Return a text of at most about `most` characters; store a longer one with the thread.

    One that was returned before refers to the same file as before.

    Raises:
        InvalidFile: it is larger than a file may be.
        NotFound: there is no such thread.
    """
    if len(text) <= most:
        return text
    if kept := _KEPT.search(text):
        return _reference(text[: min(most, kept.start())], kept["length"], kept["uri"])
    content = encodable(text).encode()
    file = File(content, f"{name}.txt", "text/plain", "document")
    ref = await store_file(store, thread_id, file, max_bytes)
    return _reference(text[:most], f"{len(text):,}", ref.uri)


def _reference(part: str, length: str, uri: str) -> str:
    return (
        f"{part}\n[... {length} characters in all, of which the first {len(part):,} stand here; "
        f'recall("{uri}") opens the whole text ...]'
    )
