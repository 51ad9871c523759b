"""What runs of this process tell while they work, for those who follow their threads.

The log has everything that lasts; this adds the pieces of an answer while a model writes it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from agent_runtime.events import Event

PIECES = ("text-delta", "reasoning-delta")
_VOID = ("answer", "model-retry", "model-fallback", "run-suspend", "run-finish")
"""Events after which the pieces so far are recorded, or worth nothing."""

Place: TypeAlias = tuple[str, str]
"""An owner and a thread."""


class LiveEvent(NamedTuple):
    """An event that the thread's log does not have.

    Attributes:
        after: the id of the thread's last recorded event before it.
    """

    after: int
    event: Event


Follower: TypeAlias = Callable[[LiveEvent], None]


@dataclass(slots=True)
class _Thread:
    last: int = 0
    pieces: list[LiveEvent] = field(default_factory=list[LiveEvent])
    followers: list[Follower] = field(default_factory=list[Follower])
    working: int = 0


class LiveEvents:
    """Passes the live events of runs on to those who follow their threads."""

    def __init__(self) -> None:
        self._threads: dict[Place, _Thread] = {}

    @contextmanager
    def publishing(self, place: Place) -> Generator[Callable[[Event], None]]:
        """Return a listener for a run on a thread, for as long as the run works."""
        thread = self._threads.setdefault(place, _Thread())
        thread.working += 1
        try:
            yield lambda event: _publish(thread, place[1], event)
        finally:
            thread.working -= 1
            thread.pieces.clear()
            self._forget(place)

    @contextmanager
    def following(self, place: Place, follower: Follower) -> Generator[None]:
        """Call a function with each live event, beginning with the pieces of an answer so far."""
        thread = self._threads.setdefault(place, _Thread())
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


def _publish(thread: _Thread, thread_id: str, event: Event) -> None:
    own = event.thread_id == thread_id
    if own and event.kind in _VOID:
        thread.pieces.clear()
    if own and event.id:
        # Followers read it from the log.
        thread.last = event.id
        return
    live = LiveEvent(thread.last, event)
    if own and event.kind in PIECES:
        thread.pieces.append(live)
    for follower in tuple(thread.followers):
        follower(live)
