"""When observational memory works: pure decisions over what is raw, what is prepared, and limits.

Three bands on the raw tokens, with T the threshold.  From T/2 on, observations of the oldest part
are prepared in the background, in chunks.  At T what is prepared takes the place of its messages,
and about 0.2 T stay raw.  Past 1.2 T without observations, old tool output is cut until they come.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agent_runtime.view import Entry

from .observation import Observation

PREPARE_FROM = 0.5
"""From this share of T on, observations are prepared."""
CHUNK = 0.2
"""What share of T one observation stands for."""
TAIL = 0.2
"""What share of T stays raw after an activation."""
CUT_FROM = 1.2
"""From this share of T on, old tool output is cut where observations are late."""
LEAST_GAIN = 0.3
"""An activation that takes less than this share of T out would rewrite the rest too often."""
WINDOW_RAW = 0.5
"""T is at most this share of what a prompt may have."""
WINDOW_OBSERVED = 0.25
"""R is at most this share of it."""


@dataclass(frozen=True, slots=True)
class Bands:
    """The thresholds, in tokens as the provider counts them.

    Attributes:
        observe: T, of raw messages.
        reflect: R, of observations.
        last_messages: N, which always stay raw.
    """

    observe: int
    reflect: int
    last_messages: int

    def within(self, limit: int) -> Bands:
        """Return them as a prompt of at most `limit` tokens allows."""
        return Bands(
            min(self.observe, int(limit * WINDOW_RAW)),
            min(self.reflect, int(limit * WINDOW_OBSERVED)),
            self.last_messages,
        )


@dataclass(frozen=True, slots=True)
class Raw:
    """The raw nodes of a view, measured.

    Attributes:
        tokens: of each entry, as the provider counts them.
        prepared: how many entries, from the first on, have observations that are not active yet.
    """

    entries: tuple[Entry, ...]
    tokens: tuple[int, ...]
    prepared: int

    @property
    def total(self) -> int:
        """Tokens of all of them."""
        return sum(self.tokens)


def measure(entries: Sequence[Entry], prepared: Sequence[Observation], ratio: float) -> Raw:
    """Return the raw nodes, with those at the front that the observations stand for counted.

    Observations of another branch, and what comes after a gap, do not count.
    """
    return Raw(
        tuple(entries),
        tuple(round(entry.tokens * ratio) for entry in entries),
        len(covered(entries, prepared)[1]),
    )


def covered(
    entries: Sequence[Entry], prepared: Sequence[Observation]
) -> tuple[list[Observation], Sequence[Entry]]:
    """Return the observations that stand for the front of the entries, and the entries they do.

    Where several stand for the same interval, the one that is not provisional counts, then the
    newest.
    """
    by_first: dict[int, Observation] = {}
    for one in sorted(prepared, key=lambda one: (not one.provisional, one.id)):
        by_first[one.first] = one
    places = {entry.seq: place for place, entry in enumerate(entries)}
    found: list[Observation] = []
    reached = 0
    while reached < len(entries) and (one := by_first.get(entries[reached].seq)) is not None:
        if one.last not in places:
            break
        found.append(one)
        reached = places[one.last] + 1
    return found, entries[:reached]


def movable(raw: Raw, bands: Bands) -> int:
    """Return how many entries, from the first on, may leave: not the last N, not the raw tail."""
    tail = bands.observe * TAIL
    messages = tokens = 0
    for index in reversed(range(len(raw.entries))):
        entry = raw.entries[index]
        messages, tokens = messages + entry.size, tokens + raw.tokens[index]
        # A note that rides in an exchange's last result stays with that exchange.
        if messages >= bands.last_messages and tokens >= tail and entry.prompt:
            return index
    return 0


def threshold(raw: Raw, bands: Bands) -> int:
    """Return T; where the messages that stay exceed half of it, their tokens and half of it."""
    staying = sum(raw.tokens[movable(raw, bands) :])
    return max(bands.observe, staying + bands.observe // 2)


def next_chunk(raw: Raw, bands: Bands) -> tuple[Entry, ...]:
    """Return the entries to observe next, none if nothing is due.

    At the threshold what is left of the part that may leave is taken, though it be a small chunk.
    """
    total, most = raw.total, threshold(raw, bands)
    if total < most * PREPARE_FROM:
        return ()
    end, size = movable(raw, bands), 0
    for index in range(raw.prepared, end):
        size += raw.tokens[index]
        whole = index + 1 == len(raw.entries) or raw.entries[index + 1].prompt
        if size >= bands.observe * CHUNK and whole:
            return raw.entries[raw.prepared : index + 1]
    return raw.entries[raw.prepared : end] if total >= most and size else ()


def ripe(raw: Raw, bands: Bands) -> bool:
    """Return whether what is prepared is to take the place of its messages now."""
    total, most = raw.total, threshold(raw, bands)
    if total < most or not raw.prepared:
        return False
    gain = sum(raw.tokens[: raw.prepared])
    return gain >= bands.observe * LEAST_GAIN


def late(raw: Raw, bands: Bands) -> bool:
    """Return whether observations are so late that old tool output is to be cut meanwhile."""
    return raw.total >= threshold(raw, bands) * CUT_FROM
