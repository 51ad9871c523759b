"""Documents in an object store: each write replaces the version that its writer has read.

Their keys are `{owner}/{collection}/{scope}/{thread}/{name}`, next to the bodies; `owner` is a
digest of the owner's name, so no owner reaches another's documents.  No row refers to them:
`orphans` skips them, and the deletion of a thread deletes its documents.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace

from agent_runtime_storage.contract.documents import COLLECTIONS, Document, is_segment
from agent_runtime_storage.contract.records.objects import ObjectInfo, ObjectStore, Version
from agent_runtime_storage.objects.object_store import Objects, owner_prefix


class ObjectDocuments:
    """`Documents` over an object store."""

    def __init__(self, objects: Objects, user_id: str) -> None:
        self._objects = objects
        self._owner = owner_prefix(user_id)
        self.shown = objects.shown

    async def read(self, key: str) -> Document | None:
        stored = await self._objects.read(self._key(key))
        return None if stored is None else Document(*stored)

    async def write(self, key: str, data: bytes, *, replaces: Version | None) -> bool:
        return await self._objects.replace(self._key(key), data, replaces)

    async def delete(self, key: str, *, before: float | None = None) -> bool:
        return await self._objects.remove(self._key(key), before)

    async def list(self, prefix: str) -> AsyncGenerator[list[ObjectInfo]]:
        async with aclosing(self._objects.list(self._key(prefix))) as chunks:
            async for chunk in chunks:
                yield [replace(info, key=info.key[len(self._owner) + 1 :]) for info in chunk]

    def _key(self, key: str) -> str:
        return f"{self._owner}/{key}"


def is_document_key(key: str) -> bool:
    """Return whether an object is a document, to which no row has to refer."""
    return not COLLECTIONS.isdisjoint(key.split("/")[1:2])


async def list_document_keys(objects: ObjectStore) -> AsyncGenerator[str]:
    """Yield the keys of all owners' documents."""
    async with aclosing(objects.list()) as chunks:
        async for chunk in chunks:
            for info in chunk:
                if is_document_key(info.key):
                    yield info.key


async def delete_documents(objects: Objects, user_id: str, thread_id: str) -> None:
    """Delete the documents that belong to a thread."""
    # Such a thread can have none, and its id could lead out of the folder.
    if not is_segment(thread_id):
        return
    for collection in COLLECTIONS:
        prefix = f"{owner_prefix(user_id)}/{collection}"
        for scope in await objects.folders(prefix):
            async with aclosing(objects.list(f"{prefix}/{scope}/{thread_id}")) as chunks:
                async for chunk in chunks:
                    for info in chunk:
                        await objects.remove(info.key, None)
