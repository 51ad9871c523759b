"""Documents in an object store: each write replaces the version that its writer has read.

Their keys are `{owner}/{collection}/{scope}/{thread}/{name}`, next to the bodies; `owner` is a
digest of the owner's name, so no owner reaches another's documents.  No row refers to them:
`orphans` skips them, and the deletion of a thread deletes its documents.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace

import zstandard

from agent_runtime_config.errors import ConfigError
from agent_runtime_storage.contract.documents import COLLECTIONS, Document, is_segment
from agent_runtime_storage.contract.errors import CorruptDocument
from agent_runtime_storage.contract.records.objects import ObjectInfo, ObjectStore, Version
from agent_runtime_storage.objects.object_store import Objects, owner_prefix

_COMPRESSED = ".zst"


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
    # The segment after the owner's; a thread's objects have the thread's id there.
    return not COLLECTIONS.isdisjoint(key.split("/")[1:2])


async def list_document_keys(objects: ObjectStore) -> AsyncGenerator[str]:
    """Yield the keys of all owners' documents."""
    async with aclosing(objects.list()) as chunks:
        async for chunk in chunks:
            for info in chunk:
                if is_document_key(info.key):
                    yield info.key


async def thread_documents(
    objects: Objects, user_id: str, thread_id: str
) -> AsyncGenerator[tuple[str, str, str]]:
    """Yield collection, scope and name of each document that belongs to a thread.

    The names of what another program put below them may have slashes.
    """
    # Such a thread can have none, and its id could lead out of the folder.
    if not is_segment(thread_id):
        return
    for collection in sorted(COLLECTIONS):
        prefix = f"{owner_prefix(user_id)}/{collection}"
        for scope in await objects.folders(prefix):
            folder = f"{prefix}/{scope}/{thread_id}"
            async with aclosing(objects.list(folder)) as chunks:
                async for chunk in chunks:
                    for info in chunk:
                        yield collection, scope, info.key.removeprefix(f"{folder}/")


def is_document_place(thread_id: str, collection: str, scope: str, name: str) -> bool:
    """Return whether a thread can have a document of this name; others could leave its folder."""
    # A node's name may be as long as a segment can be, without the endings.
    stem = name.removesuffix(_COMPRESSED).removesuffix(".json")
    return collection in COLLECTIONS and all(map(is_segment, (thread_id, scope, stem)))


def thread_document_key(
    user_id: str, thread_id: str, collection: str, scope: str, name: str
) -> str:
    """Return the key of a thread's document."""
    return f"{owner_prefix(user_id)}/{collection}/{scope}/{thread_id}/{name}"


async def delete_documents(objects: Objects, user_id: str, thread_id: str) -> None:
    """Delete the documents that belong to a thread."""
    async with aclosing(thread_documents(objects, user_id, thread_id)) as places:
        async for place in places:
            await objects.remove(thread_document_key(user_id, thread_id, *place), None)


def objects_needed() -> ConfigError:
    """Return the error for documents of a database without an object store."""
    return ConfigError(
        "Documents such as node memories need an object store, and none is set for a "
        "database on a server.",
        cure="Set AGENT_RUNTIME_OBJECT_STORE_URL to a bucket, or to a folder that all "
        "machines share.",
    )


def plain_document(key: str, data: bytes) -> bytes:
    """Return a stored document without its compression, which the ending of its key names.

    Raises:
        CorruptDocument: it is damaged.
    """
    if not key.endswith(_COMPRESSED):
        return data
    try:
        # Streamed, as its writer may have left out the size.
        with zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=False) as reader:
            return reader.read()
    except zstandard.ZstdError as error:
        raise CorruptDocument(
            f"The document {key} is damaged: it cannot be decompressed.",
            cure="Restore it from a backup, or delete it.",
        ) from error


def stored_document(name: str, body: bytes) -> bytes:
    """Return a plain document as one of this name is stored."""
    if not name.endswith(_COMPRESSED):
        return body
    return zstandard.ZstdCompressor(write_checksum=True).compress(body)
