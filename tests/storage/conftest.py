"""Stores for the tests of the contract, on each backend in turn (`database_url`)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent_runtime_storage import Store, UserStore, open_store
from agent_runtime_storage.drivers.protocol import Statement
from agent_runtime_storage.drivers.sqlite.driver import SqliteDriver
from tests.storage.items import CREATE


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[Store]:
    """An open, empty store."""
    opened = await open_store(database_url)
    yield opened
    await opened.close()


@pytest.fixture
def user(store: Store) -> UserStore:
    """One owner's view of the store."""
    return store.of("ann")


@pytest.fixture
def stranger(store: Store) -> UserStore:
    """Another owner's view of the same database."""
    return store.of("bob")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The path of the driver's file."""
    return tmp_path / "driver.db"


@pytest.fixture
async def driver(path: Path) -> AsyncIterator[SqliteDriver]:
    """An open driver, on a file with an empty table of items."""
    opened = await SqliteDriver.open(path)
    await opened.batch([Statement(CREATE, {})])
    yield opened
    await opened.close()
