"""Exporting and importing the documents of a thread: they come along, and overwrite nothing."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import zstandard

from agent_runtime_config.errors import ConfigError
from agent_runtime_storage import (
    Commit,
    Conflict,
    Finish,
    InvalidExport,
    UserStore,
    open_store,
)
from agent_runtime_storage.queries.migrations import apply_migrations
from agent_runtime_storage.store import SqlStore
from agent_runtime_storage.urls import open_driver
from tests.storage.families import exported, sealed, stream
from tests.storage.helpers import begin

Records = list[dict[str, Any]]


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[tuple[UserStore, UserStore]]:
    """Owners of two database files, with object stores."""
    stores = [await open_store(f"file:{tmp_path / name}.db") for name in ("one", "two")]
    yield stores[0].of("ann"), stores[1].of("bob")
    for store in stores:
        await store.close()


MEMORY = (
    b'{"version": 1, "messages": [{"message_id": "r1.r1", "role": "user", "content": "Hello."}]}'
)


LONG = "m" * 128
"""The longest id that a node can have."""


@pytest.mark.parametrize("rename", [None, "t2"])
async def test_documents_of_a_thread_are_exported_with_it(
    pair: tuple[UserStore, UserStore], rename: str | None
) -> None:
    source, place = pair
    lease = await begin(source)
    await source.runs.commit(lease, Commit(finish=Finish("failed", "error")))
    packed = zstandard.ZstdCompressor().compress(MEMORY)
    for key, data in (("app/t1/n.json", MEMORY), (f"app/t1/{LONG}.json.zst", packed)):
        assert await source.documents.write(f"node_memory/{key}", data, replaces=None)
    # Another conversation's.
    assert await source.documents.write("node_memory/app/t9/n.json", MEMORY, replaces=None)
    records = await exported(source, "t1")
    names = {one["name"] for one in records if one["section"] == "documents"}
    assert names == {f"{LONG}.json.zst", "n.json"}

    [thread] = await place.upkeep.import_thread(stream(records), rename=rename)

    [run] = await place.runs.list(thread_id=thread)
    # Its turns name the runs that made them.
    expected = MEMORY.replace(b"r1.r1", f"{run.id}.{run.id}".encode())
    plain = await place.documents.read(f"node_memory/app/{thread}/n.json")
    small = await place.documents.read(f"node_memory/app/{thread}/{LONG}.json.zst")
    assert plain is not None and json.loads(plain.data) == json.loads(expected)
    assert small is not None
    assert json.loads(zstandard.ZstdDecompressor().decompress(small.data)) == json.loads(expected)


async def test_an_import_never_touches_documents_that_are_there(
    pair: tuple[UserStore, UserStore],
) -> None:
    """A withdrawn import deletes what belongs to its threads, so it may not begin."""
    source, place = pair
    lease = await begin(source)
    await source.runs.commit(lease, Commit(finish=Finish("failed", "error")))
    records = await exported(source, "t1")
    assert await place.documents.write("node_memory/app/t1/n.json", MEMORY, replaces=None)
    with pytest.raises(Conflict, match="a document of a thread t1 already"):
        await place.upkeep.import_thread(stream(records[:-1]))
    assert await place.documents.read("node_memory/app/t1/n.json") is not None


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ({"collection": "other"}, "has a name that none can have"),
        ({"scope": ".."}, "has a name that none can have"),
        ({"name": "../../x"}, "has a name that none can have"),
        ({"body": {"base64": "?"}}, "neither text nor base64"),
        ({}, "is there twice"),
    ],
)
async def test_a_hostile_document_of_an_export_is_refused(
    pair: tuple[UserStore, UserStore], name: dict[str, Any], problem: str
) -> None:
    source, place = pair
    lease = await begin(source)
    await source.runs.commit(lease, Commit(finish=Finish("failed", "error")))
    await source.documents.write("node_memory/app/t1/n.json", MEMORY, replaces=None)
    records = await exported(source, "t1")
    [at] = [i for i, one in enumerate(records) if one["section"] == "documents"]
    again = records[at] | name
    with pytest.raises(InvalidExport, match=problem):
        await place.upkeep.import_thread(stream(sealed([*records[:-1], again, records[-1]])))
    assert [info async for infos in place.documents.list("node_memory") for info in infos] == []


@pytest.mark.parametrize("thread", ["../../../../outside", "/outside", "a/../b", ".."])
async def test_the_id_of_a_thread_leads_no_document_out_of_its_folder(
    pair: tuple[UserStore, UserStore], tmp_path: Path, thread: str
) -> None:
    source, place = pair
    lease = await begin(source)
    await source.runs.commit(lease, Commit(finish=Finish("failed", "error")))
    await source.documents.write("node_memory/app/t1/n.json", MEMORY, replaces=None)
    before = sorted(tmp_path.parent.rglob("*.json"))
    own = {"thread": "id", "log": "thread"}
    records = [
        one | {own[one["section"]]: thread} if one["section"] in own else one
        for one in await exported(source, "t1")
    ]
    with pytest.raises(InvalidExport, match="has a name that none can have"):
        await place.upkeep.import_thread(stream(sealed(records)))
    assert sorted(tmp_path.parent.rglob("*.json")) == before


async def test_documents_need_an_object_store_to_be_imported(
    pair: tuple[UserStore, UserStore], tmp_path: Path
) -> None:
    source, _ = pair
    lease = await begin(source)
    await source.runs.commit(lease, Commit(finish=Finish("failed", "error")))
    await source.documents.write("node_memory/app/t1/n.json", MEMORY, replaces=None)
    driver = await open_driver(f"file:{tmp_path / 'bare.db'}")
    await apply_migrations(driver)
    bare = SqlStore(driver)
    try:
        with pytest.raises(ConfigError, match="need an object store"):
            await bare.of("bob").upkeep.import_thread(stream(await exported(source, "t1")))
        assert await bare.of("bob").threads.list() == []
    finally:
        await bare.close()
