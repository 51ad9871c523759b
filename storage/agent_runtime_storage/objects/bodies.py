"""Where bodies lie: small ones in their row, large ones compressed in the thread's blobs.

The largest lie outside of the database, as objects; their blob's row holds only the key.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

import anyio.to_thread
import zstandard

from agent_runtime_storage.contract.errors import CorruptThread
from agent_runtime_storage.drivers.protocol import Statement
from agent_runtime_storage.objects.object_store import (
    Objects,
    digest_and_codec,
    in_parallel,
    object_damaged,
    object_key,
    object_lost,
)

INLINE_BYTES = 4096
# From this size on, compressed, an object of its own costs a commit no more than the database.
OBJECT_BYTES = 256 * 1024
_LEVEL = 3
# Above this, hashing and compressing would hold up the event loop for a millisecond or more.
THREAD_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class Packed:
    """A body as it is written: inline, or the hash of a blob and the blob, or of an object."""

    inline: bytes
    hash: bytes | None = None
    codec: str = ""
    data: bytes = b""
    object: str | None = None
    object_bytes: int | None = None


def _pack(body: bytes) -> Packed:
    digest = hashlib.sha256(body).digest()
    compressed = zstandard.ZstdCompressor(level=_LEVEL).compress(body)
    if len(compressed) < len(body):
        return Packed(b"", digest, "zstd", compressed)
    return Packed(b"", digest, "raw", body)


class BodyWriter:
    """The packed bodies of one batch; each distinct blob of it is written once.

    Args:
        objects: where the largest go; None keeps them in the database.
    """

    def __init__(
        self, put_blob: str, user_id: str, thread_id: str, objects: Objects | None = None
    ) -> None:
        self._put_blob = put_blob
        self._key = {"user_id": user_id, "thread_id": thread_id}
        self._objects = objects
        self._packed: dict[bytes, Packed] = {}

    async def pack(self, bodies: Iterable[bytes], *, blobs: Iterable[bytes] = ()) -> None:
        """Prepare bodies for `get`; those of `blobs` become blobs however small they are.

        Bodies that become objects are put before this returns, so that they are there when the
        rows are; if those are never written, they are orphans.

        Raises:
            ObjectsUnavailable, StoreFull: an object cannot be put.
        """
        large = {body for body in bodies if len(body) > INLINE_BYTES} | set(blobs)
        if not large:
            return
        if sum(len(body) for body in large) > THREAD_BYTES:
            packed = await anyio.to_thread.run_sync(lambda: [_pack(body) for body in large])
        else:
            packed = [_pack(body) for body in large]
        if self._objects is not None:
            packed = await self._put_objects(packed, self._objects)
        self._packed.update(zip(large, packed, strict=True))

    async def _put_objects(self, packed: Iterable[Packed], objects: Objects) -> list[Packed]:
        placed = [self._as_object(one) for one in packed]
        data = {one.object: one.data for one in placed if one.object is not None}

        async def put(key: str) -> None:
            await objects.put(key, data[key])

        await in_parallel(put, data)
        return [one if one.object is None else replace(one, data=b"") for one in placed]

    def _as_object(self, packed: Packed) -> Packed:
        if packed.hash is None or len(packed.data) <= OBJECT_BYTES:
            return packed
        key = object_key(self._key["user_id"], self._key["thread_id"], packed.hash, packed.codec)
        return replace(packed, object=key, object_bytes=len(packed.data))

    def get(self, body: bytes) -> Packed:
        """Return how the body lies: inline, if it was not packed."""
        return self._packed.get(body) or Packed(body)

    def blob(self, body: bytes) -> Packed:
        """Return the blob of a body that was packed as one."""
        return self._packed[body]

    def statements(self) -> list[Statement]:
        """Return what writes the blobs; it has to come before the rows that refer to them."""
        return [
            Statement(
                self._put_blob,
                {
                    **self._key,
                    "hash": packed.hash,
                    "codec": packed.codec,
                    "data": packed.data,
                    "object": packed.object,
                    "object_bytes": packed.object_bytes,
                },
            )
            for packed in self._packed.values()
        ]


async def fetch_bodies(objects: Objects | None, keys: Collection[str]) -> Mapping[str, bytes]:
    """Return the bodies that lie in objects, by their keys, read in parallel and verified.

    Raises:
        ObjectLost: one is not there, or is damaged.
        ObjectsUnavailable: the object store cannot be reached or used.
    """
    if not keys:
        return {}
    if objects is None:
        raise object_lost(min(keys), "the database, and no object store is set")
    held = objects

    async def one(key: str) -> bytes:
        data = await held.get(key)
        if len(data) > THREAD_BYTES:
            body = await anyio.to_thread.run_sync(_verified, key, data)
        else:
            body = _verified(key, data)
        if body is None:
            raise object_damaged(key, held.shown)
        return body

    return await in_parallel(one, keys)


def _verified(key: str, data: bytes) -> bytes | None:
    """Return the body that an object holds, None if it is not the one that its key names."""
    try:
        digest, codec = digest_and_codec(key)
        body = data if codec == "raw" else zstandard.ZstdDecompressor().decompress(data)
    except (ValueError, zstandard.ZstdError):
        return None
    return body if hashlib.sha256(body).digest() == digest else None


def unpack_body(inline: bytes, codec: str, data: bytes | None, what: Mapping[str, object]) -> bytes:
    """Return a body as it was given.

    Args:
        codec: empty if the body is inline.
        what: names the row in the error.

    Raises:
        CorruptThread: the blob is lost or damaged.
    """
    if not codec:
        return inline
    if data is not None:
        if codec == "raw":
            return data
        try:
            return zstandard.ZstdDecompressor().decompress(data)
        except zstandard.ZstdError as error:
            raise _lost(what) from error
    raise _lost(what)


def _lost(what: Mapping[str, object]) -> CorruptThread:
    named = ", ".join(f"{key} {value}" for key, value in what.items())
    return CorruptThread(
        f"The content of {named} is lost or damaged.", cure="Restore the database from a backup."
    )
