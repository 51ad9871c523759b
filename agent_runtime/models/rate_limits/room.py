"""What is left of a limit, by the responses of a provider."""

from __future__ import annotations

from agent_runtime.models.rate_limits.headers import Limit
from agent_runtime.models.rate_limits.shares import Figure


class Room:
    """What is left of one limit: now, and once it has reset.

    Responses may arrive in another order than the provider counted their requests.  Of those whose
    requests were on their way at the same time, the lowest figure includes all of them, unless the
    limit was reset between them.
    """

    def __init__(self, limit: Limit, now: float, heard: int, sent_at: float) -> None:
        self.most = limit.most
        # When the newest response came, and when its request was sent.
        self.heard_at, self.sent_at = now, sent_at
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

    def update(self, limit: Limit, now: float, *, sent: int, heard: int, sent_at: float) -> None:
        """Take what a response says.

        Args:
            sent, heard: when the request was sent and its response arrived, in the order of all.
        """
        self.heard_at, self.sent_at = now, max(self.sent_at, sent_at)
        left, said = self.left(now), (limit.remaining, now + limit.reset)
        self.most = limit.most
        # The request was sent after the newest response came: this one has the last word.
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

    def figure(self, now: float, pledged: int, refill: int) -> Figure:
        """Return what is known of the limit, for other processes."""
        self._shift(now)
        remaining, reset = self._now
        sent, heard = now - self.sent_at, now - self.heard_at
        return Figure(self.most, remaining, reset - now, sent, heard, pledged, refill)

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
