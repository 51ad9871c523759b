"""Concurrent writers of one node memory: no turn is lost or duplicated."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
import zstandard

from agent_runtime.errors import Conflict, CorruptDocument, ObjectsUnavailable
from agent_runtime.memory.node import memory as node_module
from agent_runtime.memory.node.memory import latest
from agent_runtime.memory.node.upkeep import PRUNE, prune, prune_daily, stored_memories
from agent_runtime_storage import Store, UserStore
from agent_runtime_storage.contract.documents import Document, Documents
from agent_runtime_storage.contract.records.objects import ObjectInfo
from agent_runtime_storage.objects.documents import ObjectDocuments
from tests.memory.node.parts import KEY, ann, documents, keys, node, opened, put, say, texts

__all__ = ["ann", "documents", "opened"]

pytestmark = pytest.mark.backends("file")
in_a_folder = pytest.mark.parametrize("opened", ["folder"], indirect=True)
ZST = f"{KEY}.zst"


class Interfering(Documents):
    """Documents with another writer's step between read and write."""

    def __init__(self, inner: Documents, meanwhile: Callable[[], Any]) -> None:
        self._inner, self._meanwhile = inner, meanwhile

    @property
    def shown(self) -> str:
        return self._inner.shown

    def list(self, prefix: str) -> AsyncGenerator[list[ObjectInfo]]:
        return self._inner.list(prefix)

    async def read(self, key: str) -> Document | None:
        return await self._inner.read(key)

    async def write(self, key: str, data: bytes, *, replaces: Any) -> bool:
        await self._meanwhile()
        return await self._inner.write(key, data, replaces=replaces)

    async def delete(self, key: str, *, before: float | None = None) -> bool:
        return await self._inner.delete(key, before=before)


class Interfered:
    """An owner's store with interfering documents."""

    def __init__(self, store: UserStore, meanwhile: Callable[[], Any]) -> None:
        self._store, self._meanwhile = store, meanwhile

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    @property
    def documents(self) -> Documents:
        return Interfering(self._store.documents, self._meanwhile)


def interfered(store: UserStore, meanwhile: Callable[[], Any]) -> UserStore:
    """Return the store with an action run before each write of a document."""
    # All other attributes are the wrapped store's.
    interfered: Any = Interfered(store, meanwhile)
    return interfered


def once(*steps: Callable[[], Any]) -> Callable[[], Any]:
    """Return a function that runs these actions, one per call, and afterwards does nothing."""
    left = list(steps)

    async def step() -> None:
        if left:
            await left.pop(0)()

    return step


# Concurrent writes


async def test_two_writers_of_the_same_version_lose_no_turn(ann: UserStore) -> None:
    slow = node(interfered(ann, once(lambda: say(node(ann), "a"), lambda: say(node(ann), "b"))))
    await say(slow, "c")
    assert sorted(texts(await node(ann).history("a"))) == ["a.", "a?"]
    assert {message.message_id for message in await node(ann).messages()} >= {"a", "b", "c"}
    assert len(await node(ann).messages()) == 6


async def test_concurrent_turns_form_a_chain(ann: UserStore) -> None:
    async def write(name: str) -> None:
        memory = node(ann)
        for number in range(4):
            await memory.add_messages(
                f"{name}{number}", latest, user_content="?", assistant_content=f"{name}{number}"
            )
            await memory.flush()

    async with anyio.create_task_group() as group:
        for name in "xyz":
            group.start_soon(write, name)

    history = texts(await node(ann).history(latest, max_token_limit=10_000))
    assert sorted(history[1::2]) == sorted(f"{name}{n}" for name in "xyz" for n in range(4))


WRITE = """
import sys, anyio
from agent_runtime import NodeMemory
from agent_runtime.memory.node.memory import latest
from agent_runtime_storage import open_store

async def main(folder, name, count):
    store = await open_store(f"{folder}/store.db", objects=f"{folder}/objects")
    memory = NodeMemory(store.of("ann"), "app", "talk", "node")
    for number in range(count):
        await memory.add_messages(
            f"{name}{number}", latest, user_content="?", assistant_content=f"{name}{number}"
        )
        await memory.flush()
        print(f"{name}{number}", flush=True)
    await store.close()

anyio.run(main, sys.argv[1], sys.argv[2], int(sys.argv[3]))
"""


