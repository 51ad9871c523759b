"""Long messages: their text is kept as a file of the thread, and a part stands in the message.

Counting and sending a message takes time and room at each step, and one that fills the window would
end every further run of its thread.
"""

from __future__ import annotations

import re

from agent_runtime.files.attach import File, new_file
from agent_runtime.messages import encodable
from agent_runtime_storage.contract.records.files import NewFile
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
    shortened, file = await split_long_text(text, most, max_bytes, name=name)
    if file is not None:
        await store.files.put(thread_id, file)
    return shortened


async def split_long_text(
    text: str, most: int, max_bytes: int, *, name: str
) -> tuple[str, NewFile | None]:
    """Return what `keep_long_text` does, and the file that is to be stored, if there is one.

    Raises:
        InvalidFile: it is larger than a file may be.
    """
    if len(text) <= most:
        return text, None
    # Shortened before, for a larger limit: the stored text is still the whole one.
    if kept := _KEPT.search(text):
        return _reference(text[: min(most, kept.start())], kept["length"], kept["uri"]), None
    content = encodable(text).encode()
    file = await new_file(File(content, f"{name}.txt", "text/plain", "document"), max_bytes)
    return _reference(text[:most], f"{len(text):,}", f"{file.origin}:{file.id}"), file


def _reference(part: str, length: str, uri: str) -> str:
    return (
        f"{part}\n[... {length} characters in all, of which the first {len(part):,} stand here; "
        f'recall("{uri}") opens the whole text ...]'
    )
