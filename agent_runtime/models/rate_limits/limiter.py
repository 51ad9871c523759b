"""Let requests go when they fit into what a provider says is left, run by run in turn.

A limiter knows what the newest response said is left, and what the requests hold that are not in
that figure yet.  A request that does not fit waits in a queue: strictly in order within a run, and
runs take turns, so that one with many sub-agents delays the others no more than any other run.

Nothing here takes longer the more requests wait, and one timer serves all of them.

Where other processes use the same limits, a limiter has a share of them; see `shares`.
"""

from __future__ import annotations

import asyncio
import hmac
import math
from collections import OrderedDict
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias
from weakref import WeakKeyDictionary

from agent_runtime.models.rate_limits.headers import Kind, Limit, read_limits
from agent_runtime.models.rate_limits.room import Room
from agent_runtime.models.rate_limits.shares import Figure, Figures, Grant, Share, grant_of

LONGEST_WAIT = 120.0
"""Seconds that the first in the queue waits at most; then the provider decides."""
LONGEST_HOLD = 60.0
"""Seconds that a refusal holds back requests at most, as long as the refused one waits itself."""
NEXT_RESPONSE = 5.0
"""Seconds that requests wait for the first response after a refusal, which says what is left."""
KEPT = 64
"""How many limiters of an event loop are kept while nothing uses them."""

_NAMES: Mapping[Kind, str] = {
    "requests": "requests",
    "input": "prompt tokens",
    "output": "answer tokens",
    "produced": "tokens",
    "asked": "tokens",
}
_KINDS = tuple(_NAMES)
_FIRST_OUTPUT = 500.0
"""The tokens of an answer that are expected before any is known."""
_EXPECTED = 2
"""How many times the usual answer is expected."""
_WEIGHT = 1 / 8
"""How much the newest answer counts for the usual one."""

