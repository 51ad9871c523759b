"""When observational memory works: pure decisions over what is raw, what is prepared, and limits.

Three bands on the raw tokens, with T the threshold.  From T/2 on, observations of the oldest part
are prepared in the background, in chunks.  At T what is prepared takes the place of its messages,
and about 0.2 T stay raw.  Past 1.2 T without observations, old tool output is cut until they come.

By price, T is the upper bound: observations are prepared, and take the place of their messages, as
soon as that pays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agent_runtime.memory.observational.activation_price import (
    AHEAD,
    ActivationPrices,
    carrying_calls,
)
from agent_runtime.prompt.constraints import SHARE
from agent_runtime.prompt.observation import Observation
from agent_runtime.prompt.view import ActivationCause, Entry
from agent_runtime.prompt.window import covered

PREPARE_FROM = 0.5
"""From this share of T on, observations are prepared."""
CHUNK = 0.2
"""What share of T one observation stands for."""
TAIL = 0.2
"""What share of T stays raw after an activation."""
CUT_FROM = 1.2
"""From this share of T on, old tool output is cut where observations are late."""
LARGE = 0.5
"""An entry of more than this share of T is too expensive to carry until a tail has grown."""
LEAST_CUT = 0.1
"""Cuts that take less than this share of T out would rewrite the rest too often."""
LEAST_GAIN = 0.3
"""An activation that takes less than this share of T out would rewrite the rest too often."""
WINDOW_RAW = 0.5
"""T is at most this share of what a prompt may have."""
WINDOW_OBSERVED = 0.25
"""R is at most this share of it."""
PREPARE_BY_PRICE = 0.8
"""By price, observations are prepared from this share of T on though they do not pay yet."""
TAIL_BY_PRICE = 0.1
"""By price, so much of T stays raw: on recorded runs 4% cheaper than `TAIL`."""
LEAST_CHUNK = 0.1
"""By price, no fewer raw tokens than this share of T leave at once."""


@dataclass(frozen=True, slots=True)
class MemoryThresholds:
    """The thresholds, in tokens as the provider counts them.

    Attributes:
        observe: T, of raw messages.
        reflect: R, of observations.
        last_messages: N, which always stay raw.
        prices: what decides within T when messages leave; None for T alone.
        required: what share of R the user's constraints may take beside the observations.
    """

    observe: int
    reflect: int
    last_messages: int
    prices: ActivationPrices | None = None
    required: float = SHARE

    def within(self, limit: int) -> MemoryThresholds:
        """Return them as a prompt of at most `limit` tokens allows."""
        return MemoryThresholds(
            min(self.observe, int(limit * WINDOW_RAW)),
            min(self.reflect, int(limit * WINDOW_OBSERVED)),
            self.last_messages,
            self.prices,
            self.required,
        )


@dataclass(frozen=True, slots=True)
class RawNodes:
    """The raw nodes of a view, measured.

    Attributes:
        tokens: of each entry, as the provider counts them.
        prepared: how many entries, from the first on, have observations that are not active yet.
        calls: how many calls have carried each entry since the activation.
    """

    entries: tuple[Entry, ...]
    tokens: tuple[int, ...]
    prepared: int
    calls: tuple[int, ...]

    @property
    def total(self) -> int:
        """Tokens of all of them."""
        return sum(self.tokens)


def measure(
    entries: Sequence[Entry],
    prepared: Sequence[Observation],
    ratio: float,
    anchor: int | None = None,
) -> RawNodes:
    """Return the raw nodes, with those at the front that the observations stand for counted.

    Observations of another branch, and what comes after a gap, do not count.

    Args:
        anchor: the node of the newest activation.
    """
    return RawNodes(
        tuple(entries),
        tuple(round(entry.tokens * ratio) for entry in entries),
        len(covered(entries, prepared)[1]),
        carrying_calls(entries, anchor),
    )


def movable(raw: RawNodes, bands: MemoryThresholds) -> int:
    """Return how many entries, from the first on, may leave: not the last N, not the raw tail.

    One that is larger than half of T leaves without waiting for a tail behind it.
    """
    tail = bands.observe * (TAIL_BY_PRICE if bands.prices else TAIL)
    messages = tokens = 0
    for index in reversed(range(len(raw.entries))):
        entry = raw.entries[index]
        messages, tokens = messages + entry.size, tokens + raw.tokens[index]
        enough = tokens >= tail or (index and raw.tokens[index - 1] > bands.observe * LARGE)
        # A note that rides in an exchange's last result stays with that exchange.
        if messages >= bands.last_messages and enough and entry.prompt:
            return index
    return 0


def threshold(raw: RawNodes, bands: MemoryThresholds) -> int:
    """Return T; where the messages that stay exceed half of it, their tokens and half of it."""
    staying = sum(raw.tokens[movable(raw, bands) :])
    return max(bands.observe, staying + bands.observe // 2)


def next_chunk(raw: RawNodes, bands: MemoryThresholds) -> tuple[Entry, ...]:
    """Return the entries to observe next, none if nothing is due.

    At the threshold what is left of the part that may leave is taken, though it be a small chunk;
    so it is once that pays.
    """
    total, most = raw.total, threshold(raw, bands)
    end = movable(raw, bands)
    pays = _pays(raw, bands, end, AHEAD)
    if total < most * (PREPARE_BY_PRICE if bands.prices else PREPARE_FROM) and not pays:
        return ()
    found = oldest(raw, bands)
    size = sum(raw.tokens[raw.prepared : raw.prepared + len(found)])
    least = bands.observe * LEAST_CHUNK if total < most else 1
    enough = size >= bands.observe * CHUNK or ((pays or total >= most) and size >= least)
    return found if enough else ()


def oldest(raw: RawNodes, bands: MemoryThresholds) -> tuple[Entry, ...]:
    """Return the oldest entries that may leave and are not observed: a chunk, or what is left."""
    end, size = movable(raw, bands), 0
    for index in range(raw.prepared, end):
        size += raw.tokens[index]
        # A note that rides in an exchange's last result stays with that exchange.
        if size >= bands.observe * CHUNK and raw.entries[index + 1].prompt:
            return raw.entries[raw.prepared : index + 1]
    return raw.entries[raw.prepared : end]


def activation_due(raw: RawNodes, bands: MemoryThresholds) -> ActivationCause | None:
    """Return why what is prepared is to take the place of its messages now, or None."""
    if not raw.prepared:
        return None
    if _pays(raw, bands, raw.prepared, 1.0):
        return "price"
    gain = sum(raw.tokens[: raw.prepared])
    large = gain >= bands.observe * LEAST_GAIN
    return "observed" if large and raw.total >= threshold(raw, bands) else None


def _pays(raw: RawNodes, bands: MemoryThresholds, end: int, share: float) -> bool:
    """Return whether it pays to remove the entries before `end`, or did to such a share."""
    if bands.prices is None or sum(raw.tokens[:end]) < bands.observe * LEAST_CHUNK:
        return False
    return bands.prices.pays(raw.tokens, raw.calls, end, share)


def observations_late(raw: RawNodes, bands: MemoryThresholds) -> bool:
    """Return whether observations are so late that old tool output is to be cut meanwhile."""
    return raw.total >= threshold(raw, bands) * CUT_FROM
