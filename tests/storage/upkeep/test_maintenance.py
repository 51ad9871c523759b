"""Maintenance of a whole database: its status, check, sizes, vacuum and copy."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import pytest

from agent_runtime_storage import (
    Commit,
    CopiedThread,
    Finish,
    MigrationError,
    Store,
    StoreError,
    UserStore,
    open_store,
)
from agent_runtime_storage.drivers.protocol import Statement
from agent_runtime_storage.sql.loader import load_migrations
from agent_runtime_storage.upkeep.store_copy import copy_store
from agent_runtime_storage.urls import backend_of, open_driver
from tests.storage.families import CHILD, PARENT, exported, fill
from tests.storage.helpers import append, begin, exchange

NEWEST = load_migrations("sqlite")[-1].version
"""Version of the newest schema, the same in both dialects."""


async def _run(url: str, *statements: str) -> None:
    """Change rows past the store, without checks of foreign keys."""
    driver = await open_driver(url)
    loose = {"file": "purge", "libsql-http": "purge", "libsql-ws": "purge"}
    run = getattr(driver, loose.get(backend_of(url), "batch"))
    try:
        await run([Statement(sql, {}) for sql in statements], owner=None)
    finally:
        await driver.close()


async def test_the_status_of_a_ready_database(store: Store, database_url: str) -> None:
    status = await store.maintenance.status()

    server = "Postgres" if backend_of(database_url) == "postgres" else "SQLite"
    assert status.server.startswith(f"{server} ")
    assert (status.schema, status.pending, status.problem) == (NEWEST, (), "")
    assert bool(status.isolation) == (server == "Postgres")


@pytest.fixture(params=["file", "libsql", "postgres"])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database that was never migrated."""
    match request.param:
        case "file":
            return f"file:{tmp_path / 'empty.db'}"
        case "libsql":
            return request.getfixturevalue("start_libsql")().http_url
        case _:
            return request.getfixturevalue("empty_postgres_url")


async def test_the_status_of_an_empty_database_leaves_it_empty(empty_url: str) -> None:
    for _ in range(2):
        store = await open_store(empty_url, migrate=False)
        try:
            status = await store.maintenance.status()
            assert status.schema == 0 and len(status.pending) == len(load_migrations("sqlite"))
            assert status.pending[0] == "0001 log" and "migrate" in status.cure
            maintenance = store.maintenance
            for call in (maintenance.check, maintenance.sizes, maintenance.owners):
                with pytest.raises(MigrationError, match="lacks"):
                    await call()
        finally:
            await store.close()


async def test_the_status_of_a_newer_schema_has_a_cure(store: Store, database_url: str) -> None:
    insert = "INSERT INTO schema_migrations VALUES (9000, 'dreams', '', 0)"
    if backend_of(database_url) == "postgres":
        insert = insert.replace("schema_m", "agent_runtime.schema_m")
    await _run(database_url, insert)

    status = await store.maintenance.status()

    assert "9000" in status.problem and "Upgrade" in status.cure
    with pytest.raises(MigrationError, match="9000"):
        await store.maintenance.check()


async def test_owners_and_their_threads(store: Store, user: UserStore, stranger: UserStore) -> None:
    await fill(user, "amber")
    await user.threads.ensure("zz")
    await stranger.threads.ensure("other")

    assert await store.maintenance.owners() == ["ann", "bob"]
    assert [thread_id async for thread_id in store.maintenance.thread_ids("ann")] == [
        PARENT,
        "zz",
        CHILD,
    ]
    assert [thread_id async for thread_id in store.maintenance.thread_ids("nobody")] == []


async def test_a_valid_database_has_no_findings(store: Store, user: UserStore) -> None:
    await fill(user, "amber")
    await begin(user, "r1", "t1")

    assert await store.maintenance.check() == []


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("UPDATE threads SET last_seq = 9 WHERE id = 'parent'", "of nodes there are 2"),
        ("UPDATE threads SET last_event = 1 WHERE id = 'parent'", "of events there are 2"),
        ("UPDATE threads SET last_inbox = 0 WHERE id = 'parent'", "inbox item 1 is there"),
        ("DELETE FROM nodes WHERE id = 1 AND thread_id = 'parent'", "the parent of node 2"),
        ("DELETE FROM blobs WHERE thread_id = 'parent'", "the content of node 2 is lost"),
        ("DELETE FROM runs WHERE id = 'run-child'", "refers to"),
        ("UPDATE calls SET status = 'started', outcome = NULL", "2 of its calls are not done"),
        ("UPDATE threads SET active_run = 'run-child' WHERE id = 'child'", "not active"),
        ("UPDATE threads SET head = NULL WHERE id = 'parent'", ""),
    ],
)
async def test_the_check_reports_damage(tmp_path: Path, damage: str, message: str) -> None:
    url = f"file:{tmp_path / 'store.db'}"
    store = await open_store(url)
    try:
        await fill(store.of("ann"), "amber")
        await _run(url, damage)
        findings = await store.maintenance.check()
    finally:
        await store.close()

    if not message:
        assert findings == []
        return
    assert any(message in finding.detail for finding in findings if finding.level == "damage"), (
        findings
    )
    assert {finding.user_id for finding in findings} <= {"ann", ""}


