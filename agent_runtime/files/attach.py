"""Attaching files: what may be attached to a task or returned from a tool, and how it is stored."""

from __future__ import annotations

import base64
import logging
import re
import stat
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias
from urllib.parse import unquote, unquote_to_bytes, urlsplit

import anyio.to_thread

from agent_runtime.errors import InvalidFile, NotFound, StoreError
from agent_runtime.files.image_sizes import pixels_of
from agent_runtime.files.media_types import guess, kind_of, sniff
from agent_runtime.files.references import file_id, host_of, ref_of, resolve_files
from agent_runtime.messages import FileRef, encodable
from agent_runtime_storage import Store
from agent_runtime_storage.contract.ids import new_id
from agent_runtime_storage.contract.records.files import FileKind, FileOrigin, NewFile
from agent_runtime_storage.contract.store import UserStore

MAX_BYTES = 20_000_000
"""The default limit of a file's size."""
IN_THREAD = 100_000
"""Bytes above which content is processed in a worker thread."""

_log = logging.getLogger(__name__)
_LONGEST_NAME = 200
_MEDIA_TYPE = re.compile(r"[\w.+-]+/[\w.+-]+")
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f]+")


@dataclass(frozen=True, slots=True)
class File:
    """A file to attach with `Runtime.run(files=...)`, or to return from a tool.

    Attributes:
        content: bytes, or a path, which is read once, when the file is stored.
        name: by default the last part of the path.
        media_type: by default that of the content's first bytes, or of the name's ending.
        kind: by default that of the media type.
    """

    content: bytes | Path
    name: str = ""
    media_type: str = ""
    kind: FileKind | None = None


Attachable: TypeAlias = File | FileRef | Path | str
"""What can be attached: a `str` is a URL if it begins with http(s):// or data:, else a path."""


class ThreadFiles:
    """Stores, lists and reads the files of threads."""

    def __init__(self, store: Store, *, user: str, max_bytes: int) -> None:
        self._store = store
        self._user = user
        self._max_bytes = max_bytes

    async def upload(
        self,
        thread: str,
        content: bytes | Path | str,
        *,
        name: str = "",
        media_type: str = "",
        kind: FileKind | None = None,
        user: str | None = None,
    ) -> FileRef:
        """Store a file with a thread and return its reference; create the thread if necessary.

        The file is deleted and exported with the thread.

        Args:
            content: bytes, or a path.
            name, media_type, kind: as for `File`.
            user: the owner; None for the settings' user.

        Raises:
            InvalidFile: it is empty, too large, or cannot be read.
        """
        store = self._store.of(user or self._user)
        await store.threads.ensure(thread)
        path = Path(content) if isinstance(content, str) else content
        return await store_file(store, thread, File(path, name, media_type, kind), self._max_bytes)

    async def of(self, thread: str, *, user: str | None = None) -> list[FileRef]:
        """Return the files of a thread, the oldest first. Raises `NotFound`."""
        rows = await self._store.of(user or self._user).files.list(thread)
        return [ref_of(row) for row in rows]

    async def read(self, file: FileRef, *, user: str | None = None) -> bytes:
        """Return the content of a stored file.

        Raises:
            NotFound: this owner has no such file; URLs are never fetched.
            StoreError: its content is lost, or cannot be read now.
        """
        store = self._store.of(user or self._user)
        [resolved] = await resolve_files(store, [file])
        if not resolved.thread_id:
            raise NotFound(
                f"The file {file.name or file.uri!r} is not stored here.",
                cure="Give a reference that `upload` returned, or one of a message.",
            )
        return await store.files.content(resolved.thread_id, file_id(file))


async def attach(
    store: UserStore, thread_id: str, files: Sequence[Attachable], max_bytes: int = MAX_BYTES
) -> tuple[FileRef, ...]:
    """Store files with a thread, and return references to all of them in their order.

    Raises:
        InvalidFile: one is empty, too large, or cannot be read; those before it stay stored.
        NotFound: there is no such thread.
    """
    refs: list[FileRef] = []
    for one in files:
        if isinstance(one, FileRef):
            known = one if not one.uri.startswith("data:") else _from_data_url(one.uri, one)
        elif isinstance(one, str):
            known = _from_text(one)
        else:
            known = File(one) if isinstance(one, Path) else one
        if isinstance(known, File):
            known = await store_file(store, thread_id, known, max_bytes)
        refs.append(known)
    return tuple(refs)


