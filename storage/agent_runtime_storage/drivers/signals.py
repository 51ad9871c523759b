"""Word that something has changed, for whoever waits for it: a hint, never the news itself.

A topic is an opaque id.  A signal may be lost (a listener's connection was away) and may come for
nothing, so who waits reads the database each time, and now and then without any signal.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator
from contextlib import contextmanager

import anyio


def topic_of(owner: str, thread_id: str) -> str:
    """Return the topic of a thread; it tells a listener neither the owner nor the thread."""
    named = f"{len(owner)}:{owner}{thread_id}".encode("utf-8", "surrogatepass")
    return hashlib.blake2b(named, digest_size=16).hexdigest()


class Listener:
    """One who waits for signals of a topic."""

    def __init__(self) -> None:
        self._event = anyio.Event()

    def wake(self) -> None:
        """Let the waiter go on, or the next wait return at once."""
        self._event.set()

    async def wait(self, seconds: float) -> None:
        """Return at the next signal since the last wait, at the latest after so many seconds."""
        with anyio.move_on_after(seconds):
            await self._event.wait()
        self._event = anyio.Event()


class Signals:
    """The topics of one open database, and who listens to them in this process.

    Args:
        forward: carries an announced topic to other processes; None if the database cannot, so
            that they have to look now and then.
        poll_seconds: how long a listener may wait without looking.
    """

    def __init__(
        self, *, poll_seconds: float = 0.25, forward: Callable[[str], None] | None = None
    ) -> None:
        self.poll_seconds = poll_seconds
        self._forward = forward
        self._listeners: dict[str, set[Listener]] = {}

    def announce(self, topic: str) -> None:
        """Tell everybody, in this process and in others."""
        self.hear(topic)
        if self._forward is not None:
            self._forward(topic)

    def hear(self, topic: str) -> None:
        """Tell the listeners of this process; for a driver that heard it from another one."""
        for listener in self._listeners.get(topic, ()):
            listener.wake()

    def hear_all(self) -> None:
        """Tell all listeners; for a driver that may have missed something."""
        for listeners in self._listeners.values():
            for listener in listeners:
                listener.wake()

    @contextmanager
    def listen(self, topic: str) -> Generator[Listener]:
        """Listen to a topic; begin before reading, or what came in between is waited for."""
        listener = Listener()
        self._listeners.setdefault(topic, set()).add(listener)
        try:
            yield listener
        finally:
            listeners = self._listeners[topic]
            listeners.discard(listener)
            if not listeners:
                del self._listeners[topic]
