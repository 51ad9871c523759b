"""Objects without rows and rows without objects: failed commits, kills, sweeps, checks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from agent_runtime_storage import (
    Commit,
    LeaseLost,
    ObjectsUnavailable,
    UserStore,
    open_store,
)
from agent_runtime_storage.contract.records.objects import ObjectInfo
from agent_runtime_storage.drivers.protocol import Driver, Statement
from agent_runtime_storage.objects.bodies import OBJECT_BYTES
from agent_runtime_storage.objects.object_store import Objects
from agent_runtime_storage.upkeep.orphans import delete_orphans, find_missing_objects
from tests.storage.helpers import OTHER, begin, message
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

__all__ = ["folder", "objects", "opened", "user"]


async def test_the_check_reports_missing_objects(
    opened: Driver, user: UserStore, objects: Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent_runtime_storage.upkeep.orphans._PAGE", 2)
    nodes = [message(seq, seq - 1 or None, noise(seq)) for seq in range(1, 6)]
    await begin(user, nodes=tuple(nodes))
    infos = sorted(await list_objects(objects), key=lambda info: info.key)
    deleted, cut = infos[1].key, infos[4].key
    await objects.delete([deleted])
    await objects.put(cut, b"short")

    missing = [
        lost_object async for page in find_missing_objects(opened, objects) for lost_object in page
    ]

    assert [(lost_object.key, lost_object.found) for lost_object in missing] == [
        (deleted, None),
        (cut, 5),
    ]
    assert {
        (lost_object.user_id, lost_object.thread_id, lost_object.bytes) for lost_object in missing
    } == {("ann", "t1", OBJECT_BYTES + 1000)}


# Failing writes


async def test_nothing_is_committed_if_an_object_cannot_be_put(
    user: UserStore, folder: Path
) -> None:
    lease = await begin(user)
    commit = Commit(nodes=(message(2, 1, noise(1)),), head=2)
    await anyio.Path(folder).write_bytes(b"a file where the folder was to be")
    with pytest.raises(ObjectsUnavailable, match="is a file"):
        await user.runs.commit(lease, commit)
    with pytest.raises(ObjectsUnavailable):
        await user.inbox.post("t1", "steer", noise(1))
    assert (await user.threads.get("t1")).last_seq == 1
    assert await user.inbox.pending("t1") == []

    await anyio.Path(folder).unlink()
    await user.runs.commit(lease, commit)

    assert (await user.log.node("t1", 2)).body == noise(1)


async def test_a_refused_commit_leaves_an_orphan_that_is_swept(
    opened: Driver, user: UserStore, objects: Objects
) -> None:
    lease = await begin(user, nodes=(message(1, None, noise(1)),))
    await user.runs.take_lease("r1", OTHER, seconds=60, replaces=1)
    with pytest.raises(LeaseLost):
        await user.runs.commit(lease, Commit(nodes=(message(2, 1, noise(2)),), head=2))

    # It is young: its commit may still be under way.
    assert await orphan_keys(opened, objects, age=3600) == []
    assert await delete_orphans(opened, objects, age=3600) == 0
    [orphan] = await orphan_keys(opened, objects)
    assert len(await list_objects(objects)) == 2
    assert await delete_orphans(opened, objects, age=0) == 1
    assert await orphan_keys(opened, objects) == []
    assert await objects.info(orphan) is None
    assert (await user.log.node("t1", 1)).body == noise(1)
    # A later commit puts it again, and it is no orphan then.
    await user.runs.commit(
        replace(lease, epoch=2), Commit(nodes=(message(2, 1, noise(2)),), head=2)
    )
    assert await objects.info(orphan) is not None
    assert await orphan_keys(opened, objects) == []


async def test_an_object_that_is_put_again_during_a_sweep_stays(
    opened: Driver, user: UserStore, objects: Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = await begin(user)
    await user.inbox.post("t1", "steer", noise(1))
    [info] = await list_objects(objects)
    await user.runs.commit(lease, Commit(drained=(1,)))
    await opened.batch([Statement("DELETE FROM blobs", {})], owner=None)
    assert await orphan_keys(opened, objects) == [info.key]
    real = objects.info

    async def info_after_commit(key: str) -> ObjectInfo | None:
        info_before = await real(key)
        await user.inbox.post("t1", "steer", noise(1))
        return info_before

    monkeypatch.setattr(objects, "info", info_after_commit)

    assert await delete_orphans(opened, objects, age=0) == 0
    assert [item.body for item in await user.inbox.pending("t1")] == [noise(1)]


async def test_two_databases_in_one_object_store_do_not_interfere(
    opened: Driver, user: UserStore, objects: Objects, folder: Path, tmp_path: Path
) -> None:
    await begin(user, nodes=(message(1, None, noise(1)),))
    other = await open_store(str(tmp_path / "other.db"), objects=str(folder))
    await begin(other.of("ann"), nodes=(message(1, None, noise(1)),))
    assert len(files(folder)) == 2

    assert await orphan_keys(opened, objects) == []
    assert await delete_orphans(opened, objects, age=0) == 0
    await objects.delete_thread("ann", "t1")

    assert (await other.of("ann").log.node("t1", 1)).body == noise(1)
    await other.close()


# Kills


_KILLED = """
import os, signal, sys, anyio
from agent_runtime_storage import Commit, NewNode, Lease
from agent_runtime_storage.store import SqlUserStore
from agent_runtime_storage.upkeep.orphans import open_object_store
from agent_runtime_storage.urls import open_driver
async def main():
    url, folder, body = sys.argv[1:]
    driver = await open_driver(url)
    async def killed(*args, **options):
        os.kill(os.getpid(), signal.SIGKILL)
    driver.batch = killed
    user = SqlUserStore(driver, "ann", await open_object_store(driver, folder))
    node = NewNode(2, 1, "message", "user", open(body, "rb").read(), 1, 0)
    await user.runs.commit(Lease("r1", "t1", "r1", 1), Commit(nodes=(node,), head=2))