async def store_file(
    store: UserStore,
    thread_id: str,
    file: File,
    max_bytes: int = MAX_BYTES,
    *,
    origin: FileOrigin = "upload",
) -> FileRef:
    """Store a file with a thread and return its reference.

    Raises:
        InvalidFile: it is empty, too large, or cannot be read.
        NotFound: there is no such thread.
    """
    new = await new_file(file, max_bytes, origin=origin)
    await store.files.put(thread_id, new)
    return FileRef(
        new.kind,
        f"{origin}:{new.id}",
        new.media_type,
        new.name,
        size=len(new.content),
        pixels=pixels_of(new.content) if new.kind == "image" else 0,
    )


async def new_file(
    file: File, max_bytes: int = MAX_BYTES, *, origin: FileOrigin = "upload"
) -> NewFile:
    """Return a file as it is stored, with its content read, and its media type known.

    Raises:
        InvalidFile: it is empty, too large, or cannot be read.
    """
    if isinstance(file.content, bytes) and len(file.content) <= IN_THREAD:
        return _new_file(file, origin, max_bytes)
    return await anyio.to_thread.run_sync(_new_file, file, origin, max_bytes)


async def keep_made(
    urls: Sequence[str], keep_file: Callable[[File], Awaitable[FileRef]]
) -> tuple[FileRef, ...]:
    """Store files that a model made, given as `data:` URLs, and return their references.

    A file that cannot be stored gets a broken reference, so that the answer is not lost.
    """
    refs: list[FileRef] = []
    for url in urls:
        try:
            refs.append(await keep_file(_from_data_url(url, FileRef("custom", ""))))
        except (InvalidFile, StoreError) as error:
            _log.warning("A file that the model made cannot be stored: %s", error.message)
            # A reference that leads nowhere: the message says that there was an image.
            refs.append(FileRef("image", ""))
    return tuple(refs)


def _new_file(file: File, origin: FileOrigin, max_bytes: int) -> NewFile:
    name = file.name or (file.content.name if isinstance(file.content, Path) else "")
    # The end of a long name, which has its extension.
    name = _UNPRINTABLE.sub(" ", encodable(name)).strip()[-_LONGEST_NAME:]
    content = file.content if isinstance(file.content, bytes) else _read(file.content, max_bytes)
    if len(content) > max_bytes:
        raise _too_large(name, len(content), max_bytes)
    if not content:
        raise InvalidFile(f"The file {name!r} is empty.", cure="Leave it out.")
    # The first bytes win: a provider refuses a whole request for an image of another type.
    media_type = file.media_type if _MEDIA_TYPE.fullmatch(file.media_type) else ""
    media_type = sniff(content) or media_type.lower() or guess(name, content)
    kind = file.kind or kind_of(media_type)
    return NewFile(new_id(), kind, origin, name, media_type, content)


def _read(path: Path, max_bytes: int) -> bytes:
    try:
        info = path.stat()
        # Opening a pipe or a device could block for ever.
        if not stat.S_ISREG(info.st_mode):
            raise InvalidFile(f"{path} is not a file.", cure="Give the path of a file.")
        if info.st_size > max_bytes:
            raise _too_large(path.name, info.st_size, max_bytes)
        with path.open("rb") as file:
            # It may have grown since; the caller refuses one byte too many.
            return file.read(max_bytes + 1)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InvalidFile(
            f"The file {str(path)!r} cannot be read: {why}.", cure="Check the path."
        ) from error


def _too_large(name: str, size: int, max_bytes: int) -> InvalidFile:
    return InvalidFile(
        f"The file {name!r} has {size:,} bytes; the limit is {max_bytes:,}.",
        cure="Make it smaller, or raise AGENT_RUNTIME_MAX_FILE_BYTES.",
    )


def _from_text(text: str) -> File | FileRef:
    scheme = text.partition(":")[0].lower()
    if scheme == "data":
        return _from_data_url(text, FileRef("custom", ""))
    if scheme not in ("http", "https"):
        return File(Path(text))
    if not host_of(text):
        raise InvalidFile(f"The URL {text[:100]!r} names no host.", cure="Give a whole URL.")
    name = unquote(urlsplit(text).path).rpartition("/")[2][-_LONGEST_NAME:]
    media_type = guess(name)
    return FileRef(kind_of(media_type), text, media_type, name)


def _from_data_url(url: str, ref: FileRef) -> File:
    """Return the file of a `data:` URL; content does not belong in messages."""
    # After the scheme, which may be in capitals.
    head, comma, rest = url.partition(":")[2].partition(",")
    media_type, _, coding = head.partition(";")
    try:
        content = base64.b64decode(rest) if coding.endswith("base64") else unquote_to_bytes(rest)
    except ValueError:
        # Also for characters beyond ASCII, which `binascii.Error` does not cover.
        content = b""
    if not comma or not content:
        raise InvalidFile("A `data:` URL is incomplete.", cure="Give bytes or a path instead.")
    kind = None if ref.kind == "custom" else ref.kind
    return File(content, ref.name, ref.media_type or media_type, kind)
