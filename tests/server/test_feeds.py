"""Feeds: each event once to every stream, whoever writes it and however slowly it is taken."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import anyio
import pytest

from agent_runtime.errors import NotFound
from agent_runtime.server.feeds import EncodedEvent, Feeds, Source, thread_source, tree_source
from agent_runtime_storage import Commit, Lease, NewEvent, UserStore, open_store
from tests.server.serving import until
from tests.storage.helpers import begin, begin_child

pytestmark = pytest.mark.backends("file")
LONG = 3600.0


@asynccontextmanager
async def user_of(database_url: str) -> AsyncGenerator[UserStore]:
    """Give the store of a user."""
    store = await open_store(database_url)
    try:
        yield store.of("ann")
    finally:
        await store.close()


async def write(user: UserStore, lease: Lease, count: int = 1, **data: Any) -> None:
    """Append events in one commit."""
    await user.runs.commit(lease, Commit(events=(NewEvent("note", data=data),) * count))


class Stream:
    """A stream of a feed, and what it has got."""

    def __init__(self, feeds: Feeds, source: Source, after: dict[str, int] | None = None) -> None:
        self.got: list[EncodedEvent] = []
        self.error: Exception | None = None
        self.scope = anyio.CancelScope()
        self._events = feeds.events(source, after or {}, LONG)

    @property
    def ids(self) -> list[int]:
        """The ids of the events so far."""
        return [one.id for one in self.got]

    @property
    def over(self) -> bool:
        """Whether the event that is marked as the last one has come."""
        return bool(self.got) and b'"last":true' in self.got[-1].data

    async def read(self, most: int = 1 << 30) -> None:
        """Read until there is this number, the last, an error or a cancellation."""
        with self.scope:
            async with aclosing(self._events) as batches:
                try:
                    async for batch in batches:
                        self.got += batch
                        if len(self.got) >= most or self.over:
                            return
                except NotFound as error:
                    self.error = error


async def test_an_event_is_encoded_once_for_many_streams(database_url: str) -> None:
    feeds = Feeds()
    async with user_of(database_url) as user, anyio.create_task_group() as group:
        lease = await begin(user)
        streams = [Stream(feeds, thread_source(user, "ann", "t1")) for _ in range(50)]
        for one in streams:
            group.start_soon(one.read, 31)
        await write(user, lease)
        await until(lambda: all(one.got for one in streams))
        assert len(feeds) == 1
        await write(user, lease)
        # By then no stream reads by itself any more.
        await until(lambda: all(len(one.got) == 2 for one in streams))
        for _ in range(29):
            await write(user, lease)
        await until(lambda: not len(feeds))
        for one in streams:
            assert one.ids == list(range(1, 32))
            assert [id(event.data) for event in one.got[2:]] == [
                id(event.data) for event in streams[0].got[2:]
            ]


async def test_a_slow_stream_gets_all_and_holds_up_none(database_url: str) -> None:
    feeds = Feeds()
    async with user_of(database_url) as user, anyio.create_task_group() as group:
        lease = await begin(user)
        await write(user, lease)
        source = thread_source(user, "ann", "t1")
        slow, fast = feeds.events(source, {}, LONG), Stream(feeds, source)
        taken = [one.id for one in await anext(slow)]
        group.start_soon(fast.read)
        # Far more than a feed keeps.
        for _ in range(20):
            await write(user, lease, 100, text="x" * 1000)
        await until(lambda: len(fast.got) == 2001)
        async for batch in slow:
            taken += [one.id for one in batch]
            if len(taken) == 2001:
                break
        await slow.aclose()
        assert taken == fast.ids == list(range(1, 2002))
        fast.scope.cancel()
    assert not len(feeds)


async def test_a_stream_that_comes_again_goes_on_where_it_was(database_url: str) -> None:
    feeds, chance = Feeds(), random.Random(5)
    async with user_of(database_url) as user, anyio.create_task_group() as group:
        lease = await begin(user)
        source, steady = (
            thread_source(user, "ann", "t1"),
            Stream(feeds, thread_source(user, "ann", "t1")),
        )
        group.start_soon(steady.read)

        async def writing() -> None:
            for _ in range(60):
                await write(user, lease, chance.randint(1, 5))
            await write(user, lease, last=True)

        group.start_soon(writing)
        got: list[EncodedEvent] = []
        over = False
        while not over:
            again = Stream(feeds, source, {"t1": got[-1].id} if got else {})
            await again.read(chance.randint(1, 20))
            got, over = got + again.got, again.over
        await until(lambda: steady.over)
        assert [one.id for one in got] == steady.ids == list(range(1, len(got) + 1))


async def test_one_stream_leaves_and_the_last_ends_the_feed(database_url: str) -> None:
    feeds = Feeds()
    async with user_of(database_url) as user, anyio.create_task_group() as group:
        lease = await begin(user)
        await write(user, lease)
        one, other = (Stream(feeds, thread_source(user, "ann", "t1")) for _ in range(2))
        group.start_soon(one.read)
        group.start_soon(other.read)
        await until(lambda: one.ids == other.ids == [1])
        one.scope.cancel()
        await write(user, lease)
        await until(lambda: other.ids == [1, 2])
        assert one.ids == [1] and len(feeds) == 1
        other.scope.cancel()
        await until(lambda: not len(feeds))


async def test_the_end_of_a_thread_ends_its_streams(database_url: str) -> None:
    feeds, streams = Feeds(), list[Stream]()
    async with user_of(database_url) as user, anyio.create_task_group() as group:
        await user.threads.ensure("t1")
        streams += [Stream(feeds, thread_source(user, "ann", "t1")) for _ in range(3)]
        for one in streams:
            group.start_soon(one.read)
        await until(lambda: len(feeds) == 1)
        await user.upkeep.delete_thread("t1")
    assert all(isinstance(one.error, NotFound) for one in streams)
    assert not len(feeds)


@pytest.mark.backends("file", "libsql-http", "postgres")
async def test_what_two_stores_write_comes_once_and_in_order(database_url: str) -> None:
    feeds, chance = Feeds(), random.Random(2)
    async with (
        user_of(database_url) as here,
        user_of(database_url) as there,
        anyio.create_task_group() as group,
    ):
        lease = await begin(here)
        child = await begin_child(here, "r1", "r2", "t2")
        stream = Stream(feeds, tree_source(here, "ann", "r1"))
        group.start_soon(stream.read)
        written = {"t1": 0, "t2": 0}
        for _ in range(40):
            held = chance.choice([lease, child])
            count = chance.randint(1, 3)
            await write(chance.choice([here, there]), held, count)
            written[held.thread_id] += count
        third = await begin_child(there, "r2", "r3", "t3")
        await write(there, third)
        await write(here, third)
        written["t3"] = 2
        await until(lambda: len(stream.got) >= sum(written.values()))
        for thread, count in written.items():
            ids = [one.id for one in stream.got if one.thread_id == thread]
            assert ids == list(range(1, count + 1))
        stream.scope.cancel()
