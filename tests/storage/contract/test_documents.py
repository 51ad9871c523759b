"""The contract of documents: a write succeeds only if its writer has read the current version."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from agent_runtime.errors import ConfigError, ObjectsUnavailable
from agent_runtime_storage import Store, open_store
from agent_runtime_storage.contract.documents import Documents
from agent_runtime_storage.contract.records.objects import Version
from agent_runtime_storage.drivers.protocol import Driver
from agent_runtime_storage.objects.backends import Folder
from agent_runtime_storage.objects.documents import ObjectDocuments
from agent_runtime_storage.objects.object_store import Objects
from agent_runtime_storage.store import SqlStore
from agent_runtime_storage.upkeep.orphans import delete_orphans
from agent_runtime_storage.upkeep.store_copy import copy_store
from tests.storage.helpers import begin
from tests.storage.objects.parts import (
    files,
    folder,
    list_objects,
    objects,
    opened,
    orphan_keys,
    user,
)

__all__ = ["folder", "objects", "opened", "user"]

pytestmark = pytest.mark.backends("file")
KEY = "node_memory/app/talk/node.json"


@pytest.fixture(params=["folder", "s3"])
async def store(
    request: pytest.FixtureRequest, database_url: str, folder: Path
) -> AsyncIterator[Store]:
    """A store whose objects are in a folder or in a bucket."""
    place = str(folder) if request.param == "folder" else request.getfixturevalue("s3_url")
    store = await open_store(database_url, objects=place)
    yield store
    await store.close()


@pytest.fixture
def documents(store: Store) -> Documents:
    """One owner's documents."""
    return store.of("ann").documents


async def keys(documents: Documents) -> list[str]:
    """Return the keys of all node memories."""
    return [info.key async for chunk in documents.list("node_memory") for info in chunk]


async def test_a_document_is_read_as_it_was_written(documents: Documents) -> None:
    assert await documents.read(KEY) is None
    assert await documents.write(KEY, b"one", replaces=None)

    document = await documents.read(KEY)
    assert document is not None and document.data == b"one"
    assert await documents.write(KEY, b"two", replaces=document.version)
    again = await documents.read(KEY)
    assert again is not None and again.data == b"two"
    assert await keys(documents) == [KEY]


async def test_a_write_over_an_outdated_version_is_refused(documents: Documents) -> None:
    assert await documents.write(KEY, b"one", replaces=None)
    first = await documents.read(KEY)
    assert first is not None
    assert await documents.write(KEY, b"two", replaces=first.version)

    assert not await documents.write(KEY, b"late", replaces=first.version)
    assert not await documents.write(KEY, b"blind", replaces=None)
    current = await documents.read(KEY)
    assert current is not None and current.data == b"two"


async def test_a_deleted_document_is_not_written_back(documents: Documents) -> None:
    assert await documents.write(KEY, b"one", replaces=None)
    read = await documents.read(KEY)
    assert read is not None

    assert await documents.delete(KEY)
    assert not await documents.delete(KEY)
    assert not await documents.write(KEY, b"again", replaces=read.version)
    assert await documents.read(KEY) is None
    assert await keys(documents) == []


async def test_a_document_changed_since_is_not_deleted(documents: Documents) -> None:
    assert await documents.write(KEY, b"one", replaces=None)
    [info] = [info async for chunk in documents.list("node_memory") for info in chunk]
    assert not await documents.delete(KEY, before=info.modified)
    assert await documents.delete(KEY, before=info.modified + 10)


async def test_another_owner_finds_nothing(store: Store, documents: Documents) -> None:
    assert await documents.write(KEY, b"one", replaces=None)
    other = store.of("bob").documents
    assert await other.read(KEY) is None
    assert await keys(other) == []
    assert await other.write(KEY, b"bob's", replaces=None)
    own = await documents.read(KEY)
    assert own is not None and own.data == b"one"


