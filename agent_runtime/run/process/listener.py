"""Call a caller's listener of events, whatever it does."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Protocol, TypeAlias, cast

import anyio

from agent_runtime.events import AnyEvent, Event

OnEvent: TypeAlias = Callable[[AnyEvent], Awaitable[Any] | None]
"""A listener of events: a function, or an async function."""

_log = logging.getLogger(__name__)


class Watcher(Protocol):
    """Sees the events of a run as its caller's listener does: called with each, closed at its end.

    It must be quick, and raise nothing.
    """

    def __call__(self, event: Event) -> None: ...

    def close(self) -> None: ...


def ignore(event: Event) -> None:
    """Listen to nothing."""
    del event


class EventListener:
    """Calls a listener with each event in order, and awaits it if it is async.

    A listener only watches: its errors are logged, and the run goes on.
    """

    def __init__(self, on_event: OnEvent, watchers: Sequence[Watcher] = ()) -> None:
        self._on_event = on_event
        self._watchers = watchers
        self._pending: deque[tuple[Event, Awaitable[Any]]] = deque()
        self._task: asyncio.Task[None] | None = None

    def __call__(self, event: Event) -> None:
        """Call the listener; what it returns is awaited in the background, one after another."""
        for watcher in self._watchers:
            watcher(event)
        try:
            awaited = self._on_event(cast("AnyEvent", event))
        except Exception:
            _log.exception("A listener failed at the event %s.", event.kind)
            return
        if inspect.isawaitable(awaited):
            self._pending.append((event, awaited))
            # One task at a time, so that an async listener sees the events in order.
            if self._task is None or self._task.done():
                self._task = asyncio.create_task(self._work())

    async def flush(self) -> None:
        """Wait until the listener has seen every event; one that takes too long is cancelled."""
        if self._task is None:
            return
        with anyio.CancelScope(shield=True):
            await asyncio.wait([self._task], timeout=FLUSH_SECONDS)
        if not self._task.done():
            self._task.cancel()
            unseen = list(self._pending)
            self._pending.clear()
            for _, awaited in unseen:
                # Python warns of a coroutine that nobody awaited or closed.
                if isinstance(awaited, Coroutine):
                    cast("Coroutine[Any, Any, Any]", awaited).close()
            _log.warning(
                "A listener did not end in %g s: it is cancelled, and does not see the last %d "
                "events.",
                FLUSH_SECONDS,
                len(unseen),
            )

    def close(self) -> None:
        """Tell the watchers that the run is not at work any more."""
        for watcher in self._watchers:
            watcher.close()

    async def _work(self) -> None:
        while self._pending:
            event, awaited = self._pending.popleft()
            try:
                await awaited
            except asyncio.CancelledError:
                # Only `flush` cancels this task; otherwise it is the listener's own.
                if (task := asyncio.current_task()) is not None and task.cancelling():
                    raise
                _log.warning("A listener cancelled itself.")
            except Exception:
                _log.exception("A listener failed at the event %s.", event.kind)


FLUSH_SECONDS = 10.0
"""How long the end of a run waits for an async listener."""
