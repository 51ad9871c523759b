"""Objects: large bodies outside of the database, in a folder or in a bucket.

The URL selects the backend: `file:` or a bare path a folder, `s3:`, `gs:`, `az:` and `abfss:` a
bucket, whose credentials come from the provider's own environment variables.  An object is put,
durably, before the row that refers to it is committed.  Its key holds the hash of its content, so
putting it twice changes nothing.  A commit that fails leaves an object that no row refers to: an
orphan, which `orphans` deletes.

Every database has a room of its own in the store, a random prefix of its keys, so that several
databases can share a bucket and none deletes another's objects as orphans.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Protocol, TypeVar
from urllib.parse import unquote, urlsplit

import anyio
import anyio.to_thread

from agent_runtime_config.urls import redact_url, url_scheme
from agent_runtime_storage.contract.errors import (
    ObjectLost,
    ObjectsUnavailable,
    StoreError,
    UnknownScheme,
)
from agent_runtime_storage.contract.records.objects import ObjectInfo, Version, check_folder
from agent_runtime_storage.objects.error_mapping import map_object_error, store_is_missing

_USE = (
    "Use a folder, such as `file:///var/lib/agent/objects`, or `s3://bucket/prefix`, "
    "`gs://bucket/prefix`, `az://container/prefix`."
)
_SET = (
    "Set what is missing by the provider's variables, such as AWS_REGION, AWS_ENDPOINT, "
    "GOOGLE_SERVICE_ACCOUNT or AZURE_STORAGE_ACCOUNT_NAME."
)
_BUCKETS = frozenset({"s3", "gs", "az", "abfs", "abfss"})
# Operations at a time; more would only share the same bandwidth.
_CONCURRENCY = 8
# The share of the deadline for obstore's retries: its error names the cause, a timeout does not.
_RETRY_SHARE = 0.8
_DATABASE_ENDINGS = (".db", ".db3", ".sqlite", ".sqlite3")

T = TypeVar("T")
U = TypeVar("U")


class ObjectBackend(Protocol):
    """A folder or a bucket.

    Keys are relative to it.  Errors are those of the operating system and of obstore; a missing
    object is a `FileNotFoundError`.  The methods do what those of `Objects` say.
    """

    async def put(self, key: str, data: bytes) -> None: ...
    async def get(self, key: str) -> bytes: ...
    async def info(self, key: str) -> ObjectInfo: ...
    async def delete(self, keys: list[str]) -> None: ...
    async def delete_prefix(self, prefix: str) -> None: ...
    def list(self, prefix: str) -> AsyncGenerator[list[ObjectInfo]]: ...
    async def clean(self, before: float) -> int: ...
    async def read(self, key: str) -> tuple[bytes, Version]: ...
    async def replace(self, key: str, data: bytes, version: Version | None) -> bool: ...
    async def remove(self, key: str, before: float | None) -> bool: ...
    async def folders(self, prefix: str) -> list[str]: ...


class Objects:
    """The objects of one database.  Use `Objects.open`; there is nothing to close.

    Every method raises `ObjectsUnavailable` if the store cannot be reached or used, after retries
    and at the latest after `seconds`, and `StoreFull` if it has no space left.  Cancellation
    abandons an operation on a bucket, and waits for one on a folder.
    """

    def __init__(self, make: Callable[[], ObjectBackend], shown: str, *, seconds: float) -> None:
        self.shown = shown
        """The store's URL without secrets."""
        self._make = make
        self._made: ObjectBackend | None = None
        self._seconds = seconds
        self._slots = anyio.CapacityLimiter(_CONCURRENCY)

    @classmethod
    def open(cls, url: str, *, room: str = "", seconds: float = 60.0) -> Objects:
        """Return the store that the URL names; creates nothing and does not connect.

        Args:
            url: a folder, created by the first write (its parent is not), or a bucket with an
                optional prefix.
            room: the part of the store that belongs to one database.
            seconds: how long one operation may take, with its retries.

        Raises:
            UnknownScheme: no object store has the URL's scheme.
            StoreError: the URL is incomplete, or has a part that is not allowed.
            ObjectsUnavailable: the folder is a file, or its parent does not exist.
        """
        if not url.strip() or "\0" in url:
            raise StoreError("The object store's URL is empty or holds a zero byte.", cure=_USE)
        scheme = url_scheme(url)
        if scheme in ("", "file"):
            folder = parse_folder_url(url)
            check_folder(folder)
            # Made on first use, as loading the client takes a while; a bucket at once, so that a
            # wrong URL is an error here.
            return cls(lambda: _folder(folder, room), f"file:{folder}", seconds=seconds)
        if scheme not in _BUCKETS:
            raise UnknownScheme(f"No object store has the URL scheme {scheme!r}.", cure=_USE)
        _check_bucket(url)
        try:
            bucket = _bucket(url, room, seconds * _RETRY_SHARE)
        except Exception as error:
            raise map_object_error(
                error, f"The object store {url} cannot be opened", cure=_SET
            ) from None
        # The URL can be shown: `_check_bucket` refuses credentials in it.
        return cls(lambda: bucket, url, seconds=seconds)

    async def put(self, key: str, data: bytes) -> None:
        """Write an object whole, or not at all; it is durable when this returns."""
        async with self._slot(f"Writing the object {key}"):
            await (await self._place()).put(key, data)

    async def get(self, key: str) -> bytes:
        """Return an object's content.  Raises `ObjectLost` if it does not exist."""
        async with self._slot(f"Reading the object {key}", lost=key):
            return await (await self._place()).get(key)

    async def info(self, key: str) -> ObjectInfo | None:
        """Return the object's size and time; None if it does not exist."""
        try:
            async with self._slot(f"Looking for the object {key}", lost=key):
                return await (await self._place()).info(key)
        except ObjectLost:
            return None

    async def delete(self, keys: Iterable[str]) -> None:
        """Delete objects; those that do not exist are ignored."""
        wanted = list(keys)
        if wanted:
            async with self._slot("Deleting objects"):
                await (await self._place()).delete(wanted)

    async def delete_prefix(self, prefix: str) -> None:
        """Delete all objects and folders below `prefix`, which ends at a slash of their keys."""
        async with self._slot("Deleting objects"):
            await (await self._place()).delete_prefix(prefix)

    async def delete_thread(self, user_id: str, thread_id: str) -> None:
        """Delete the bodies of a thread, once no row refers to them."""
        await self.delete_prefix(thread_prefix(user_id, thread_id))

    async def list(self, prefix: str = "") -> AsyncGenerator[list[ObjectInfo]]:
        """Yield the objects below `prefix` in chunks, in no order."""
        async with aclosing((await self._place()).list(prefix)) as chunks:
            while True:
                # A slot for each chunk, as the caller may take long with one, or call back.
                async with self._slot("Listing the objects"):
                    chunk = await anext(chunks, None)
                if chunk is None:
                    return
                yield chunk

    async def read(self, key: str) -> tuple[bytes, Version] | None:
        """Return an object's content with its version; None if it does not exist."""
        try:
            async with self._slot(f"Reading the object {key}", lost=key):
                return await (await self._place()).read(key)
        except ObjectLost:
            return None

    async def replace(self, key: str, data: bytes, version: Version | None) -> bool:
        """Write an object if it still has this version (None: does not exist); return whether.

        It is durable when this returns.  Of several that replace the same version one succeeds.
        """
        async with self._slot(f"Writing the object {key}"):
            return await (await self._place()).replace(key, data, version)

    async def remove(self, key: str, before: float | None) -> bool:
        """Delete an object, if it was put before this time; return whether it was deleted."""
        async with self._slot(f"Deleting the object {key}"):
            return await (await self._place()).remove(key, before)

    async def folders(self, prefix: str) -> list[str]:
        """Return the names of the folders directly below `prefix`."""
        async with self._slot("Listing the objects"):
            return await (await self._place()).folders(prefix)

    async def clean(self, before: float) -> int:
        """Remove files that killed writers left incomplete before this time; return how many."""
        async with self._slot("Cleaning the objects"):
            return await (await self._place()).clean(before)

    async def probe(self) -> None:
        """Write an object, read it and delete it, to check that all of that works.

        Raises:
            ObjectLost: the store does not return what was written.
            ObjectsUnavailable: the store ignores conditions of writes.
        """
        key, data = f"probe/{secrets.token_hex(8)}.raw", secrets.token_bytes(64)
        await self.put(key, data)
        if await self.get(key) != data:
            raise object_damaged(key, self.shown)
        # The object exists, so a write on condition that it does not has to be refused.
        overwritten = await self.replace(key, data[::-1], None)
        await self.delete([key])
        if overwritten:
            raise ObjectsUnavailable(
                f"The object store {self.shown} does not heed conditions of writes, such as "
                "If-None-Match, so node memories with several writers could lose turns.",
                cure="Use a store that does, or update it.",
            )

    async def _place(self) -> ObjectBackend:
        if self._made is None:
            # Loading obstore takes a while.
            self._made = await anyio.to_thread.run_sync(self._make)
        return self._made

    @asynccontextmanager
    async def _slot(self, what: str, *, lost: str | None = None) -> AsyncGenerator[None]:
        """Wait for a free slot, and map the errors of the operation in it.

        Args:
            what: the operation, for the error.
            lost: the key of an object that has to exist.
        """
        async with self._slots:
            try:
                # The time in the queue does not count.
                with anyio.fail_after(self._seconds):
                    yield
            except StoreError:
                raise
            except Exception as error:
                missing = isinstance(error, FileNotFoundError) and not store_is_missing(error)
                if missing and lost is not None:
                    raise object_lost(lost, self.shown) from None
                # Without a cause: the client's own text may hold signatures and names of keys.
                raise map_object_error(error, f"{what} in {self.shown} failed") from None


