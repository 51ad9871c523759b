"""A store with objects of its own folder, and what the tests of it need."""

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
    """All files below a folder, none if it is not there."""
    return [one for one in folder.rglob("*") if one.is_file()]


def noise(seed: int, size: int = OBJECT_BYTES + 1000) -> bytes:
    """Bytes that no compression shortens."""
    return random.Random(seed).randbytes(size)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the objects go."""
    return tmp_path / "the objects"


@pytest.fixture
async def opened(database_url: str, folder: Path) -> AsyncIterator[Driver]:
    """A driver of a database with the schema, which is open until the end of the test."""
    await (await open_store(database_url, objects=str(folder))).close()
    driver = await open_driver(database_url)
    yield driver
    await driver.close()


@pytest.fixture
async def objects(opened: Driver, folder: Path) -> Objects:
    """The objects of the database."""
    found = await open_object_store(opened, str(folder))
    assert found is not None
    return found


@pytest.fixture
def user(opened: Driver, objects: Objects) -> UserStore:
    """One owner's view."""
    return SqlUserStore(opened, "ann", objects)


async def listed(objects: Objects) -> list[ObjectInfo]:
    """All objects."""
    return [info async for chunk in objects.list() for info in chunk]


async def lost(driver: Driver, objects: Objects, age: float = 0.0) -> list[str]:
    """The keys of all orphans."""
    return [info.key async for chunk in find_orphans(driver, objects, age=age) for info in chunk]
