"""Objects in a folder: its creation, durability, concurrent writers and errors."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from agent_runtime_storage import ObjectLost, ObjectsUnavailable, StoreFull
from agent_runtime_storage.objects.object_store import (
    Objects,
    default_object_folder,
    parse_folder_url,
)
from tests.services.process import let_others_in

KEY = "ann/t1/body.raw"


def files(folder: Path) -> list[str]:
    """Return all files below a folder, as relative paths."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


async def test_no_folder_is_created_before_the_first_write(tmp_path: Path) -> None:
    folder = tmp_path / "objects"
    objects = Objects.open(f"file:{folder}", room="room")
    with pytest.raises(ObjectLost):
        await objects.get(KEY)
    assert not folder.exists()

    await objects.put(KEY, b"x")

    assert files(folder) == [f"room/{KEY}"]


async def test_a_relative_folder_does_not_follow_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    objects = Objects.open("objects")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")

    await objects.put(KEY, b"x")

    assert files(tmp_path) == [f"objects/{KEY}"]


def test_the_default_folder_is_next_to_the_real_file(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    link = tmp_path / "link.db"
    link.symlink_to(tmp_path / "real" / "own.db")
    assert default_object_folder(tmp_path / "own.db") == tmp_path / "own.objects"
    assert default_object_folder(tmp_path / "own.v1") == tmp_path / "own.v1.objects"
    assert default_object_folder(tmp_path / "own.objects") == tmp_path / "own.objects.objects"
    assert default_object_folder(link) == tmp_path / "real" / "own.objects"
    assert parse_folder_url("file:///a%20b/c") == Path("/a b/c")


async def test_a_file_and_a_missing_parent_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"a letter")
    for path, what in (
        ("file", "is a file"),
        ("missing/objects", "is not there"),
        ("file/objects", "cannot be used|is not there"),
    ):
        with pytest.raises(ObjectsUnavailable, match=what) as caught:
            Objects.open(str(tmp_path / path))
        assert caught.value.cure
    assert files(tmp_path) == ["file"]


_UNPRIVILEGED = """
import os, sys, anyio, anyio.to_thread
from agent_runtime_storage import StoreError
from agent_runtime_storage.objects.object_store import Objects
import agent_runtime_storage.objects.backends
async def main():
    # Import everything first, including what anyio imports late.
    await anyio.to_thread.run_sync(int)
    if os.geteuid() == 0:
        os.setegid(65534)
        os.seteuid(65534)
    objects = Objects.open(sys.argv[1])
    try:
        await objects.put("a/b.raw", b"x")
    except StoreError as error:
        print(type(error).__name__, error)
anyio.run(main)
"""


@pytest.mark.parametrize("exists", [True, False])
async def test_a_folder_without_write_permission_is_an_error(tmp_path: Path, exists: bool) -> None:
    folder = tmp_path / "objects"
    if exists:
        await anyio.Path(folder).mkdir(mode=0o555)
    let_others_in(tmp_path)
    await anyio.Path(tmp_path).chmod(0o555)
    try:
        completed = await anyio.run_process(
            [sys.executable, "-c", _UNPRIVILEGED, str(folder)], check=False
        )
    finally:
        await anyio.Path(tmp_path).chmod(0o755)

    output = (completed.stdout + completed.stderr).decode()
    assert output.startswith("ObjectsUnavailable Writing the object a/b.raw")
    assert "Permission denied" in output and "write permission" in output


_LIMITED = """
import resource, sys, anyio
from agent_runtime_storage import StoreFull
from agent_runtime_storage.objects.object_store import Objects
async def main():
    objects = Objects.open(sys.argv[1])
    await objects.put("a/old.raw", b"old")
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
    for key in ("a/new.raw", "a/old.raw"):
        try:
            await objects.put(key, bytes(1_000_000))
        except StoreFull as error:
            print(error.cure)
    await objects.put("a/small.raw", b"small")
anyio.run(main)
"""


async def test_no_partial_object_is_left_without_space(tmp_path: Path) -> None:
    folder = tmp_path / "objects"

    completed = await anyio.run_process([sys.executable, "-c", _LIMITED, str(folder)])

    assert completed.stdout.decode().count("Free some space") == 2
    assert files(folder) == ["a/old.raw", "a/small.raw"]
    assert (folder / "a/old.raw").read_bytes() == b"old"


@pytest.fixture
def small_device(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    place = tmp_path / "small"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)]
    try:
        mounted = subprocess.run(command, capture_output=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no command `mount`")
    if mounted.returncode:
        pytest.skip("no file system may be mounted here")
    yield place
    subprocess.run(["umount", str(place)], check=True)


async def test_a_full_device_is_an_error_and_can_be_freed(small_device: Path) -> None:
    objects = Objects.open(str(small_device / "objects"))
    await objects.put("a/one.raw", bytes(600_000))
    with pytest.raises(StoreFull, match="No space left"):
        await objects.put("a/two.raw", bytes(600_000))
    assert files(small_device) == ["objects/a/one.raw"]

    await objects.delete(["a/one.raw"])
    await objects.put("a/two.raw", bytes(600_000))

    assert await objects.get("a/two.raw") == bytes(600_000)


async def test_the_file_and_all_its_folders_are_synchronised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    objects = Objects.open(str(tmp_path / "objects"), room="room")

    await objects.put(KEY, b"x")

    path = tmp_path / "objects" / "room" / KEY
    assert synced == [str(step) for step in (path, *path.parents)][: len(KEY.split("/")) + 3]
    assert synced[-1] == str(tmp_path)


_WRITER = """
import sys, anyio
from agent_runtime_storage.objects.object_store import Objects
async def main():
    objects = Objects.open(sys.argv[1])
    print("ready", flush=True)
    sys.stdin.readline()
    for _ in range(100):
        await objects.put("a/b.raw", sys.argv[2].encode() * 500_000)
anyio.run(main)
"""


def start_writer(folder: Path, letter: str) -> subprocess.Popen[bytes]:
    """Start a process that, after a line on stdin, writes an object of this letter repeatedly."""
    return subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(folder), letter],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )


