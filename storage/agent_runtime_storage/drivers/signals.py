"""Change notifications: a hint to read again, or what a commit of this process has changed.

A topic is an opaque id.  A signal may be lost (a listener's connection was down) or spurious, so
listeners read the database unless what they hear continues what they know, and from time to time
without a signal.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

import anyio

_MOST_NEWS = 1000
"""How much waits for a listener; beyond it the listener reads the database."""


def topic_of(owner: str, thread_id: str) -> str:
    """Return the topic of a thread; it reveals neither the owner nor the thread."""
    # The length keeps ("ab", "c") and ("a", "bc") apart.
    named = f"{len(owner)}:{owner}{thread_id}".encode("utf-8", "surrogatepass")
    return hashlib.blake2b(named, digest_size=16).hexdigest()


WORK = topic_of("", "queue")
"""The topic of the queue of runs: there may be work for a worker."""


class SignalListener:
    """A waiter for the signals of one or more topics."""

    def __init__(self) -> None:
        self._event = anyio.Event()
        self._news: list[object] = []
        self._complete = True

    def wake(self, news: Sequence[object] = ()) -> None:
        """Wake the waiter, or make the next wait return at once.

        Args:
            news: what has changed; empty if that is not known.
        """
        # A signal without news says only that something changed, so what is here is no longer
        # all.
        if not news or len(self._news) >= _MOST_NEWS:
            self._complete = False
        if self._complete:
            self._news += news
        else:
            self._news = []
        self._event.set()

    async def wait(self, seconds: float) -> list[object]:
        """Return at the next signal since the last wait, or after the given seconds.

        Returns:
            What has changed since then, in the order of the signals; empty if the database has to
            be read to know it.
        """
        with anyio.move_on_after(seconds):
            await self._event.wait()
        # An anyio event cannot be cleared.
        self._event = anyio.Event()
        news, self._news, self._complete = self._news, [], True
        return news


class Signals:
    """The topics of one open database, and their listeners in this process.

    Args:
        forward: sends an announced topic to other processes; None if the database cannot, so that
            they poll.
        poll_seconds: the longest that a listener waits before it reads again.
    """

    def __init__(
        self, *, poll_seconds: float = 0.25, forward: Callable[[str], None] | None = None
    ) -> None:
        self.poll_seconds = poll_seconds
        self._forward = forward
        self._listeners: dict[str, set[SignalListener]] = {}

    def announce(self, topic: str, news: Callable[[], Sequence[object]] | None = None) -> None:
        """Wake the listeners in this process and in others.

        Args:
            news: returns what has changed, for listeners in this process; called if there are any.
        """
        if news is not None and (listeners := self._listeners.get(topic)):
            changes = news()
            for listener in listeners:
                listener.wake(changes)
        else:
            self.hear(topic)
        if self._forward is not None:
            self._forward(topic)

    def hear(self, topic: str) -> None:
        """Wake the listeners of this process; for drivers that got a signal from another one."""
        for listener in self._listeners.get(topic, ()):
            listener.wake()

    def hear_all(self) -> None:
        """Wake all listeners; for drivers that may have missed a signal."""
        for listeners in self._listeners.values():
            for listener in listeners:
                listener.wake()

    @contextmanager
    def listen(
        self, topic: str, listener: SignalListener | None = None
    ) -> Generator[SignalListener]:
        """Listen to a topic.  Start before reading, or a change in between is missed.

        Args:
            listener: one that listens to other topics already.
        """
        listener = listener or SignalListener()
        self._listeners.setdefault(topic, set()).add(listener)
        try:
            yield listener
        finally:
            listeners = self._listeners[topic]
            listeners.discard(listener)
            # A server follows many threads, most of them once.
            if not listeners:
                del self._listeners[topic]