def _folder(root: Path, room: str) -> ObjectBackend:
    # Imported on first use: most programs store no object, and the client is slow to load.
    from agent_runtime_storage.objects.backends import Folder

    return Folder(root, room)


def _bucket(url: str, room: str, seconds: float) -> ObjectBackend:
    from agent_runtime_storage.objects.backends import Bucket

    return Bucket(url, room, seconds)


def parse_folder_url(url: str) -> Path:
    """Return the absolute folder that a `file:` URL or a bare path names.

    Raises:
        StoreError: the URL says more than a path.
    """
    path = url
    if url_scheme(url):
        parts = urlsplit(url)
        if parts.netloc not in ("", "localhost") or parts.query or parts.fragment:
            raise StoreError(
                f"The object store's URL {redact_url(url)} says more than a path.",
                cure="Write `file:relative/path` or `file:///absolute/path`.",
            )
        path = unquote(parts.path)
    if not path:
        raise StoreError("The object store's URL names no folder.", cure=_USE)
    # The process may change its current folder later.
    return Path(path).absolute()


def default_object_folder(database: Path) -> Path:
    """Return the default folder for the objects of a database file, next to the file."""
    real = database.resolve()
    name = real.stem if real.suffix in _DATABASE_ENDINGS else real.name
    return real.with_name(f"{name}.objects")


