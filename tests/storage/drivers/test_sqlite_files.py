"""The SQLite driver's files and processes: unusable files, other writers, and kills."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import anyio
import apsw
import pytest

from agent_runtime_storage import (
    NotADatabase,
    StoreBusy,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
    open_store,
)
from agent_runtime_storage.drivers.protocol import ConstraintFailed, Statement
from agent_runtime_storage.drivers.sqlite.connection import map_sqlite_error
from agent_runtime_storage.drivers.sqlite.driver import SqliteDriver
from tests.storage.items import CREATE, ids, insert

# Unusable files; `test_sqlite_places` has more


async def test_a_folder_and_a_missing_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="is a folder"):
        await SqliteDriver.open(tmp_path)
    with pytest.raises(StoreUnavailable, match="Create the folder"):
        await SqliteDriver.open(tmp_path / "missing" / "a.db")
    assert not (tmp_path / "missing").exists()
    # The operating system refuses to look at such a path, which is no missing file to it.
    with pytest.raises(StoreUnavailable, match="Create the folder"):
        await SqliteDriver.open(tmp_path / ("a" * 300) / "a.db")


@pytest.mark.parametrize(
    ("error", "mapped"),
    [
        (apsw.BusyError("x"), StoreBusy),
        (apsw.LockedError("x"), StoreBusy),
        (apsw.FullError("x"), StoreFull),
        (apsw.ReadOnlyError("x"), StoreReadOnly),
        (apsw.PermissionsError("x"), StoreReadOnly),
        (apsw.CantOpenError("x"), StoreUnavailable),
        (apsw.IOError("x"), StoreUnavailable),
        (apsw.NoMemError("x"), StoreUnavailable),
        (apsw.NotADBError("x"), NotADatabase),
        (apsw.CorruptError("x"), NotADatabase),
        (apsw.ConstraintError("x"), ConstraintFailed),
        (apsw.TooBigError("x"), StoreError),
        (apsw.SQLError("x"), StoreError),
        (OverflowError("x"), StoreError),
    ],
)
def test_errors_of_the_library_become_the_stores(error: Exception, mapped: type[Exception]) -> None:
    assert type(map_sqlite_error(error, Path("a.db"))) is mapped


def test_every_error_of_the_library_is_mapped() -> None:
    for value in vars(apsw).values():
        if isinstance(value, type) and issubclass(value, apsw.Error):
            assert isinstance(
                map_sqlite_error(value("x"), Path("a.db")), (StoreError, ConstraintFailed)
            )


# Other processes

_WRITE = """
import sys, anyio
from pathlib import Path
from agent_runtime_storage.drivers.protocol import Statement
from agent_runtime_storage.drivers.sqlite.driver import SqliteDriver
async def main():
    driver = await SqliteDriver.open(Path(sys.argv[1]))
    first, count = int(sys.argv[2]), int(sys.argv[3])
    insert = "INSERT INTO items (id, body) VALUES (:id, x'')"
    async def write(number):
        await driver.batch([
            Statement(insert, {"id": number}), Statement(insert, {"id": -number}),
        ])
        print(number, flush=True)
    number = first
    while number < first + count:
        async with anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(write, number)
                number += 1
anyio.run(main)
"""


def write_until_killed(path: Path, count: int) -> list[int]:
    """Kill a writing process after `count` acknowledgements; return all that it printed."""
    command = [sys.executable, "-c", _WRITE, str(path), "1", "1000000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        printed = [process.stdout.readline() for _ in range(count)]
        process.kill()
        printed += process.stdout.read().split(b"\n")[:-1]
    return [int(line) for line in printed]


async def test_two_processes_write_at_the_same_time(driver: SqliteDriver, path: Path) -> None:
    async with anyio.create_task_group() as group:
        command = [sys.executable, "-c", _WRITE, str(path), "1001", "100"]
        group.start_soon(anyio.run_process, command)
        for number in range(1, 101):
            await driver.batch([insert(number)])

    stored = await ids(driver)
    assert [number for number in stored if number > 0] == [*range(1, 101), *range(1001, 1101)]


async def test_acknowledged_batches_survive_a_kill(path: Path) -> None:
    driver = await SqliteDriver.open(path)
    await driver.batch([Statement(CREATE, {})])
    await driver.close()
    acknowledged = await anyio.to_thread.run_sync(write_until_killed, path, 200)

    driver = await SqliteDriver.open(path)
    stored = set(await ids(driver))
    await driver.close()

    assert set(acknowledged) <= stored
    assert {-number for number in stored} == stored


async def test_a_process_that_does_not_close_the_store_still_exits(path: Path) -> None:
    code = (
        "import sys, anyio\n"
        "from agent_runtime_storage import open_store\n"
        "async def main():\n"
        "    await (await open_store(sys.argv[1])).of('ann').threads.ensure('t1')\n"
        "anyio.run(main)\n"
    )

    await anyio.run_process([sys.executable, "-c", code, str(path)])

    store = await open_store(str(path))
    assert (await store.of("ann").threads.get("t1")).id == "t1"
    await store.close()
