"""The events of threads."""

from __future__ import annotations

import heapq
from collections.abc import AsyncGenerator, Mapping
from contextlib import ExitStack
from itertools import groupby
from math import inf
from typing import cast

import anyio
import orjson

from agent_runtime_storage.contract.records.log import EventRow, ThreadPlace
from agent_runtime_storage.drivers.signals import SignalListener, topic_of
from agent_runtime_storage.queries.owner import OwnerScope, not_found
from agent_runtime_storage.queries.row_decoding import to_event

_PAGE = 1000


class SqlEvents:
    """`EventStore` over SQL."""

    def __init__(self, scope: OwnerScope) -> None:
        self._scope = scope

    async def list(self, thread_id: str, *, after: int = 0, limit: int = _PAGE) -> list[EventRow]:
        rows = await self._scope.read(
            "events", thread_id=thread_id, after=after, limit=max(limit, 0)
        )
        if not rows:
            await self._scope.require_thread(thread_id)
        return [to_event(row) for row in rows]

    async def follow(
        self, thread_id: str, *, after: int = 0, pause: float = 0.0
    ) -> AsyncGenerator[EventRow]:
        signals = self._scope.driver.signals
        # Listen before the first read, so that every later commit wakes the listener.
        with signals.listen(topic_of(self._scope.user_id, thread_id)) as listener:
            created: float | None = None
            newest = -inf
            while True:
                next_read = anyio.current_time() + pause
                found, events = await self._of_thread(thread_id, after)
                if created is not None and found != created:
                    # It was deleted, and another one has its id now.
                    raise not_found("thread", thread_id)
                created = found
                for event in events:
                    after, newest = event.id, event.created_at
                    yield event
                complete = len(events) < _PAGE
                while complete and (news := await _news(listener, signals.poll_seconds)):
                    for _, event in news:
                        # A signal brings the events of this process only; one that does not
                        # follow directly was preceded by another process's, and the next read
                        # returns both.
                        if event.id == after + 1:
                            after, newest = event.id, event.created_at
                            yield event
                        elif event.id > after or event.created_at > newest:
                            # A new event with an old id is one of another thread of this id.
                            complete = False
                            break
                    if complete:
                        await anyio.sleep(pause)
                if len(events) < _PAGE:
                    await anyio.sleep_until(next_read)

    async def _of_thread(self, thread_id: str, after: int) -> tuple[float, list[EventRow]]:
        """Return when a thread was created, and a page of its events."""
        rows = await self._scope.read(
            "thread_events", thread_id=thread_id, after=after, limit=_PAGE
        )
        if not rows:
            raise await self._scope.no_thread(thread_id)
        return float(cast("float", rows[0][0])), [to_event(row[1:]) for row in rows if row[1]]

    async def of_tree(
        self, run_id: str, *, after: Mapping[str, int] | None = None, limit: int = _PAGE
    ) -> list[tuple[str, EventRow]]:
        rows = await self._scope.read(
            "tree_events",
            run_id=run_id,
            after=orjson.dumps([list(one) for one in (after or {}).items()]).decode(),
            limit=max(limit, 0),
        )
        if not rows:
            await self._scope.require_run(run_id)
        # A page has whole beginnings of threads.  Merged, not sorted: a clock that is set back
        # must not move an event before another one of its thread.
        threads = (
            [(str(thread), to_event(row[1:])) for row in group]
            for thread, group in groupby(rows, key=lambda row: row[0])
        )
        return list(heapq.merge(*threads, key=lambda one: one[1].created_at))

    async def places_of_tree(self, run_id: str) -> dict[str, ThreadPlace]:
        rows = await self._scope.read("tree_threads", run_id=run_id)
        if not rows:
            raise not_found("run", run_id)
        return {
            str(thread): ThreadPlace(int(str(last)), float(cast("float", created)))
            for thread, last, created in rows
        }

    async def follow_tree(
        self, run_id: str, *, after: Mapping[str, int] | None = None, pause: float = 0.0
    ) -> AsyncGenerator[tuple[str, EventRow]]:
        places = await self._scope.read("run_place", run_id=run_id)
        if not places:
            raise not_found("run", run_id)
        [(thread, root)] = places
        signals, user, known = self._scope.driver.signals, self._scope.user_id, dict(after or {})
        with ExitStack() as stack:
            # For runs that begin below; each has an event, which shows its thread.
            listener = stack.enter_context(signals.listen(topic_of(user, tree_topic(root))))
            heard: set[str] = set()
            runs: set[str | None] = {run_id}
            while True:
                for one in {thread, *known} - heard:
                    heard.add(one)
                    stack.enter_context(signals.listen(topic_of(user, one), listener))
                next_read = anyio.current_time() + pause
                events = await self.of_tree(run_id, after=known)
                for at, event in events:
                    known[at] = event.id
                    runs.add(event.run_id)
                    yield at, event
                # What a new thread's runs did before this listens to it is read first.
                if len(events) < _PAGE and heard.issuperset(known):
                    complete = True
                    while complete and (news := await _news(listener, signals.poll_seconds)):
                        for at, event in news:
                            last = known.get(at, 0)
                            if event.id == last + 1 and event.run_id in runs:
                                known[at] = event.id
                                yield at, event
                            elif event.id > last:
                                # Written in between by another process, or of another run.
                                complete = False
                        await anyio.sleep(pause)
                    await anyio.sleep_until(next_read)


async def _news(listener: SignalListener, seconds: float) -> list[tuple[str, EventRow]]:
    """Wait for a signal; return the events that it brings, none if they have to be read."""
    return cast("list[tuple[str, EventRow]]", await listener.wait(seconds))


def tree_topic(root_run_id: str) -> str:
    """Return what is announced, like a thread, when a run begins below a root."""
    return f"tree {root_run_id}"
