"""The message of a client that begins a turn."""

from __future__ import annotations

from dataclasses import dataclass

from agent_runtime.errors import InvalidFile
from agent_runtime_config.counted import counted

MAX_FILES = 20
"""How many files a message of a client may have."""


@dataclass(frozen=True, slots=True)
class Message:
    """What a client's user says.

    Attributes:
        files: URLs that begin with http(s):// or data:.
    """

    text: str
    files: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if len(self.files) > MAX_FILES:
            raise InvalidFile(
                f"The message has {counted(len(self.files), 'file')}.",
                cure=f"Attach at most {MAX_FILES} to a message.",
            )
        for url in self.files:
            # Anything else would name a file of the server.
            if not url.startswith(("https://", "http://", "data:")):
                raise InvalidFile(
                    "A file of the message is neither a URL nor data.",
                    cure="Give an http(s) URL, or a data URL with the content.",
                )
