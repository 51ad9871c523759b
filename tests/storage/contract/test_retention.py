"""The contract of retention: a deletion removes all rows, and only threads at rest are deleted."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from agent_runtime_storage import (
    Amount,
    Budget,
    Commit,
    Conflict,
    Finish,
    NotFound,
    Store,
    ThreadBusy,
    UserStore,
    open_store,
)
from agent_runtime_storage.sql.loader import load_queries
from agent_runtime_storage.urls import open_driver
from tests.storage import families
from tests.storage.families import CHILD, PARENT, fill
from tests.storage.helpers import OTHER, append, begin, begin_child, message
from tests.support.stores import execute

MARK = "zanzibar-4711"


async def _rows(url: str) -> str:
    """Return all rows of all tables as text."""
    driver = await open_driver(url)
    try:
        queries = load_queries(driver.dialect)
        lines: list[str] = []
        for (table,) in await driver.read(queries["schema_tables"], {}, owner=None):
            rows = await driver.read(f'SELECT * FROM "{table}"', {}, owner=None)
            lines += [f"{table} {row}" for row in rows]
        return "\n".join(lines)
    finally:
        await driver.close()


async def test_a_deleted_thread_leaves_no_row(
    store: Store, user: UserStore, stranger: UserStore, database_url: str
) -> None:
    await fill(user, MARK)
    await fill(stranger, "untouched")
    assert _tables(await _rows(database_url)) >= {
        "threads", "runs", "nodes", "calls", "activations", "events", "usage", "inbox", "jobs",
        "vectors", "search_texts", "blobs",
    }  # fmt: skip

    assert await user.upkeep.delete_thread(PARENT) == [PARENT, CHILD]

    remaining = await _rows(database_url)
    # The name of an embedder and the spending of a day belong to the owner, not the thread.
    assert _tables(remaining) <= {"embedders", "spending"}
    assert all(line.startswith("embedders ") for line in remaining.splitlines() if MARK in line)
    assert len(await families.exported(stranger)) > 10
    assert await user.threads.list() == [] and await user.runs.list() == []
    with pytest.raises(NotFound):
        await user.threads.get(PARENT)
    with pytest.raises(NotFound):
        await user.runs.get("run-child")


def _tables(rows: str) -> set[str]:
    return {line.partition(" ")[0] for line in rows.splitlines() if "'ann'" in line}


async def test_a_deleted_thread_leaves_no_bytes_in_the_database_files(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "store.db"
    path.parent.mkdir()
    store = await open_store(f"file:{path}")
    try:
        user = store.of("ann")
        await user.threads.ensure("other", title="stays")
        await fill(user, MARK)
        lease = await begin(user, "run-large", "large")
        for _ in range(20):
            head = (await user.threads.get("large")).last_seq
            nodes = tuple(
                message(head + n, head + n - 1, f"{MARK} {n}".encode()) for n in range(1, 101)
            )
            await user.runs.commit(lease, Commit(nodes=nodes, head=nodes[-1].seq))
        await user.runs.commit(lease, Commit(finish=Finish("succeeded", "completed")))
        assert _files_with(path.parent, MARK)

        await user.upkeep.delete_thread("large")
        await user.upkeep.delete_thread(PARENT)
        await user.vectors.delete("other")

        # The name of an embedder belongs to the owner, not the thread.
        assert not _files_with(path.parent, f"{MARK} ", f"{MARK} is said", f"task {MARK}")
        assert not _files_with(path.parent, f"title {MARK}", f"inbox {MARK}", f"payload {MARK}")
        assert not _files_with(path.parent, f"result {MARK}", f"detail {MARK}", f"tool-{MARK}")
        assert not _files_with(path.parent, "run-child", CHILD)
        assert _files_with(path.parent, "stays")
    finally:
        await store.close()


def _files_with(folder: Path, *texts: str) -> list[str]:
    """Return the files that contain one of the texts, by `grep`, because they are open here."""
    patterns = [part for text in texts for part in ("-e", text)]
    completed = subprocess.run(
        ["grep", "-rlaF", *patterns, str(folder)], capture_output=True, text=True, check=False
    )
    assert completed.returncode in (0, 1), completed.stderr
    return completed.stdout.splitlines()


async def test_a_thread_with_a_running_run_is_not_deleted(user: UserStore) -> None:
    await begin(user)

    with pytest.raises(ThreadBusy) as raised:
        await user.upkeep.delete_thread("t1")

    assert raised.value.run_id == "r1"
    assert (await user.log.node("t1", 1)).body == b"the task"


async def test_a_thread_with_a_running_sub_agent_is_not_deleted(user: UserStore) -> None:
    lease = await begin(user)
    await begin_child(user, "r1", "c1", "t2")
    await user.runs.commit(lease, Commit(finish=Finish("cancelled", "cancelled")))

    with pytest.raises(ThreadBusy) as raised:
        await user.upkeep.delete_thread("t1")

    assert raised.value.run_id == "c1"


async def test_a_thread_whose_run_is_dead_or_suspended_is_deleted(user: UserStore) -> None:
    await begin(user, lease_seconds=-1.0)
    lease = await begin(user, "r2", "t2")
    await user.runs.commit(lease, Commit(finish=Finish("suspended", "awaiting_user")))

    assert await user.upkeep.delete_thread("t1") == ["t1"]
    assert await user.upkeep.delete_thread("t2") == ["t2"]
    assert await user.threads.list() == []


async def test_the_reservation_of_a_deleted_dead_child_counts_as_spent(user: UserStore) -> None:
    await begin(user, budget=Budget(tokens=100))
    await begin_child(user, "r1", "c1", "t2", lease_seconds=-1.0, reserve=Amount(30, 0))

    await user.upkeep.delete_thread("t2")

    run = await user.runs.get("r1")
    assert (run.reserved.tokens, run.unsettled.tokens) == (0, 30)


async def test_an_expired_lease_writes_nothing_after_the_deletion(
    user: UserStore,
) -> None:
    lease = await begin(user, lease_seconds=-1.0)
    await user.upkeep.delete_thread("t1")

    with pytest.raises(NotFound):
        await user.runs.commit(lease, Commit(nodes=(message(2, 1),), head=2))
    with pytest.raises(NotFound):
        await user.runs.take_lease("r1", OTHER, seconds=10, replaces=1)
    with pytest.raises(NotFound):
        await user.inbox.post("t1", "steer", b"late")
    assert await user.threads.list() == []


async def test_a_thread_that_was_used_meanwhile_is_not_deleted(user: UserStore) -> None:
    seen = await user.threads.ensure("t1")

    with pytest.raises(Conflict, match="used meanwhile"):
        await user.upkeep.delete_thread("t1", unchanged_since=seen.updated_at)
    await user.upkeep.delete_thread("t1", unchanged_since=seen.updated_at + 1)

    assert await user.threads.list() == []


async def test_a_missing_or_another_owners_thread_is_not_deleted(
    user: UserStore, stranger: UserStore
) -> None:
    await fill(user, MARK)

    for thread_id in (PARENT, "nowhere"):
        with pytest.raises(NotFound, match=thread_id):
            await stranger.upkeep.delete_thread(thread_id)

    assert sorted(thread.id for thread in await user.threads.list()) == [CHILD, PARENT]


async def test_a_large_thread_is_deleted_in_batches(
    user: UserStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent_runtime_storage.upkeep.retention._WHOLE", 10)
    monkeypatch.setattr("agent_runtime_storage.upkeep.retention._PIECE", 20)
    await fill(user, MARK)
    lease = await begin(user, "r1", "t1")
    await append(user, lease, 70)
    await user.runs.commit(lease, Commit(finish=Finish("succeeded", "completed")))

    assert await user.upkeep.delete_thread(PARENT) == [PARENT, CHILD]
    assert await user.upkeep.delete_thread("t1") == ["t1"]

    assert await user.threads.list() == []


async def test_an_interrupted_deletion_is_hidden_and_completed(
    user: UserStore, database_url: str
) -> None:
    await fill(user, MARK)
    await begin(user, "r1", "t1")
    hide = "UPDATE threads SET hidden = :token, updated_at = 1 WHERE id IN ('parent', 'child')"
    await execute(database_url, hide, token="delete 1")

    assert [thread.id for thread in await user.threads.list()] == ["t1"]
    for attempt in (
        user.threads.get(PARENT),
        user.runs.get("run-parent"),
        user.inbox.post(PARENT, "k", b""),
    ):
        with pytest.raises(NotFound):
            await attempt
    with pytest.raises(Conflict, match="imported or deleted"):
        await user.threads.ensure(PARENT)

    assert sorted(await user.upkeep.clean_up()) == [CHILD, PARENT]
    assert await user.upkeep.clean_up() == []
    assert (await user.threads.ensure(PARENT)).last_seq == 0


async def test_only_threads_without_recent_use_are_idle(user: UserStore, database_url: str) -> None:
    await fill(user, MARK)
    await begin(user, "r1", "working")
    await begin(user, "r2", "dead", lease_seconds=-1.0)
    await user.threads.ensure("new")
    await execute(
        database_url, "UPDATE threads SET updated_at = updated_at - 100 WHERE id <> 'new'"
    )

    idle = await user.upkeep.idle_threads(seconds=50)

    assert [thread.id for thread in idle] == [PARENT, "dead"]
    assert await user.upkeep.idle_threads(seconds=1000) == []
    assert len(await user.upkeep.idle_threads(seconds=50, limit=1)) == 1
