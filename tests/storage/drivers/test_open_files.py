"""Open databases are registered, so that no tool opens their files and drops SQLite's locks."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_runtime_storage import open_store
from agent_runtime_storage.contract.errors import StoreError
from agent_runtime_storage.drivers.protected_files import (
    FileIdentity,
    file_identity,
    open_identities,
    open_paths,
)
from agent_runtime_storage.drivers.sqlite.driver import SqliteDriver

NAMES = ("own.db", "own.db-wal", "own.db-shm", "own.db-journal")


def is_registered(path: Path) -> bool:
    """Return whether a file belongs to an open database."""
    return identity_of(path) in open_identities()


def identity_of(path: Path) -> FileIdentity:
    return file_identity(path.stat())


async def test_a_database_is_registered_while_it_is_open(tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    before = open_paths()
    store = await open_store(str(tmp_path / "own.db"))
    try:
        assert open_paths() - before == {tmp_path / name for name in NAMES}
        assert all(is_registered(tmp_path / name) for name in NAMES[:3])
        assert not is_registered(tmp_path / "plain")
    finally:
        await store.close()
    await store.close()
    assert open_paths() == before
    assert not is_registered(tmp_path / "own.db")


async def test_links_and_other_names_are_the_same_file(tmp_path: Path) -> None:
    database = tmp_path / "own.db"
    driver = await SqliteDriver.open(database)
    (tmp_path / "soft").symlink_to("own.db")
    (tmp_path / "hard").hardlink_to(database)
    assert is_registered(tmp_path / "soft") and is_registered(tmp_path / "hard")
    database.rename(tmp_path / "moved")
    assert is_registered(tmp_path / "moved") and is_registered(tmp_path / "hard")
    (tmp_path / "moved").rename(database)
    await driver.close()
    assert not is_registered(tmp_path / "hard")


async def test_a_database_opened_twice_is_registered_until_both_are_closed(tmp_path: Path) -> None:
    first = await SqliteDriver.open(tmp_path / "own.db")
    second = await SqliteDriver.open(tmp_path / "own.db")
    await first.close()
    assert is_registered(tmp_path / "own.db")
    await second.close()
    assert not is_registered(tmp_path / "own.db")


async def test_a_relative_path_is_unregistered_from_another_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = await open_store("own.db")
    monkeypatch.chdir("/")
    assert is_registered(tmp_path / "own.db")
    await store.close()
    assert not is_registered(tmp_path / "own.db")


async def test_a_file_that_could_not_be_opened_is_unregistered(tmp_path: Path) -> None:
    (tmp_path / "own.db").write_bytes(b"no database" * 1000)
    with pytest.raises(StoreError):
        await open_store(str(tmp_path / "own.db"))
    assert not is_registered(tmp_path / "own.db")
