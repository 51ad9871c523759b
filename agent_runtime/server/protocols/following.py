"""Follow a thread's events from a cursor: those of the log, with the live ones in their places."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from contextlib import aclosing, asynccontextmanager
from typing import Any, TypeAlias

import anyio

from agent_runtime.concurrency import single_error
from agent_runtime.events import Event
from agent_runtime.runtime import Runtime
from agent_runtime.server.protocols.live import PIECES, LiveEvent, LiveEvents
from agent_runtime_storage.contract.records.log import EventRow

WAITING = 4096
"""How many events may wait for a slow client; further live ones are left out."""


Extra: TypeAlias = Callable[[Callable[[Event], None]], Coroutine[Any, Any, None]]
"""Passes on further live events until it is cancelled."""


@asynccontextmanager
async def following(
    runtime: Runtime,
    live: LiveEvents,
    user: str,
    thread: str,
    after: int,
    extra: Extra | None = None,
) -> AsyncGenerator[AsyncIterator[Event]]:
    """Give the events of a thread after a cursor, without end.

    Those of the log come each once and in order.  Where a client is too slow for the live ones, it
    gets the answer whole when it is recorded.

    Args:
        extra: passes on events that are neither in the thread's log nor among its live ones.

    Raises (from the iterator):
        NotFound, Conflict: as for `Threads.follow`.
    """
    send, receive = anyio.create_memory_object_stream[EventRow | LiveEvent](WAITING)
    merge = _Merge(thread, after)

    def put(event: LiveEvent) -> None:
        if merge.lossy:
            return
        try:
            send.send_nowait(event)
        except anyio.WouldBlock:
            # From here on no piece is passed on: an answer with a gap in it would be worse than
            # none.
            merge.lossy = True

    def tell(event: Event) -> None:
        put(LiveEvent(after, event))

    async def read_log() -> None:
        async with aclosing(runtime.threads.follow(thread, after=after, user=user)) as rows:
            async for row in rows:
                await send.send(row)

    async def merged() -> AsyncGenerator[Event]:
        async for one in receive:
            for event in merge.feed(one):
                yield event

    # Before the log is read, so that nothing falls between the two.
    with send, receive, live.following((user, thread), put):
        async with single_error(), anyio.create_task_group() as group:
            group.start_soon(read_log)
            if extra is not None:
                group.start_soon(extra, tell)
            async with aclosing(merged()) as events:
                yield events
            group.cancel_scope.cancel()


class _Merge:
    """Puts live events between those of the log that came before and after them."""

    def __init__(self, thread: str, after: int) -> None:
        self._thread = thread
        self._delivered = after
        self._answered = 0
        self._early: deque[LiveEvent] = deque()
        self.lossy = False
        """Whether a live event was left out since the last answer; then all are, up to the next."""

    def feed(self, one: EventRow | LiveEvent) -> list[Event]:
        if isinstance(one, LiveEvent):
            if one.after > self._delivered:
                self._early.append(one)
                return []
            return self._due(one)
        self._delivered = one.id
        if one.kind == "answer":
            self._answered, self.lossy = one.id, False
        events = [_event_of(self._thread, one)]
        while self._early and self._early[0].after <= self._delivered:
            events += self._due(self._early.popleft())
        return events

    def _due(self, live: LiveEvent) -> list[Event]:
        # The answer that these pieces belong to has been given whole.
        if live.event.kind in PIECES and live.after < self._answered:
            return []
        return [live.event]


def _event_of(thread: str, row: EventRow) -> Event:
    return Event(
        kind=row.kind,  # pyright: ignore[reportArgumentType]
        thread_id=thread,
        run_id=row.run_id or "",
        id=row.id,
        node_id=row.node_id,
        data=row.data,
    )
