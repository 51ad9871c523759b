"""The parts of archived threads: lines of JSON, compressed, each part an object of its own.

Their keys are `{owner}/archives/{archive}/{number}.jsonl.zst`; `owner` is a digest of the owner's
name.  A part is a whole zstd frame of whole lines, so any program can read it.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

import anyio.to_thread
import zstandard

from agent_runtime_storage.contract.errors import ObjectLost
from agent_runtime_storage.contract.ids import new_id
from agent_runtime_storage.contract.records.objects import ObjectInfo
from agent_runtime_storage.objects.object_store import Objects, owner_prefix

ROOM = "archives"
PART_BYTES = 8 * 2**20
"""About the compressed size of a part; the memory that an archive takes grows with it."""
DIGEST_BYTES = 32
# Bytes of lines that are compressed at a time, in a thread, which keeps the event loop free.
_CHUNK_BYTES = 2**20
_LEVEL = 3


def new_place(user_id: str) -> str:
    """Return the folder of a new archive of an owner."""
    return f"{owner_prefix(user_id)}/{ROOM}/{new_id()}"


def archives_prefix(user_id: str) -> str:
    """Return the prefix of the keys of an owner's archives."""
    return f"{owner_prefix(user_id)}/{ROOM}"


def is_archive_key(key: str) -> bool:
    """Return whether an object is a part of an archive, to which no body's row refers."""
    return key.split("/")[1:2] == [ROOM]


def place_of(key: str) -> str:
    """Return the folder of the archive that a part belongs to."""
    return key.rpartition("/")[0]


def part_key(place: str, number: int) -> str:
    """Return the key of a part, counted from 0."""
    # Six digits, so that a listing, which is sorted by name, has the parts in order.
    return f"{place}/{number:06}.jsonl.zst"


def part_keys(place: str, digests: bytes) -> list[str]:
    """Return the keys of an archive's parts, by their digests."""
    return [part_key(place, number) for number in range(len(digests) // DIGEST_BYTES)]


class PartWriter:
    """Compresses lines, and puts a part as soon as it is large enough.

    Attributes:
        digests: the SHA-256 of each part, one after the other.
        bytes: of the lines.
        stored_bytes: of the parts.
    """

    def __init__(self, objects: Objects, place: str) -> None:
        self.digests = b""
        self.bytes = 0
        self.stored_bytes = 0
        self._objects = objects
        self._place = place
        self._lines: list[bytes] = []
        self._waiting = 0
        self._frame: list[bytes] = []
        self._compressor: zstandard.ZstdCompressionObj | None = None

    async def add(self, line: bytes) -> None:
        """Add a line with its end.

        Raises:
            ObjectsUnavailable, StoreFull: a part cannot be put.
        """
        self._lines.append(line)
        self._waiting += len(line)
        if self._waiting >= _CHUNK_BYTES:
            await self._compress()
            if sum(map(len, self._frame)) >= PART_BYTES:
                await self._put()

    async def close(self) -> None:
        """Put the last part.  Raises like `add`."""
        await self._compress()
        if self._compressor is not None:
            await self._put()

    async def _compress(self) -> None:
        lines, self._lines, self._waiting = self._lines, [], 0
        if not lines:
            return
        if self._compressor is None:
            options = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True)
            self._compressor = options.compressobj()
        data = b"".join(lines)
        self.bytes += len(data)
        self._frame.append(await anyio.to_thread.run_sync(self._compressor.compress, data))

    async def _put(self) -> None:
        assert self._compressor is not None
        compressor, self._compressor = self._compressor, None
        data = b"".join([*self._frame, await anyio.to_thread.run_sync(compressor.flush)])
        self._frame = []
        digest = await anyio.to_thread.run_sync(_digest, data)
        number = len(self.digests) // DIGEST_BYTES
        await self._objects.put(part_key(self._place, number), data)
        self.digests += digest
        self.stored_bytes += len(data)


async def read_parts(
    objects: Objects, place: str, digests: bytes, most: int
) -> AsyncGenerator[bytes]:
    """Yield the parts of an archive as they are stored.

    Args:
        most: bytes of all parts together; one that is larger was changed, and is not read.

    Raises:
        ObjectLost: a part is missing, or is not what was written.
    """
    for number, key in enumerate(part_keys(place, digests)):
        info = await objects.info(key)
        # Whoever can write to the bucket could fill the memory otherwise.
        if info is not None and info.bytes > most:
            raise _lost(key, objects, "is larger than what was written")
        try:
            data = await objects.get(key)
        except ObjectLost:
            raise _lost(key, objects, "is not there") from None
        most -= len(data)
        begin = number * DIGEST_BYTES
        digest = await anyio.to_thread.run_sync(_digest, data)
        # Of what is stored: a part is verified without decompressing it.
        if digest != digests[begin : begin + DIGEST_BYTES]:
            raise _lost(key, objects, "is not what was written")
        yield data


async def read_lines(parts: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    """Yield the lines in parts, without their ends."""
    async with aclosing(parts):
        async for data in parts:
            # Not at once: a part may hold many times its own size.
            reader = zstandard.ZstdDecompressor().stream_reader(data)
            begun: list[bytes] = []
            while chunk := await anyio.to_thread.run_sync(reader.read, _CHUNK_BYTES):
                first, *more = chunk.split(b"\n")
                begun.append(first)
                for line in more:
                    yield b"".join(begun)
                    begun = [line]


async def list_places(objects: Objects, prefix: str = "") -> dict[str, list[ObjectInfo]]:
    """Return the parts that there are, by the folder of their archive."""
    places: dict[str, list[ObjectInfo]] = {}
    async with aclosing(objects.list(prefix)) as chunks:
        async for chunk in chunks:
            for info in chunk:
                if is_archive_key(info.key):
                    places.setdefault(place_of(info.key), []).append(info)
    return places


async def delete_parts(objects: Objects, places: Sequence[str]) -> None:
    """Delete all parts in these folders."""
    for place in places:
        await objects.delete_prefix(place)


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def _lost(key: str, objects: Objects, how: str) -> ObjectLost:
    return ObjectLost(
        f"The object {key} in {objects.shown}, a part of the archived thread, {how}.",
        cure="Set AGENT_RUNTIME_OBJECT_STORE_URL to the store that the thread was archived to, or "
        "restore the object from a backup; nothing was restored.",
    )
