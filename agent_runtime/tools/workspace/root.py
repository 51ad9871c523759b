"""A folder that file tools cannot leave.

A path is resolved first, links and all, and refused if it ends outside.  What it resolved to is
then opened folder by folder, and no link is followed on the way, so one that is swapped in
meanwhile makes the call fail instead of leading it out.

Not fenced: hard links (but for those to the runtime's own state) and mounts that lie in the folder,
and a replacement of the folder itself (or of one above it) while a tool is at work.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import uuid
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Literal

from agent_runtime.errors import ConfigError, ToolError
from agent_runtime_storage.drivers.protected_files import (
    FileIdentity,
    file_identity,
    hard_linked_identities,
    is_hard_linked,
    is_protected_file,
    open_identities,
    open_paths,
    protected_folders,
    protected_identities,
)

EntryKind = Literal["file", "folder", "link", "other"]
SKIPPED = frozenset(
    {
        ".git",
        ".hg",
        ".hypothesis",
        ".mypy_cache",
        ".nox",
        ".pytest_cache",
        ".ruff_cache",
        ".svn",
        ".tox",
        ".venv",
        "__pycache__",
        "node_modules",
    }
)
"""Folders that are not walked into, unless they are named: they hold a tool's own data."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# A FIFO without a writer would block the call.
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class FolderEntry:
    """Something that lies in a folder.

    Attributes:
        path: relative to the root, with `/`.
        size: bytes, for a file.
        target: for a link, what it says.
    """

    path: str
    kind: EntryKind
    size: int = 0
    target: str = ""


@dataclass(slots=True)
class Walk:
    """What a walk saw, in the order of the paths, and what it could not see."""

    found: list[FolderEntry] = field(default_factory=list[FolderEntry])
    skipped: list[str] = field(default_factory=list[str])
    """What was left out on purpose; folders with a `/` at the end."""
    unreadable: dict[str, str] = field(default_factory=dict[str, str])
    """The path of each folder that could not be listed, and why."""
    _linked: frozenset[FileIdentity] | None = None

    def is_linked(self, status: os.stat_result) -> bool:
        """Return whether a file is a hard link to one that holds state; looks for those once."""
        if not is_hard_linked(status):
            return False
        if self._linked is None:
            self._linked = hard_linked_identities()
        return file_identity(status) in self._linked


