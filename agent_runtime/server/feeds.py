"""The events of threads and runs, read and encoded once for all streams of the process."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple, TypeAlias

import anyio
import orjson

from agent_runtime.concurrency import cancel
from agent_runtime_storage import EventRow, UserStore

PAUSE_SECONDS = 0.05
"""The least time between two reads of a feed: a fast run's events come in groups."""
PAGE = 250
"""How many events a stream that is behind reads at once."""
_KEPT_EVENTS, _KEPT_BYTES = 500, 1 << 20
"""How much a feed keeps for its streams; one that is further behind reads the store."""

Positions: TypeAlias = Mapping[str, int]
"""The id of the last known event, by thread."""
Placed: TypeAlias = tuple[str, EventRow]


class EncodedEvent(NamedTuple):
    """An event as streams send it.

    Attributes:
        data: a line of server-sent events, and the empty one after it.
    """

    thread_id: str
    id: int
    kind: str
    data: bytes


Batches: TypeAlias = AsyncGenerator[Sequence[EncodedEvent]]


def encode(thread_id: str, event: EventRow) -> EncodedEvent:
    """Return an event as the API shows it."""
    shown = {
        "thread_id": thread_id,
        "id": event.id,
        "run_id": event.run_id,
        "kind": event.kind,
        "node_id": event.node_id,
        "data": event.data,
        "created_at": event.created_at,
    }
    return EncodedEvent(thread_id, event.id, event.kind, b"data: %s\n\n" % orjson.dumps(shown))


@dataclass(frozen=True, slots=True)
class Source:
    """Where the events of a stream come from.

    Attributes:
        name: the owner, and what is followed; streams of the same name share a feed.
        page: returns a page of those after the positions; one that is not full is the last.
        follow: yields those after the positions, without end.
    """

    name: tuple[str, str]
    page: Callable[[Positions], Awaitable[Sequence[Placed]]]
    follow: Callable[[Positions], AsyncGenerator[Placed]]


def thread_source(store: UserStore, user: str, thread_id: str) -> Source:
    """Return the source of a thread's events."""

    async def page(after: Positions) -> list[Placed]:
        rows = await store.events.list(thread_id, after=after.get(thread_id, 0), limit=PAGE)
        return [(thread_id, row) for row in rows]

    async def follow(after: Positions) -> AsyncGenerator[Placed]:
        at = after.get(thread_id, 0)
        rows = store.events.follow(thread_id, after=at, pause=PAUSE_SECONDS)
        async with aclosing(rows):
            async for row in rows:
                yield thread_id, row

    return Source((user, f"thread {thread_id}"), page, follow)


def tree_source(store: UserStore, user: str, run_id: str) -> Source:
    """Return the source of the events of a run and all runs below it."""

    async def page(after: Positions) -> list[Placed]:
        return await store.events.of_tree(run_id, after=after, limit=PAGE)

    def follow(after: Positions) -> AsyncGenerator[Placed]:
        return store.events.follow_tree(run_id, after=after, pause=PAUSE_SECONDS)

    return Source((user, f"run {run_id}"), page, follow)


class Feeds:
    """The feeds of a service: one for all streams of the same thread or run."""

    def __init__(self) -> None:
        self._feeds: dict[tuple[str, str], _Feed] = {}

    def __len__(self) -> int:
        return len(self._feeds)

    async def events(self, source: Source, after: Positions, heartbeat: float) -> Batches:
        """Yield the events after the positions: the existing ones, then new ones as they come.

        Each comes once, in order within its thread.  After each `heartbeat` seconds without one an
        empty batch comes.  Close the generator when you leave it.

        Raises:
            NotFound: the thread or the run does not exist any more.
        """
        known = dict(after)
        async with self._joined(source) as feed:
            while True:
                begun, at = feed.begun, feed.end
                # What the feed has had so far is in the store by now.
                async with aclosing(rest_of(source, known)) as pages:
                    async for page in pages:
                        yield page
                if not feed.begun:
                    feed.begin(known)
                elif not begun:
                    # Another stream has begun it, perhaps after events that are missing here.
                    continue
                while feed.keeps(at):
                    batch, at = feed.since(at, known), feed.end
                    # Without a batch the wait ended by the heartbeat, and the empty batch is what
                    # is sent then.
                    if batch or not await feed.more_than(at, heartbeat):
                        yield batch

    @asynccontextmanager
    async def _joined(self, source: Source) -> AsyncGenerator[_Feed]:
        feed = self._feeds.get(source.name)
        # Streams of a failed feed raise its error each; those that come now begin again.
        if feed is None or feed.failed:
            feed = self._feeds[source.name] = _Feed(source)
        feed.streams += 1
        try:
            yield feed
        finally:
            feed.streams -= 1
            if not feed.streams:
                # Another may have taken its place after a failure.
                if self._feeds.get(source.name) is feed:
                    del self._feeds[source.name]
                await feed.close()


async def rest_of(source: Source, known: dict[str, int]) -> Batches:
    """Yield what the store has after the positions, and advance these."""
    full = True
    while full:
        page = await source.page(known)
        full = len(page) >= PAGE
        if page:
            # Before the page is given away: its reader may never come back.
            known.update((thread, row.id) for thread, row in page)
            yield [encode(thread, row) for thread, row in page]


class _Feed:
    """The newest events of a source, which one task reads for all streams."""

    def __init__(self, source: Source) -> None:
        self.streams = 0
        self._source = source
        self._task: asyncio.Task[None] | None = None
        self._error: Exception | None = None
        self._changed = anyio.Event()
        self._kept: deque[EncodedEvent] = deque()
        self._dropped = 0
        self._bytes = 0

    @property
    def begun(self) -> bool:
        return self._task is not None

    @property
    def failed(self) -> bool:
        return self._error is not None

    @property
    def end(self) -> int:
        """How many events there have been."""
        return self._dropped + len(self._kept)

    def begin(self, after: Positions) -> None:
        """Begin to read after the positions."""
        self._task = asyncio.create_task(self._read(dict(after)))

    async def close(self) -> None:
        """End the reading."""
        if self._task is not None:
            await cancel(self._task)

    def keeps(self, place: int) -> bool:
        """Return whether all events from a place on are here still."""
        return place >= self._dropped

    def since(self, place: int, known: dict[str, int]) -> list[EncodedEvent]:
        """Return the events from a place on that come after the positions, and advance these."""
        found = [
            one
            for one in islice(self._kept, place - self._dropped, None)
            if one.id > known.get(one.thread_id, 0)
        ]
        known.update((one.thread_id, one.id) for one in found)
        return found

    async def more_than(self, place: int, seconds: float) -> bool:
        """Wait for events from a place on; return whether there are any.

        Raises what has ended the reading, if there are none.
        """
        if self._changed.is_set():
            # Whoever waits has had everything so far.
            self._changed = anyio.Event()
        if self._error is None:
            with anyio.move_on_after(seconds):
                await self._changed.wait()
        if self._error is not None and self.end == place:
            raise self._error
        return self.end > place

    async def _read(self, after: Positions) -> None:
        try:
            async with aclosing(self._source.follow(after)) as events:
                async for thread_id, event in events:
                    self._keep(encode(thread_id, event))
        except Exception as error:
            self._error = error
            self._changed.set()

    def _keep(self, event: EncodedEvent) -> None:
        self._kept.append(event)
        self._bytes += len(event.data)
        while len(self._kept) > _KEPT_EVENTS or self._bytes > _KEPT_BYTES:
            self._bytes -= len(self._kept.popleft().data)
            self._dropped += 1
        self._changed.set()