def _check_bucket(url: str) -> None:
    parts = urlsplit(url)
    # In these URLs the container stands where others have a user name.
    azure = parts.scheme.lower() in ("abfs", "abfss")
    if not parts.hostname:
        raise StoreError("The object store's URL names no bucket.", cure=_USE)
    if parts.password is not None or (parts.username is not None and not azure):
        raise StoreError(
            "The object store's URL holds credentials.",
            cure="Set them by the provider's variables, such as AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY.",
        )
    if parts.query or parts.fragment:
        raise StoreError(
            f"The object store's URL {redact_url(url)} has parameters, and none are known.",
            cure="Set them by the provider's variables, such as AWS_REGION and AWS_ENDPOINT.",
        )


def _digest(text: str) -> str:
    # An id may hold a lone surrogate, which UTF-8 alone refuses.
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def owner_prefix(user_id: str) -> str:
    """Return the prefix of an owner's keys; it does not reveal the owner."""
    return _digest(user_id)


def thread_prefix(user_id: str, thread_id: str) -> str:
    """Return the prefix of the keys of a thread's bodies; it reveals neither id."""
    return f"{owner_prefix(user_id)}/{_digest(thread_id)}"


def object_key(user_id: str, thread_id: str, digest: bytes, codec: str) -> str:
    """Return the key of a body with this hash and codec."""
    return f"{thread_prefix(user_id, thread_id)}/{digest.hex()}.{codec}"


def is_object_key(place: str) -> bool:
    """Return whether a row's column for a body's place holds an object's key, not a codec."""
    return "/" in place


def digest_and_codec(key: str) -> tuple[bytes, str]:
    """Return the hash and the codec in a key.  Raises `ValueError` if it is no key."""
    name = key.rpartition("/")[2]
    digest, _, codec = name.partition(".")
    return bytes.fromhex(digest), codec


def object_lost(key: str, shown: str) -> ObjectLost:
    """Return the error for a body whose object does not exist."""
    return ObjectLost(
        f"The object {key}, which holds a body of the thread, is not in {shown}.",
        cure="Set AGENT_RUNTIME_OBJECT_STORE_URL to the store that the database was written with, "
        "or restore the object from a backup.",
    )


def object_damaged(key: str, shown: str) -> ObjectLost:
    """Return the error for an object whose content is not what was put."""
    return ObjectLost(
        f"The object {key} in {shown}, which holds a body of the thread, is damaged.",
        cure="Restore the object from a backup.",
    )


async def in_parallel(work: Callable[[T], Awaitable[U]], items: Iterable[T]) -> Mapping[T, U]:
    """Return the result of `work` for each item; the first error cancels the rest and is raised."""
    distinct = list(dict.fromkeys(items))
    # The usual case, without the cost of a task.
    if len(distinct) == 1:
        return {distinct[0]: await work(distinct[0])}
    results: dict[T, U] = {}
    errors: list[StoreError] = []

    async def run(item: T) -> None:
        try:
            results[item] = await work(item)
        except StoreError as error:
            # Raised below: the task group would wrap it into a group of exceptions.
            errors.append(error)
            group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        for item in distinct:
            group.start_soon(run, item)
    if errors:
        raise errors[0]
    return results
