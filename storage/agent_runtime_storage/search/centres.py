"""The centre of vectors: what the texts of a thread, or of an owner, have in common.

Embedders give all texts on one matter, and to a part all texts, a common direction.  A search that
takes it off the query ranks by what tells the texts apart.  The centre is the mean of a sample at
equal distances, so that every database has the same one.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import ClassVar, NamedTuple
from weakref import WeakKeyDictionary

from agent_runtime_storage.drivers.protocol import Driver

SAMPLE = 64
"""How many vectors are read."""
FEWEST = 8
"""With fewer the centre is mostly one of them; with more it counts `n / (n + FEWEST)`."""
_KEPT_SECONDS = 600.0
_MOST_KEPT = 1_000


class _Kept(NamedTuple):
    centre: tuple[float, ...]
    until: float


class KeptCentres:
    """The centres of each database by owner, model, source and thread, each for ten minutes."""

    _of_drivers: ClassVar[WeakKeyDictionary[Driver, KeptCentres]] = WeakKeyDictionary()

    def __init__(self) -> None:
        self._centres: dict[tuple[str | None, ...], _Kept] = {}

    @classmethod
    def of(cls, driver: Driver) -> KeptCentres:
        return cls._of_drivers.setdefault(driver, cls())

    def get(self, key: tuple[str | None, ...]) -> tuple[float, ...] | None:
        kept = self._centres.get(key)
        return kept.centre if kept is not None and kept.until > time.monotonic() else None

    def put(self, key: tuple[str | None, ...], centre: tuple[float, ...]) -> None:
        if len(self._centres) >= _MOST_KEPT:
            self._centres.clear()
        self._centres[key] = _Kept(centre, time.monotonic() + _KEPT_SECONDS)


def sample_starts(lasts: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    """Return the threads and source ids at which vectors are read, at equal distances.

    Args:
        lasts: threads with their highest source ids.
    """
    total = sum(last + 1 for _, last in lasts)
    starts: dict[tuple[str, int], None] = {}
    for number in range(SAMPLE):
        place = total * (2 * number + 1) // (2 * SAMPLE)
        for thread_id, last in lasts:
            if place <= last:
                starts[thread_id, place] = None
                break
            place -= last + 1
    return list(starts)


def centre_of(vectors: Sequence[Sequence[float]]) -> tuple[float, ...] | None:
    """Return the mean direction of vectors, the shorter the fewer they are; None for very few."""
    if len(vectors) < FEWEST:
        return None
    lengths = [math.hypot(*vector) for vector in vectors]
    share = 1 / (len(vectors) + FEWEST)
    return tuple(
        share * math.fsum(value / length for value, length in zip(column, lengths, strict=True))
        for column in zip(*vectors, strict=True)
    )
