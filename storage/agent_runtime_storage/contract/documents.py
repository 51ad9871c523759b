"""Documents: objects that change, and that belong to one owner.

Their keys are `{collection}/{scope}/{thread}/{name}`.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Protocol

from agent_runtime_storage.contract.records.objects import ObjectInfo, Version

NODE_MEMORY = "node_memory"
COLLECTIONS = frozenset({NODE_MEMORY})
"""The first segments of documents' keys; a body has the digest of its thread there instead."""
# Nothing that a store or a file system interprets (such as `..`), and short enough for all.
_SEGMENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._:@=+-]{0,127}")


def is_segment(text: str) -> bool:
    """Return whether a text can be a segment of a key unescaped, and stays within its folder."""
    return _SEGMENT.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class Document:
    """A document as it was read, with the version that a write of it replaces."""

    data: bytes
    version: Version


class Documents(Protocol):
    """One owner's documents; keys are relative to the owner.

    Every method raises `ObjectsUnavailable` if the object store cannot be used, and `StoreFull` if
    it has no space left.  A cancelled write may have happened, so a writer must be able to repeat
    it.
    """

    @property
    def shown(self) -> str:
        """The object store's URL without secrets."""
        ...

    async def read(self, key: str) -> Document | None:
        """Return a document, or None if it does not exist."""
        ...

    async def write(self, key: str, data: bytes, *, replaces: Version | None) -> bool:
        """Write a document whole and durably, if it is still the version that it replaces.

        Args:
            replaces: the version that was read; None if there was none.

        Returns:
            Whether it was written; if not, another process has written or deleted it.
        """
        ...

    async def delete(self, key: str, *, before: float | None = None) -> bool:
        """Delete a document; return whether it existed and is deleted.

        Args:
            before: delete only what was last written before this moment (seconds since the
                epoch).  In a bucket the time is checked right before the deletion, in a folder
                under its lock.
        """
        ...

    def list(self, prefix: str) -> AsyncGenerator[list[ObjectInfo]]:
        """Yield the documents in `prefix` in chunks, in no order."""
        ...
