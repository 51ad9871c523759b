"""The SQLite driver under load: full devices, many cancelled tasks, readers, other processes."""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
import tempfile
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from agent_runtime_storage import StoreFull, open_store
from agent_runtime_storage.drivers.protocol import Statement
from agent_runtime_storage.drivers.sqlite import writer
from agent_runtime_storage.drivers.sqlite.driver import SqliteDriver
from tests.storage.items import CREATE, ids, insert

# A full device


class Device:
    """A file system of a few megabytes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "store.db"
        self._ballast = folder / "ballast"

    def fill(self) -> None:
        """Use up all space."""
        with self._ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while file.write(b"x" * 4096) == 4096:
                pass

    def free(self) -> None:
        """Free the space again."""
        self._ballast.unlink()

    def size(self, suffix: str = "") -> int:
        """Return the size of the database file, or of the file with this suffix."""
        return self.path.with_name(self.path.name + suffix).stat().st_size


@contextmanager
def mounted(size: str) -> Generator[Device]:
    """Mount a file system of this size; skip the test if that is not permitted."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder]
        try:
            completed = subprocess.run(command, capture_output=True, text=True)
        except OSError as error:
            pytest.skip(f"no small file system can be mounted: {error}")
        if completed.returncode:
            pytest.skip(f"no small file system can be mounted: {completed.stderr.strip()}")
        try:
            yield Device(Path(folder))
        finally:
            # Lazily, because a failed test may have left the file open.
            subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let writes wait for space only as long as it takes to see that there is none."""
    monkeypatch.setattr("agent_runtime_storage.drivers.sqlite.driver.PATIENCE", 0.05)


@pytest.fixture
def device() -> Iterator[Device]:
    """A file system with room for the write-ahead log, but not for its copy in the database."""
    with mounted("6m") as mounted_device:
        yield mounted_device


async def write_until_full(driver: SqliteDriver, size: int) -> list[int]:
    """Write items of this size until the device is full; return the acknowledged ones."""
    written: list[int] = []
    for number in range(1, 3000):
        try:
            await driver.batch([insert(number, b"x" * size), insert(-number)])
        except StoreFull:
            break
        written.append(number)
    return written


def ids_of_batches(numbers: list[int]) -> list[int]:
    """Return the ids that batches with these numbers leave."""
    return [*(-number for number in reversed(numbers)), *numbers]


@pytest.mark.parametrize("size", [3000, 20_000, 300_000])
async def test_acknowledged_batches_survive_a_full_device(device: Device, size: int) -> None:
    driver = await SqliteDriver.open(device.path)
    await driver.batch([Statement(CREATE, {})])

    written = await write_until_full(driver, size)
    with pytest.raises(StoreFull) as raised:
        await driver.batch([insert(5000, b"x" * size), insert(-5000)])

    assert "Free some space" in raised.value.cure
    assert await ids(driver) == ids_of_batches(written)
    assert len(written) > 5
    # Closing copies the log into the database, for which there may be no room.
    await driver.close()
    driver = await SqliteDriver.open(device.path)
    assert await ids(driver) == ids_of_batches(written)
    [(verdict,)] = await driver.read("PRAGMA integrity_check", {})
    assert verdict == "ok"
    await driver.close()


async def test_a_checkpoint_without_space_fails_no_write(device: Device) -> None:
    driver = await SqliteDriver.open(device.path)
    await driver.batch([Statement(CREATE, {})])

    written = await write_until_full(driver, 20_000)

    # The log has passed the size at which SQLite copies it, and grew on because that failed.
    assert device.size("-wal") > 1000 * 4096
    assert device.size() < len(written) * 20_000
    assert await ids(driver) == ids_of_batches(written)
    await driver.close()


@pytest.mark.parametrize("jobs", [1, 30])
async def test_writes_succeed_again_after_space_is_freed(device: Device, jobs: int) -> None:
    driver = await SqliteDriver.open(device.path)
    await driver.batch([Statement(CREATE, {})])
    await anyio.to_thread.run_sync(device.fill)
    full: list[int] = []

    async def write(number: int) -> None:
        try:
            await driver.batch([insert(number, b"x" * 200_000)])
        except StoreFull:
            full.append(number)

    async with anyio.create_task_group() as group:
        for number in range(jobs):
            group.start_soon(write, number)
    assert sorted(full) == list(range(jobs))
    assert await ids(driver) == []

    device.free()
    await driver.batch([insert(100)])
    assert await ids(driver) == [100]
    await driver.close()


async def test_a_write_waits_for_space(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = await SqliteDriver.open(device.path, patience=60)
    await driver.batch([Statement(CREATE, {})])
    await anyio.to_thread.run_sync(device.fill)
    waits, real = threading.Event(), writer.Writer.wait_to_retry

    def wait(self: Any, jobs: Any, error: Exception) -> Any:
        assert isinstance(error, StoreFull)
        waits.set()
        return real(self, jobs, error)

    monkeypatch.setattr(writer.Writer, "wait_to_retry", wait)
    async with anyio.create_task_group() as group:
        group.start_soon(driver.batch, [insert(1, b"x" * 200_000)])
        assert await anyio.to_thread.run_sync(waits.wait, 30)
        device.free()

    assert await ids(driver) == [1]
    await driver.close()


@pytest.mark.parametrize("size", ["4k", "8k", "12k", "16k", "40k", "64k", "128k", "256k"])
async def test_opening_on_a_full_device_fails_and_works_later(size: str) -> None:
    with mounted(size) as device:
        with pytest.raises(StoreFull):
            await open_store(str(device.path))
        await anyio.run_process(["mount", "-o", "remount,size=8m", str(device.folder)])
        store = await open_store(str(device.path))
        await store.of("ann").threads.ensure("t1")
        await store.close()


async def test_a_database_on_a_full_device_is_not_opened_or_damaged(device: Device) -> None:
    store = await open_store(str(device.path))
    await store.of("ann").threads.ensure("t1")
    await store.close()
    await anyio.to_thread.run_sync(device.fill)

    with pytest.raises(StoreFull):
        await open_store(str(device.path))

    device.free()
    store = await open_store(str(device.path))
    assert [thread.id for thread in await store.of("ann").threads.list()] == ["t1"]
    await store.close()


# The regular checkpoint

_READ = """
import sys, sqlite3
c = sqlite3.connect(sys.argv[1], isolation_level=None)
c.execute("BEGIN")
c.execute("SELECT count(*) FROM items").fetchall()
print("reading", flush=True)
sys.stdin.read()
"""


async def test_the_log_is_truncated_periodically(
    driver: SqliteDriver, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = anyio.Path(path.with_name(path.name + "-wal"))
    await driver.batch([insert(1, b"x" * 10_000)])
    assert (await log.stat()).st_size > 10_000

    monkeypatch.setattr(writer, "_CHECKPOINT_SECONDS", 0.0)
    await driver.batch([insert(2)])
    # The checkpoint follows the acknowledgement.
    with anyio.fail_after(60):
        while (await log.stat()).st_size:
            assert await ids(driver) == [1, 2]
    await driver.batch([insert(3)])
    assert await ids(driver) == [1, 2, 3]


async def test_a_reader_that_blocks_the_checkpoint_delays_no_write(
    driver: SqliteDriver, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "_CHECKPOINT_SECONDS", 0.0)
    log = anyio.Path(path.with_name(path.name + "-wal"))
    command = [sys.executable, "-c", _READ, str(path)]
    async with await anyio.open_process(command, stderr=None) as reader:
        assert reader.stdout is not None
        assert b"reading" in await reader.stdout.receive()
        for number in range(20):
            await driver.batch([insert(number, b"x" * 5000)])
        assert (await log.stat()).st_size > 20 * 5000
        assert reader.stdin is not None
        await reader.stdin.aclose()
        await reader.wait()
    await driver.batch([insert(20)])
    with anyio.fail_after(60):
        while (await log.stat()).st_size:
            await driver.batch([Statement("UPDATE items SET body = x'' WHERE id = 20", {})])

    assert await ids(driver) == list(range(21))


# Cancellation


@pytest.mark.parametrize("seed", range(3))
async def test_randomly_cancelled_batches_are_never_in_doubt(
    driver: SqliteDriver, seed: int
) -> None:
    """An acknowledged batch is stored; a cancelled one is stored or absent as a whole, for good."""
    chance = random.Random(seed)
    acknowledged: set[int] = set()
    cancelled: dict[int, bool] = {}
    scopes: dict[int, anyio.CancelScope] = {}

    async def write(number: int, delay: int) -> None:
        with anyio.CancelScope() as scopes[number]:
            for _ in range(delay):
                await anyio.lowlevel.checkpoint()
            await driver.batch([insert(number, b"x" * 100), insert(-number)])
            acknowledged.add(number)
        if number not in acknowledged:
            rows = await driver.read("SELECT id FROM items WHERE id = :id", {"id": number})
            cancelled[number] = bool(rows)

    async with anyio.create_task_group() as group:
        for number in range(1, 1001):
            group.start_soon(write, number, chance.randrange(200))
        for _ in range(400):
            await anyio.lowlevel.checkpoint()
            scopes.get(chance.randrange(1, 1001), anyio.CancelScope()).cancel()

    there = {number for number in await ids(driver) if number > 0}
    assert there == acknowledged | {number for number, stored in cancelled.items() if stored}
    assert await ids(driver) == ids_of_batches(sorted(there))
    assert len(acknowledged) + len(cancelled) == 1000
    assert len(acknowledged) > 300
    assert len(cancelled) - len(there - acknowledged) > 20


# Other processes

_WRITE = """
import sys, anyio
from pathlib import Path
from agent_runtime_storage.drivers.protocol import Statement
from agent_runtime_storage.drivers.sqlite.driver import SqliteDriver
async def main():
    driver = await SqliteDriver.open(Path(sys.argv[1]), patience=60)
    first = int(sys.argv[2])
    add = Statement("UPDATE items SET body = CAST(body + 1 AS BLOB) WHERE id = 0", {}, rows=1)
    async def write(task):
        for number in range(first + task * 40, first + task * 40 + 40):
            item = {"id": number}
            await driver.batch([
                Statement("INSERT INTO items (id, body) VALUES (:id, x'')", item), add,
            ])
    async with anyio.create_task_group() as group:
        for task in range(8):
            group.start_soon(write, task)
    await driver.close()
anyio.run(main)
"""


async def test_three_processes_under_load_lose_no_write(path: Path) -> None:
    driver = await SqliteDriver.open(path, patience=60)
    await driver.batch([Statement(CREATE, {}), insert(0, b"0")])
    add = Statement("UPDATE items SET body = CAST(body + 1 AS BLOB) WHERE id = 0", {}, rows=1)

    async def write(first: int) -> None:
        for number in range(first, first + 40):
            await driver.batch([insert(number), add])

    async with anyio.create_task_group() as group:
        for process in (1, 2):
            command = [sys.executable, "-c", _WRITE, str(path), str(process * 1000)]
            group.start_soon(anyio.run_process, command)
        for task in range(8):
            group.start_soon(write, 3000 + task * 40)

    expected = [first + number for first in (1000, 2000, 3000) for number in range(320)]
    assert await ids(driver) == [0, *expected]
    [(count,)] = await driver.read("SELECT body FROM items WHERE id = 0", {})
    assert int(count) == len(expected)
    await driver.close()