async def test_an_object_that_two_processes_write_is_always_complete(tmp_path: Path) -> None:
    objects = Objects.open(str(tmp_path / "objects"))
    writers = [start_writer(tmp_path / "objects", letter) for letter in "ab"]
    seen: set[bytes] = set()
    for writer in writers:
        assert writer.stdout is not None
        assert await anyio.to_thread.run_sync(writer.stdout.readline) == b"ready\n"
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write(b"go\n")
        writer.stdin.flush()
    while any(writer.poll() is None for writer in writers):
        try:
            seen.add(await objects.get("a/b.raw"))
        except ObjectLost:
            assert not seen
    for writer in writers:
        writer.communicate()

    assert [writer.returncode for writer in writers] == [0, 0]
    assert seen <= {b"a" * 500_000, b"b" * 500_000}
    assert files(tmp_path) == ["objects/a/b.raw"]


async def test_concurrent_writes_and_deletions_do_not_fail(tmp_path: Path) -> None:
    objects = Objects.open(str(tmp_path / "objects"), room="room")

    async def write(name: int) -> None:
        for _ in range(50):
            await objects.put(f"ann/t1/{name}.raw", b"x" * 1000)

    async def delete() -> None:
        for turn in range(50):
            if turn % 2:
                await objects.delete([f"ann/t1/{name}.raw" for name in range(3)])
            else:
                await objects.delete_prefix("ann/t1")

    async with anyio.create_task_group() as group:
        for name in range(3):
            group.start_soon(write, name)
        group.start_soon(delete)
        group.start_soon(delete)
    await objects.delete_prefix("ann/t1")
    assert list((tmp_path / "objects" / "room").iterdir()) == []


async def test_empty_folders_are_removed(tmp_path: Path) -> None:
    room = tmp_path / "objects" / "room"
    objects = Objects.open(str(tmp_path / "objects"), room="room")
    for key in ("ann/t1/a.raw", "ann/t1/b.raw", "ann/t2/a.raw", "bob/t1/a.raw"):
        await objects.put(key, b"x")

    await objects.delete(["ann/t1/a.raw", "ann/t1/b.raw"])
    assert not (room / "ann" / "t1").exists()
    await objects.delete_prefix("ann/t2")
    assert not (room / "ann").exists()
    assert files(room) == ["bob/t1/a.raw"]


async def test_a_removed_folder_is_created_again(tmp_path: Path) -> None:
    objects = Objects.open(str(tmp_path / "objects"), room="room")
    await objects.put(KEY, b"x")
    (tmp_path / "objects").rename(tmp_path / "moved")

    with pytest.raises(ObjectLost):
        await objects.get(KEY)
    assert [chunk async for chunk in objects.list()] == []
    await objects.put(KEY, b"y")

    assert await objects.get(KEY) == b"y"


async def test_cleaning_passes_over_a_file_that_its_writer_completes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects = Objects.open(str(tmp_path / "objects"), room="room")
    await objects.put(KEY, b"x")
    folder = (tmp_path / "objects" / "room" / KEY).parent
    half = folder / "body.raw#1"
    half.write_bytes(b"half")
    os.utime(half, (1000, 1000))
    walk = os.walk

    def listed_before_the_rename(top: Path) -> list[tuple[str, list[str], list[str]]]:
        return [(at, below, [*names, "body.raw#0"]) for at, below, names in walk(top)]

    monkeypatch.setattr(os, "walk", listed_before_the_rename)

    assert await objects.clean(before=2000) == 1
    assert not half.exists()


async def test_files_of_killed_writers_are_cleaned_up(tmp_path: Path) -> None:
    room = tmp_path / "objects" / "room"
    objects = Objects.open(str(tmp_path / "objects"), room="room")
    await objects.put(KEY, b"x")
    old, young, other = (room / f"{KEY}#{number}" for number in (1, 2, 3))
    for path in (old, young):
        path.write_bytes(b"half")
    os.utime(old, (1000, 1000))
    os.utime(room / KEY, (1000, 1000))

    # They are not listed as objects.
    assert [info.key async for chunk in objects.list() for info in chunk] == [KEY]
    assert await objects.clean(before=young.stat().st_mtime) == 1
    assert not old.exists() and young.exists() and await objects.get(KEY) == b"x"

    other.write_bytes(b"half")
    await objects.delete_prefix("ann/t1")
    assert files(tmp_path) == []
