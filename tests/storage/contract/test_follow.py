"""Following a thread's events as they are committed, from this store and from another one."""

from __future__ import annotations

from contextlib import aclosing

import anyio
import pytest

from agent_runtime_storage import (
    Commit,
    EventRow,
    Finish,
    NewEvent,
    NotFound,
    UserStore,
    open_store,
)
from agent_runtime_storage.contract.records.log import ThreadPlace
from tests.storage.helpers import begin, begin_child


async def _first(user: UserStore, count: int, *, after: int = 0) -> list[int]:
    seen: list[int] = []
    async with aclosing(user.events.follow("t1", after=after)) as events:
        async for event in events:
            seen.append(event.id)
            if len(seen) == count:
                break
    return seen


async def test_existing_events_arrive_at_once(user: UserStore) -> None:
    lease = await begin(user)
    await user.runs.commit(lease, Commit(events=(NewEvent("a"), NewEvent("b"), NewEvent("c"))))

    assert await _first(user, 2, after=1) == [2, 3]


async def test_new_events_arrive_in_order_without_gaps(user: UserStore) -> None:
    lease = await begin(user)
    seen: list[EventRow] = []

    async def listen() -> None:
        async with aclosing(user.events.follow("t1")) as events:
            async for event in events:
                seen.append(event)
                if len(seen) == 40:
                    return

    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            group.start_soon(listen)
            for number in range(20):
                await user.runs.commit(lease, Commit(events=(NewEvent("a"), NewEvent("b"))))
                # The follower catches up now and then, so it gets events singly and in groups.
                if number % 5 == 0:
                    await anyio.sleep(0.01)

    assert [event.id for event in seen] == list(range(1, 41))


async def test_events_of_another_store_arrive_too(user: UserStore, database_url: str) -> None:
    lease = await begin(user)
    other = await open_store(database_url)
    seen: list[int] = []

    async def listen() -> None:
        seen.extend(await _first(other.of("ann"), 2))

    try:
        with anyio.fail_after(30):
            async with anyio.create_task_group() as group:
                group.start_soon(listen)
                # The listener should find no events at first, so that it has to notice new ones.
                await anyio.sleep(0.05)
                await user.runs.commit(lease, Commit(events=(NewEvent("a"),)))
                await user.runs.commit(lease, Commit(events=(NewEvent("b"),)))
    finally:
        await other.close()

    assert seen == [1, 2]


async def test_a_cancelled_follower_stops_listening(user: UserStore) -> None:
    await begin(user)

    with anyio.move_on_after(0.05) as scope:
        await _first(user, 1)

    assert scope.cancelled_caught
    lease = await begin(user, "r2", "t2")
    assert await user.runs.commit(lease, Commit(events=(NewEvent("a"),))) == 1


async def test_an_unknown_thread_cannot_be_followed(user: UserStore, stranger: UserStore) -> None:
    await begin(user)

    for events in (user.events.follow("nowhere"), stranger.events.follow("t1")):
        with pytest.raises(NotFound):
            async for _ in events:
                pass


@pytest.mark.parametrize("here", [True, False])
async def test_a_follower_does_not_pass_to_another_thread_of_the_same_id(
    user: UserStore, database_url: str, here: bool
) -> None:
    lease = await begin(user)
    await user.runs.commit(
        lease, Commit(events=(NewEvent("a"),) * 3, finish=Finish("succeeded", "completed"))
    )
    other = await open_store(database_url)
    try:
        with anyio.fail_after(30):
            async with aclosing(user.events.follow("t1", after=2)) as events:
                assert (await anext(events)).id == 3
                # Both ways to notice: by this process's own signals, and by reading.
                mine = user if here else other.of("ann")
                await mine.upkeep.delete_thread("t1")
                again = await begin(mine)
                await mine.runs.commit(again, Commit(events=(NewEvent("b"),) * 3))
                await mine.runs.commit(again, Commit(events=(NewEvent("b"),) * 3))
                with pytest.raises(NotFound):
                    await anext(events)
    finally:
        await other.close()


async def test_the_places_of_a_trees_threads(user: UserStore) -> None:
    lease = await begin(user)
    child = await begin_child(user, "r1", "child", "t2")
    below = await begin_child(user, "child", "below", "t3", root_run_id="r1")
    await begin(user, "other", "t4")
    for one, count in ((lease, 1), (child, 2), (below, 3)):
        await user.runs.commit(one, Commit(events=(NewEvent("a"),) * count))

    created = {one: (await user.threads.get(one)).created_at for one in ("t1", "t2", "t3")}
    places = {one: ThreadPlace(last, created[one]) for last, one in enumerate(created, 1)}
    assert await user.events.places_of_tree("r1") == places
    del places["t1"]
    assert await user.events.places_of_tree("child") == places
    with pytest.raises(NotFound):
        await user.events.places_of_tree("nowhere")
