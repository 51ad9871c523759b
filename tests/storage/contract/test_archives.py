"""The contract of archives: a thread is whole in the database or in its archive."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
import zstandard

from agent_runtime_config.errors import ConfigError
from agent_runtime_storage import (
    ArchivedThread,
    Commit,
    Conflict,
    Finish,
    NewActivation,
    NewApproval,
    NewNode,
    NewQuestion,
    NotFound,
    ObjectLost,
    Store,
    ThreadArchived,
    ThreadBusy,
    ThreadExists,
    UserStore,
    open_store,
)
from agent_runtime_storage.objects import archive_parts
from agent_runtime_storage.objects.archive_parts import list_places, part_keys
from agent_runtime_storage.objects.object_store import Objects
from agent_runtime_storage.sql.loader import load_queries
from agent_runtime_storage.upkeep import archives, retention
from agent_runtime_storage.upkeep.store_copy import copy_store
from agent_runtime_storage.urls import open_driver
from tests.storage.families import CHILD, PARENT, exported, fill, stream
from tests.storage.helpers import OWNER, append, begin, message
from tests.support.stores import driver_of

MARK = "amber"
DOCUMENT = "node_memory/app/parent/node.json"
DERIVED = ("search_", "archives", "schema_migrations", "spending", "rooms", "embedders")
"""Tables whose rows are made again, or belong to no thread."""


@pytest.fixture
async def store(database_url: str, tmp_path: Path) -> AsyncIterator[Store]:
    """An open, empty store with an object store."""
    opened = await open_store(database_url, objects=str(tmp_path / "objects"))
    yield opened
    await opened.close()


@pytest.fixture
async def user(store: Store) -> UserStore:
    """An owner with a thread that has rows of every kind, and one more thread."""
    owner = store.of("ann")
    await full(owner)
    await fill_other(owner)
    return owner


async def full(owner: UserStore) -> None:
    """Write a thread with rows of every kind, a document, and a body that is an object."""
    await fill(owner, MARK)
    lease = await begin(
        owner,
        "run-again",
        PARENT,
        nodes=(NewNode(3, 2, "message", "user", noise(400_000), 9, 2),),
        task_id=3,
        expect_head=2,
        expect_seq=2,
        activation=NewActivation(2, 2, "grown", b"start", b"prefix", parts={"tools": 12}),
    )
    question = NewQuestion("may-it", 3, None, "approval", {"text": "May it?"}, 60.0)
    asking = Finish("suspended", "awaiting_user")
    await owner.runs.commit(lease, Commit(questions=(question,), finish=asking))
    grant = NewApproval("grant", "shell", {"command": "ls"}, binding="digest", agent="coder")
    await owner.questions.answer("may-it", {"allow": True}, remember=grant)
    run = await owner.runs.get("run-again")
    lease = await owner.runs.take_lease(run.id, OWNER, seconds=60, replaces=run.epoch)
    await owner.runs.commit(lease, Commit(finish=Finish("succeeded", "completed")))
    await owner.documents.write(DOCUMENT, b'{"kept": "amber"}', replaces=None)


async def fill_other(owner: UserStore) -> None:
    """Write a thread that nothing here touches."""
    lease = await begin(owner, "run-other", "other")
    await append(owner, lease, 2)
    await owner.runs.commit(lease, Commit(finish=Finish("succeeded", "completed")))


def noise(size: int, seed: int = 0) -> bytes:
    """Return bytes that do not compress."""
    import random

    return random.Random(seed).randbytes(size)


async def rows_of(url: str, *, derived: bool = False) -> list[str]:
    """Return all rows of all tables as text, in an order that does not depend on the writing."""
    driver = await open_driver(url)
    try:
        tables = await driver.read(load_queries(driver.dialect)["schema_tables"], {}, owner=None)
        lines: list[str] = []
        for (table,) in tables:
            if str(table).startswith(DERIVED) and not derived:
                continue
            rows = await driver.read(f'SELECT * FROM "{table}"', {}, owner=None)
            lines += [f"{table} {row}" for row in rows]
        return sorted(lines)
    finally:
        await driver.close()


async def problems(store: Store) -> list[str]:
    """Return what `db check` reports."""
    return [found.detail for found in await store.maintenance.check()]


async def test_a_thread_comes_back_with_every_row(
    store: Store, user: UserStore, database_url: str
) -> None:
    before, records = await rows_of(database_url), await exported(user)
    spent = await user.spending.of_day()
    hits = await user.search.find(MARK)

    archived = await user.upkeep.archive_thread(PARENT)

    assert (archived.threads, archived.records) == (2, len(records))
    assert archived.bytes > archived.stored_bytes > 400_000
    assert {line for line in await rows_of(database_url) if MARK in line or PARENT in line} == set()
    assert await user.upkeep.archived_threads() == [archived]
    assert await user.upkeep.archived_thread(PARENT) == archived
    assert [thread.id for thread in await user.threads.list()] == ["other"]
    # What was spent today stays spent.
    assert await user.spending.of_day() == spent
    assert await user.search.find(MARK) == [] != hits
    assert await user.documents.read(DOCUMENT) is None
    assert await problems(store) == []

    restored = await user.upkeep.restore_thread(PARENT, texts=_texts)

    assert restored == [PARENT, CHILD]
    assert await rows_of(database_url) == before
    assert await exported(user) == records
    assert await user.spending.of_day() == spent
    assert await user.upkeep.archived_threads() == []
    document = await user.documents.read(DOCUMENT)
    assert document is not None and document.data == b'{"kept": "amber"}'
    assert await problems(store) == []
    assert {hit.node_id for hit in await user.search.find(MARK)} >= {hit.node_id for hit in hits}
    # Nothing is left of the archive, and it can be archived again.
    assert await list_places(cast("Objects", store.objects)) == {}
    again = await user.upkeep.archive_thread(PARENT)
    assert again.place != archived.place
    await user.upkeep.restore_thread(PARENT, texts=_texts)
    assert await rows_of(database_url) == before


def _texts(kind: str, body: bytes) -> str:
    return body[:200].decode("utf-8", "replace")


async def test_a_large_thread_is_archived_in_parts(
    store: Store, user: UserStore, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive_parts, "PART_BYTES", 20_000)
    monkeypatch.setattr(archive_parts, "_CHUNK_BYTES", 10_000)
    monkeypatch.setattr(retention, "_WHOLE", 10)
    lease = await begin(user, "run-large", "large")
    nodes = tuple(message(seq, seq - 1, noise(3000, seq)) for seq in range(2, 60))
    await user.runs.commit(lease, Commit(nodes=nodes, head=59))
    await user.runs.commit(lease, Commit(finish=Finish("succeeded", "completed")))
    before = await rows_of(database_url)

    archived = await user.upkeep.archive_thread("large")

    assert len(archived.digests) // 32 > 1
    places = await list_places(cast("Objects", store.objects))
    assert sum(part.bytes for part in places[archived.place]) == archived.stored_bytes
    assert await problems(store) == []
    assert await user.upkeep.restore_thread("large") == ["large"]
    assert await rows_of(database_url) == before


async def test_a_thread_that_is_not_at_rest_is_not_archived(user: UserStore) -> None:
    lease = await begin(user, "r1", "t1")
    for _ in range(2):
        with pytest.raises(ThreadBusy) as busy:
            await user.upkeep.archive_thread("t1")
        assert busy.value.run_id == "r1"
        # A suspended run is not over either.
        if (await user.runs.get("r1")).status == "running":
            await user.runs.commit(lease, Commit(finish=Finish("suspended", "paused")))
    assert await user.upkeep.archivable_threads(seconds=-60) != []
    assert "t1" not in {one.id for one in await user.upkeep.archivable_threads(seconds=-60)}

    with pytest.raises(Conflict, match=f"belongs to thread {PARENT}"):
        await user.upkeep.archive_thread(CHILD)
    claimed = await user.jobs.claim(f"kind {MARK}", seconds=60)
    assert claimed is not None
    with pytest.raises(Conflict, match="works on a job"):
        await user.upkeep.archive_thread(PARENT)
    await user.jobs.finish(claimed)
    await user.inbox.post("other", "steer", b"from elsewhere", run_id="run-parent")
    with pytest.raises(Conflict, match="waits on thread other"):
        await user.upkeep.archive_thread(PARENT)
    with pytest.raises(NotFound, match="nowhere"):
        await user.upkeep.archive_thread("nowhere")
    assert await user.upkeep.archived_threads() == []


async def test_archives_belong_to_their_owner(
    store: Store, user: UserStore, database_url: str
) -> None:
    stranger = store.of("bob")
    await fill(stranger, "basalt")
    archived = await user.upkeep.archive_thread(PARENT)

    assert await stranger.upkeep.archived_threads() == []
    for attempt in (
        stranger.upkeep.archived_thread("other"),
        stranger.upkeep.restore_thread("other"),
        stranger.upkeep.delete_thread("other"),
        stranger.upkeep.archive_thread("other"),
    ):
        with pytest.raises(NotFound):
            await attempt
    with pytest.raises(Conflict, match="is not archived"):
        await stranger.upkeep.restore_thread(PARENT)
    # The same id of another owner is another thread.
    assert (await stranger.upkeep.archive_thread(PARENT)).place != archived.place
    assert await store.maintenance.owners() == ["ann", "bob"]
    await stranger.upkeep.delete_thread(PARENT)
    assert await user.upkeep.restore_thread(PARENT) == [PARENT, CHILD]


async def test_the_id_of_an_archived_thread_stays_taken(user: UserStore) -> None:
    records = await exported(user)
    await user.upkeep.archive_thread(PARENT)

    for attempt in (
        user.threads.ensure(PARENT),
        user.threads.get(PARENT),
        user.events.list(PARENT),
        exported(user),
    ):
        with pytest.raises(ThreadArchived, match="is archived") as raised:
            await attempt
        assert f"threads restore {PARENT}" in raised.value.cure
    with pytest.raises(ThreadExists, match="is archived"):
        await user.upkeep.import_thread(stream(records))
    # It is archived already.
    assert (await user.upkeep.archive_thread(PARENT)).thread_id == PARENT

    assert await user.upkeep.delete_thread(PARENT) == [PARENT]
    assert await user.upkeep.archived_threads() == []
    assert (await user.threads.ensure(PARENT)).last_seq == 0


async def test_a_changed_or_missing_part_is_refused_and_nothing_is_restored(
    store: Store, user: UserStore, database_url: str
) -> None:
    archived = await user.upkeep.archive_thread(PARENT)
    objects = cast("Objects", store.objects)
    [key] = part_keys(archived.place, archived.digests)
    data = await objects.get(key)
    before = await rows_of(database_url)

    # A bomb is refused by its size: it is neither read whole nor unpacked.
    bomb = zstandard.compress(b"\0" * 200_000_000)
    changes = {"larger": data + bomb, "not what": data[:-1], "was written": data[:-1] + b"!",
               "not there": None}  # fmt: skip
    for problem, change in changes.items():
        if change is None:
            await objects.delete([key])
        else:
            await objects.put(key, change)
        with pytest.raises(ObjectLost, match=f"archived thread, is .*{problem}"):
            await user.upkeep.restore_thread(PARENT)
        assert await rows_of(database_url) == before
    assert any("lacks parts" in one for one in await problems(store))

    await objects.put(key, data)
    assert await problems(store) == []
    assert await user.upkeep.restore_thread(PARENT) == [PARENT, CHILD]


async def test_a_commit_while_a_thread_is_archived_keeps_it_in_the_database(
    store: Store, user: UserStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes: list[Callable[[], Awaitable[object]]] = [
        lambda: user.threads.update(PARENT, title="meanwhile"),
        lambda: user.inbox.post(PARENT, "steer", b"meanwhile"),
        lambda: user.jobs.enqueue(PARENT, "kind", "meanwhile", b"payload"),
        lambda: begin(user, "run-meanwhile", PARENT, expect_head=3, expect_seq=3, nodes=(),
                      task_id=None),
    ]  # fmt: skip
    for change in changes:
        written = archive_parts.PartWriter.close

        async def close(
            self: archive_parts.PartWriter,
            written: Any = written,
            change: Callable[[], Awaitable[object]] = change,
        ) -> None:
            await written(self)
            await change()

        monkeypatch.setattr(archives.PartWriter, "close", close)
        with pytest.raises(Conflict, match=r"was changed while|is not over|was used"):
            await user.upkeep.archive_thread(PARENT)
        monkeypatch.setattr(archives.PartWriter, "close", written)
        assert await list_places(cast("Objects", store.objects)) == {}
        assert (await user.threads.get(PARENT)).id == PARENT


async def test_pages_of_archives_and_those_to_archive(user: UserStore) -> None:
    for name in ("a", "b", "c", "d"):
        await user.threads.ensure(name, title=name.upper())
    idle = await user.upkeep.archivable_threads(seconds=-60)
    assert {one.id for one in idle} == {PARENT, "other", "a", "b", "c", "d"}
    assert await user.upkeep.archivable_threads(seconds=60) == []
    with pytest.raises(Conflict, match="was used meanwhile"):
        await user.upkeep.archive_thread("a", unchanged_since=idle[0].updated_at)
    for one in idle[2:]:
        await user.upkeep.archive_thread(one.id)

    found: list[ArchivedThread] = []
    while page := await user.upkeep.archived_threads(limit=3, before=found[-1] if found else None):
        found += page
    assert [one.thread_id for one in found] == ["d", "c", "b", "a"]
    assert [one.title for one in found] == ["D", "C", "B", "A"]


async def test_without_an_object_store_nothing_is_archived(database_url: str) -> None:
    store = await open_store(database_url)
    if store.objects is None:
        await store.of("ann").threads.ensure("t1")
        with pytest.raises(ConfigError, match="object store") as raised:
            await store.of("ann").upkeep.archive_thread("t1")
        assert "AGENT_RUNTIME_OBJECT_STORE_URL" in raised.value.cure
    await store.close()


async def test_a_copy_of_a_database_takes_archives_along(
    store: Store, user: UserStore, tmp_path: Path
) -> None:
    records = await exported(user)
    await user.upkeep.archive_thread(PARENT)
    target = await open_store(f"file:{tmp_path / 'target.db'}")
    try:
        outcomes = [(one.thread_id, one.outcome) async for one in copy_store(store, target)]
        assert outcomes == [("other", "copied"), (PARENT, "copied")]
        assert await problems(target) == []
        outcomes = [(one.thread_id, one.outcome) async for one in copy_store(store, target)]
        assert outcomes == [("other", "there"), (PARENT, "there")]
        assert await target.of("ann").upkeep.restore_thread(PARENT) == [PARENT, CHILD]
        assert await exported(target.of("ann")) == records
        [left] = [one async for one in copy_store(store, target) if one.thread_id == PARENT]
        assert left.outcome == "conflict"
    finally:
        await target.close()


async def test_parts_that_belong_to_no_row_are_reported_and_deleted_after_a_day(
    store: Store, user: UserStore
) -> None:
    archived = await user.upkeep.archive_thread(PARENT)
    objects = cast("Objects", store.objects)
    await objects.put(f"{archived.place}x/000000.jsonl.zst", b"cut short")

    assert any("1 archives" in one for one in await problems(store))
    assert await user.upkeep.clean_up_archives() == 0
    stray = cast("Any", user.upkeep)._archives
    assert await stray.clean_up(age=-60) == 1
    assert await problems(store) == []
    assert await user.upkeep.restore_thread(PARENT) == [PARENT, CHILD]


async def test_a_thread_whose_archiving_was_cut_short_is_deleted_with_its_archive(
    store: Store, user: UserStore, database_url: str, tmp_path: Path
) -> None:
    async with life(database_url, tmp_path / "objects", 2) as (mortal, _):
        with pytest.raises(Dead):
            await mortal.upkeep.archive_thread(PARENT)
    assert await user.upkeep.archived_thread(PARENT)
    assert any(PARENT in line for line in await rows_of(database_url))

    assert await user.upkeep.delete_thread(PARENT) == [PARENT]

    assert await user.upkeep.archived_threads() == []
    assert not [line for line in await rows_of(database_url) if PARENT in line]
    assert await list_places(cast("Objects", store.objects)) == {}


# Death at every step


class Dead(BaseException):
    """The process has ended: nothing that it would still do happens."""


class Mortal:
    """Lets a number of writes happen, to the database and to the objects, and none after them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, store: Store, writes: int) -> None:
        self.left = writes
        self.alive = True
        driver = driver_of(store)
        places = [(type(driver), name) for name in ("batch", "purge") if hasattr(driver, name)]
        names = ("put", "delete", "delete_prefix", "replace", "remove")
        places += [(Objects, name) for name in names]
        for owner, name in places:
            monkeypatch.setattr(owner, name, self._mortal(getattr(owner, name)))

    def _mortal(self, real: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def act(*args: Any, **options: Any) -> Any:
            if self.left <= 0:
                self.alive = False
            if not self.alive:
                raise Dead
            self.left -= 1
            return await real(*args, **options)

        return act


@asynccontextmanager
async def life(url: str, objects: Path, writes: int) -> AsyncGenerator[tuple[UserStore, Mortal]]:
    """Open a store whose process dies after some writes."""
    store = await open_store(url, objects=str(objects))
    try:
        with pytest.MonkeyPatch.context() as patch:
            yield store.of("ann"), Mortal(patch, store, writes)
    finally:
        await store.close()


@pytest.mark.backends("file")
@pytest.mark.parametrize("what", ["archive_thread", "restore_thread"])
async def test_who_dies_at_any_step_leaves_the_thread_or_the_archive(
    store: Store, user: UserStore, database_url: str, tmp_path: Path, what: str
) -> None:
    await _die_at_each_step(store, user, database_url, tmp_path / "objects", what)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.backends("postgres", "libsql-http", "libsql-ws")
@pytest.mark.parametrize("what", ["archive_thread", "restore_thread"])
async def test_who_dies_at_any_step_of_a_server_leaves_the_thread_or_the_archive(
    store: Store, user: UserStore, database_url: str, tmp_path: Path, what: str
) -> None:
    await _die_at_each_step(store, user, database_url, tmp_path / "objects", what)


async def _die_at_each_step(
    store: Store, user: UserStore, database_url: str, objects: Path, what: str
) -> None:
    before, records = await rows_of(database_url), await exported(user)
    steps = 0
    while True:
        if what == "restore_thread":
            await user.upkeep.archive_thread(PARENT)
        async with life(database_url, objects, steps) as (mortal, until):
            try:
                await getattr(mortal.upkeep, what)(PARENT)
                died = not until.alive
            except Dead:
                died = True
            except BaseExceptionGroup:
                died = True
        # What others see: the thread as it was, or its archive.
        there = [one.id for one in await user.threads.list() if one.id == PARENT]
        kept = [one.thread_id for one in await user.upkeep.archived_threads()]
        assert there + kept == [PARENT], steps
        if there:
            assert await exported(user) == records
        # The same again finishes it, and no day has to pass.
        if what == "archive_thread":
            await user.upkeep.archive_thread(PARENT)
            assert await user.upkeep.archived_thread(PARENT)
            await user.upkeep.restore_thread(PARENT)
        elif kept:
            await user.upkeep.restore_thread(PARENT)
        assert await rows_of(database_url) == before, steps
        assert await exported(user) == records
        details = await problems(store)
        assert all("archives in the object store" in one for one in details), details
        if not died:
            break
        steps += 1
    assert steps >= 4
    await cast("Any", user.upkeep)._archives.clean_up(age=-60)
    assert await problems(store) == []
