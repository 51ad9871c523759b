"""The SQLite driver on unusual paths: links, other kinds of files, damaged and moved ones.

A refused file is left unchanged, to the last byte.
"""

from __future__ import annotations

import os
import shutil
import socket
import sqlite3
import struct
import sys
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from agent_runtime_storage import (
    MigrationError,
    NotADatabase,
    StoreError,
    StoreReadOnly,
    StoreUnavailable,
    open_store,
)
from agent_runtime_storage.drivers.protocol import Statement
from agent_runtime_storage.drivers.sqlite import database_file
from agent_runtime_storage.drivers.sqlite.driver import SqliteDriver
from tests.services.process import let_others_in
from tests.storage.items import CREATE, ids, insert, run_raw


def contents(folder: Path) -> dict[str, bytes | None]:
    """Return the contents of a folder: bytes of files, None for anything else."""
    return {
        entry.name: entry.read_bytes() if entry.is_file() else None
        for entry in sorted(folder.iterdir())
    }


def cut(path: Path, count: float) -> bytes:
    """Truncate a file to `count` bytes (0.5: to half), and return the rest."""
    whole = path.read_bytes()
    rest = whole[: len(whole) // 2 if count == 0.5 else int(count)]
    path.write_bytes(rest)
    return rest


def flip(path: Path, whole: bytes, place: int) -> None:
    """Write the file again, alone in its folder, with one byte flipped."""
    for file in path.parent.iterdir():
        file.unlink()
    path.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])


def move(source: Path, target: Path) -> bytes:
    """Replace a file by another one, and return its contents."""
    return source.replace(target).read_bytes()


async def write_thread(path: Path) -> None:
    """Open the store, write, and close it."""
    store = await open_store(str(path))
    try:
        await store.of("ann").threads.ensure("t1", metadata={"about": "x" * 20_000})
    finally:
        await store.close()


# Paths that cannot be a database


def make_fifo(path: Path) -> None:
    os.mkfifo(path)


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        # The path of a socket may have at most 108 characters.
        here = Path.cwd()
        os.chdir(path.parent)
        server.bind(path.name)
        os.chdir(here)


def make_circle(path: Path) -> None:
    path.symlink_to(path)


def make_link_to_folder(path: Path) -> None:
    path.symlink_to(path.parent)


def make_device(path: Path) -> None:
    path.symlink_to("/dev/null")


def make_letter(path: Path) -> None:
    path.write_bytes(b"this is a letter, and no database at all " * 100)


def make_other(path: Path) -> None:
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE theirs (id INTEGER)")
    other.close()


def make_same_name(path: Path) -> None:
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE schema_migrations (version TEXT)")
    other.close()


def make_same_name_with_log(path: Path) -> None:
    with sqlite3.connect(path) as other:
        other.execute("PRAGMA journal_mode = wal")
        other.execute("CREATE TABLE schema_migrations (version TEXT)")
    other.close()


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (make_fifo, StoreUnavailable, "no regular file"),
        (make_socket, StoreUnavailable, "no regular file"),
        (make_device, StoreUnavailable, "no regular file"),
        (make_circle, StoreUnavailable, "circle"),
        (make_link_to_folder, StoreUnavailable, "is a folder"),
        (make_letter, NotADatabase, "no database"),
        (make_other, NotADatabase, "another program"),
        (make_same_name, NotADatabase, "another program"),
        (make_same_name_with_log, NotADatabase, "another program"),
    ],
)
async def test_any_other_file_is_refused_and_unchanged(
    path: Path, make: Callable[[Path], None], error: type[StoreError], message: str
) -> None:
    make(path)
    before = contents(path.parent)

    with anyio.fail_after(60), pytest.raises(error, match=message) as raised:
        await open_store(str(path))

    assert str(path) in str(raised.value) or message == "another program"
    assert raised.value.cure
    assert contents(path.parent) == before


async def test_a_newer_schema_is_refused_and_unchanged(path: Path) -> None:
    await write_thread(path)
    run_raw(path, "INSERT INTO schema_migrations VALUES (9999, 'later', 'x', 0)")
    before = contents(path.parent)

    with pytest.raises(MigrationError, match="9999") as raised:
        await open_store(str(path))

    assert "Upgrade" in raised.value.cure
    assert contents(path.parent) == before


def journal_of_one_page(path: Path) -> bytes:
    """Return a journal with which SQLite cuts a database to its first page as it opens it."""
    page = path.read_bytes()[:4096]
    total = 1 + sum(page[place] for place in range(4096 - 200, 0, -200))
    head = bytes.fromhex("d9d505f920a163d7") + struct.pack(">IIIII", 1, 1, 1, 512, 4096)
    return head.ljust(512, b"\0") + struct.pack(">I", 1) + page + struct.pack(">I", total)


async def test_a_journal_that_somebody_laid_next_to_the_database_changes_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_file, "JOURNAL_SECONDS", 0.05)
    await write_thread(path)
    journal = path.with_name(f"{path.name}-journal")
    journal.write_bytes(journal_of_one_page(path))
    before = contents(path.parent)

    with pytest.raises(StoreUnavailable, match="rollback journal") as raised:
        await open_store(str(path))
    assert str(journal) in raised.value.cure and contents(path.parent) == before

    journal.unlink()
    store = await open_store(str(path))
    try:
        assert len(await store.of("ann").threads.list()) == 1
        # Nor while the database is open, here or in another process.
        journal.write_bytes(journal_of_one_page(path))
        with pytest.raises(StoreUnavailable, match="rollback journal"):
            await open_store(str(path))
        await store.of("ann").threads.ensure("t2")
        journal.unlink()
    finally:
        await store.close()