async def test_the_check_notices_leftovers(
    store: Store, user: UserStore, database_url: str
) -> None:
    lease = await begin(user, "r1", "t1", lease_seconds=-1.0)
    ended = await begin(user, "r2", "t2")
    await user.runs.commit(ended, Commit(nodes=(exchange(2, 1, "shell"),)))
    await user.runs.commit(ended, Commit(finish=Finish("cancelled", "cancelled")))
    await user.threads.ensure("half")
    await _run(
        database_url,
        "UPDATE runs SET open_node = NULL WHERE id = 'r2'",
        "UPDATE threads SET hidden = 'import 1', updated_at = 1 WHERE id = 'half'",
    )

    notices = {
        (finding.thread_id, finding.detail)
        for finding in await store.maintenance.check()
        if finding.level == "notice"
    }

    assert notices == {
        ("t1", f"run {lease.run_id} was running, and its lease has expired"),
        ("t2", "exchange 2 is open, and belongs to no run's next step"),
        ("half", "`import 1` was interrupted, and no process continues it"),
    }


async def test_sizes_are_by_table_owner_and_thread(
    store: Store, user: UserStore, stranger: UserStore
) -> None:
    await fill(user, "amber")
    lease = await begin(stranger, "r1", "large")
    await append(stranger, lease, 300)

    sizes = await store.maintenance.sizes(threads=2)

    assert sizes.total > 0
    assert dict(sizes.tables)["nodes"] > 300 * len(b"hello")
    assert [size[1] for size in sizes.tables] == sorted(
        (size[1] for size in sizes.tables), reverse=True
    )
    assert {size.user_id: size.threads for size in sizes.owners} == {"ann": 2, "bob": 1}
    assert all(size.bytes > 0 for size in sizes.owners)
    assert len(sizes.threads) == 2
    assert all(a.bytes >= b.bytes for a, b in itertools.pairwise(sizes.threads))


async def test_a_vacuum_frees_the_space_of_deleted_rows(
    store: Store, user: UserStore, database_url: str
) -> None:
    if backend_of(database_url).startswith("libsql"):
        with pytest.raises(StoreError, match="by itself"):
            await store.maintenance.vacuum()
        return
    lease = await begin(user, "r1", "large")
    await append(user, lease, 1000)
    await user.runs.commit(lease, Commit(finish=Finish("succeeded", "completed")))
    before = await store.maintenance.sizes()
    await user.upkeep.delete_thread("large")

    await store.maintenance.vacuum()

    assert (await store.maintenance.sizes()).total < before.total
    assert await user.threads.list() == [] and await store.maintenance.check() == []
    await user.threads.ensure("next")


# Copying


@pytest.fixture
def target_url(tmp_path: Path) -> str:
    """The URL of a database file that does not exist yet."""
    return f"file:{tmp_path / 'target.db'}"


async def _copy(source: Store, target: Store) -> Sequence[CopiedThread]:
    return [copy async for copy in copy_store(source, target)]


async def test_a_copy_has_all_threads_of_all_owners(
    store: Store, user: UserStore, stranger: UserStore, target_url: str
) -> None:
    await fill(user, "amber")
    await fill(stranger, "blue")
    await stranger.threads.ensure("empty")
    target = await open_store(target_url)
    try:
        first = await _copy(store, target)
        again = await _copy(store, target)
        assert [(copy.user_id, copy.thread_id, copy.outcome) for copy in first] == [
            ("ann", PARENT, "copied"),
            ("bob", "empty", "copied"),
            ("bob", PARENT, "copied"),
        ]
        assert {copy.outcome for copy in again} == {"there"}
        assert await exported(target.of("ann")) == await exported(user)
        assert await exported(target.of("bob")) == await exported(stranger)
        assert await target.maintenance.check() == []
    finally:
        await target.close()


async def test_a_copy_can_be_made_into_any_backend(
    store: Store, user: UserStore, target_url: str
) -> None:
    source = await open_store(target_url)
    try:
        await fill(source.of("ann"), "amber")
        assert [copy.outcome for copy in await _copy(source, store)] == ["copied"]
        assert await exported(user) == await exported(source.of("ann"))
    finally:
        await source.close()


async def test_a_copy_skips_threads_that_differ_or_are_active(
    store: Store, user: UserStore, target_url: str
) -> None:
    await begin(user, "r1", "busy")
    await user.threads.ensure("same", title="one")
    target = await open_store(target_url)
    try:
        await target.of("ann").threads.ensure("same", title="another")
        copies = await _copy(store, target)
        assert [(copy.thread_id, copy.outcome) for copy in copies] == [
            ("busy", "conflict"),
            ("same", "conflict"),
        ]
        assert "active" in copies[0].detail and "another thread" in copies[1].detail
        assert (await target.of("ann").threads.get("same")).title == "another"
    finally:
        await target.close()
