"""Long messages: their text is kept as a file of the thread, and a part stands in the message.

Counting and sending a message takes time and room at each step, and one that fills the window would
end every further run of its thread.
"""

from __future__ import annotations

from agent_runtime.files.attach import File, store_file
from agent_runtime.messages import encodable
from agent_runtime_storage.contract.store import UserStore

MESSAGE_CHARS = 200_000
"""The default limit of a message's characters."""
NOTE_CHARS = 20_000
"""The most characters of a message to a run at work."""
HEAD_CHARS = 500
"""How much stands in such a message when others wait that fill the room."""


async def keep_long_text(
    store: UserStore, thread_id: str, text: str, most: int, max_bytes: int, *, name: str
) -> str:
    """Return a text of at most about `most` characters; store a longer one with the thread.

    Raises:
        InvalidFile: it is larger than a file may be.
        NotFound: there is no such thread.
    """
    if len(text) <= most:
        return text
    content = encodable(text).encode()
    file = File(content, f"{name}.txt", "text/plain", "document")
    ref = await store_file(store, thread_id, file, max_bytes)
    return (
        f"{text[:most]}\n[... {len(text):,} characters in all, of which the first {most:,} stand "
        f'here; recall("{ref.uri}") opens the whole text ...]'
    )
