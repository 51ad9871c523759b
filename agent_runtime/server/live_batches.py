"""The pieces of answers among the events of a stream, while models write them."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from contextlib import aclosing

import orjson

from agent_runtime.concurrency import cancel
from agent_runtime.server.feeds import Batches, EncodedEvent, Positions
from agent_runtime.server.protocols.live import PIECES, LiveEvent, LiveEvents

WAITING = 4096
"""How many live events may wait for a slow client; further ones are left out."""


async def with_live(
    batches: Batches, live: LiveEvents, user: str, thread: str, after: Positions, *, below: bool
) -> Batches:
    """Yield batches of recorded events, with the live ones of a thread in between.

    Live events have the id 0.  They come after the recorded events of their thread that were before
    them; the pieces of an answer come before it.  A client that comes while an answer is written
    gets its pieces so far; of a sub-agent's answer, the further ones.  Where a client is too slow,
    it gets the answer when it is recorded.

    Args:
        batches: closed at the end.
        thread: whose runs are meant.
        after: what the client has of each thread.
        below: whether those of its sub-agents are meant, too.
    """
    threads: dict[str, _Thread] = {}
    due: deque[EncodedEvent] = deque()
    changed = asyncio.Event()

    def of(name: str) -> _Thread:
        if name not in threads:
            threads[name] = _Thread(after.get(name, 0), due, changed)
        return threads[name]

    def put(event: LiveEvent) -> None:
        name = event.event.thread_id
        # What sub-agents recorded is passed on, too; their threads have it.
        if not event.event.id and (below or name == thread):
            of(name).put(event)

    def begin() -> asyncio.Task[Sequence[EncodedEvent] | None]:
        # A task of its own: what waits for live events, too, must not cancel the reading.
        task = asyncio.ensure_future(_next(batches))
        task.add_done_callback(lambda _: changed.set())
        return task

    async with aclosing(batches):
        with live.following((user, thread), put):
            reading = begin()
            try:
                while True:
                    await changed.wait()
                    changed.clear()
                    ready = [due.popleft() for _ in range(len(due))]
                    if reading.done():
                        if (batch := reading.result()) is None:
                            return
                        for event in batch:
                            ready += [event, *of(event.thread_id).recorded(event)]
                        yield ready
                        reading = begin()
                    elif ready:
                        yield ready
            finally:
                await cancel(reading)


async def _next(batches: Batches) -> Sequence[EncodedEvent] | None:
    return await anext(batches, None)


class _Thread:
    """Puts the live events of a thread between its recorded ones."""

    def __init__(self, position: int, due: deque[EncodedEvent], changed: asyncio.Event) -> None:
        self._recorded = position
        self._answered = 0
        # Once a piece is left out, the rest of its answer is, too.
        self._lossy = False
        self._early: deque[LiveEvent] = deque()
        self._due = due
        self._changed = changed

    def put(self, live: LiveEvent) -> None:
        """Take a live event."""
        self._lossy = self._lossy or len(self._due) + len(self._early) >= WAITING
        if self._lossy:
            return
        # It follows a recorded event that this stream has not given yet.
        if live.own_after > self._recorded:
            self._early.append(live)
        elif self._counts(live):
            self._due.append(_encoded(live))
            self._changed.set()

    def recorded(self, event: EncodedEvent) -> list[EncodedEvent]:
        """Take a recorded event; return the live ones that come after it."""
        self._recorded = event.id
        if event.kind == "answer":
            # The whole answer is given now, so missing pieces of it do not matter any more.
            self._answered, self._lossy = event.id, False
        ready: list[EncodedEvent] = []
        while self._early and self._early[0].own_after <= self._recorded:
            live = self._early.popleft()
            ready += [_encoded(live)] if self._counts(live) else []
        return ready

    def _counts(self, live: LiveEvent) -> bool:
        """Return whether the answer that a piece belongs to has not been given whole."""
        return live.event.kind not in PIECES or live.own_after >= self._answered


def _encoded(live: LiveEvent) -> EncodedEvent:
    event = live.event
    shown = {
        "thread_id": event.thread_id,
        "id": 0,
        "run_id": event.run_id,
        "kind": event.kind,
        "node_id": event.node_id,
        "data": event.data,
        "created_at": time.time(),
    }
    return EncodedEvent(event.thread_id, 0, event.kind, b"data: %s\n\n" % orjson.dumps(shown))