async def test_deleting_a_thread_deletes_its_documents_only(store: Store) -> None:
    user, documents = store.of("ann"), store.of("ann").documents
    await user.threads.ensure("talk")
    others = ["node_memory/app/talk2/node.json", "node_memory/talk/x/node.json"]
    for key in (KEY, "node_memory/other/talk/node.json.zst", *others):
        assert await documents.write(key, b"one", replaces=None)

    await user.upkeep.delete_thread("talk")

    assert sorted(await keys(documents)) == sorted(others)


@pytest.mark.parametrize("thread_id", ["../talk", "a/b", "", "..", "x" * 300])
async def test_a_thread_whose_id_no_document_key_can_contain_is_deleted(
    database_url: str, folder: Path, thread_id: str
) -> None:
    store = await open_store(database_url, objects=str(folder))
    user = store.of("ann")
    name = thread_id or "empty"
    await user.threads.ensure(name)
    assert await user.documents.write(KEY, b"one", replaces=None)
    await user.upkeep.delete_thread(name)
    assert await keys(user.documents) == [KEY]
    await store.close()


async def test_copying_the_database_copies_documents(store: Store, tmp_path: Path) -> None:
    for owner, data in (("ann", b"one"), ("bob", b"two")):
        assert await store.of(owner).documents.write(KEY, data, replaces=None)
    target = await open_store(str(tmp_path / "target.db"))

    outcomes = [[copy.outcome async for copy in copy_store(store, target)] for _ in range(2)]

    assert outcomes == [["copied", "copied"], ["there", "there"]]
    for owner, data in (("ann", b"one"), ("bob", b"two")):
        copied = await target.of(owner).documents.read(KEY)
        assert copied is not None and copied.data == data
        assert await target.of(owner).documents.write(KEY, b"x", replaces=copied.version)
    copies = [copy async for copy in copy_store(store, target)]
    assert {copy.outcome for copy in copies} == {"conflict"} and "another" in copies[0].detail
    await target.close()


async def test_a_document_is_not_swept_as_an_orphan(opened: Driver, objects: Objects) -> None:
    documents = ObjectDocuments(objects, "ann")
    assert await documents.write(KEY, b"one", replaces=None)
    await objects.put("some/orphan.raw", b"x")
    assert await orphan_keys(opened, objects, age=-10) == ["some/orphan.raw"]
    assert await delete_orphans(opened, objects, age=-10) == 1
    assert await keys(documents) == [KEY]


async def test_without_an_object_store_the_error_names_the_setting(opened: Driver) -> None:
    await begin(SqlStore(opened).of("ann"))
    with pytest.raises(ConfigError) as caught:
        _ = SqlStore(opened).of("ann").documents
    assert "AGENT_RUNTIME_OBJECT_STORE_URL" in caught.value.cure


async def test_a_probe_detects_a_store_that_ignores_conditions(
    objects: Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    await objects.probe()
    replace = Folder.replace

    async def careless(self: Folder, key: str, data: bytes, version: Version | None) -> bool:
        await self.delete([key])
        return await replace(self, key, data, version)

    monkeypatch.setattr(Folder, "replace", careless)
    with pytest.raises(ObjectsUnavailable, match="does not heed conditions"):
        await objects.probe()
    assert await list_objects(objects) == []


COUNT = """
import sys, anyio
from agent_runtime_storage.objects.documents import ObjectDocuments
from agent_runtime_storage.objects.object_store import Objects

async def main():
    documents = ObjectDocuments(Objects.open(sys.argv[1]), "ann")
    for _ in range(int(sys.argv[2])):
        while True:
            current = await documents.read("node_memory/a/b/count.json")
            number = int(current.data) if current else 0
            version = current.version if current else None
            data = str(number + 1).encode()
            if await documents.write("node_memory/a/b/count.json", data, replaces=version):
                break

anyio.run(main)
"""


async def test_processes_that_count_concurrently_lose_no_update(folder: Path) -> None:
    command = [sys.executable, "-c", COUNT, str(folder), "40"]

    async def count() -> None:
        await anyio.run_process(command, stderr=subprocess.PIPE)

    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(count)
    [path] = files(folder)
    assert await anyio.Path(path).read_text() == "120"
