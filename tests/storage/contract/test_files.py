"""The contract of files: storage, lookup by id, deletion with their thread, and objects."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from agent_runtime_storage import NewFile, NotFound, ObjectLost, Store, StoreError, UserStore
from agent_runtime_storage.drivers.protocol import Driver
from agent_runtime_storage.objects.object_store import Objects
from agent_runtime_storage.store import SqlUserStore
from agent_runtime_storage.upkeep.export_format import dump_record, load_records
from tests.storage.families import exported, stream
from tests.storage.items import run_raw
from tests.storage.objects.parts import (
    files,
    folder,
    list_objects,
    noise,
    objects,
    opened,
    orphan_keys,
)

__all__ = ["folder", "objects", "opened"]

PNG = b"\x89PNG\r\n\x1a\n" + noise(1, 2000)


def new_file(identity: str = "f1", content: bytes = PNG, **changes: Any) -> NewFile:
    """Return an uploaded image; `changes` override fields."""
    values: dict[str, Any] = {
        "kind": "image",
        "origin": "upload",
        "name": "a.png",
        "media_type": "image/png",
    }
    return NewFile(identity, content=content, **(values | changes))


async def test_a_file_is_read_as_it_was_stored(user: UserStore) -> None:
    thread = await user.threads.ensure("t1")
    await user.files.put("t1", new_file())
    await user.files.put("t1", new_file("f2", b"said", kind="document", origin="tool", name=""))

    first, second = await user.files.list("t1")
    assert (first.id, first.kind, first.origin, first.name) == ("f1", "image", "upload", "a.png")
    assert (first.thread_id, first.media_type, first.bytes) == ("t1", "image/png", len(PNG))
    assert (second.kind, second.origin, second.name, second.bytes) == ("document", "tool", "", 4)
    assert first.created_at > 0
    assert await user.files.content("t1", "f1") == PNG
    assert await user.files.content("t1", "f2") == b"said"
    assert await user.files.find(["f2", "gone", "f1"]) == [first, second]
    assert await user.files.find([]) == []
    # Storing a file counts as a use of the thread, which the deletion of idle threads considers.
    assert (await user.threads.get("t1")).updated_at > thread.updated_at


async def test_a_stored_file_is_not_overwritten(user: UserStore) -> None:
    await user.threads.ensure("t1")
    await user.files.put("t1", new_file())
    await user.files.put("t1", new_file(content=b"another"))

    assert await user.files.content("t1", "f1") == PNG
    [stored] = await user.files.list("t1")
    assert stored.bytes == len(PNG)


async def test_missing_files_and_threads_are_not_found(
    user: UserStore, stranger: UserStore
) -> None:
    await user.threads.ensure("t1")
    await user.files.put("t1", new_file())
    await stranger.threads.ensure("t1")

    with pytest.raises(NotFound):
        await user.files.put("none", new_file())
    with pytest.raises(NotFound):
        await user.files.list("none")
    for store, thread, identity in ((user, "t1", "f2"), (user, "t2", "f1"), (stranger, "t1", "f1")):
        with pytest.raises(NotFound, match=f"no file {identity}"):
            await store.files.content(thread, identity)
    assert await stranger.files.find(["f1"]) == []
    with pytest.raises(StoreError, match="id is empty"):
        await user.files.put("t1", new_file(""))


async def test_files_are_deleted_with_their_thread(user: UserStore) -> None:
    for thread in ("t1", "t2"):
        await user.threads.ensure(thread)
        await user.files.put(thread, new_file(f"file of {thread}"))

    assert await user.upkeep.delete_thread("t1") == ["t1"]

    assert [file.id for file in await user.files.find(["file of t1", "file of t2"])] == [
        "file of t2"
    ]
    await user.threads.ensure("t1")
    assert await user.files.list("t1") == []


async def test_files_are_exported_and_imported_with_their_thread(
    user: UserStore, stranger: UserStore
) -> None:
    await user.threads.ensure("t1")
    await user.files.put("t1", new_file())
    await user.files.put("t1", new_file("f2", "ein Wört".encode(), kind="document"))
    records = await exported(user, "t1")
    lines = _stream_lines([dump_record(record) for record in records])
    read = [dict(item) async for item in load_records(lines)]
    await stranger.upkeep.import_thread(stream(read))
    await user.upkeep.import_thread(stream(records), rename="copy")

    assert await exported(stranger, "t1") == records
    assert await stranger.files.content("t1", "f1") == PNG
    # A copy has the ids that its messages refer to, and outlives the original.
    assert await user.files.content("copy", "f2") == "ein Wört".encode()
    assert [item.id for item in await user.files.find(["f1", "f2"])] == ["f1", "f2"]
    await user.upkeep.delete_thread("t1")
    [remaining] = await user.files.find(["f1"])
    assert (remaining.thread_id, remaining.bytes) == ("copy", len(PNG))


async def _stream_lines(lines: list[bytes]) -> AsyncIterator[bytes]:
    for line in lines:
        yield line


@pytest.mark.backends("file")
async def test_a_file_of_another_length_is_not_imported(user: UserStore) -> None:
    await user.threads.ensure("t1")
    await user.files.put("t1", new_file())
    records = await exported(user, "t1")
    for record in records:
        if record["section"] == "files":
            record["bytes"] += 1

    with pytest.raises(StoreError, match="file f1 has not the length"):
        await user.upkeep.import_thread(stream(records), rename="copy")
    assert [file.thread_id for file in await user.files.find(["f1"])] == ["t1"]


async def test_a_sound_database_with_files_has_no_findings(store: Store) -> None:
    user = store.of("ann")
    await user.threads.ensure("t1")
    await user.files.put("t1", new_file())
    await user.files.put("t1", new_file("f2"))

    assert await store.maintenance.check() == []
    assert (await store.maintenance.sizes()).threads[0].bytes >= len(PNG)


async def test_large_files_are_objects_one_for_each_content(
    opened: Driver, objects: Objects, folder: Path
) -> None:
    user = SqlUserStore(opened, "ann", objects)
    await user.threads.ensure("t1")
    large = noise(2, 700_000)
    for identity in ("f1", "f2"):
        await user.files.put("t1", new_file(identity, large))
    await user.files.put("t1", new_file("small"))

    [stored] = await list_objects(objects)
    assert stored.bytes == len(large)
    assert await user.files.content("t1", "f2") == large
    assert await orphan_keys(opened, objects) == []

    await objects.delete([stored.key])
    with pytest.raises(ObjectLost):
        await user.files.content("t1", "f1")
    assert await user.files.content("t1", "small") == PNG
    await user.files.put("t1", new_file("f3", large))
    assert await user.files.content("t1", "f1") == large
    await user.upkeep.delete_thread("t1")
    assert files(folder) == []


@pytest.mark.backends("file")
async def test_the_check_reports_unused_content(
    store: Store, user: UserStore, database_url: str
) -> None:
    await user.threads.ensure("t1")
    await user.files.put("t1", new_file())
    run_raw(Path(database_url.removeprefix("file:")), "DELETE FROM files")

    [finding] = await store.maintenance.check()
    assert "1 large bodies are used by nothing" in finding.detail