@in_a_folder
async def test_two_processes_lose_no_turn_and_a_killed_one_only_its_last(
    ann: UserStore, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", WRITE, str(tmp_path)]
    killed = await anyio.open_process([*command, "k", "10000"], stdin=subprocess.DEVNULL)
    assert killed.stdout is not None
    output = await killed.stdout.receive()
    done = await anyio.run_process([*command, "p", "15"])
    killed.kill()
    async for chunk in killed.stdout:
        output += chunk
    await killed.aclose()
    written = (output + done.stdout).decode().split()

    messages = [message for message in await node(ann).messages() if message.role == "assistant"]
    stored_ids = [message.message_id for message in messages]

    assert len(set(stored_ids)) == len(stored_ids) and set(written) <= set(stored_ids)
    assert len(set(stored_ids) - set(written)) <= 1
    # The turns form a chain, whoever wrote them, and the memory is still writable.
    await say(node(ann), "after")
    assert [message.message_id for message in messages] == [
        one.removesuffix(":user")
        for one in dict.fromkeys(message.parent_message_id or "" for message in messages)
    ]


async def test_a_memory_cleared_meanwhile_stays_cleared(ann: UserStore) -> None:
    await say(node(ann), "a")
    slow = node(interfered(ann, once(node(ann).clear)))
    await say(slow, "b")
    assert texts(await node(ann).history(latest)) == ["b?", "b."]


@in_a_folder
async def test_a_writer_that_always_conflicts_fails_and_keeps_its_buffer(
    ann: UserStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_module, "TRIES", 3)
    others = iter(range(100))

    async def interfere() -> None:
        await say(node(ann), f"other{next(others)}")

    late = node(interfered(ann, interfere))
    with pytest.raises(Conflict, match="keep changing"):
        await say(late, "a")
    assert [message.message_id for message in await late.messages()][-1] == "a"


@in_a_folder
async def test_a_failing_store_loses_nothing_of_the_buffer(ann: UserStore) -> None:
    async def fail() -> None:
        raise ObjectsUnavailable("The store is away.")

    memory = node(interfered(ann, once(fail)))
    with pytest.raises(ObjectsUnavailable):
        await say(memory, "a")
    await memory.flush()
    assert texts(await node(ann).history(latest)) == ["a?", "a."]


@in_a_folder
async def test_a_write_with_a_lost_response_is_stored_once(ann: UserStore) -> None:
    class Lossy(Interfering):
        async def write(self, key: str, data: bytes, *, replaces: Any) -> bool:
            await self._inner.write(key, data, replaces=replaces)
            await self._meanwhile()
            return False

    class Losing(Interfered):
        @property
        def documents(self) -> Documents:
            return Lossy(self._store.documents, self._meanwhile)

    losing: Any = Losing(ann, once())
    memory = node(losing)
    await say(memory, "a")
    assert len(await node(ann).messages()) == 2


# Compression


async def test_a_compressed_memory_is_one_document_readable_by_both_settings(
    ann: UserStore, documents: Documents
) -> None:
    await say(node(ann, compressed=True), "a")
    assert await keys(documents) == [ZST]
    stored = await documents.read(ZST)
    assert stored is not None and b'"a?"' in zstandard.ZstdDecompressor().decompress(stored.data)
    assert texts(await node(ann).history("a")) == ["a?", "a."]


@pytest.mark.parametrize("first", [False, True])
async def test_switching_compression_forks_no_memory(
    ann: UserStore, documents: Documents, first: bool
) -> None:
    before, after = node(ann, compressed=first), node(ann, compressed=not first)
    await say(before, "a")
    await say(after, "a", "b")
    await say(after, "a", "b", "c")

    for memory in (node(ann, compressed=first), node(ann, compressed=not first)):
        assert texts(await memory.history("c")) == ["a?", "a.", "b?", "b.", "c?", "c."]
    # One of the two holds all turns, and the other is empty.
    old = await documents.read(ZST if first else KEY)
    new = await documents.read(KEY if first else ZST)
    assert old is not None and new is not None
    await documents.delete(ZST if first else KEY)
    assert len(await node(ann).messages()) == 6


async def test_writers_with_different_compression_lose_nothing(ann: UserStore) -> None:
    await say(node(ann), "a")
    meanwhile = once(lambda: say(node(ann), "b"), lambda: say(node(ann), "c"))
    await say(node(interfered(ann, meanwhile), compressed=True), "d")
    await say(node(ann), "e")
    for compressed in (True, False):
        messages = await node(ann, compressed=compressed).messages()
        assert sorted(
            message.message_id for message in messages if message.role == "assistant"
        ) == [*"abcde"]


@in_a_folder
async def test_a_reader_sees_everything_while_the_memory_moves(
    ann: UserStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await say(node(ann, compressed=True), "a")
    reader = node(ann)
    read, moved = ObjectDocuments.read, False

    async def moving(self: ObjectDocuments, key: str) -> Document | None:
        nonlocal moved
        document = await read(self, key)
        if key == KEY and not moved:
            # It moves between the reader's two reads.
            moved = True
            await say(node(ann), "b")
        return document

    monkeypatch.setattr(ObjectDocuments, "read", moving)
    assert {message.message_id for message in await reader.messages()} >= {"a", "b"}


@in_a_folder
@pytest.mark.parametrize("data", [b"", b"no zstd", zstandard.ZstdCompressor().compress(b"{")])
async def test_a_corrupt_compressed_document_is_never_overwritten(
    ann: UserStore, documents: Documents, data: bytes
) -> None:
    await put(documents, data, ZST)
    for compressed in (True, False):
        with pytest.raises(CorruptDocument):
            await say(node(ann, compressed=compressed), "a")
    stored = await documents.read(ZST)
    assert stored is not None and stored.data == data


@in_a_folder
async def test_a_truncated_compressed_document_is_reported(
    ann: UserStore, documents: Documents
) -> None:
    await say(node(ann, compressed=True), *(f"turn {n}" for n in range(50)))
    stored = await documents.read(ZST)
    assert stored is not None
    await put(documents, stored.data[: len(stored.data) // 2], ZST)
    with pytest.raises(CorruptDocument):
        await node(ann).messages()


# Pruning


@pytest.fixture
async def three(ann: UserStore, documents: Documents) -> AsyncGenerator[list[str]]:
    """Three memories: one compressed, one moved."""
    await say(node(ann, "one"), "a")
    await say(node(ann, "two", compressed=True), "a")
    await say(node(ann, "three"), "a")
    await say(node(ann, "three", compressed=True), "b")
    yield await keys(documents)


async def test_old_memories_are_pruned_and_other_owners_stay(
    ann: UserStore, opened: Store, documents: Documents, three: list[str]
) -> None:
    await say(node(opened.of("bob")), "a")
    assert [memory.node_id for memory in await stored_memories(ann)].count("three") == 1
    assert await prune(ann, seconds=3600) == []
    assert await keys(documents) == three

    # A bucket stores times in whole seconds.
    gone = await prune(ann, seconds=-2)

    assert sorted(one.node_id for one in gone) == ["one", "three", "two"]
    assert await keys(documents) == []
    assert len(await stored_memories(opened.of("bob"))) == 1


@in_a_folder
async def test_a_memory_used_meanwhile_is_not_pruned(
    ann: UserStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await say(node(ann), "a")
    [path] = await anyio.to_thread.run_sync(lambda: list(tmp_path.rglob("node.json")))
    os.utime(path, (1_000_000, 1_000_000))
    delete = ObjectDocuments.delete

    async def late(self: ObjectDocuments, key: str, *, before: float | None = None) -> bool:
        await say(node(ann), "a", "b")
        return await delete(self, key, before=before)

    monkeypatch.setattr(ObjectDocuments, "delete", late)
    assert await prune(ann, seconds=60) == []
    assert len(await node(ann).messages()) == 4


async def test_pruning_runs_daily_and_resumes_after_a_crash(
    ann: UserStore, documents: Documents, three: list[str]
) -> None:
    crashed = await ann.jobs.claim_periodic(PRUNE, seconds=-1)
    assert crashed is not None and await keys(documents) == three
    await prune_daily(ann, days=-1)
    assert await keys(documents) == []

    await say(node(ann), "a")
    await prune_daily(ann, days=-1)
    assert len(await keys(documents)) == 1


async def test_a_failed_pruning_is_logged_and_retried(
    ann: UserStore,
    documents: Documents,
    three: list[str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("agent_runtime.memory.node.upkeep.CLAIM_SECONDS", -1.0)
    with monkeypatch.context() as away:

        async def refuse(*_: Any, **__: Any) -> bool:
            raise ObjectsUnavailable("the store is away")

        away.setattr(ObjectDocuments, "delete", refuse)
        await prune_daily(ann, days=-1)
    assert "the store is away" in caplog.text and await keys(documents) == three

    await prune_daily(ann, days=-1)
    assert await keys(documents) == []
