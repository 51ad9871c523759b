"""What a process may use of rate limits that it shares with other processes.

Each process writes once a period what it last heard of a limit and what it may still send, and
reads what the others wrote.  Of what is left each may use an even part, until it renews its share.
When a limit resets in between, each has an even part of all of it.  A request that does not fit
into an even part goes when it is its process's turn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any, TypeAlias, get_args

import orjson

from agent_runtime.models.rate_limits.headers import Kind

PERIOD = 1.0
"""Seconds after which a process renews its shares, at most."""
SEEN = PERIOD / 2
"""Seconds after its first renewal in which others may not have seen a process."""
EXPIRY = 5.0
"""Seconds without renewal after which a process does not count any more."""
FRESH = 2.0
"""Seconds for which a share holds; then requests go one by one until it is renewed."""

_KINDS = frozenset(get_args(Kind))


@dataclass(frozen=True, slots=True)
class Figure:
    """What a process says of one limit.

    Attributes:
        most: how much there is after a reset; None if that is not known.
        remaining: how much the provider said is left.
        reset: seconds until all of it is there again.
        sent, heard: seconds since the request was sent to whose response the provider said that,
            and since the response came.
        pledged: what the process may still use, with what its requests on their way hold.
        refill: what it may use after the reset.
    """

    most: int | None
    remaining: int
    reset: float
    sent: float
    heard: float
    pledged: int
    refill: int

    def aged(self, seconds: float) -> Figure:
        """Return it as it is some seconds later."""
        reset, sent, heard = self.reset - seconds, self.sent + seconds, self.heard + seconds
        return replace(self, reset=reset, sent=sent, heard=heard)

    @property
    def left(self) -> int | None:
        """How much is left now; None if that is not known."""
        return self.remaining if self.reset > 0 else self.most

    @property
    def claimed(self) -> int:
        """What the process may use now."""
        return self.pledged if self.reset > 0 else max(self.pledged, self.refill)


Figures: TypeAlias = Mapping[Kind, Figure]


@dataclass(frozen=True, slots=True)
class Grant:
    """What all processes together know of a limit, and what is for one of them.

    Attributes:
        newest: what is to be believed of the limit.
        even: an even part of what is left.
        free: what is left and not claimed by others.
    """

    newest: Figure
    even: int
    free: int


def grant_of(kind: Kind, rows: Sequence[Figures], own: int, count: int) -> Grant | None:
    """Return the grant of one of some processes; None if the limit is not known.

    Args:
        rows: what each process says, as it is now.
        own: the index of the process.
        count: the number of even parts.
    """
    known = [row[kind] for row in rows if kind in row]
    if not known:
        return None
    # `sent` counts seconds since then: the least is the latest.
    newest = min(known, key=lambda one: one.sent)
    # Of responses to requests that were on their way together the lowest figure includes all.
    lefts = [one.left for one in known if one.heard <= newest.sent]
    if None in lefts:
        return None
    left = min(one for one in lefts if one is not None)
    others = sum(row[kind].claimed for n, row in enumerate(rows) if n != own and kind in row)
    reset = newest.reset if newest.reset > 0 else 0.0
    newest = replace(newest, remaining=left, reset=reset)
    return Grant(newest, left // count, max(0, left - others))


def encode_figures(figures: Figures) -> str:
    """Return figures as the text that is stored."""
    return orjson.dumps({kind: astuple(figure) for kind, figure in figures.items()}).decode()


def decode_figures(text: str, age: float) -> Figures:
    """Return the figures of a text that is some seconds old.

    A process of another version may write other figures; then it counts, and nothing else.
    """
    try:
        stored: dict[Any, Any] = orjson.loads(text)
        found = {kind: Figure(*values).aged(age) for kind, values in stored.items()}
    except (ValueError, TypeError, AttributeError):
        return {}
    return {kind: figure for kind, figure in found.items() if kind in _KINDS}


@dataclass(slots=True)
class _Part:
    """What may still be used of one limit.

    Attributes:
        until: the reset at which there is more, in the event loop's time; None if that is not
            known.
        target: what the next renewal asks for.
    """

    amount: int
    until: float | None
    refill: int
    target: int


class Share:
    """What one limiter of this process may use until the next renewal.

    Args:
        wake: called when it is used for the first time since the last renewal.

    Attributes:
        used: whether it was used since then.
        fresh_until: until when it holds, in the event loop's time; then requests go one by one.
        alone: whether no other process counts.
        count: into how many parts the limits are divided.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self.used = False
        self.alone = False
        self._wake = wake
        self.fresh_until = float("-inf")
        self._parts: dict[Kind, _Part] = {}
        self._joined_at = self._counts_until = float("-inf")
        self._slot = 0
        self._slot_at = 0.0
        self._rank, self.count = 0, 1

    def use(self) -> None:
        """Note that a request entered."""
        if not self.used:
            self.used = True
            self._wake()

    def left(self, kind: Kind, held: int, now: float) -> int | None:
        """Return what may be used now; None if all of it."""
        part = self._parts.get(kind)
        if self.alone or part is None:
            return None
        if part.until is not None and now >= part.until:
            # Which requests on their way are counted after the reset is not known.
            part.amount, part.until = max(0, part.refill - held), None
        return part.amount

    def take(self, kind: Kind, amount: int) -> None:
        """Subtract what a request uses."""
        if kind in self._parts:
            self._parts[kind].amount -= amount

    def heard(self, kind: Kind, reset: float, now: float) -> None:
        """Take the time of the next reset, in the event loop's time, from a response."""
        if kind in self._parts and reset > now:
            self._parts[kind].until = reset

    def ask(
        self, kind: Kind, most: int | None, left: int, *, held: int, need: int, now: float
    ) -> tuple[int, int]:
        """Return what to ask for, and what to take after a reset.

        Args:
            most, left: how much there is of the limit, and how much of it is left.
            held: what the requests on their way hold.
            need: what the first request takes that waits; 0 if none does.
        """
        part = self._parts.get(kind)
        if part is None:
            # Alone, it leaves half to whoever comes.
            return (left // 2, (most or 0) // 2) if self.alone else (0, 0)
        # By the database's clock, whose periods all processes count alike.
        slot = self._slot + int((now - self._slot_at) / PERIOD)
        refill = (most or 0) // self.count
        target = max(0, part.target - held)
        if need > target:
            # It cannot be used but for the first request, in this process's turn.
            target = need if slot % self.count == self._rank else 0
        part.target, part.refill = target, refill if need <= refill else 0
        return target, part.refill

    def parts(self, processes: int, began: float) -> int:
        """Return into how many parts the limits are divided, for one process at least.

        Whoever has just come may not see others that came at the same time, so it counts one more.
        """
        if began >= self._counts_until:
            self._joined_at = began
        return processes if processes > 1 or not self._is_new(began) else 2

    def _is_new(self, now: float) -> bool:
        """Return whether others may not have seen this process yet."""
        return now < self._joined_at + SEEN

    def renewed(
        self, grants: Mapping[Kind, Grant], held: Mapping[Kind, int], *, began: float, now: float,
        clock: float, rank: int, count: int, others: bool,
    ) -> bool:  # fmt: skip
        """Take what a renewal says; return whether another one has to ask for parts first.

        Args:
            began, now: when it began and ended, in the event loop's time.
            clock: when it was, by the database's clock.
            rank, count: which of the processes this is, and the number of parts.
            others: whether there are others.
        """
        self._slot, self._slot_at = int(clock // PERIOD), now - clock % PERIOD
        self._rank, self.count = rank, count
        self._counts_until = began + EXPIRY - PERIOD
        # Until all others have seen it, which takes them a period, its requests go one by one.
        waits = others and self._is_new(began)
        if not waits:
            self.fresh_until = began + FRESH
        self.alone = count == 1
        if self.alone:
            grants = {}
        is_new = any(kind not in self._parts for kind in grants)
        self._parts = {
            kind: self._part(kind, grant, held[kind], now) for kind, grant in grants.items()
        }
        return is_new and not waits

    def _part(self, kind: Kind, grant: Grant, held: int, now: float) -> _Part:
        last, newest = self._parts.get(kind), grant.newest
        # What was asked for is what the others have seen.
        asked = last.target if last else 0
        refill = last.refill if last else 0
        amount = max(0, min(asked, grant.free - held))
        until = now + newest.reset if newest.reset > 0 else None
        return _Part(amount, until, refill, grant.even)
