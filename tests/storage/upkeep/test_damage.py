"""Damaged files: a broken chain of nodes is an error, never a shorter history."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from agent_runtime_storage import (
    CorruptThread,
    NewActivation,
    NotADatabase,
    StoreError,
    UserStore,
    open_store,
)
from tests.storage.helpers import LARGE, append, begin, message
from tests.storage.items import run_raw


@pytest.fixture
async def damaged_path(path: Path) -> Path:
    """The path of a closed store with a thread of four nodes, and one with a large body."""
    store = await open_store(str(path))
    lease = await begin(
        store.of("ann"), activation=NewActivation(1, None, "begin", b"{}", b"prompt")
    )
    await append(store.of("ann"), lease, 3)
    await store.close()
    store = await open_store(str(path))
    user = store.of("ann")
    await begin(user, "r2", "t2", nodes=(message(1, None, LARGE),))
    await store.close()
    return path


def damage(path: Path, sql: str) -> None:
    """Run a statement past the schema's constraints, while no store is open."""
    run_raw(path, "PRAGMA foreign_keys = OFF", "PRAGMA ignore_check_constraints = ON", sql)


def overwrite(path: Path, start: int, end: int | None) -> None:
    """Overwrite some bytes of the file."""
    content = path.read_bytes()
    end = len(content) if end is None else end
    path.write_bytes(content[:start] + b"\xff" * (end - start) + content[end:])


@asynccontextmanager
async def reopened(path: Path) -> AsyncGenerator[UserStore]:
    """Open the file again; yield one owner's view."""
    store = await open_store(str(path))
    try:
        yield store.of("ann")
    finally:
        await store.close()


@pytest.mark.parametrize("parent", [2, 3, 4])
async def test_a_cycle_of_nodes_is_an_error(damaged_path: Path, parent: int) -> None:
    damage(damaged_path, f"UPDATE nodes SET parent_id = {parent} WHERE thread_id = 't1' AND id = 2")

    async with reopened(damaged_path) as user:
        for first, limit in ((None, None), (1, None), (None, 4)):
            with pytest.raises(CorruptThread, match="circle"):
                await user.log.branch("t1", 4, first=first, limit=limit)
        with pytest.raises(CorruptThread, match="circle"):
            await user.log.lineage("t1", 4)
        # This read does not reach the damage.
        assert len(await user.log.branch("t1", 4, limit=2)) == 2


async def test_a_missing_ancestor_is_an_error(damaged_path: Path) -> None:
    damage(damaged_path, "DELETE FROM nodes WHERE thread_id = 't1' AND id = 2")

    async with reopened(damaged_path) as user:
        for first in (None, 1, 2):
            with pytest.raises(CorruptThread, match="node 2"):
                await user.log.branch("t1", 4, first=first)
        assert [node.seq for node in await user.log.branch("t1", 4, first=3)] == [3, 4]
        with pytest.raises(CorruptThread, match="node 2"):
            await user.log.lineage("t1", 4)
        assert await user.log.lineage("t1", 4, first=3) == [3, 4]


async def test_a_missing_head_is_an_error(damaged_path: Path) -> None:
    damage(damaged_path, "DELETE FROM nodes WHERE thread_id = 't1' AND id = 4")

    async with reopened(damaged_path) as user:
        with pytest.raises(CorruptThread, match="Node 4"):
            await user.log.branch("t1", 4)
        with pytest.raises(CorruptThread, match="Node 4"):
            await user.log.lineage("t1", 4)
        with pytest.raises(CorruptThread, match="Node 4"):
            await user.log.activation("t1", 4)


async def test_a_missing_activation_is_an_error(damaged_path: Path) -> None:
    damage(damaged_path, "UPDATE nodes SET activation_id = 7 WHERE thread_id = 't1' AND id = 4")

    async with reopened(damaged_path) as user:
        with pytest.raises(CorruptThread, match="Activation 7"):
            await user.log.activation("t1", 4)


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM blobs WHERE thread_id = 't2'",
        "UPDATE blobs SET data = x'00' WHERE thread_id = 't2'",
    ],
)
async def test_a_lost_or_damaged_body_is_an_error(damaged_path: Path, sql: str) -> None:
    damage(damaged_path, sql)

    async with reopened(damaged_path) as user:
        with pytest.raises(CorruptThread, match="node 1"):
            await user.log.branch("t2", 1)
        assert (await user.threads.get("t2")).head == 1


async def test_a_file_with_an_overwritten_header_is_refused(damaged_path: Path) -> None:
    overwrite(damaged_path, 0, 4096)

    with pytest.raises(NotADatabase):
        await open_store(str(damaged_path))


async def test_a_damaged_page_is_a_store_error(damaged_path: Path) -> None:
    overwrite(damaged_path, 4096, None)

    with pytest.raises(StoreError):
        async with reopened(damaged_path) as user:
            await user.log.branch("t1", 4)