anyio.run(main)
"""


async def run_child(code: str, *arguments: str) -> int:
    """Run the code in another process and return its exit code."""
    completed = await anyio.run_process([sys.executable, "-c", code, *arguments], check=False)
    return completed.returncode


async def test_a_kill_between_an_object_and_its_row_leaves_an_orphan(
    database_url: str,
    opened: Driver,
    user: UserStore,
    objects: Objects,
    folder: Path,
    tmp_path: Path,
) -> None:
    await begin(user)
    body = anyio.Path(tmp_path / "body")
    await body.write_bytes(noise(1))

    code = await run_child(_KILLED, database_url, str(folder), str(body))

    assert code == -signal.SIGKILL
    assert (await user.threads.get("t1")).last_seq == 1
    [orphan] = await orphan_keys(opened, objects)
    lease = await user.runs.take_lease("r1", OTHER, seconds=60, replaces=1)
    await user.runs.commit(lease, Commit(nodes=(message(2, 1, noise(1)),), head=2))
    assert [info.key for info in await list_objects(objects)] == [orphan]
    assert await orphan_keys(opened, objects) == []
    assert (await user.log.node("t1", 2)).body == noise(1)


_COMMITTING = """
import random, sys, anyio
from agent_runtime_storage import Commit, NewNode, Lease, open_store
async def main():
    url, folder, first = sys.argv[1:]
    store = await open_store(url, objects=folder)
    user = store.of("ann")
    for seq in range(int(first), 10**6):
        body = random.Random(seq).randbytes(600_000)
        node = NewNode(seq, seq - 1, "message", "user", body, 1, 0)
        await user.runs.commit(Lease("r1", "t1", "r1", 1), Commit(nodes=(node,), head=seq))
        print(seq, flush=True)
anyio.run(main)
"""


def kill_after(command: Sequence[str], lines: int) -> list[bytes]:
    """Run a command, kill it after a number of printed lines, and return all its lines."""
    child = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert child.stdout is not None
    head = [child.stdout.readline() for _ in range(lines)]
    os.kill(child.pid, signal.SIGKILL)
    rest, _ = child.communicate()
    return [line for line in (*head, *rest.splitlines(keepends=True)) if line.endswith(b"\n")]


async def test_every_row_has_its_object_after_kills_during_commits(
    database_url: str, opened: Driver, user: UserStore, objects: Objects, folder: Path
) -> None:
    await begin(user)
    for turn in range(3):
        first = (await user.threads.get("t1")).last_seq + 1
        command = [sys.executable, "-c", _COMMITTING, database_url, str(folder), str(first)]
        printed = await anyio.to_thread.run_sync(kill_after, command, turn + 1)

        last = (await user.threads.get("t1")).last_seq
        assert last >= int(printed[-1])
        assert [missing async for missing in find_missing_objects(opened, objects)] == []
        nodes = await user.log.branch("t1", last, first=2)
        assert [node.body for node in nodes] == [noise(seq, 600_000) for seq in range(2, last + 1)]
    await delete_orphans(opened, objects, age=0)
    assert len(await list_objects(objects)) == (await user.threads.get("t1")).last_seq - 1
