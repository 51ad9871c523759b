"""Find orphaned objects, to which no row refers, and rows whose object is missing.

A commit that fails after its objects were put leaves orphans, and so does a deletion that is killed
before it deletes the objects.  They take space and do no other harm.
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
from agent_runtime_storage.objects.archive_parts import is_archive_key
from agent_runtime_storage.objects.documents import is_document_key
from agent_runtime_storage.objects.object_store import Objects, in_parallel
from agent_runtime_storage.sql.loader import load_queries

# Longer than any commit takes between its objects and its rows.
AGE_SECONDS = 24 * 3600.0
_PAGE = 500


@dataclass(frozen=True, slots=True)
class MissingObject:
    """A row whose object is missing, or has another length.

    Attributes:
        bytes: the length that the row expects.
        found: the length that the object has; None if there is none.
    """

    user_id: str
    thread_id: str
    key: str
    bytes: int
    found: int | None


async def find_orphans(
    driver: Driver, objects: Objects, *, age: float = AGE_SECONDS
) -> AsyncGenerator[list[ObjectInfo]]:
    """Yield the objects to which no row refers, in chunks.

    Args:
        age: in seconds.  Younger objects are left out, as their commit may still be under way.

    Raises:
        ObjectsUnavailable, StoreUnavailable: the objects or the rows cannot be read.
    """
    before = time.time() - age
    async with aclosing(objects.list()) as chunks:
        async for chunk in chunks:
            # Those of archives are compared with their own rows.
            bodies = [
                info
                for info in chunk
                if not is_document_key(info.key) and not is_archive_key(info.key)
            ]
            old = [info for info in bodies if info.modified <= before]
            # After the listing, so that a row which was committed since is seen.
            known = await _known(driver, [info.key for info in old])
            if orphans := [info for info in old if info.key not in known]:
                yield orphans


async def delete_orphans(driver: Driver, objects: Objects, *, age: float = AGE_SECONDS) -> int:
    """Delete the orphans, and files that killed writers left incomplete; return how many.

    Each is checked again right before: an object that was put again since is not deleted.

    Raises:
        ObjectsUnavailable, StoreUnavailable: the objects or the rows cannot be read.
    """
    before = time.time() - age
    removed = await objects.clean(before)
    async with aclosing(find_orphans(driver, objects, age=age)) as chunks:
        async for chunk in chunks:
            # A commit with the same content puts the object again, which makes it young: its row
            # may not be there yet.
            infos = await in_parallel(objects.info, [info.key for info in chunk])
            old = [key for key, info in infos.items() if info and info.modified <= before]
            known = await _known(driver, old)
            orphans = [key for key in old if key not in known]
            await objects.delete(orphans)
            removed += len(orphans)
    return removed


async def find_missing_objects(
    driver: Driver, objects: Objects
) -> AsyncGenerator[list[MissingObject]]:
    """Yield the rows whose object is missing or has another length, in chunks.

    Raises:
        ObjectsUnavailable, StoreUnavailable: the objects or the rows cannot be read.
    """
    queries = load_queries(driver.dialect)
    after = ""
    while rows := await driver.read(
        queries["objects_after"], {"after": after, "limit": _PAGE}, owner=None
    ):
        after = str(rows[-1][0])
        infos = await in_parallel(objects.info, [str(row[0]) for row in rows])
        missing: list[MissingObject] = []
        for key, user_id, thread_id, size in rows:
            info = infos[key]
            if info is None or info.bytes != size:
                actual = None if info is None else info.bytes
                missing.append(MissingObject(user_id, thread_id, key, size, actual))
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

    Returns None for a database whose schema has no objects yet.

    Raises:
        UnknownScheme, ObjectsUnavailable, StoreError: as `Objects.open`.
    """
    queries = load_queries(driver.dialect)
    try:
        [(room,)] = await driver.read(queries["room"], {}, owner=None)
    except StoreError:
        # A store that is opened without migrations may lack the table.
        tables = await driver.read(queries["schema_tables"], {}, owner=None)
        if ("rooms",) in tables:
            raise
        return None
    # Loading the client and checking a folder take a while.
    return await anyio.to_thread.run_sync(lambda: Objects.open(url, room=str(room)))
