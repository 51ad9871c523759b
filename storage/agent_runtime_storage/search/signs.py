"""Signs of vectors: which vectors are likely to be near a query, told by a bit of each number.

A database holds the signs in blocks of hundreds.  Comparing them here takes a tenth of what SQLite
takes for a function call and a sorted row for each vector.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

from agent_runtime_storage.drivers.protocol import Row

LEAST_SIGNS = 128
"""The fewest numbers of a vector whose signs tell its direction well enough to sort by."""
OFF_LOOP = 20_000
"""Vectors above which signs are compared in a worker thread: this many take a millisecond."""

# A byte with the sign bit of a number, as the digit that stands for it.
_SIGNS = b"1" * 128 + b"0" * 128
# A source id and a part; see migration 29.
_KEY = struct.Struct(">qi")
_AT_A_TIME = 1 << 16
"""The vectors whose signs are compared together: they fit the processor's cache."""


class VectorPlace(NamedTuple):
    """The key of a vector of the owner's, without its model."""

    thread_id: str
    source: str
    source_id: int
    part: int


class _Block(NamedTuple):
    thread_id: str
    source: str
    keys: bytes
    signs: bytes

    @property
    def size(self) -> int:
        return len(self.keys) // _KEY.size

    def place(self, number: int) -> VectorPlace:
        return VectorPlace(
            self.thread_id, self.source, *_KEY.unpack_from(self.keys, _KEY.size * number)
        )


@dataclass(slots=True)
class Candidates:
    """What a query for likely vectors found.

    Attributes:
        number: of vectors in the blocks.
        waiting: vectors outside of blocks, with the number of signs that differ from the query's;
            None where it is unknown.
    """

    number: int = 0
    waiting: list[tuple[VectorPlace, int | None]] = field(
        default_factory=list[tuple[VectorPlace, int | None]]
    )
    _blocks: list[_Block] = field(default_factory=list[_Block])

    @classmethod
    def of(cls, rows: Sequence[Row]) -> Candidates:
        """Return what the rows of the query say."""
        found = cls()
        for thread_id, source, key, more, distance in rows:
            if isinstance(key, bytes):
                found._blocks.append(_Block(str(thread_id), str(source), key, more))
            else:
                place = VectorPlace(str(thread_id), str(source), int(key), int(more))
                found.waiting.append((place, None if distance is None else int(distance)))
        found.number = sum(block.size for block in found._blocks)
        return found

    def likeliest(self, signs: bytes, most: int) -> list[VectorPlace]:
        """Return the vectors whose signs differ least from the query's, in no order.

        Args:
            most: how many, beside those without signs.
        """
        unknown = [place for place, distance in self.waiting if distance is None]
        known = [(distance, place) for place, distance in self.waiting if distance is not None]
        if self.number + len(known) <= most:
            return unknown + [place for _, place in known] + list(self._all())
        if self.number:
            known += self._nearest(signs, most)
            known.sort(key=lambda one: one[0])
        return unknown + [place for _, place in known[:most]]

    def _all(self) -> Iterator[VectorPlace]:
        for block in self._blocks:
            yield from (block.place(number) for number in range(block.size))

    def _nearest(self, signs: bytes, most: int) -> list[tuple[int, VectorPlace]]:
        """Return the vectors in blocks whose signs differ least, with the number of these."""
        # Not above: it takes a tenth of a second, and only who has thousands of vectors needs it.
        import numpy

        distances: Any = numpy.empty(self.number, numpy.uint16)
        # The widest numbers that the signs of a vector consist of.
        width = next(size for size in (8, 4, 2, 1) if len(signs) % size == 0)
        kind = numpy.dtype(f"u{width}")
        asked: Any = numpy.frombuffer(signs, kind)
        start = 0
        for some in self._portions():
            joined = b"".join(block.signs for block in some)
            held: Any = numpy.frombuffer(joined, kind).reshape(-1, len(asked))
            end = start + len(held)
            into = distances[start:end]
            into[:] = 0
            for column in range(len(asked)):
                into += numpy.bitwise_count(held[:, column] ^ asked[column])
            start = end
        wanted = min(most, self.number)
        # How many have at most each distance: so ties keep the order of the blocks.
        totals = numpy.cumsum(numpy.bincount(distances))
        limit = int(numpy.searchsorted(totals, wanted))
        nearest: Any = numpy.flatnonzero(distances <= limit)
        if len(nearest) > wanted:
            order = numpy.argsort(distances[nearest], kind="stable")[:wanted]
            nearest = numpy.sort(nearest[order])
        return list(zip(distances[nearest].tolist(), self._at(nearest.tolist()), strict=True))

    def _portions(self) -> Iterator[list[_Block]]:
        portion: list[_Block] = []
        size = 0
        for block in self._blocks:
            portion.append(block)
            size += block.size
            if size >= _AT_A_TIME:
                yield portion
                portion, size = [], 0
        if portion:
            yield portion

    def _at(self, numbers: Sequence[int]) -> Iterator[VectorPlace]:
        """Yield the places of vectors by their numbers, which rise."""
        blocks = iter(self._blocks)
        block, start, end = None, 0, 0
        for number in numbers:
            while block is None or number >= end:
                block = next(blocks)
                start, end = end, end + block.size
            yield block.place(number - start)


def encoded_places(places: Sequence[VectorPlace]) -> str:
    """Return vectors as the query for the nearest of them takes them."""
    groups: defaultdict[tuple[str, str, int], list[int]] = defaultdict(list)
    for place in places:
        groups[place.thread_id, place.source, place.part].append(place.source_id)
    # In their order, so that neighbours on disk are read together.
    return orjson.dumps([(*group, sorted(ids)) for group, ids in sorted(groups.items())]).decode()


def signs_of(values: array[float]) -> bytes:
    """Return the signs, as sqlite-vec's `vec_quantize_binary` does; empty if they tell too little.

    Each is a bit, set unless the number is negative.
    """
    if len(values) < LEAST_SIGNS or len(values) % 8:
        return b""
    # The sign bit is in a number's last byte; the first number is the lowest bit.
    digits = little_endian(values)[3::4].translate(_SIGNS)[::-1]
    return int(digits, 2).to_bytes(len(values) // 8, "little")


def little_endian(values: array[float]) -> bytes:
    """Return the numbers as bytes, as the database holds them."""
    if sys.byteorder == "big":
        values = array("f", values)
        values.byteswap()
    return values.tobytes()
