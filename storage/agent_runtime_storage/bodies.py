"""Where bodies lie: small ones in their row, large ones compressed in the thread's blobs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import anyio.to_thread
import zstandard

from .drivers.protocol import Statement
from .errors import CorruptThread

INLINE_BYTES = 4096
_LEVEL = 3
# Above this, hashing and compressing would hold up the event loop for a millisecond or more.
_THREAD_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class Packed:
    """A body as it is written: either inline, or the hash of a blob and the blob."""

    inline: bytes
    hash: bytes | None = None
    codec: str = ""
    data: bytes = b""


def _pack(body: bytes) -> Packed:
    digest = hashlib.sha256(body).digest()
    compressed = zstandard.ZstdCompressor(level=_LEVEL).compress(body)
    if len(compressed) < len(body):
        return Packed(b"", digest, "zstd", compressed)
    return Packed(b"", digest, "raw", body)


class Bodies:
    """The packed bodies of one batch; each distinct blob of it is written once."""

    def __init__(self, put_blob: str, user_id: str, thread_id: str) -> None:
        self._put_blob = put_blob
        self._key = {"user_id": user_id, "thread_id": thread_id}
        self._packed: dict[bytes, Packed] = {}

    async def pack(self, bodies: Iterable[bytes], *, blobs: Iterable[bytes] = ()) -> None:
        """Prepare bodies for `get`; those of `blobs` become blobs however small they are."""
        large = {body for body in bodies if len(body) > INLINE_BYTES} | set(blobs)
        if not large:
            return
        if sum(len(body) for body in large) > _THREAD_BYTES:
            packed = await anyio.to_thread.run_sync(lambda: [_pack(body) for body in large])
        else:
            packed = [_pack(body) for body in large]
        self._packed.update(zip(large, packed, strict=True))

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
                {**self._key, "hash": packed.hash, "codec": packed.codec, "data": packed.data},
            )
            for packed in self._packed.values()
        ]


def unpack(inline: bytes, codec: str, data: bytes | None, what: Mapping[str, object]) -> bytes:
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
