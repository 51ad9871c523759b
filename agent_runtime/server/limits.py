"""What a user may use at once: requests by a token bucket, streams and runs by count."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager

from agent_runtime.server.problems import ServiceError
from agent_runtime_config import Settings

_FORGOTTEN = 10_000
"""Buckets beyond which full ones are dropped."""


class RateLimit:
    """A token bucket for each name.

    Args:
        rate: tokens a second; 0 for no limit.
        burst: the most tokens of a bucket.
    """

    def __init__(
        self, rate: float, burst: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rate = rate
        self._burst = burst
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}

    def take(self, name: str) -> None:
        """Take a token. Raises `ServiceError` (429) if there is none."""
        if not self._rate:
            return
        now = self._clock()
        tokens, at = self._buckets.get(name, (float(self._burst), now))
        tokens = min(self._burst, tokens + (now - at) * self._rate)
        if tokens < 1:
            raise ServiceError(
                429,
                "rate-limited",
                "There are too many requests.",
                cure="Send fewer; `Retry-After` says when the next one is taken.",
                retry_after=(1 - tokens) / self._rate,
            )
        # A refused request takes nothing, so whoever keeps on trying is not locked out for
        # longer.
        self._buckets[name] = (tokens - 1, now)
        if len(self._buckets) > _FORGOTTEN:
            self._forget(now)

    def _forget(self, now: float) -> None:
        refill = self._burst / self._rate
        # A bucket that has rested this long is full again, like one that nobody knows.
        old = [name for name, (_, at) in self._buckets.items() if now - at > refill]
        # Where nobody rests, the oldest go: a stranger's names must not fill the memory.
        for name in old or list(self._buckets)[: _FORGOTTEN // 2]:
            del self._buckets[name]


class UserLimits:
    """The limits of the users of one service."""

    def __init__(self, settings: Settings) -> None:
        self.requests = RateLimit(settings.service_rate, settings.service_burst)
        self._most_streams = settings.service_max_streams
        self._most_runs = settings.service_max_runs
        self._streams = Counter[str]()
        self._runs = Counter[str]()

    @contextmanager
    def stream(self, user: str) -> Generator[None]:
        """Hold a place for a stream. Raises `ServiceError` (429) if the user has none left."""
        with _place(self._streams, user, self._most_streams, "streams", "Close one."):
            yield

    def check_stream(self, user: str) -> None:
        """Raise `ServiceError` (429) if the user has no place for a stream left."""
        with self.stream(user):
            return

    @property
    def open_streams(self) -> int:
        """How many streams are open."""
        return self._streams.total()

    def begin_run(self, user: str) -> Callable[[], None]:
        """Take a place for a run, and return what gives it back; several calls of it do no harm.

        Raises `ServiceError` (429) if the user has none left.
        """
        cure = "Wait until one ends, or cancel it."
        place = _place(self._runs, user, self._most_runs, "runs at work", cure)
        # Entered by hand: the run ends long after this call, in a callback.
        place.__enter__()
        held = [place]

        def give_back() -> None:
            while held:
                held.pop().__exit__(None, None, None)

        return give_back


@contextmanager
def _place(counts: Counter[str], user: str, most: int, what: str, cure: str) -> Generator[None]:
    if counts[user] >= most:
        raise ServiceError(
            429, "too-many", f"You have {most} {what}, the most.", cure=cure, retry_after=5
        )
    counts[user] += 1
    try:
        yield
    finally:
        counts[user] -= 1
        if not counts[user]:
            del counts[user]
