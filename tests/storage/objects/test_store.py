"""The store with objects: where bodies are stored, and errors when objects are lost."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest

from agent_runtime_storage import (
    Commit,
    Finish,
    NewActivation,
    NotFound,
    ObjectLost,
    UserStore,
    open_store,
)
from agent_runtime_storage.drivers.protocol import Driver, Row, Statement, Value
from agent_runtime_storage.objects.bodies import OBJECT_BYTES
from agent_runtime_storage.objects.object_store import Objects, thread_prefix
from agent_runtime_storage.sql.loader import load_queries
from agent_runtime_storage.store import SqlStore, SqlUserStore
from agent_runtime_storage.upkeep.orphans import (
    delete_orphans,
    find_missing_objects,
    open_object_store,
)
from agent_runtime_storage.urls import open_driver
from tests.services.s3 import s3_server, s3_url
from tests.storage.families import exported, stream
from tests.storage.helpers import append, begin, done, exchange, message
from tests.storage.objects.parts import (
    files,
    folder,
    list_objects,
    noise,
    objects,
    opened,
    orphan_keys,
    user,
)

__all__ = ["folder", "objects", "opened", "s3_server", "s3_url", "user"]


async def write_all_kinds(user: UserStore) -> dict[str, bytes]:
    """Write a large body of each kind; return the bodies."""
    kinds = ("task", "call", "activation", "prefix", "inbox", "job", "output")
    bodies = {kind: noise(number) for number, kind in enumerate(kinds)}
    lease = await begin(
        user,
        nodes=(message(1, None, bodies["task"]),),
        activation=NewActivation(1, None, "begin", bodies["activation"], bodies["prefix"]),
    )
    await user.runs.commit(lease, Commit(nodes=(exchange(2, 1, "read"),)))
    await user.runs.commit(lease, Commit(start=((2, 0),)))
    await user.runs.commit(lease, Commit(done=(done(2, 0, bodies["call"]),), close=(2,), head=2))
    await user.inbox.post("t1", "steer", bodies["inbox"])
    await user.jobs.enqueue("t1", "observe", "1-2", bodies["job"])
    finish = Finish("succeeded", "completed", output=bodies["output"])
    await user.runs.commit(lease, Commit(finish=finish))
    return bodies


async def read_all_kinds(user: UserStore) -> dict[str, bytes]:
    """Read the bodies of `write_all_kinds`."""
    task, call = await user.log.branch("t1", 2)
    assert (await user.log.node("t1", 1)) == task
    assert (await user.log.children("t1", 1)) == [call]
    assert (await user.log.call("t1", 2, 0)) == call.calls[0]
    activation = await user.log.activation("t1", None)
    [item] = await user.inbox.pending("t1")
    job = await user.jobs.claim("observe", seconds=0)
    run = await user.runs.get("r1")
    assert await user.runs.list() == await user.runs.list(thread_id="t1") == [run]
    assert activation is not None and job is not None
    assert await user.log.activations("t1") == [activation]
    return {
        "task": task.body,
        "call": call.calls[0].body,
        "activation": activation.body,
        "prefix": activation.prefix,
        "inbox": item.body,
        "job": job.payload,
        "output": run.output,
    }


async def test_large_bodies_of_every_kind_are_objects(
    opened: Driver, user: UserStore, objects: Objects
) -> None:
    bodies = await write_all_kinds(user)

    assert await read_all_kinds(user) == bodies
    infos = await list_objects(objects)
    assert len(infos) == len(bodies)
    assert {info.bytes for info in infos} == {OBJECT_BYTES + 1000}
    rows = await opened.read(
        "SELECT sum(length(data)), count(object), sum(object_bytes) FROM blobs", {}, owner=None
    )
    [(data, count, size)] = rows
    assert (int(data), count) == (0, len(bodies))
    assert int(size) == sum(info.bytes for info in infos)
    assert await orphan_keys(opened, objects) == []
    assert [missing async for missing in find_missing_objects(opened, objects)] == []


async def test_equal_bodies_of_a_thread_are_one_object(user: UserStore, objects: Objects) -> None:
    lease = await begin(user, nodes=(message(1, None, noise(1)), message(2, 1, noise(1))))
    await user.runs.commit(lease, Commit(nodes=(message(3, 2, noise(1)),), head=3))

    assert {node.body for node in await user.log.branch("t1", 3)} == {noise(1)}
    assert len(await list_objects(objects)) == 1


async def test_smaller_bodies_stay_in_the_database(user: UserStore, objects: Objects) -> None:
    # Compressed size counts: the first body is many times the limit before.
    await begin(
        user,
        nodes=(
            message(1, None, b"words " * OBJECT_BYTES),
            message(2, 1, noise(1, OBJECT_BYTES)),
            message(3, 2, b"small"),
        ),
    )
    assert await list_objects(objects) == []
    assert [len(node.body) for node in await user.log.branch("t1", 3)] == [
        6 * OBJECT_BYTES,
        OBJECT_BYTES,
        5,
    ]


async def test_compressed_objects_are_read_completely(user: UserStore, objects: Objects) -> None:
    body = b"".join(noise(seed, 1000) * 2 for seed in range(700))
    await begin(user, nodes=(message(1, None, body),))

    [info] = await list_objects(objects)
    assert info.key.endswith(".zstd") and info.bytes < len(body)
    assert (await user.log.node("t1", 1)).body == body


async def test_without_an_object_store_all_bodies_are_in_the_database(opened: Driver) -> None:
    user = SqlStore(opened).of("ann")
    bodies = await write_all_kinds(user)
    assert await read_all_kinds(user) == bodies


async def test_objects_of_a_file_are_in_a_folder_next_to_it(tmp_path: Path) -> None:
    store = await open_store(f"file:{tmp_path}/own.db")
    lease = await begin(store.of("ann"))
    assert files(tmp_path / "own.objects") == []
    await store.of("ann").runs.commit(lease, Commit(nodes=(message(2, 1, noise(1)),), head=2))
    await store.close()
    store = await open_store(str(tmp_path / "own.db"))
    assert (await store.of("ann").log.node("t1", 2)).body == noise(1)
    await store.close()
    assert len(files(tmp_path / "own.objects")) == 1


async def test_a_database_without_the_schema_is_opened_without_objects(
    database_url: str, folder: Path
) -> None:
    driver = await open_driver(database_url)
    tables = await driver.read(load_queries(driver.dialect)["schema_tables"], {}, owner=None)
    if ("rooms",) in tables:
        await driver.batch([Statement("DROP TABLE rooms", {})], owner=None)
    assert await open_object_store(driver, str(folder)) is None
    await driver.close()


# In a bucket


async def test_a_bucket_can_hold_the_objects(opened: Driver, s3_url: str) -> None:
    objects = await open_object_store(opened, s3_url)
    assert objects is not None
    user = SqlUserStore(opened, "ann", objects)
    bodies = await write_all_kinds(user)

    assert await read_all_kinds(user) == bodies
    await objects.put("some/orphan.raw", b"x")
    # A bucket has times in whole seconds.
    assert await orphan_keys(opened, objects, age=-2) == ["some/orphan.raw"]
    assert await delete_orphans(opened, objects, age=-2) == 1
    assert await read_all_kinds(user) == bodies
    await objects.delete_thread("ann", "t1")
    assert await list_objects(objects) == []
    assert sum([len(page) async for page in find_missing_objects(opened, objects)]) == len(bodies)


# Another database


async def test_an_export_contains_objects_and_an_import_stores_them(
    user: UserStore, objects: Objects, tmp_path: Path
) -> None:
    bodies = await write_all_kinds(user)
    records = await exported(user, "t1")
    target = await open_store(str(tmp_path / "target.db"), objects=str(tmp_path / "more"))

    await target.of("bob").upkeep.import_thread(stream(records), trusted=True)
    await objects.delete_thread("ann", "t1")

    assert await exported(target.of("bob"), "t1") == records
    assert await read_all_kinds(target.of("bob")) == bodies
    await target.close()
    assert len(files(tmp_path / "more")) == len(bodies)


# Lost objects


async def test_reading_with_another_object_store_is_an_error(
    database_url: str, user: UserStore, objects: Objects, opened: Driver, tmp_path: Path
) -> None:
    await begin(user, nodes=(message(1, None, noise(1)), message(2, 1, b"small")))
    [info] = await list_objects(objects)

    elsewhere = await open_store(database_url, objects=str(tmp_path / "elsewhere"))
    nowhere = SqlStore(opened)
    for store in (elsewhere, nowhere):
        with pytest.raises(ObjectLost) as caught:
            await store.of("ann").log.branch("t1", 2)
        assert info.key in caught.value.message
        assert "AGENT_RUNTIME_OBJECT_STORE_URL" in caught.value.cure
        # Rows without objects can be read.
        assert (await store.of("ann").log.node("t1", 2)).body == b"small"
        assert (await store.of("ann").threads.get("t1")).head == 2
    await elsewhere.close()
    assert not (tmp_path / "elsewhere").exists()


def damaged(data: bytes, how: str) -> bytes:
    """Return the bytes, damaged in this way."""
    if how == "cut":
        return data[:-1]
    if how == "flipped":
        return bytes([data[0] ^ 1]) + data[1:]
    return b"" if how == "empty" else noise(99, len(data))


@pytest.mark.parametrize("how", ["cut", "empty", "flipped", "other"])
@pytest.mark.parametrize("compressed", [True, False])
async def test_a_damaged_object_is_an_error(
    user: UserStore, objects: Objects, how: str, compressed: bool
) -> None:
    body = noise(1, 300_000) * 2 if compressed else noise(1)
    await begin(user, nodes=(message(1, None, body),))
    [info] = await list_objects(objects)
    assert info.key.endswith(".zstd" if compressed else ".raw")
    await objects.put(info.key, damaged(await objects.get(info.key), how))

    with pytest.raises(ObjectLost, match="damaged") as caught:
        await user.log.node("t1", 1)
    assert info.key in caught.value.message


class DeletesAfterReading:
    """A driver after whose first read another process deletes the thread."""

    def __init__(self, driver: Driver, user: UserStore, objects: Objects) -> None:
        self._driver, self._user, self._objects = driver, user, objects
        self._deleted = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._driver, name)

    async def read(self, sql: str, params: Mapping[str, Value], *, owner: str | None) -> list[Row]:
        rows = await self._driver.read(sql, params, owner=owner)
        if not self._deleted:
            self._deleted = True
            await self._user.upkeep.delete_thread("t1")
            await self._objects.delete_thread("ann", "t1")
        return rows


async def test_a_thread_that_is_deleted_during_a_read_is_not_found(
    opened: Driver, user: UserStore, objects: Objects
) -> None:
    lease = await begin(user, nodes=(message(1, None, noise(1)),))
    await user.runs.commit(lease, Commit(finish=Finish("succeeded", "completed")))
    slow: Any = DeletesAfterReading(opened, user, objects)

    with pytest.raises(NotFound):
        await SqlUserStore(slow, "ann", objects).log.branch("t1", 1)


async def test_a_deleted_thread_leaves_no_object(
    user: UserStore, objects: Objects, folder: Path
) -> None:
    lease = await begin(user, "r1", "t1", nodes=(message(1, None, noise(1)),))
    await begin(user, "r2", "t2", nodes=(message(1, None, noise(1)),))
    await user.runs.commit(lease, Commit(finish=Finish("succeeded", "completed")))
    [own] = [path for path in files(folder) if thread_prefix("ann", "t1") in str(path)]
    await anyio.Path(f"{own}#1").write_bytes(b"half written")

    await user.upkeep.delete_thread("t1")

    [info] = await list_objects(objects)
    assert info.key.startswith(thread_prefix("ann", "t2"))
    assert len(files(folder)) == 1


async def test_small_bodies_are_read_without_the_object_store(
    opened: Driver, user: UserStore, folder: Path
) -> None:
    lease = await begin(user)
    await append(user, lease, 20)
    await anyio.Path(folder).write_bytes(b"a file where the folder was to be")

    assert len(await user.log.branch("t1", 21)) == 21
