"""Bodies in several rows, for a database that takes no values of their size.

The blob of such a body has no data.  Instead of an object's key it names the parts, which are blobs
of the same thread, under hashes that follow from the body's own.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

PREFIX = "parts/"


class Parted(NamedTuple):
    """A body in parts.

    Attributes:
        digest: the body's hash.
        number: how many parts there are.
    """

    digest: bytes
    codec: str
    number: int

    @classmethod
    def of(cls, digest: bytes, codec: str, data: bytes, part_bytes: int) -> Parted:
        """Return the parts in which these bytes are stored."""
        # Rounded up.
        return cls(digest, codec, -(-len(data) // part_bytes))

    @classmethod
    def parse(cls, key: str) -> tuple[Parted, str]:
        """Return what `key` was made of, and the thread's id. Raises `ValueError` for another."""
        # At most two splits: a thread's id may hold slashes.
        count, name, thread_id = key.removeprefix(PREFIX).split("/", 2)
        digest, _, codec = name.partition(".")
        return cls(bytes.fromhex(digest), codec, int(count)), thread_id

    @property
    def name(self) -> str:
        """The body's hash and codec, as the name of an object has them."""
        return f"{self.digest.hex()}.{self.codec}"

    def key(self, thread_id: str) -> str:
        """Return what the blob's row has instead of an object's key."""
        return f"{PREFIX}{self.number}/{self.name}/{thread_id}"

    def hash_of(self, number: int) -> bytes:
        """Return the hash under which a part is stored."""
        return hashlib.sha256(self.digest + number.to_bytes(4, "big")).digest()
