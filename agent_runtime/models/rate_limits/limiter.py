"""Let requests go when they fit into what a provider says is left, run by run in turn.

A limiter knows what the newest response said is left, and what the requests hold that are not in
that figure yet.  A request that does not fit waits in a queue: strictly in order within a run, and
runs take turns, so that one with many sub-agents delays the others no more than any other run.

Nothing here takes longer the more requests wait, and one timer serves all of them.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias
from weakref import WeakKeyDictionary

from agent_runtime.models.rate_limits.headers import Kind, Limit, read_limits

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


class _Room:
    """What is left of one limit: now, and once it has reset.

    Responses may arrive in another order than the provider counted their requests.  Of those whose
    requests were on their way at the same time, the lowest figure includes all of them, unless the
    limit was reset between them.
    """

    def __init__(self, limit: Limit, now: float, heard: int) -> None:
        self.most = limit.most
        self._heard = heard
        self._now = limit.remaining, now + limit.reset
        # What a response from after the reset said, if it came while the reset was still ahead.
        self._then: tuple[int, float] | None = None

    def reset(self, now: float) -> float:
        """Return when all of it is there again."""
        self._shift(now)
        return self._now[1]

    def left(self, now: float) -> int | None:
        """Return how much is left; None if that is not known."""
        self._shift(now)
        remaining, reset = self._now
        return remaining if now < reset else self.most

    def update(self, limit: Limit, now: float, *, sent: int, heard: int) -> None:
        """Take what a response says.

        Args:
            sent, heard: when the request was sent and its response arrived, in the order of all.
        """
        left, said = self.left(now), (limit.remaining, now + limit.reset)
        self.most = limit.most
        if sent > self._heard or left is None:
            self._now, self._then = said, None
        elif now >= self._now[1]:
            self._now = min(left, said[0]), said[1]
        elif said[0] >= self._now[0]:
            self._later(said)
        else:
            if said[1] < self._now[1]:
                self._later(self._now)
            self._now = said
        self._heard = heard

    def take(self, amount: int) -> None:
        """Subtract what was used since."""
        remaining, reset = self._now
        self._now = max(0, remaining - amount), reset
        if self._then is not None:
            self._then = max(0, self._then[0] - amount), self._then[1]

    def _later(self, said: tuple[int, float]) -> None:
        if said[1] > self._now[1]:
            then = self._then or said
            self._then = min(then[0], said[0]), max(then[1], said[1])

    def _shift(self, now: float) -> None:
        if self._then is not None and now >= self._now[1]:
            self._now, self._then = self._then, None


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
    """

    def __init__(self) -> None:
        self._rooms: dict[Kind, _Room] = {}
        self._held = [0] * len(_KINDS)
        self._out = 0
        # Requests without a response yet, and how many there may be.
        self._unheard = 0
        self._most_unheard = math.inf
        # By run; the first ticket of the first run is the next to go.
        self._queue: OrderedDict[str, OrderedDict[Ticket, None]] = OrderedDict()
        self._waiting = 0
        self._clock = 0
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
        expected = min(need.max_output, math.ceil(_EXPECTED * self._usual_output))
        both = need.fresh + expected
        ahead = (1, need.fresh, expected, both, need.prompt + need.max_output)
        ticket = Ticket(self, run, ahead, (0, 0, expected, expected, 0))
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
                self._rooms[limit.kind] = _Room(limit, now, self._clock)
            else:
                room.update(limit, now, sent=ticket.sent, heard=self._clock)
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

    def _pump(self) -> None:
        """Let through all that may go; set the timer for the first that may not."""
        now = _now()
        if self._alone is not None and now >= self._alone_until:
            # Whatever holds up its response, the others do not wait for it any longer.
            self._unknown, self._alone = False, None
        while self._waiting:
            ticket = next(iter(next(iter(self._queue.values()))))
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
        for index, kind in enumerate(_KINDS):
            room = self._rooms.get(kind)
            if room is None or (left := room.left(now)) is None:
                continue
            # What is more than the whole limit goes when all of it is there.
            need = min(ticket.ahead[index], room.most or ticket.ahead[index])
            if left - self._held[index] >= need:
                continue
            most = "" if room.most is None else f" of {room.most:,}"
            held = f", {self._held[index]:,} of them taken" if self._held[index] else ""
            reset = room.reset(now)
            return (
                f"the provider's rate limit leaves {left:,}{most} {_NAMES[kind]}{held}",
                reset if reset > now else math.inf,
            )
        return None

    def _admit(self, ticket: Ticket, now: float) -> None:
        self._remove(ticket)
        # Its run comes last in the next round.
        if ticket.run in self._queue:
            self._queue.move_to_end(ticket.run)
        self._clock += 1
        ticket.sent = self._clock
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


_limiters: WeakKeyDictionary[
    asyncio.AbstractEventLoop, OrderedDict[tuple[str, bytes, str], Limiter]
] = WeakKeyDictionary()


def limiter_for(host: str, key: str, model: str) -> Limiter:
    """Return the limiter that all requests of this event loop to a model share.

    Args:
        key: for which the provider counts; only its digest is kept.
    """
    limiters = _limiters.setdefault(asyncio.get_running_loop(), OrderedDict())
    place = host, hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest(), model
    limiter = limiters.get(place)
    if limiter is None:
        limiter = limiters[place] = Limiter()
        if len(limiters) > KEPT and next(iter(limiters.values())).idle:
            limiters.popitem(last=False)
    limiters.move_to_end(place)
    return limiter


def _now() -> float:
    return asyncio.get_running_loop().time()
