"""Orphaned objects, which no row refers to, and rows whose object is missing.

A commit that failed after its objects were put, and a deletion that was killed before it came to
the objects, leave orphans.  They cost space and nothing else.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass

import anyio.to_thread
import orjson

from agent_runtime_storage.contract.errors import StoreError
from agent_runtime_storage.contract.records.objects import ObjectInfo
from agent_runtime_storage.drivers.protocol import Driver
from agent_runtime_storage.objects.documents import is_document_key
from agent_runtime_storage.objects.object_store import Objects, in_parallel
from agent_runtime_storage.sql.loader import load_queries

AGE_SECONDS = 24 * 3600.0
_PAGE = 500


@dataclass(frozen=True, slots=True)
class MissingObject:
    """A row whose body lies in an object that is not there, or has another length."""

    user_id: str
    thread_id: str
    key: str
    bytes: int
    """How many there should be."""
    found: int | None
    """How many there are; None if there is no object."""


async def find_orphans(
    driver: Driver, objects: Objects, *, age: float = AGE_SECONDS
) -> AsyncGenerator[list[ObjectInfo]]:
    """Give the objects that no row refers to, some at a time.

    Args:
        age: in seconds.  Younger objects are left out: the commit that they were put for may be
            still on its way.

    Raises:
        ObjectsUnavailable, StoreUnavailable: the objects or the rows cannot be read.
    """
    before = time.time() - age
    async with aclosing(objects.list()) as chunks:
        async for chunk in chunks:
            bodies = [info for info in chunk if not is_document_key(info.key)]
            old = [info for info in bodies if info.modified <= before]
            known = await _known(driver, [info.key for info in old])
            if lost := [info for info in old if info.key not in known]:
                yield lost


async def delete_orphans(driver: Driver, objects: Objects, *, age: float = AGE_SECONDS) -> int:
    """Delete the orphans, and what killed writers left half written; return how many.

    Each is checked again right before: an object that was put again since stays.

    Raises:
        ObjectsUnavailable, StoreUnavailable: the objects or the rows cannot be read.
    """
    before = time.time() - age
    removed = await objects.clean(before)
    async with aclosing(find_orphans(driver, objects, age=age)) as chunks:
        async for chunk in chunks:
            seen = await in_parallel(objects.info, [info.key for info in chunk])
            old = [key for key, info in seen.items() if info and info.modified <= before]
            known = await _known(driver, old)
            doomed = [key for key in old if key not in known]
            await objects.delete(doomed)
            removed += len(doomed)
    return removed


async def find_missing_objects(
    driver: Driver, objects: Objects
) -> AsyncGenerator[list[MissingObject]]:
    """Give the rows whose object is not there or has another length, some at a time.

    Raises:
        ObjectsUnavailable, StoreUnavailable: the objects or the rows cannot be read.
    """
    queries = load_queries(driver.dialect)
    after = ""
    while rows := await driver.read(
        queries["objects_after"], {"after": after, "limit": _PAGE}, owner=None
    ):
        after = str(rows[-1][0])
        found = await in_parallel(objects.info, [str(row[0]) for row in rows])
        missing: list[MissingObject] = []
        for key, user_id, thread_id, size in rows:
            info = found[key]
            if info is None or info.bytes != size:
                there = None if info is None else info.bytes
                missing.append(MissingObject(user_id, thread_id, key, size, there))
        if missing:
            yield missing


async def _known(driver: Driver, keys: Sequence[str]) -> set[str]:
    if not keys:
        return set()
    sql = load_queries(driver.dialect)["known_objects"]
    rows = await driver.read(sql, {"keys": orjson.dumps(list(keys)).decode()}, owner=None)
    return {str(key) for (key,) in rows}


async def open_object_store(driver: Driver, url: str) -> Objects | None:
    """Open the object store that the URL names, in the room of the driver's database.

    A database without the schema's part for objects has none: then it returns None.

    Raises:
        UnknownScheme, ObjectsUnavailable, StoreError: as `Objects.open`.
    """
    queries = load_queries(driver.dialect)
    try:
        [(room,)] = await driver.read(queries["room"], {}, owner=None)
    except StoreError:
        tables = await driver.read(queries["schema_tables"], {}, owner=None)
        if ("rooms",) in tables:
            raise
        return None
    # Loading the client, and looking at a folder, takes a while.
    return await anyio.to_thread.run_sync(lambda: Objects.open(url, room=str(room)))
