"""Records of the files of threads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

FileKind = Literal["image", "audio", "video", "document", "custom"]
FileOrigin = Literal["upload", "tool"]


@dataclass(frozen=True, slots=True)
class FileRow:
    """A file of a thread, without its content; it never changes.

    Attributes:
        id: unique in its thread; an imported copy of the thread keeps it.
        origin: `upload`, or `tool` if a tool made it.
    """

    thread_id: str
    id: str
    kind: FileKind
    origin: FileOrigin
    name: str
    media_type: str
    bytes: int
    created_at: float


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file to store, as `FileRow`."""

    id: str
    kind: FileKind
    origin: FileOrigin
    name: str
    media_type: str
    content: bytes
