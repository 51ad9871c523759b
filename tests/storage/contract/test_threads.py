"""The contract of threads: their creation, metadata, order and heads."""

from __future__ import annotations

import pytest

from agent_runtime_storage import (
    Commit,
    Conflict,
    Finish,
    NotFound,
    Store,
    StoreError,
    ThreadBusy,
    UserStore,
    open_store,
)
from tests.storage.helpers import append, begin, begin_child, exchange


async def test_a_thread_is_created_once_with_its_first_title(user: UserStore) -> None:
    created = await user.threads.ensure("t1", title="first", metadata={"topic": "x"})
    again = await user.threads.ensure("t1", title="second", metadata={"topic": "y"})

    assert (created.title, created.metadata) == ("first", {"topic": "x"})
    assert again == created
    assert created.head is None
    assert created.last_seq == created.last_event == created.last_activation == 0


async def test_a_thread_without_an_id_is_refused(user: UserStore) -> None:
    with pytest.raises(StoreError, match="empty"):
        await user.threads.ensure("")


async def test_an_unknown_thread_is_not_found(user: UserStore) -> None:
    with pytest.raises(NotFound, match="nowhere"):
        await user.threads.get("nowhere")


async def test_metadata_is_merged_by_key_and_none_removes_a_key(user: UserStore) -> None:
    await user.threads.ensure("t1", metadata={"a": {"x": 1}, "b": 2, "c": 3})

    await user.threads.update("t1", metadata={"a": {"y": 1}, "b": None})

    assert (await user.threads.get("t1")).metadata == {"a": {"y": 1}, "c": 3}


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
async def test_metadata_that_json_cannot_hold_is_refused(user: UserStore, number: float) -> None:
    await user.threads.ensure("t1", metadata={"kept": 1})
    for metadata in ({"a": number}, {"a": [{"b": (number,)}]}):
        with pytest.raises(StoreError, match="not finite"):
            await user.threads.update("t1", metadata=metadata)
        with pytest.raises(StoreError, match="not finite"):
            await user.threads.ensure("t2", metadata=metadata)
    assert [one.metadata for one in await user.threads.list()] == [{"kept": 1}]


@pytest.mark.parametrize("title", ["x" * 501, "a\0b"])
async def test_a_title_that_no_list_can_show_is_refused(user: UserStore, title: str) -> None:
    await user.threads.ensure("t1", title="x" * 500)
    with pytest.raises(StoreError, match=r"title (has 501 characters|holds a zero byte)"):
        await user.threads.ensure("t2", title=title)
    with pytest.raises(StoreError, match="title"):
        await user.threads.update("t1", title=title)
    assert [thread.id for thread in await user.threads.list()] == ["t1"]


async def test_the_title_can_be_changed_alone(user: UserStore) -> None:
    await user.threads.ensure("t1", title="old", metadata={"a": 1})

    updated = await user.threads.update("t1", title="new")

    assert (updated.title, updated.metadata) == ("new", {"a": 1})


async def test_metadata_that_is_no_json_is_refused(user: UserStore) -> None:
    with pytest.raises(StoreError, match="JSON"):
        await user.threads.ensure("t1", metadata={"a": object()})


async def test_threads_are_listed_newest_first_and_paged_by_update(user: UserStore) -> None:
    stamps: list[float] = []
    for number in range(3):
        stamps.append((await user.threads.ensure(f"t{number}")).updated_at)
    touched = await user.threads.update("t0", title="touched")
    while touched.updated_at <= stamps[-1]:
        touched = await user.threads.update("t0", title="touched")

    threads = await user.threads.list()

    assert threads[0].id == "t0"
    assert sorted(thread.id for thread in threads) == ["t0", "t1", "t2"]
    assert len(await user.threads.list(limit=2)) == 2
    older = await user.threads.list(before=touched.updated_at)
    assert sorted(thread.id for thread in older) == ["t1", "t2"]


async def test_threads_of_child_runs_can_be_left_out(store: Store, user: UserStore) -> None:
    await begin(user, "r1", "t1")
    await begin_child(user, "r1", "r2", "t2")
    # Another owner's runs with the same ids in reverse roles change nothing.
    other = store.of("bob")
    await begin(other, "r2", "t2")
    await begin_child(other, "r2", "r1", "t1")

    assert sorted(thread.id for thread in await user.threads.list()) == ["t1", "t2"]
    assert [thread.id for thread in await user.threads.list(children=False)] == ["t1"]
    assert [thread.id for thread in await user.threads.list(limit=1, children=False)] == ["t1"]
    assert [thread.id for thread in await other.threads.list(children=False)] == ["t2"]


async def test_the_head_can_move_to_any_closed_node_and_before_the_first(user: UserStore) -> None:
    lease = await begin(user)
    await append(user, lease, 2)
    await user.runs.commit(lease, Commit(finish=Finish("succeeded", "completed")))

    await user.threads.move_head("t1", 1, expect=3)
    assert (await user.threads.get("t1")).head == 1
    await user.threads.move_head("t1", None, expect=1)
    assert (await user.threads.get("t1")).head is None


async def test_the_head_cannot_move_while_a_run_is_active(user: UserStore) -> None:
    await begin(user)

    with pytest.raises(ThreadBusy) as raised:
        await user.threads.move_head("t1", None, expect=1)

    assert raised.value.run_id == "r1"
    assert (await user.threads.get("t1")).head == 1


async def test_the_head_cannot_move_to_a_missing_or_open_node(user: UserStore) -> None:
    lease = await begin(user)
    await user.runs.commit(lease, Commit(nodes=(exchange(2, 1, "shell"),)))
    await user.runs.commit(lease, Commit(finish=Finish("cancelled", "cancelled", "killed")))

    for node in (2, 9):
        with pytest.raises(NotFound):
            await user.threads.move_head("t1", node, expect=1)


async def test_a_head_that_has_moved_meanwhile_is_not_moved(user: UserStore) -> None:
    lease = await begin(user)
    await user.runs.commit(lease, Commit(finish=Finish("succeeded", "completed")))

    with pytest.raises(Conflict, match="head"):
        await user.threads.move_head("t1", None, expect=7)


async def test_committed_rows_survive_closing_the_store(store: Store, database_url: str) -> None:
    await begin(store.of("ann"))
    await store.close()

    reopened = await open_store(database_url)
    try:
        user = reopened.of("ann")
        assert (await user.threads.get("t1")).active_run == "r1"
        assert [node.body for node in await user.log.branch("t1", 1)] == [b"the task"]
    finally:
        await reopened.close()
