"""Store bodies compressed: small ones in their row, large ones in the thread's blobs.

The largest are objects outside of the database; their blob's row holds only the key.  Without an
object store, a database that takes no value of that size gets them in parts (`parts`).

A body in its row is a zstd frame if it begins as one, else the body itself.
"""

from __future__ import annotations

import hashlib
import threading
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
from agent_runtime_storage.objects.parts import Parted

# Of the plain body; a larger one becomes a blob, which equal bodies of the thread share.
INLINE_BYTES = 4096
# From this compressed size on, a commit takes no longer with an object than with a blob's data.
OBJECT_BYTES = 256 * 1024
# Shorter ones, such as most messages, would shrink by little.
COMPRESSED_BYTES = 512
# Shrinks typical bodies to 40% in about 10 µs.
_LEVEL = 3
_FRAME = zstandard.FRAME_HEADER
# Hashing and compressing more would hold up the event loop for a millisecond or longer.
THREAD_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class Packed:
    """A body as it is written: inline, or a blob by its hash, whose data may be an object."""

    inline: bytes
    hash: bytes | None = None
    codec: str = ""
    data: bytes = b""
    object: str | None = None
    object_bytes: int | None = None


class _Zstd(threading.local):
    """A compressor and a decompressor for each thread: neither can be shared, and each costs more
    to make than a small body takes."""

    def __init__(self) -> None:
        self.compress = zstandard.ZstdCompressor(level=_LEVEL).compress
        self.decompress = zstandard.ZstdDecompressor().decompress


_zstd = _Zstd()


def _pack_inline(body: bytes) -> bytes:
    """Return what a row holds of a body."""
    # Whatever begins as a frame becomes one, or it would be read as one.
    ambiguous = body.startswith(_FRAME)
    if len(body) < COMPRESSED_BYTES and not ambiguous:
        return body
    compressed = _zstd.compress(body)
    return compressed if ambiguous or len(compressed) < len(body) else body


def _pack(body: bytes) -> Packed:
    digest = hashlib.sha256(body).digest()
    compressed = _zstd.compress(body)
    # Images and archives are compressed already.
    if len(compressed) < len(body):
        return Packed(b"", digest, "zstd", compressed)
    return Packed(b"", digest, "raw", body)


