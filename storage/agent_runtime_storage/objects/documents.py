"""Documents: objects that change, each written only in the place of what its writer has read.

They lie beside the bodies, under `{owner}/{collection}/{scope}/{thread}/{name}`, where `owner` is a
digest of the owner's name, so nobody reaches another's.  No row refers to them: `orphans` leaves
them, and those of a thread go when the thread is deleted.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace

from agent_runtime_config.errors import ConfigError
from agent_runtime_storage.contract.object_records import ObjectInfo, Version
from agent_runtime_storage.objects.object_store import Objects, owner_prefix
from agent_runtime_storage.queries.owner import OwnerScope

NODE_MEMORY = "node_memory"
COLLECTIONS = frozenset({NODE_MEMORY})
"""The first segments of the keys of documents, which no thread's prefix can have."""
# Nothing that a store or a file system reads as something else, or is too long a name for.
_SEGMENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._:@=+-]{0,127}")


@dataclass(frozen=True, slots=True)
class Document:
    """A document as it was read, with the version that a write of it replaces."""

    data: bytes
    version: Version


class Documents:
    """One owner's documents; keys are relative to the owner.

    Every method raises `ObjectsUnavailable` and `StoreFull` as those of `Objects`.  A cancelled
    write may have happened, so a writer must be able to say the same thing twice.
    """

    def __init__(self, objects: Objects, user_id: str) -> None:
        self._objects = objects
        self._owner = owner_prefix(user_id)
        self.shown = objects.shown
        """The store's URL without secrets."""

    async def read(self, key: str) -> Document | None:
        """Return a document, None if it is not there."""
        found = await self._objects.read(self._key(key))
        return None if found is None else Document(*found)

    async def write(self, key: str, data: bytes, *, replaces: Version | None) -> bool:
        """Write a document whole and durably, if it still is what it replaces.

        Args:
            replaces: the version that was read; None if there was none.

        Returns:
            Whether it was written; if not, somebody else wrote or deleted it meanwhile.
        """
        return await self._objects.replace(self._key(key), data, replaces)

    async def delete(self, key: str, *, before: float | None = None) -> bool:
        """Delete a document; return whether it was there and is gone.

        Args:
            before: delete only what was last written before this moment (seconds since the
                epoch).  In a bucket it is looked at right before, in a folder under its lock.
        """
        return await self._objects.remove(self._key(key), before)

    async def list(self, prefix: str) -> AsyncGenerator[list[ObjectInfo]]:
        """Give the documents in `prefix`, some at a time, in no order."""
        async with aclosing(self._objects.list(self._key(prefix))) as chunks:
            async for chunk in chunks:
                yield [replace(one, key=one.key[len(self._owner) + 1 :]) for one in chunk]

    def _key(self, key: str) -> str:
        return f"{self._owner}/{key}"


class OwnedDocuments(OwnerScope):
    """The part of `UserStore` for documents."""

    def documents(self) -> Documents:
        if self._objects is None:
            raise ConfigError(
                "Documents such as node memories need an object store, and none is set for a "
                "database on a server.",
                cure="Set AGENT_RUNTIME_OBJECT_STORE_URL to a bucket, or to a folder that all "
                "machines share.",
            )
        return Documents(self._objects, self.user_id)


def is_document_key(key: str) -> bool:
    """Return whether an object is a document, to which no row has to refer."""
    return not COLLECTIONS.isdisjoint(key.split("/")[1:2])


def is_segment(text: str) -> bool:
    """Return whether a text can be a segment of a key as it is, and stays within its folder."""
    return _SEGMENT.fullmatch(text) is not None


async def list_document_keys(objects: Objects) -> AsyncGenerator[str]:
    """Give the keys of all owners' documents."""
    async with aclosing(objects.list()) as chunks:
        async for chunk in chunks:
            for info in chunk:
                if is_document_key(info.key):
                    yield info.key


async def delete_documents(objects: Objects, user_id: str, thread_id: str) -> None:
    """Delete the documents that belong to a thread."""
    if not is_segment(thread_id):
        return
    for collection in COLLECTIONS:
        prefix = f"{owner_prefix(user_id)}/{collection}"
        for scope in await objects.folders(prefix):
            async with aclosing(objects.list(f"{prefix}/{scope}/{thread_id}")) as chunks:
                async for chunk in chunks:
                    for info in chunk:
                        await objects.remove(info.key, None)
