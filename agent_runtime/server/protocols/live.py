"""What runs of this process tell while they work, for those who follow their threads.

The log has everything that lasts; this adds the pieces of an answer while a model writes it,
whoever began the run: a protocol, the API, a sweep.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

from agent_runtime.events import Event
from agent_runtime.runtime import Runtime

PIECES = ("text-delta", "reasoning-delta")
_VOID = ("answer", "model-retry", "model-fallback", "run-suspend", "run-finish")
"""Events after which the pieces so far are recorded, or worth nothing."""

Place: TypeAlias = tuple[str, str]
"""An owner and a thread."""


class LiveEvent(NamedTuple):
    """An event that the thread's log does not have.

    Attributes:
        after: the id of the thread's last recorded event before it.
        own_after: the same of the event's own thread, which is a sub-agent's for its events.
    """

    after: int
    event: Event
    own_after: int = 0


Follower: TypeAlias = Callable[[LiveEvent], None]


@dataclass(slots=True)
class _Thread:
    last: int = 0
    below: dict[str, int] = field(default_factory=dict[str, int])
    pieces: list[LiveEvent] = field(default_factory=list[LiveEvent])
    followers: list[Follower] = field(default_factory=list[Follower])
    working: int = 0


class LiveEvents:
    """Passes the live events of runs on to those who follow their threads."""

    def __init__(self) -> None:
        self._threads: dict[Place, _Thread] = {}

    def publisher(self, user: str) -> _Publisher:
        """Return what publishes the events of a user's run until it is closed."""
        return _Publisher(self, user)

    def begin(self, place: Place) -> _Thread:
        """Return a thread on which a run begins to work."""
        thread = self._threads.setdefault(place, _Thread())
        thread.working += 1
        return thread

    def end(self, place: Place) -> None:
        """Forget the pieces of a thread on which a run worked."""
        thread = self._threads[place]
        thread.working -= 1
        thread.pieces.clear()
        thread.below.clear()
        self._forget(place)

    @contextmanager
    def following(self, place: Place, follower: Follower) -> Generator[None]:
        """Call a function with each live event, beginning with the pieces of an answer so far."""
        thread = self._threads.setdefault(place, _Thread())
        # Without an `await` before the follower is added: no piece comes twice or is missed.
        for piece in thread.pieces:
            follower(piece)
        thread.followers.append(follower)
        try:
            yield
        finally:
            thread.followers.remove(follower)
            self._forget(place)

    def _forget(self, place: Place) -> None:
        thread = self._threads.get(place)
        if thread is not None and not thread.working and not thread.followers:
            del self._threads[place]


class _Publisher:
    """Publishes the events of one run, on the thread that its first event names."""

    def __init__(self, live: LiveEvents, user: str) -> None:
        self._live = live
        self._user = user
        self._place: Place | None = None
        self._thread: _Thread | None = None
        self._closed = False

    def __call__(self, event: Event) -> None:
        # While a run waits for its start, it has no thread yet.
        if self._closed or not event.thread_id:
            return
        if self._place is None or self._thread is None:
            self._place = self._user, event.thread_id
            self._thread = self._live.begin(self._place)
        _publish(self._thread, self._place[1], event)

    def close(self) -> None:
        """End the work of the run."""
        if self._place is not None and not self._closed:
            self._live.end(self._place)
        self._closed = True


_LIVE: WeakKeyDictionary[Runtime, LiveEvents] = WeakKeyDictionary()


def live_of(runtime: Runtime) -> LiveEvents:
    """Return the live events of all runs that begin work in a runtime from the first call on."""
    if (live := _LIVE.get(runtime)) is None:
        live = _LIVE[runtime] = LiveEvents()
        runtime.host.watchers.append(live.publisher)
    return live


def _publish(thread: _Thread, thread_id: str, event: Event) -> None:
    own = event.thread_id == thread_id
    if own and event.kind in _VOID:
        thread.pieces.clear()
    if event.id:
        # Followers read it from the log.
        if own:
            thread.last = event.id
            return
        thread.below[event.thread_id] = event.id
    last = thread.last if own else thread.below.get(event.thread_id, 0)
    live = LiveEvent(thread.last, event, last)
    if own and event.kind in PIECES:
        thread.pieces.append(live)
    # A follower may leave while it is called.
    for follower in tuple(thread.followers):
        follower(live)