_Amounts: TypeAlias = tuple[int, int, int, int, int]
"""An amount for each of `_KINDS`."""
_NOTHING: _Amounts = (0, 0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Need:
    """What a request takes.

    Attributes:
        prompt: tokens of the prompt.
        fresh: those of them that are not in the provider's cache.
        max_output: the most tokens of the answer.
    """

    prompt: int = 0
    fresh: int = 0
    max_output: int = 0


@dataclass(eq=False, slots=True)
class Ticket:
    """A request's place: in the queue, then on its way.

    Attributes:
        reason: why the request has to wait, for people; empty if it may go at once.
        wait: the seconds until the limit resets, as far as is known.
        ahead: what it holds of each limit until its response.
        behind: what it holds from then on: what the provider counts later.
    """

    limiter: Limiter
    run: str
    ahead: _Amounts
    behind: _Amounts
    reason: str = ""
    wait: float = 0.0
    passed: asyncio.Event = field(default_factory=asyncio.Event)
    held: _Amounts | None = None
    heard: bool = False
    gone: bool = False
    sent: int = 0
    sent_at: float = 0.0
    first_since: float | None = None

    async def turn(self) -> None:
        """Wait until the request may be sent."""
        await self.passed.wait()

    def answered(self, headers: Mapping[str, str], *, limited: bool, wait: float | None) -> None:
        """Take what a response's headers say; their names are in lower case.

        Args:
            limited: whether the provider refuses the request for its rate.
            wait: the seconds that it asks to wait, if it does.
        """
        self.limiter.answered(self, read_limits(headers), limited=limited, wait=wait)

    def refused(self, wait: float | None) -> None:
        """Hold back all requests for the seconds that the provider asks to wait."""
        self.limiter.hold(wait)

    def finished(self, output: int) -> None:
        """Count the tokens of the answer: the headers came before there were any."""
        self.limiter.produced(output)

    def leave(self) -> None:
        """End the request, or its waiting; a second time does nothing."""
        if not self.gone:
            self.gone = True
            self.limiter.leave(self)


class Limiter:
    """The rate limits of one model at one provider for one key, in one event loop.

    As long as no response has said what the limits are, all requests go: a first one that went
    alone would hold up each burst by a whole answer's first byte, and most bursts meet no limit.
    What a burst into a limit costs are refusals, which are free; after one, requests go by one.

    Attributes:
        share: what of the limits is for this process; None if it shares them with no other.
    """

    def __init__(self) -> None:
        self.share: Share | None = None
        self._rooms: dict[Kind, Room] = {}
        self._held = [0] * len(_KINDS)
        self._out = 0
        # Requests without a response yet, and how many there may be.
        self._unheard = 0
        self._most_unheard = math.inf
        # By run; the first ticket of the first run is the next to go.
        self._queue: OrderedDict[str, OrderedDict[Ticket, None]] = OrderedDict()
        self._waiting = 0
        self._clock = 0
        self._answered = False
        self._usual_output = _FIRST_OUTPUT
        self._hold_until = 0.0
        # Whether one request goes alone to learn what is left, as after a refusal.
        self._unknown = False
        self._alone: Ticket | None = None
        self._alone_until = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._reason = ""
        self._wake = 0.0

    @property
    def idle(self) -> bool:
        """Whether no request waits or is on its way."""
        return not self._waiting and not self._out

    @property
    def waiting(self) -> int:
        """How many requests wait."""
        return self._waiting

    @property
    def held(self) -> Mapping[Kind, int]:
        """What the requests on their way hold."""
        return dict(zip(_KINDS, self._held, strict=True))

    def enter(self, run: str, need: Need) -> Ticket:
        """Return the ticket of a request; it may have to wait.

        Args:
            run: the run that it is for; runs take turns.
        """
        # The limit that a request names is mostly far above what is written; reserving that much
        # would let few go.
        expected = min(need.max_output, math.ceil(_EXPECTED * self._usual_output))
        both = need.fresh + expected
        ahead = (1, need.fresh, expected, both, need.prompt + need.max_output)
        ticket = Ticket(self, run, ahead, (0, 0, expected, expected, 0))
        if self.share is not None:
            self.share.use()
        alone = not self._waiting
        self._queue.setdefault(run, OrderedDict())[ticket] = None
        self._waiting += 1
        if alone:
            # Whoever waits already comes first, and is let through as soon as that is possible.
            self._pump()
        if not ticket.passed.is_set():
            others = self._waiting - 1
            ticket.reason = self._reason + (f", and {others} more wait" if others else "")
            ticket.wait = max(0.0, self._wake - _now())
        return ticket

    def answered(
        self, ticket: Ticket, limits: list[Limit], *, limited: bool, wait: float | None
    ) -> None:
        """Take what the response to a request says, and let others through."""
        self._hold(ticket, ticket.behind)
        self._hear(ticket)
        self._clock += 1
        now = _now()
        for limit in limits:
            room = self._rooms.get(limit.kind)
            if room is None:
                room = Room(limit, now, self._clock, ticket.sent_at)
                self._rooms[limit.kind] = room
            else:
                order = {"sent": ticket.sent, "heard": self._clock}
                room.update(limit, now, **order, sent_at=ticket.sent_at)
            if self.share is not None:
                self.share.heard(limit.kind, room.reset(now), now)
        self._answered = True
        if limits:
            self._most_unheard = math.inf
        elif limited:
            # Nothing says how much is left, so it is found out: each response allows one more.
            self._most_unheard = 1
        else:
            self._most_unheard += 1
        if limited:
            # The rest of the refusal may say how long to wait.
            self._unknown, self._alone = True, ticket
            self._alone_until = now + NEXT_RESPONSE
            self.hold(wait)
            return
        self._unknown, self._alone = False, None
        self._pump()

    def hold(self, wait: float | None) -> None:
        """Hold back all requests for some seconds; then one goes alone."""
        until = _now() + min(wait or 0.0, LONGEST_HOLD)
        self._hold_until = max(self._hold_until, until)
        self._pump()

    def produced(self, output: int) -> None:
        """Count the tokens of an answer."""
        # A moving average: one long answer changes little.
        self._usual_output += _WEIGHT * (output - self._usual_output)
        for kind in ("output", "produced"):
            if kind in self._rooms:
                self._rooms[kind].take(output)

    def leave(self, ticket: Ticket) -> None:
        """Forget a request."""
        if ticket.held is None:
            self._remove(ticket)
        else:
            self._hold(ticket, _NOTHING)
            self._hear(ticket)
            self._out -= 1
        if self._alone is ticket:
            self._alone = None
        self._pump()

    @property
    def is_shareable(self) -> bool:
        """Whether there are limits to share, or there may be some."""
        return bool(self._rooms) or not self._answered

    def figures(self) -> Figures:
        """Return what is known of the limits, and what is asked of them for this process."""
        now, share, found = _now(), self.share, dict[Kind, Figure]()
        if share is None:
            return found
        for index, kind in enumerate(_KINDS):
            room = self._rooms.get(kind)
            if room is None or (left := room.left(now)) is None:
                continue
            first = self._first().ahead[index] if self._waiting else 0
            need = min(first, room.most or first)
            held = self._held[index]
            asked, refill = share.ask(kind, room.most, left, held=held, need=need, now=now)
            found[kind] = room.figure(now, held + asked, refill)
        return found

    def renewed(self, rows: Sequence[Figures], own: int, *, began: float, clock: float) -> bool:
        """Take what all processes say of the limits; return whether to ask once more.

        Args:
            own: the index of this process's row.
            began: when its figures were made, in the event loop's time.
            clock: when they were read, by the database's clock.
        """
        now, grants = _now(), dict[Kind, Grant]()
        if self.share is None:
            return False
        count = self.share.parts(len(rows), began)
        for kind in _KINDS:
            if (grant := grant_of(kind, rows, own, count)) is None:
                continue
            grants[kind], newest, room = grant, grant.newest, self._rooms.get(kind)
            if room is None or now - newest.sent > room.heard_at:
                limit = Limit(kind, newest.most, newest.remaining, newest.reset)
                self._rooms[kind] = Room(limit, now, self._clock, now - newest.sent)
        if len(rows) > 1 and not grants and not self._answered:
            # A burst of each process would be refused more often than that of one.
            self._unknown = True
        again = self.share.renewed(
            grants, self.held, began=began, now=now, clock=clock, rank=own, count=count,
            others=len(rows) > 1,
        )  # fmt: skip
        self._pump()
        return again

    def pump(self) -> None:
        """Let through all that may go, because the share has changed."""
        self._pump()

    def _first(self) -> Ticket:
        return next(iter(next(iter(self._queue.values()))))

    def _pump(self) -> None:
        """Let through all that may go; set the timer for the first that may not."""
        now = _now()
        if self._alone is not None and now >= self._alone_until:
            # Whatever holds up its response, the others do not wait for it any longer.
            self._unknown, self._alone = False, None
        while self._waiting:
            ticket = self._first()
            if ticket.first_since is None:
                ticket.first_since = now
            latest = ticket.first_since + LONGEST_WAIT
            blocked = self._blocked(ticket, now) if now < latest else None
            if blocked is not None:
                self._reason, wake = blocked
                self._set_timer(min(latest, wake))
                return
            self._admit(ticket, now)
        self._set_timer(None)

    def _blocked(self, ticket: Ticket, now: float) -> tuple[str, float] | None:
        """Return why a request cannot go, and when to look again; None if it can go."""
        if now < self._hold_until:
            return "the provider asks to wait because of its rate limit", self._hold_until
        if self._unknown:
            if self._alone is not None:
                return "another request goes first, to learn the rate limits", self._alone_until
            return None
        if self._unheard >= self._most_unheard:
            return "the provider refused a request for its rate, so few go at a time", math.inf
        share, times = self.share if self.is_shareable else None, 1
        if share is not None and now >= share.fresh_until:
            if self._unheard:
                return "what other processes leave of the rate limit is not known", math.inf
            # Each of them may send one now.
            share, times = None, share.count
        for index, kind in enumerate(_KINDS):
            room = self._rooms.get(kind)
            if room is None or (left := room.left(now)) is None:
                continue
            # What is more than the whole limit goes when all of it is there.
            need = min(ticket.ahead[index] * times, room.most or ticket.ahead[index])
            part = None if share is None else share.left(kind, self._held[index], now)
            reset = room.reset(now)
            wake = reset if reset > now else math.inf
            if left - self._held[index] >= need:
                if share is None or part is None or part >= need:
                    continue
                wake = min(wake, share.fresh_until)
                return "other processes use the provider's rate limit as well", wake
            most = "" if room.most is None else f" of {room.most:,}"
            held = f", {self._held[index]:,} of them taken" if self._held[index] else ""
            return f"the provider's rate limit leaves {left:,}{most} {_NAMES[kind]}{held}", wake
        return None

    def _admit(self, ticket: Ticket, now: float) -> None:
        self._remove(ticket)
        # Its run comes last in the next round.
        if ticket.run in self._queue:
            self._queue.move_to_end(ticket.run)
        self._clock += 1
        ticket.sent, ticket.sent_at = self._clock, now
        if self.share is not None:
            for kind, amount in zip(_KINDS, ticket.ahead, strict=True):
                self.share.take(kind, amount)
        ticket.held = _NOTHING
        self._hold(ticket, ticket.ahead)
        self._out += 1
        self._unheard += 1
        if self._unknown:
            self._alone, self._alone_until = ticket, now + NEXT_RESPONSE
        ticket.passed.set()

    def _remove(self, ticket: Ticket) -> None:
        tickets = self._queue[ticket.run]
        del tickets[ticket]
        self._waiting -= 1
        if not tickets:
            del self._queue[ticket.run]

    def _hear(self, ticket: Ticket) -> None:
        if not ticket.heard:
            ticket.heard = True
            self._unheard -= 1

    def _hold(self, ticket: Ticket, amounts: _Amounts) -> None:
        """Change what a request on its way holds."""
        for index, (before, after) in enumerate(zip(ticket.held or _NOTHING, amounts, strict=True)):
            self._held[index] += after - before
        ticket.held = amounts

    def _set_timer(self, wake: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if wake is not None:
            self._wake = wake
            self._timer = asyncio.get_running_loop().call_at(wake, self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._pump()


class _Here:
    """The limiters of an event loop, and who renews their shares: the first of those that could."""

    def __init__(self) -> None:
        self.limiters: OrderedDict[str, Limiter] = OrderedDict()
        self.sharers: list[Callable[[], None]] = []

    def wake(self) -> None:
        if self.sharers:
            self.sharers[0]()

    def share(self) -> None:
        """Give each limiter a share, or none if nobody renews it."""
        for limiter in self.limiters.values():
            if not self.sharers:
                limiter.share = None
                limiter.pump()
            elif limiter.share is None:
                limiter.share = Share(self.wake)


_loops: WeakKeyDictionary[asyncio.AbstractEventLoop, _Here] = WeakKeyDictionary()


def _here() -> _Here:
    return _loops.setdefault(asyncio.get_running_loop(), _Here())


def limiter_for(host: str, key: str, model: str) -> Limiter:
    """Return the limiter that all requests of this event loop to a model share.

    Args:
        key: for which the provider counts; only a digest that is keyed by it is kept.
    """
    here = _here()
    # Keyed: processes compare places through the store, which must not learn the key.
    secret, named = key.encode("utf-8", "surrogatepass"), f"{host}\n{model}".encode()
    place = hmac.digest(secret, named, "sha256").hex()
    limiter = here.limiters.get(place)
    if limiter is None:
        limiter = here.limiters[place] = Limiter()
        here.share()
        if len(here.limiters) > KEPT and next(iter(here.limiters.values())).idle:
            here.limiters.popitem(last=False)
    here.limiters.move_to_end(place)
    return limiter


def limiters_here() -> Mapping[str, Limiter]:
    """Return the limiters of this event loop, by their places: digests of host, key and model."""
    return _here().limiters


@contextmanager
def sharing(wake: Callable[[], None]) -> Generator[None]:
    """Let the limiters of this event loop have shares, which the caller renews.

    Args:
        wake: called when one needs to be renewed, unless another caller renews them.
    """
    here = _here()
    here.sharers.append(wake)
    here.share()
    try:
        yield
    finally:
        here.sharers.remove(wake)
        here.share()
        here.wake()


def _now() -> float:
    return asyncio.get_running_loop().time()
