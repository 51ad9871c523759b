"""Fixtures of a store whose objects are in a folder, and helpers for its tests."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent_runtime_storage import (
    UserStore,
    open_store,
)
from agent_runtime_storage.contract.records.objects import ObjectInfo
from agent_runtime_storage.drivers.protocol import Driver
from agent_runtime_storage.objects.bodies import OBJECT_BYTES
from agent_runtime_storage.objects.object_store import Objects
from agent_runtime_storage.store import SqlUserStore
from agent_runtime_storage.upkeep.orphans import find_orphans, open_object_store
from agent_runtime_storage.urls import open_driver


def files(folder: Path) -> list[Path]:
    """Return all files below a folder; none if it is missing."""
    return [path for path in folder.rglob("*") if path.is_file()]


def noise(seed: int, size: int = OBJECT_BYTES + 1000) -> bytes:
    """Return bytes that no compression shortens."""
    return random.Random(seed).randbytes(size)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of the objects."""
    return tmp_path / "the objects"


@pytest.fixture
async def opened(database_url: str, folder: Path) -> AsyncIterator[Driver]:
    """An open driver of a database with the schema."""
    await (await open_store(database_url, objects=str(folder))).close()
    driver = await open_driver(database_url)
    yield driver
    await driver.close()


@pytest.fixture
async def objects(opened: Driver, folder: Path) -> Objects:
    """The object store of the database."""
    store = await open_object_store(opened, str(folder))
    assert store is not None
    return store


@pytest.fixture
def user(opened: Driver, objects: Objects) -> UserStore:
    """One owner's view of the store."""
    return SqlUserStore(opened, "ann", objects)


async def list_objects(objects: Objects) -> list[ObjectInfo]:
    """Return all objects."""
    return [info async for chunk in objects.list() for info in chunk]


async def orphan_keys(driver: Driver, objects: Objects, age: float = 0.0) -> list[str]:
    """Return the keys of all orphans."""
    return [info.key async for chunk in find_orphans(driver, objects, age=age) for info in chunk]
