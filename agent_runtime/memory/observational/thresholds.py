"""When observational memory works: pure decisions over raw tokens, thresholds and prices.

With T the threshold of raw tokens:

- From T/2 on, observations of the oldest messages are prepared in the background, in chunks.
- At T the prepared observations replace their messages, and about 0.2 T stays raw.
- Past 1.2 T without observations, old tool results are truncated until they arrive.

With activation by price, T is only the upper bound.  Each call pays for what the prompt carries, at
the price of a cache read; an activation pays once, for observing, for the observations and for
rewriting what follows them.  Messages leave once carrying them has cost as much as removing them
(the ski-rental rule: at most twice the cost of knowing in advance how long the run will last).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from agent_runtime.models.base import Price
from agent_runtime.prompt.constraints import SHARE
from agent_runtime.prompt.observation import Observation
from agent_runtime.prompt.view import ActivationCause, Entry
from agent_runtime.prompt.window import covered

PREPARE_FROM = 0.5
"""Share of T from which observations are prepared."""
CHUNK = 0.2
"""Share of T that one observation covers, unless more is waiting at the threshold."""
MOST_CHUNK = 30_000
"""Tokens that one observation covers at most; models overlook more of a longer transcript."""
TAIL = 0.2
"""Share of T that stays raw after an activation."""
CUT_FROM = 1.2
"""Share of T from which old tool results are truncated if observations are late."""
LARGE = 0.5
"""An entry larger than this share of T leaves without waiting for a raw tail behind it."""
LEAST_CUT = 0.1
"""Least share of T that a truncation must remove; less would rewrite the prompt too often."""
LEAST_GAIN = 0.3
"""Least share that an activation must remove: of T, or of what may leave if that is more."""
WINDOW_RAW = 0.5
"""Upper bound of T, as a share of what a prompt may have."""
WINDOW_OBSERVED = 0.25
"""Upper bound of R, as a share of it."""
REST_OBSERVED = 0.3
"""Upper bound of R, as a share of what system prompt and tool schemas leave of it."""
LEAST_OBSERVED = 100
"""R is never lowered below this many tokens."""
PREPARE_BY_PRICE = 0.8
"""By price, share of T from which observations are prepared even if they do not pay yet."""
TAIL_BY_PRICE = 0.1
"""By price, share of T that stays raw: on recorded runs 4% cheaper than `TAIL`."""
LEAST_CHUNK = 0.1
"""By price, least share of T that leaves at once."""
OBSERVED_SHARE = 0.125
"""Expected size of observations and their ledgers, as a share of what they replace."""
AHEAD = 0.5
"""Observations are prepared once carrying has cost this share of what removing costs."""


@dataclass(frozen=True, slots=True)
class ActivationPrices:
    """The prices that decide when old messages leave.

    Attributes:
        actor: prices of the run's own model.
        observer: prices of the Observer's model; None if rules observe, which costs nothing.
    """

    actor: Price
    observer: Price | None = None

    def carried(self, tokens: Sequence[int], calls: Sequence[int], end: int) -> float:
        """Return what carrying the entries before `end` has cost, in nanodollars.

        Args:
            tokens: of each entry, as the provider counts them.
            calls: how many calls have carried each entry.
        """
        carried = sum(t * n for t, n in zip(tokens[:end], calls[:end], strict=True))
        return carried * self.actor.cache_read

    def removing(self, tokens: Sequence[int], end: int) -> float:
        """Return what replacing the entries before `end` costs, in nanodollars."""
        removed, rest = sum(tokens[:end]), sum(tokens[end:])
        written = int(removed * OBSERVED_SHARE)
        # What follows is sent in any case; only the difference to reading it from the cache is due
        # to the rewrite.
        cost = rest * max(0, self.actor.cache_write - self.actor.cache_read)
        cost += written * self.actor.cache_write
        if self.observer is not None:
            cost += removed * self.observer.input + written * self.observer.output
        return cost

    def pays(self, tokens: Sequence[int], calls: Sequence[int], end: int, share: float) -> bool:
        """Return whether carrying has cost at least this share of what removing costs."""
        carried = self.carried(tokens, calls, end)
        # If all prices are 0, as those of local models, neither side costs anything.
        return carried > 0 and carried >= share * self.removing(tokens, end)


def carrying_calls(entries: Sequence[Entry], anchor: int | None) -> tuple[int, ...]:
    """Return how many calls since the activation at `anchor` have carried each entry.

    Each answer after the activation is a call that carried every entry before it.
    """
    calls: list[int] = []
    after = 0
    for entry in reversed(entries):
        calls.append(after)
        # Adds 0 or 1.  What came before the activation was paid for when that rewrote the prompt.
        after += entry.message.type == "assistant" and entry.seq > (anchor or 0)
    return tuple(reversed(calls))


@dataclass(frozen=True, slots=True)
class MemoryThresholds:
    """The thresholds, in tokens as the provider counts them.

    Attributes:
        observe: T, of raw messages.
        reflect: R, of observations.
        last_messages: N, which always stay raw.
        prices: decide within T when messages leave; None for T alone.
        required: share of R that the user's constraints may take in addition to the observations.
    """

    observe: int
    reflect: int
    last_messages: int
    prices: ActivationPrices | None = None
    required: float = SHARE

    def within(self, limit: int, fixed: int = 0) -> MemoryThresholds:
        """Return them as a prompt of at most `limit` tokens allows.

        Args:
            fixed: tokens of the system prompt and the tool schemas.
        """
        # Raw messages and observations share the window with the system prompt, the state note and
        # the answer.
        observe = min(self.observe, int(limit * WINDOW_RAW))
        # In a small window much of it may be fixed, and observations of a fixed size would
        # leave no room for the last exchange.
        rest = max(int((limit - fixed) * REST_OBSERVED), LEAST_OBSERVED)
        return replace(
            self,
            observe=observe,
            reflect=min(self.reflect, int(limit * WINDOW_OBSERVED), rest),
        )


@dataclass(frozen=True, slots=True)
class RawNodes:
    """The raw nodes of a view, measured.

    Attributes:
        tokens: of each entry, as the provider counts them.
        prepared: how many entries at the front have observations that are not active yet.
        calls: how many calls have carried each entry since the activation.
    """

    entries: tuple[Entry, ...]
    tokens: tuple[int, ...]
    prepared: int
    calls: tuple[int, ...]

    @property
    def total(self) -> int:
        """Tokens of all entries."""
        return sum(self.tokens)


def measure(
    entries: Sequence[Entry],
    prepared: Sequence[Observation],
    ratio: float,
    anchor: int | None = None,
) -> RawNodes:
    """Measure raw nodes, and count those at the front that prepared observations cover.

    Observations of another branch, and those after a gap, do not count.

    Args:
        anchor: the node of the newest activation.
    """
    return RawNodes(
        tuple(entries),
        tuple(round(entry.tokens * ratio) for entry in entries),
        len(covered(entries, prepared)[1]),
        carrying_calls(entries, anchor),
    )


def movable(raw: RawNodes, thresholds: MemoryThresholds) -> int:
    """Return how many entries at the front may leave: all but the last N and the raw tail.

    An entry larger than half of T leaves without waiting for a tail behind it.
    """
    tail = thresholds.observe * (TAIL_BY_PRICE if thresholds.prices else TAIL)
    large = thresholds.observe * LARGE
    messages = tokens = 0
    for index in reversed(range(len(raw.entries))):
        entry = raw.entries[index]
        messages, tokens = messages + entry.size, tokens + raw.tokens[index]
        # Waiting for a tail would carry a huge result, read once, for many more calls.
        enough = tokens >= tail or (index and raw.tokens[index - 1] > large)
        # A note inside an exchange's last result stays with that exchange.
        if messages >= thresholds.last_messages and enough and entry.prompt:
            return index
    return 0


def threshold(raw: RawNodes, thresholds: MemoryThresholds) -> int:
    """Return T, raised to the tokens of the messages that stay plus T/2 where these exceed T/2."""
    # The last N messages may be larger than T.  An activation could then never bring the prompt
    # below T, and would be due after each step.
    staying = sum(raw.tokens[movable(raw, thresholds) :])
    return max(thresholds.observe, staying + thresholds.observe // 2)


def next_chunk(raw: RawNodes, thresholds: MemoryThresholds) -> tuple[Entry, ...]:
    """Return the entries to observe next, none if nothing is due.

    At the threshold, or once it pays, even a small chunk of what may leave is taken.
    """
    total, most = raw.total, threshold(raw, thresholds)
    pays = _pays(raw, thresholds, movable(raw, thresholds), AHEAD)
    if total < most * (PREPARE_BY_PRICE if thresholds.prices else PREPARE_FROM) and not pays:
        return ()
    chunk = oldest(raw, thresholds)
    size = sum(raw.tokens[raw.prepared : raw.prepared + len(chunk)])
    # At the threshold something has to leave, however small it is.
    least = thresholds.observe * LEAST_CHUNK if total < most else 1
    enough = size >= thresholds.observe * CHUNK or ((pays or total >= most) and size >= least)
    return chunk if enough else ()


def oldest(raw: RawNodes, thresholds: MemoryThresholds) -> tuple[Entry, ...]:
    """Return the oldest unobserved entries that may leave: a chunk, or all that are left.

    At the threshold the Observer is too slow for small chunks: then a chunk has all that waits.
    """
    end, size = movable(raw, thresholds), 0
    wanted = thresholds.observe * CHUNK
    if raw.total >= threshold(raw, thresholds):
        waiting = sum(raw.tokens[raw.prepared : end])
        wanted = max(wanted, min(waiting, thresholds.observe, MOST_CHUNK))
    for index in range(raw.prepared, end):
        size += raw.tokens[index]
        # A note inside an exchange's last result stays with that exchange.
        if size >= wanted and raw.entries[index + 1].prompt:
            return raw.entries[raw.prepared : index + 1]
    return raw.entries[raw.prepared : end]


def activation_due(raw: RawNodes, thresholds: MemoryThresholds) -> ActivationCause | None:
    """Return why prepared observations should replace their messages now, or None."""
    if not raw.prepared:
        return None
    if _pays(raw, thresholds, raw.prepared, 1.0):
        return "price"
    gain = sum(raw.tokens[: raw.prepared])
    # A rewrite costs the cached prefix, so little gain is not worth one; prepared chunks wait for
    # more.  After a slow Observer there is more to rewrite, so more has to leave.
    leaving = sum(raw.tokens[: movable(raw, thresholds)])
    large = gain >= max(thresholds.observe, leaving) * LEAST_GAIN
    return "observed" if large and raw.total >= threshold(raw, thresholds) else None


def _pays(raw: RawNodes, thresholds: MemoryThresholds, end: int, share: float) -> bool:
    """Return whether carrying the entries before `end` has cost this share of removing them."""
    # A tiny prefix may pay by its age alone, and yet the rewrite would cost a call for nothing.
    least = thresholds.observe * LEAST_CHUNK
    if thresholds.prices is None or sum(raw.tokens[:end]) < least:
        return False
    return thresholds.prices.pays(raw.tokens, raw.calls, end, share)


def observations_late(raw: RawNodes, thresholds: MemoryThresholds) -> bool:
    """Return whether old tool results should be truncated because observations are late."""
    return raw.total >= threshold(raw, thresholds) * CUT_FROM