class BodyWriter:
    """The packed bodies of one batch; equal bodies are written once.

    Args:
        objects: the object store for the largest; None stores them in the database.
        part_bytes: the most bytes of a value in the database; None for any number.
    """

    def __init__(
        self,
        put_blob: str,
        user_id: str,
        thread_id: str,
        objects: Objects | None = None,
        part_bytes: int | None = None,
    ) -> None:
        self._put_blob = put_blob
        self._key = {"user_id": user_id, "thread_id": thread_id}
        self._objects = objects
        self._part_bytes = part_bytes
        self._packed: dict[bytes, Packed] = {}

    async def pack(self, bodies: Iterable[bytes], *, blobs: Iterable[bytes] = ()) -> None:
        """Prepare bodies for `get`; those of `blobs` become blobs whatever their size.

        Bodies that become objects are put before this returns, so that no row refers to a missing
        object; if the rows are never written, the objects are orphans.

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
        # The set has not changed since `packed` was made from it, so its order is the same.
        self._packed.update(zip(large, packed, strict=True))

    async def _put_objects(self, packed: Iterable[Packed], objects: Objects) -> list[Packed]:
        placed = [self._as_object(body) for body in packed]
        data = {body.object: body.data for body in placed if body.object is not None}

        async def put(key: str) -> None:
            await objects.put(key, data[key])

        await in_parallel(put, data)
        return [body if body.object is None else replace(body, data=b"") for body in placed]

    def _as_object(self, packed: Packed) -> Packed:
        if packed.hash is None or len(packed.data) <= OBJECT_BYTES:
            return packed
        key = object_key(self._key["user_id"], self._key["thread_id"], packed.hash, packed.codec)
        return replace(packed, object=key, object_bytes=len(packed.data))

    def get(self, body: bytes) -> Packed:
        """Return the packed form of the body: inline, if `pack` has not made it a blob."""
        return self._packed.get(body) or Packed(_pack_inline(body))

    def blob(self, body: bytes) -> Packed:
        """Return the blob of a body that was given to `pack` as one of `blobs`."""
        return self._packed[body]

    def statements(self) -> list[Statement]:
        """Return the statements that write the blobs; rows that refer to them come later."""
        rows: list[Packed] = []
        for packed in self._packed.values():
            if self._part_bytes is None or len(packed.data) <= self._part_bytes:
                rows.append(packed)
                continue
            assert packed.hash is not None
            parted = Parted.of(packed.hash, packed.codec, packed.data, self._part_bytes)
            key = parted.key(self._key["thread_id"])
            # The row of the whole has no data, and a key from which the parts' hashes follow.
            rows.append(replace(packed, data=b"", object=key, object_bytes=len(packed.data)))
            for number in range(parted.number):
                start = number * self._part_bytes
                part = packed.data[start : start + self._part_bytes]
                rows.append(Packed(b"", parted.hash_of(number), "raw", part))
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
            for packed in rows
        ]


async def fetch_bodies(objects: Objects | None, keys: Collection[str]) -> Mapping[str, bytes]:
    """Return the bodies in these objects, by their keys, read in parallel and verified.

    Raises:
        ObjectLost: an object is missing or damaged.
        ObjectsUnavailable: the object store cannot be reached or used.
    """
    if not keys:
        return {}
    if objects is None:
        raise object_lost(min(keys), "the database, and no object store is set")
    # A name of its own, as a type checker forgets inside `fetch` that `objects` is not None.
    store = objects

    async def fetch(key: str) -> bytes:
        data = await store.get(key)
        return await verified_body(key, data, key, store.shown)

    return await in_parallel(fetch, keys)


async def verified_body(name: str, data: bytes, key: str, shown: str) -> bytes:
    """Return a body from the data that was stored for it.

    Args:
        name: ends in its hash and its codec.
        key, shown: what holds the data, and where, for the error.

    Raises:
        ObjectLost: the data is not what was stored.
    """
    if len(data) > THREAD_BYTES:
        body = await anyio.to_thread.run_sync(_verified, name, data)
    else:
        body = _verified(name, data)
    if body is None:
        raise object_damaged(key, shown)
    return body


def _verified(key: str, data: bytes) -> bytes | None:
    """Return the body in an object; None if its hash is not the one in the key."""
    try:
        digest, codec = digest_and_codec(key)
        body = data if codec == "raw" else _zstd.decompress(data)
    except (ValueError, zstandard.ZstdError):
        return None
    # The hash is of the plain body, so it also proves that it was decompressed rightly.
    return body if hashlib.sha256(body).digest() == digest else None


def unpack_body(inline: bytes, codec: str, data: bytes | None, what: Mapping[str, object]) -> bytes:
    """Return a body as it was before it was packed.

    Args:
        codec: empty if the body is inline.
        what: the row, for the error.

    Raises:
        CorruptThread: the blob is lost or damaged.
    """
    if not codec:
        if not inline.startswith(_FRAME):
            return inline
        codec, data = "zstd", inline
    if data is None:
        raise _lost(what)
    if codec == "raw":
        return data
    try:
        # A forged frame could promise to fill the memory.
        if data is inline and zstandard.frame_content_size(data) > INLINE_BYTES:
            raise _lost(what)
        return _zstd.decompress(data)
    except zstandard.ZstdError as error:
        raise _lost(what) from error


def _lost(what: Mapping[str, object]) -> CorruptThread:
    row = ", ".join(f"{key} {value}" for key, value in what.items())
    return CorruptThread(
        f"The content of {row} is lost or damaged.", cure="Restore the database from a backup."
    )
