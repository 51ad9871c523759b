"""The backends of the object store: a folder of this machine, or a bucket, both by obstore."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import re
import secrets
import shutil
import time
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import anyio.to_thread
import obstore
from obstore.exceptions import AlreadyExistsError, PreconditionError
from obstore.store import LocalStore, from_url

from agent_runtime_storage.contract.records.objects import ObjectInfo, Version, check_folder
from agent_runtime_storage.objects.error_mapping import os_number, store_is_missing

if TYPE_CHECKING:
    from obstore import ListStream, ObjectMeta, PutMode, UpdateVersion
    from obstore.store import ObjectStore

# Buckets list and delete at most this many objects in a request.
_LIST_CHUNK = 1000
# More than `retry_timeout` has time for, which is to end the retries.
_RETRIES = 1000
_LONGEST_WAIT = timedelta(seconds=2)
# A write goes to a file next to the object until it is complete; a killed writer leaves the file.
_HALF_WRITTEN = re.compile(r"#\d+$")
# A writer holds the lock for milliseconds; one that is stopped must not block the others for ever.
_LOCK_SECONDS = 30.0
_LOCK_WAIT = 0.005
# A writer and a deletion can get in each other's way a few times in a row.
_TRIES = 20

T = TypeVar("T")


class Folder:
    """The objects of one database in a folder of this machine.

    Each operation is one job of a worker thread.  Files and folders are private to the user.  A
    file is written whole or not at all, and is durable when the write returns.
    """

    def __init__(self, root: Path, room: str) -> None:
        self._root = root
        self._room = root / room if room else root
        self._durable: set[Path] = set()
        """Folders whose own names are durable."""

    async def put(self, key: str, data: bytes) -> None:
        await _in_thread(lambda: self._put(key, data))

    async def get(self, key: str) -> bytes:
        return await _in_thread(
            lambda: obstore.get(self._store(), key).bytes().to_bytes()  # a copy that Python owns
        )

    async def info(self, key: str) -> ObjectInfo:
        return await _in_thread(lambda: _info(obstore.head(self._store(), key)))

    async def delete(self, keys: list[str]) -> None:
        await _in_thread(lambda: self._delete(keys))

    async def delete_prefix(self, prefix: str) -> None:
        await _in_thread(lambda: self._delete_tree(self._room / prefix))

    async def list(self, prefix: str) -> AsyncGenerator[list[ObjectInfo]]:
        if not await _in_thread(self._room.is_dir):
            return
        stream = await _in_thread(lambda: _stream(self._store(), prefix))
        while chunk := await _in_thread(lambda: next(stream, None)):
            yield [_info(meta) for meta in chunk]

    async def clean(self, before: float) -> int:
        return await _in_thread(lambda: self._clean(before))

    async def read(self, key: str) -> tuple[bytes, Version]:
        data = await self.get(key)
        return data, _version(data)

    async def replace(self, key: str, data: bytes, version: Version | None) -> bool:
        return await _in_thread(lambda: self._replace(key, data, version))

    async def remove(self, key: str, before: float | None) -> bool:
        return await _in_thread(lambda: self._remove(key, before))

    async def folders(self, prefix: str) -> list[str]:
        return await _in_thread(lambda: self._folders(prefix))

    def _store(self) -> LocalStore:
        # Each time, as it requires the folder, which the first write makes.
        if not self._room.is_dir():
            raise FileNotFoundError(f"The folder {self._room} is not there.")
        # Deletes folders that a deletion leaves empty.
        return LocalStore(self._room, automatic_cleanup=True)

    def _put(self, key: str, data: bytes) -> None:
        for attempt in range(1, _TRIES + 1):
            self._make_room()
            if not (self._room / key).parent.is_dir():
                # Deleted, perhaps with its parents: what is made again is not durable yet.
                self._durable.clear()
            try:
                self._write(self._room / key, data)
                self._sync(key)
                return
            except Exception as error:
                # The deletion of a thread removes its folder at any time, also between the check
                # and the write.
                if os_number(error) not in (errno.ENOENT, errno.EEXIST) or attempt == _TRIES:
                    raise

    def _write(self, path: Path, data: bytes) -> None:
        """Write a file whole or not at all, private to the user from its first byte on."""
        # Not by obstore, which cannot set permissions.
        for folder in reversed(path.relative_to(self._room).parents[:-1]):
            (self._room / folder).mkdir(mode=0o700, exist_ok=True)
        half = path.with_name(f"{path.name}#{secrets.randbelow(2**63)}")
        try:
            with open(half, "xb", opener=_private) as file:
                file.write(data)
            # Atomic within a folder: readers see the old content or the new one.
            half.replace(path)
        except BaseException:
            half.unlink(missing_ok=True)
            raise

    def _replace(self, key: str, data: bytes, version: Version | None) -> bool:
        self._make_room()
        # obstore's local store cannot write on condition of a version, so compare under a lock.
        with _locked(self._room):
            try:
                present = _version((self._room / key).read_bytes())
            except FileNotFoundError:
                present = None
            if present != version:
                return False
            self._put(key, data)
            return True

    def _remove(self, key: str, before: float | None) -> bool:
        if not self._room.is_dir():
            return False
        with _locked(self._room):
            try:
                if before is not None and (self._room / key).stat().st_mtime >= before:
                    return False
                obstore.delete(self._store(), key)
            except FileNotFoundError:
                return False
            return True

    def _folders(self, prefix: str) -> list[str]:
        try:
            with os.scandir(self._room / prefix) as entries:
                return sorted(entry.name for entry in entries if entry.is_dir())
        except FileNotFoundError:
            return []

    def _make_room(self) -> None:
        if not self._room.is_dir():
            # Not its parents: a disk that is not mounted must be an error.
            check_folder(self._root)
            self._root.mkdir(mode=0o700, exist_ok=True)
            self._room.mkdir(mode=0o700, exist_ok=True)

    def _sync(self, key: str) -> None:
        path = self._room / key
        _fsync(path)
        _fsync(path.parent)
        # A name is durable once the folder that holds it is synchronised; for the folders' own
        # names once is enough.
        for folder in path.parents:
            if folder in self._durable:
                break
            _fsync(folder.parent)
            self._durable.add(folder)
            if folder == self._root:
                break

    def _delete(self, keys: list[str]) -> None:
        for key in keys:
            with contextlib.suppress(FileNotFoundError):
                obstore.delete(self._store(), key)

    def _delete_tree(self, folder: Path) -> None:
        # The tree, not a list of objects, to delete what killed writers left as well.
        for attempt in range(1, _TRIES + 1):
            try:
                shutil.rmtree(folder)
                break
            except FileNotFoundError:
                if not folder.exists():
                    break
            except OSError as error:
                # Another process writes into it.  `rmtree` raises an error without a number if a
                # folder was deleted and made again since it looked at it.
                if error.errno not in (errno.ENOTEMPTY, None) or attempt == _TRIES:
                    raise
        for parent in folder.parents:
            if not parent.is_relative_to(self._room):
                break
            with contextlib.suppress(FileNotFoundError):
                if parent == self._room or any(parent.iterdir()):
                    _fsync(parent)
                    break
                _remove_empty(parent)

    def _clean(self, before: float) -> int:
        removed = 0
        for folder, _, names in os.walk(self._room):
            for name in names:
                if not _HALF_WRITTEN.search(name):
                    continue
                # Its writer may rename it, or a deletion remove it, since it was listed.
                with contextlib.suppress(FileNotFoundError):
                    path = Path(folder, name)
                    if path.lstat().st_mtime < before:
                        path.unlink()
                        removed += 1
        return removed


class Bucket:
    """The objects of one database in a bucket, by obstore's client for its provider.

    Args:
        seconds: how long obstore retries an operation.
    """

    def __init__(self, url: str, room: str, seconds: float) -> None:
        # No `client_options`: they would replace those in the environment, such as AWS_ALLOW_HTTP.
        self._store: ObjectStore = from_url(
            f"{url.rstrip('/')}/{room}".rstrip("/"),
            retry_config={
                "max_retries": _RETRIES,
                "retry_timeout": timedelta(seconds=seconds),
                "backoff": {"max_backoff": _LONGEST_WAIT},
            },
        )

    async def put(self, key: str, data: bytes) -> None:
        # In one request: an interrupted upload in parts leaves parts that nobody sees or deletes.
        await obstore.put_async(self._store, key, data, use_multipart=False)

    async def get(self, key: str) -> bytes:
        result = await obstore.get_async(self._store, key)
        return (await result.bytes_async()).to_bytes()

    async def info(self, key: str) -> ObjectInfo:
        return _info(await obstore.head_async(self._store, key))

    async def delete(self, keys: list[str]) -> None:
        for start in range(0, len(keys), _LIST_CHUNK):
            try:
                await obstore.delete_async(self._store, keys[start : start + _LIST_CHUNK])
            except FileNotFoundError:
                # Some providers stop at an object that does not exist: delete one at a time.
                for key in keys[start : start + _LIST_CHUNK]:
                    await self._delete_one(key)

    async def _delete_one(self, key: str) -> None:
        try:
            await obstore.delete_async(self._store, key)
        except FileNotFoundError as error:
            if store_is_missing(error):
                raise

    async def delete_prefix(self, prefix: str) -> None:
        async for chunk in self.list(prefix):
            await self.delete([info.key for info in chunk])

    async def list(self, prefix: str) -> AsyncGenerator[list[ObjectInfo]]:
        async for chunk in _stream(self._store, prefix):
            yield [_info(meta) for meta in chunk]

    async def clean(self, before: float) -> int:
        # A bucket has no incomplete objects.
        del before
        return 0

    async def read(self, key: str) -> tuple[bytes, Version]:
        result = await obstore.get_async(self._store, key)
        tags = {"e_tag": result.meta["e_tag"], "version": result.meta["version"]}
        version = {name: value for name, value in tags.items() if value is not None}
        return (await result.bytes_async()).to_bytes(), version

    async def replace(self, key: str, data: bytes, version: Version | None) -> bool:
        mode: PutMode = "create" if version is None else _update(version)
        try:
            await obstore.put_async(self._store, key, data, mode=mode, use_multipart=False)
        except (AlreadyExistsError, PreconditionError):
            return False
        except FileNotFoundError as error:
            # An update of an object that was deleted since it was read.
            if version is None or store_is_missing(error):
                raise
            return False
        return True

    async def remove(self, key: str, before: float | None) -> bool:
        try:
            meta = await obstore.head_async(self._store, key)
            if before is not None and meta["last_modified"].timestamp() >= before:
                return False
            await obstore.delete_async(self._store, key)
        except FileNotFoundError as error:
            if store_is_missing(error):
                raise
            return False
        return True

    async def folders(self, prefix: str) -> list[str]:
        # One of its overloads names a type of a package that is not installed.
        listed = await obstore.list_with_delimiter_async(  # pyright: ignore[reportUnknownMemberType]
            self._store, prefix
        )
        return sorted(folder.rpartition("/")[2] for folder in listed["common_prefixes"])


def _update(version: Version) -> UpdateVersion:
    update: UpdateVersion = {}
    if "e_tag" in version:
        update["e_tag"] = version["e_tag"]
    if "version" in version:
        update["version"] = version["version"]
    return update


def _version(data: bytes) -> Version:
    return {"sha256": hashlib.sha256(data).hexdigest()}


@contextlib.contextmanager
def _locked(folder: Path) -> Generator[None]:
    """Hold the folder's lock, against the writers of all processes; a process's end frees it.

    Raises `TimeoutError` if another writer holds it for too long.
    """
    # The folder itself is locked: deletions would remove a lock file in it.
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        deadline = time.monotonic() + _LOCK_SECONDS
        # Polled, because a blocking `flock` has no deadline.
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"The lock of {folder} was not free in time.") from None
                time.sleep(_LOCK_WAIT)
        yield
    finally:
        os.close(descriptor)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove_empty(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError as error:
        if error.errno != errno.ENOTEMPTY:
            raise


def _stream(store: ObjectStore, prefix: str) -> ListStream[Sequence[ObjectMeta]]:
    # One of its overloads names a type of a package that is not installed.
    return obstore.list(  # pyright: ignore[reportUnknownMemberType]
        store, prefix or None, chunk_size=_LIST_CHUNK
    )


def _info(meta: ObjectMeta) -> ObjectInfo:
    return ObjectInfo(meta["path"], meta["size"], meta["last_modified"].timestamp())


async def _in_thread(job: Callable[[], T]) -> T:
    return await anyio.to_thread.run_sync(job)
