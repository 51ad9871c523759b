"""Signs of vectors: a bit of each number shows which vectors are likely to be near a query.

A database holds the signs in blocks of hundreds.  Comparing them here takes a tenth of what SQLite
takes for a function call and a sorted row for each vector.
"""

from __future__ import annotations

import bisect
import itertools
import struct
import sys
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import orjson

from agent_runtime_storage.drivers.protocol import Row

LEAST_SIGNS = 128
"""The fewest numbers of a vector whose signs tell its direction well enough to sort by."""
OFF_LOOP = 2_000
"""Vectors above which a worker thread compares signs: without numpy this takes a millisecond."""

# A byte with the sign bit of a number, as the digit that stands for it.
_SIGNS = b"1" * 128 + b"0" * 128
# A source id and a part; see the migration `vector_blocks`.
_KEY = struct.Struct(">qi")
_AT_A_TIME = 1 << 19
"""Bytes of signs that are compared together: they fit the processor's cache."""


Group = tuple[str, str, int]
"""A thread, a source and a part: with a source's id the key of a vector."""
Groups = defaultdict[Group, list[int]]


class _Block(NamedTuple):
    thread_id: str
    source: str
    keys: bytes
    signs: bytes

    @property
    def size(self) -> int:
        return len(self.keys) // _KEY.size


class _Waiting(NamedTuple):
    """A vector outside of blocks.

    Attributes:
        distance: the number of signs that differ from the query's; None without signs.
    """

    group: Group
    source_id: int
    distance: int | None


class Candidates:
    """The blocks of signs, and the vectors outside of them, that a query for likely vectors found.

    Attributes:
        number: of vectors.
    """

    def __init__(self, rows: Iterable[Row]) -> None:
        self._blocks: list[_Block] = []
        self._waiting: list[_Waiting] = []
        for thread_id, source, key, more, distance in rows:
            if isinstance(key, bytes):
                self._blocks.append(_Block(str(thread_id), str(source), key, more))
            else:
                group = str(thread_id), str(source), int(more)
                self._waiting.append(_Waiting(group, int(key), distance))
        self._in_blocks = sum(block.size for block in self._blocks)
        self.number = self._in_blocks + len(self._waiting)

    def likeliest(self, signs: bytes, most: int) -> str:
        """Return the vectors whose signs differ least from the query's, in JSON.

        Args:
            most: how many; those without signs and those as likely as the last come in addition.
        """
        groups: Groups = defaultdict(list)
        waiting = self._waiting
        if not self._blocks or self.number <= most:
            # The query has left out all others that wait.
            for block in self._blocks:
                _take(block, _KEY.iter_unpack(block.keys), groups)
        else:
            waiting = [one for one in waiting if one.distance is None]
            ranked = [one for one in self._waiting if one.distance is not None]
            numbers = self._nearest(signs, most, [one.distance or 0 for one in ranked])
            first = bisect.bisect_left(numbers, self._in_blocks)
            waiting += [ranked[number - self._in_blocks] for number in numbers[first:]]
            self._take_numbers(numbers[:first], groups)
        for one in waiting:
            groups[one.group].append(one.source_id)
        # In their order, so that neighbours on disk are read together.
        places = [(*group, sorted(ids)) for group, ids in sorted(groups.items())]
        return orjson.dumps(places).decode()

    def _take_numbers(self, numbers: Sequence[int], groups: Groups) -> None:
        """Add the vectors of blocks with these numbers, which rise."""
        start = at = 0
        for block in self._blocks:
            end = start + block.size
            until = bisect.bisect_left(numbers, end, lo=at)
            keys = block.keys
            places = (_KEY.unpack_from(keys, _KEY.size * (n - start)) for n in numbers[at:until])
            _take(block, places, groups)
            start, at = end, until

    def _nearest(self, signs: bytes, most: int, waiting: Sequence[int]) -> list[int]:
        """Return the numbers of the vectors that differ least, in rising order.

        Args:
            waiting: in how many signs those outside of blocks differ; their numbers follow.
        """
        try:
            # Here, as it takes a tenth of a second and only thousands of vectors need it.
            import numpy
        except ModuleNotFoundError:
            return least([*self._differences(signs), *waiting], most)
        distances: Any = numpy.empty(self._in_blocks + len(waiting), numpy.uint16)
        distances[self._in_blocks :] = waiting
        # The widest numbers that the signs of a vector consist of.
        width = next(size for size in (8, 4, 2, 1) if len(signs) % size == 0)
        asked: Any = numpy.frombuffer(signs, f"u{width}")
        start = 0
        for joined in self._portions():
            held: Any = numpy.frombuffer(joined, f"u{width}").reshape(-1, len(asked))
            into = distances[start : start + len(held)]
            into[:] = 0
            for column in range(len(asked)):
                into += numpy.bitwise_count(held[:, column] ^ asked[column])
            start += len(held)
        # For each number of signs, how many vectors differ in at most as many.
        totals = numpy.cumsum(numpy.bincount(distances))
        limit = int(numpy.searchsorted(totals, most))
        # With all that are as likely as the last one, unless the signs tell nothing.
        if totals[min(limit, len(totals) - 1)] <= 2 * most:
            return numpy.flatnonzero(distances <= limit).tolist()
        nearer: Any = numpy.flatnonzero(distances < limit)
        same: Any = numpy.flatnonzero(distances == limit)[: most - len(nearer)]
        return numpy.sort(numpy.concatenate((nearer, same))).tolist()

    def _differences(self, signs: bytes) -> Iterator[int]:
        """Yield in how many signs each vector of the blocks differs: `_nearest` without numpy.

        It takes some twenty times as long.
        """
        asked, each = int.from_bytes(signs), struct.Struct(f"{len(signs)}s")
        for block in self._blocks:
            for (held,) in each.iter_unpack(block.signs):
                yield (int.from_bytes(held) ^ asked).bit_count()

    def _portions(self) -> Iterator[bytes]:
        """Yield the signs of the blocks, those of many vectors at a time."""
        portion: list[bytes] = []
        size = 0
        for block in self._blocks:
            portion.append(block.signs)
            size += len(block.signs)
            if size >= _AT_A_TIME:
                yield b"".join(portion)
                portion, size = [], 0
        if portion:
            yield b"".join(portion)


def least(distances: Sequence[int], most: int) -> list[int]:
    """Return the places of the `most` least numbers, in rising order.

    With all that equal the last one, unless they are more than as many again.
    """
    # Distances are few whole numbers, so counting them finds the limit without sorting all.
    counted = Counter(distances)
    total, limit = 0, 0
    for limit in sorted(counted):
        total += counted[limit]
        if total >= most:
            break
    if total <= 2 * most:
        return [place for place, one in enumerate(distances) if one <= limit]
    nearer = [place for place, one in enumerate(distances) if one < limit]
    same = (place for place, one in enumerate(distances) if one == limit)
    return sorted([*nearer, *itertools.islice(same, most - len(nearer))])


def _take(block: _Block, keys: Iterable[tuple[int, ...]], groups: Groups) -> None:
    for source_id, part in keys:
        groups[block.thread_id, block.source, part].append(source_id)


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
