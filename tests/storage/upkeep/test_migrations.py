"""Migrations: applied once, verified at each opening, and safe with concurrent processes."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import anyio
import pytest

from agent_runtime_storage import MigrationError, NotADatabase, open_store
from agent_runtime_storage.contract.errors import StoreError
from agent_runtime_storage.drivers.sqlite.driver import SqliteDriver
from agent_runtime_storage.queries.migrations import apply_migrations
from agent_runtime_storage.sql.loader import Migration, load_migrations, load_queries, parse_blocks
from tests.storage.helpers import CREATE_A_THREAD
from tests.storage.items import run_raw
from tests.storage.sql_blocks import whole_queries

FIRST = Migration(1, "first", "c1", ("CREATE TABLE a (x INTEGER)",))
SECOND = Migration(2, "second", "c2", ("ALTER TABLE a ADD COLUMN y", "INSERT INTO a VALUES (1, 2)"))
BROKEN = Migration(2, "broken", "c3", ("INSERT INTO a VALUES (1)", "CREATE TABLE a (x)"))


async def test_migrations_are_applied_in_order_and_once(path: Path) -> None:
    driver = await SqliteDriver.open(path)

    await apply_migrations(driver, [FIRST])
    await apply_migrations(driver, [FIRST, SECOND])
    await apply_migrations(driver, [FIRST, SECOND])

    assert await driver.read("SELECT x, y FROM a", {}) == [(1, 2)]
    applied = await driver.read(load_queries("sqlite")["schema_applied"], {})
    assert applied == [(1, "first", "c1"), (2, "second", "c2")]
    await driver.close()


async def test_a_failed_migration_leaves_no_change(path: Path) -> None:
    driver = await SqliteDriver.open(path)
    await apply_migrations(driver, [FIRST])

    with pytest.raises(StoreError):
        await apply_migrations(driver, [FIRST, BROKEN])

    assert await driver.read("SELECT * FROM a", {}) == []
    await apply_migrations(driver, [FIRST, SECOND])
    assert await driver.read("SELECT x, y FROM a", {}) == [(1, 2)]
    await driver.close()


async def test_a_new_database_gets_the_whole_schema_or_nothing(path: Path) -> None:
    driver = await SqliteDriver.open(path)

    with pytest.raises(StoreError):
        await apply_migrations(driver, [FIRST, BROKEN])

    assert await driver.read("SELECT name FROM sqlite_schema", {}) == []
    await driver.close()


async def test_a_changed_migration_is_refused(path: Path) -> None:
    driver = await SqliteDriver.open(path)
    await apply_migrations(driver, [FIRST])
    changed = Migration(1, "first", "other", FIRST.statements)

    with pytest.raises(MigrationError, match="0001") as raised:
        await apply_migrations(driver, [changed, SECOND])

    assert raised.value.cure
    assert await driver.read("SELECT x FROM a", {}) == []
    await driver.close()


async def test_a_newer_schema_is_refused(path: Path) -> None:
    driver = await SqliteDriver.open(path)
    await apply_migrations(driver, [FIRST, SECOND])

    with pytest.raises(MigrationError, match="Upgrade the runtime"):
        await apply_migrations(driver, [FIRST])
    await driver.close()


async def test_a_store_of_a_newer_version_is_not_opened(path: Path) -> None:
    await (await open_store(str(path))).close()
    run_raw(path, "INSERT INTO schema_migrations VALUES (9999, 'future', 'x', 0)")

    with pytest.raises(MigrationError, match="9999"):
        await open_store(str(path))


async def test_another_programs_database_is_left_alone(path: Path) -> None:
    run_raw(path, "CREATE TABLE photos (id INTEGER)")

    with pytest.raises(NotADatabase, match="another program"):
        await open_store(str(path))

    assert run_raw(path, "SELECT name FROM sqlite_schema") == [("photos",)]


async def test_processes_that_start_concurrently_all_open_the_store(path: Path) -> None:
    async with anyio.create_task_group() as group:
        for number in range(4):
            command = [sys.executable, "-c", CREATE_A_THREAD, str(path), f"t{number}"]
            group.start_soon(anyio.run_process, command)

    store = await open_store(str(path))
    threads = await store.of("ann").threads.list()
    await store.close()
    assert sorted(thread.id for thread in threads) == ["t0", "t1", "t2", "t3"]


def test_the_shipped_migrations_of_all_dialects_have_the_same_numbers_and_names() -> None:
    sqlite, postgres = (
        [(migration.version, migration.name) for migration in load_migrations(dialect)]
        for dialect in ("sqlite", "postgres")
    )

    assert sqlite == postgres
    versions = [version for version, _ in sqlite]
    assert versions == sorted(set(versions))
    assert all(migration.statements for migration in load_migrations("sqlite"))


async def test_every_query_fits_the_schema(path: Path) -> None:
    await (await open_store(str(path))).close()
    driver = await SqliteDriver.open(path)
    queries = whole_queries("sqlite")
    for name, sql in queries.items():
        values = dict.fromkeys(re.findall(r":([a-z_][a-z_0-9]*)", sql))
        assert await driver.read(f"EXPLAIN {sql}", values), name
    await driver.close()
    assert len(queries) > 40


def test_blocks_are_parsed_without_their_comments() -> None:
    text = "-- About.\n\n-- name: one\n-- Why.\nSELECT 1;\n\n-- name: two\nSELECT\n  2;\n"

    assert parse_blocks(text) == {"one": "SELECT 1", "two": "SELECT\n  2"}
    with pytest.raises(ValueError, match="'one'"):
        parse_blocks("-- name: one\nSELECT 1;\n-- name: one\nSELECT 2;\n")