async def test_an_empty_file_and_links_can_be_opened(tmp_path: Path) -> None:
    empty, link, target = tmp_path / "empty.db", tmp_path / "link.db", tmp_path / "target.db"
    await anyio.Path(empty).touch()
    await anyio.Path(link).symlink_to(target)

    await write_thread(empty)
    await write_thread(link)

    assert await anyio.Path(link).is_symlink()
    store = await open_store(str(target))
    assert len(await store.of("ann").threads.list()) == 1
    # Its log is next to the target, so both names see the same rows.
    linked = await open_store(str(link))
    await linked.of("ann").threads.ensure("t2")
    assert len(await store.of("ann").threads.list()) == 2
    await linked.close()
    await store.close()
    assert contents(tmp_path).keys() == {"empty.db", "link.db", "target.db"}


@pytest.mark.parametrize("keep", [2, 99, 100, 512, 4096, 5000, 0.5, -4096])
async def test_a_truncated_file_is_refused_and_unchanged(path: Path, keep: float) -> None:
    await write_thread(path)
    rest = cut(path, keep)

    with pytest.raises(NotADatabase) as raised:
        await write_thread(path)

    assert "backup" in raised.value.cure
    assert contents(path.parent)[path.name] == rest


async def test_a_flipped_byte_is_a_store_error_or_harmless(path: Path) -> None:
    await write_thread(path)
    whole = contents(path.parent)[path.name]
    assert whole is not None
    step = len(whole) // 60
    refused = 0
    for place in [*range(0, 100, 7), *range(100, len(whole), step)]:
        flip(path, whole, place)
        try:
            await write_thread(path)
        except StoreError:
            refused += 1
    assert refused > 10


# Without write permission

_OPEN = """
import os, sys, anyio
import agent_runtime_storage.drivers.sqlite.driver
import agent_runtime_storage.store, agent_runtime_storage.queries.migrations
from agent_runtime_storage import open_store, StoreError
if os.geteuid() == 0:
    os.setegid(65534)
    os.seteuid(65534)
async def main():
    try:
        store = await open_store(sys.argv[1])
        await store.of("ann").threads.ensure("t2")
        await store.close()
    except StoreError as error:
        print(type(error).__name__, error.cure)
anyio.run(main)
"""


@pytest.mark.parametrize(
    ("file_mode", "folder_mode", "error"),
    [
        (0o444, 0o555, StoreReadOnly),
        (0o444, 0o777, StoreReadOnly),
        (0o666, 0o555, StoreReadOnly),
        (0o000, 0o777, StoreUnavailable),
    ],
)
async def test_a_file_without_write_permission_is_refused_and_unchanged(
    tmp_path: Path, file_mode: int, folder_mode: int, error: type[StoreError]
) -> None:
    path = tmp_path / "store.db"
    await write_thread(path)
    before = contents(tmp_path)
    let_others_in(tmp_path)
    await anyio.Path(path).chmod(file_mode)
    await anyio.Path(tmp_path).chmod(folder_mode)
    try:
        completed = await anyio.run_process([sys.executable, "-c", _OPEN, str(path)])
    finally:
        await anyio.Path(tmp_path).chmod(0o755)
        await anyio.Path(path).chmod(0o644)

    name, _, cure = completed.stdout.decode().partition(" ")
    assert name == error.__name__
    assert "permission" in cure or "may read it" in cure
    assert contents(tmp_path) == before


# Deleted or replaced while open


async def open_with_items(path: Path) -> SqliteDriver:
    """Open the driver on a table of one item."""
    driver = await SqliteDriver.open(path)
    await driver.batch([Statement(CREATE, {})])
    await driver.batch([insert(1)])
    return driver


@pytest.mark.parametrize("suffix", ["", "-wal"])
async def test_a_file_deleted_while_open_accepts_no_more_writes(path: Path, suffix: str) -> None:
    driver = await open_with_items(path)
    file = path.with_name(path.name + suffix)
    aside = path.with_name("aside")
    move(file, aside)

    with pytest.raises(StoreUnavailable, match="deleted or replaced") as raised:
        await driver.batch([insert(2)])
    with pytest.raises(StoreUnavailable, match="deleted or replaced"):
        await ids(driver)
    assert "Put the file back" in raised.value.cure

    # No batch was written meanwhile, so the driver works again once the file is back.
    move(aside, file)
    await driver.batch([insert(3)])
    assert await ids(driver) == [1, 3]
    await driver.close()


async def test_a_file_replaced_while_open_is_not_changed(path: Path) -> None:
    copy = path.with_name("copy.db")
    await write_thread(copy)
    driver = await open_with_items(path)
    before = move(copy, path)

    with pytest.raises(StoreUnavailable, match="deleted or replaced"):
        await driver.batch([insert(2)])
    await driver.close()

    assert contents(path.parent)[path.name] == before


async def test_a_folder_removed_while_open_is_a_store_error(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "sub"
    await anyio.Path(folder).mkdir()
    driver = await open_with_items(folder / "a.db")
    shutil.rmtree(folder)

    with pytest.raises(StoreUnavailable, match="deleted or replaced"):
        await driver.batch([insert(2)])
    await driver.close()
    assert "sub" not in contents(tmp_path)