class Root:
    """A folder, and the files in it.

    The runtime's own state is named, and never opened: closing the file of a database that this
    process has open would drop its locks, and what is changed there is lost to the log.

    Every method blocks, and raises `ToolError` for what cannot be done; it names paths relative
    to the root.

    Raises:
        ConfigError: it is no folder.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).resolve()
        if not self.path.is_dir():
            raise ConfigError(
                f"The workspace {self.path} is no folder.", cure="Create it, or name another one."
            )
        if any(self.path.is_relative_to(one) for one in protected_folders()):
            raise ConfigError(
                f"The workspace {self.path} lies where the runtime keeps its own state.",
                cure="Name another folder.",
            )

    def parts(self, path: str) -> tuple[str, ...]:
        """Return the parts below the root of what a path leads to."""
        try:
            real = Path(os.path.realpath(self.path / path))
            parts = real.relative_to(self.path).parts
        except ValueError:
            # Also for a NUL, which no file's name can contain.
            raise ToolError(
                f"{show(path)} lies outside of the workspace.",
                cure="Give a path relative to its root.",
            ) from None
        if real in open_paths() or any(real.is_relative_to(one) for one in protected_folders()):
            raise _state(path)
        return parts

    @contextmanager
    def folder(self, parts: Sequence[str], *, create: bool = False) -> Generator[int]:
        """Open a folder, without following links; raises `OSError`."""
        kept = protected_identities()
        opened = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for part in parts:
                if create:
                    with suppress(FileExistsError):
                        os.mkdir(part, dir_fd=opened)
                child = os.open(part, _FOLDER, dir_fd=opened)
                os.close(opened)
                opened = child
                if file_identity(os.fstat(opened)) in kept:
                    raise _state("/".join(parts))
            yield opened
        finally:
            os.close(opened)

    @contextmanager
    def read(self, path: str) -> Generator[tuple[BinaryIO, int]]:
        """Open a regular file; give it and its size in bytes."""
        opened = self._open(path, _READ)
        with os.fdopen(opened, "rb") as file, path_errors(path):
            yield file, os.fstat(opened).st_size

    def replace(self, path: str, data: bytes) -> int | None:
        """Write a whole file, new or in place of the old one; return the old one's size.

        Missing folders are created. Readers see the old file or the new one, never a part; the
        new one keeps the old one's permissions, and is on disk on return.
        """
        parts = self._file_parts(path)
        with path_errors(path), self.folder(parts[:-1], create=True) as folder:
            old = _status(path, parts[-1], folder)
            if old is not None:
                _check_regular(path, old)
                if not os.access(parts[-1], os.W_OK, dir_fd=folder):
                    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            temporary = f".{uuid.uuid4().hex}.tmp"
            opened = os.open(temporary, _NEW, 0o666, dir_fd=folder)
            try:
                with os.fdopen(opened, "wb") as file:
                    if old is not None:
                        os.fchmod(opened, stat.S_IMODE(old.st_mode))
                    file.write(data)
                    file.flush()
                    os.fsync(opened)
                os.replace(temporary, parts[-1], src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                with suppress(FileNotFoundError):
                    os.unlink(temporary, dir_fd=folder)
                raise
        return None if old is None else old.st_size

    def append(self, path: str, data: bytes) -> int:
        """Write to the end of a file, created with its folders if missing; return its new size."""
        opened = self._open(path, _APPEND, create=True)
        with path_errors(path), os.fdopen(opened, "ab") as file:
            file.write(data)
            file.flush()
            os.fsync(opened)
            return os.fstat(opened).st_size

    def walk(self, path: str, *, recursive: bool) -> Walk:
        """Look through a folder; links are named and never followed."""
        start = self.parts(path)
        walk = Walk()
        with path_errors(path), self.folder(start) as folder:
            waiting = self._look(folder, start, walk, recursive)
        while waiting:
            parts = waiting.pop()
            try:
                with self.folder(parts) as folder:
                    waiting += self._look(folder, parts, walk, recursive)
            except FileNotFoundError:
                continue
            except OSError as error:
                walk.unreadable["/".join(parts)] = _reason(error)
        walk.found.sort(key=lambda one: one.path.split("/"))
        walk.skipped.sort()
        return walk

    def _look(
        self, folder: int, parts: tuple[str, ...], walk: Walk, recursive: bool
    ) -> list[tuple[str, ...]]:
        """Add what lies in one folder; return the folders to look through next."""
        below: list[tuple[str, ...]] = []
        kept = protected_identities() | open_identities()
        with os.scandir(folder) as entries:
            for entry in entries:
                path = "/".join((*parts, entry.name))
                try:
                    status = entry.stat(follow_symlinks=False)
                    target = os.readlink(entry.name, dir_fd=folder) if entry.is_symlink() else ""
                except FileNotFoundError:
                    continue
                if stat.S_ISDIR(status.st_mode) and entry.name in SKIPPED:
                    walk.skipped.append(f"{path}/")
                    continue
                if file_identity(status) in kept or walk.is_linked(status):
                    walk.skipped.append(path)
                    continue
                kind = _kind(status)
                size = status.st_size if kind == "file" else 0
                walk.found.append(FolderEntry(path, kind, size, target))
                if kind == "folder" and recursive:
                    below.append((*parts, entry.name))
        return below

    def is_file(self, path: str) -> bool:
        """Return whether a path leads to something that is no folder."""
        parts = self.parts(path)
        if not parts:
            return False
        with path_errors(path), self.folder(parts[:-1]) as folder:
            return not stat.S_ISDIR(os.lstat(parts[-1], dir_fd=folder).st_mode)

    def _open(self, path: str, flags: int, *, create: bool = False) -> int:
        """Open a regular file, or raise `ToolError`; nothing else is left open."""
        parts = self._file_parts(path)
        with path_errors(path), self.folder(parts[:-1], create=create) as folder:
            _status(path, parts[-1], folder)
            opened = os.open(parts[-1], flags, 0o666, dir_fd=folder)
            try:
                _check_regular(path, os.fstat(opened))
            except BaseException:
                os.close(opened)
                raise
        return opened

    def _file_parts(self, path: str) -> tuple[str, ...]:
        parts = self.parts(path)
        if not parts or path.endswith("/"):
            raise ToolError(f"{show(path)} names a folder, not a file.")
        return parts


@contextmanager
def path_errors(path: str) -> Generator[None]:
    """Turn an `OSError` into a `ToolError` that names the path as it was given."""
    try:
        yield
    except OSError as error:
        cure = "list_files shows what there is." if isinstance(error, FileNotFoundError) else ""
        raise ToolError(f"{show(path)}: {_reason(error)}.", cure=cure) from error


def show(path: str) -> str:
    """Return a path on one line: quoted as JSON where a plain line could not carry it."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return f"{json.dumps(path)} (the name is no UTF-8, so it cannot be opened)"
    plain = path.isprintable() and path == path.strip() and not path.startswith('"')
    return path if plain and path else json.dumps(path, ensure_ascii=False)


def _reason(error: OSError) -> str:
    if error.errno == errno.ELOOP:
        return "A link stands where none stood when the path was checked, or links run in a circle"
    return error.strerror or type(error).__name__


def _status(path: str, name: str, folder: int) -> os.stat_result | None:
    """Return what is known of a file without opening it; None if it is not there."""
    try:
        status = os.lstat(name, dir_fd=folder)
    except FileNotFoundError:
        return None
    if is_protected_file(status):
        raise _state(path)
    return status


def _state(path: str) -> ToolError:
    return ToolError(f"{show(path)} belongs to the runtime's database and is kept from its tools.")


def _kind(status: os.stat_result) -> EntryKind:
    if stat.S_ISREG(status.st_mode):
        return "file"
    if stat.S_ISDIR(status.st_mode):
        return "folder"
    return "link" if stat.S_ISLNK(status.st_mode) else "other"


def _check_regular(path: str, status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise ToolError(f"{show(path)} is a folder.", cure="list_files shows what is in it.")
    if not stat.S_ISREG(status.st_mode):
        raise ToolError(f"{show(path)} is no regular file.")
