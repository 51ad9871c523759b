"""Track the files and folders that hold the runtime's own state, to keep tools out of them.

SQLite locks its files by POSIX locks, which belong to the process: closing *any* descriptor of a
locked file drops them all, even one that a tool opened only for reading.  Another process could
then write at the same time and corrupt the database.  So code that opens files for a model asks
here first.  The folders of objects and of the user's state are protected as well: the log refers to
what is in them.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias
from weakref import WeakKeyDictionary

from agent_runtime_config.state import state_folders

FileIdentity: TypeAlias = tuple[int, int]
"""Device and inode: the file itself, whatever its name."""

_ENDINGS = ("", "-wal", "-shm", "-journal")
_lock = threading.Lock()
_open: set[OpenDatabase] = set()
_folders: WeakKeyDictionary[object, Path] = WeakKeyDictionary()


class OpenDatabase:
    """The files of one database, registered from before it opens until after it is closed."""

    def __init__(self, path: Path) -> None:
        database = path.resolve()
        self.paths = frozenset(database.with_name(database.name + end) for end in _ENDINGS)
        self._remembered: set[FileIdentity] = set()
        with _lock:
            _open.add(self)

    def keep(self) -> None:
        """Remember the existing files; call it once the database is open, so no inode is reused."""
        # A file that is moved away stays locked, but its path leads to another one.
        self._remembered |= self.identities()

    def identities(self) -> set[FileIdentity]:
        """Return the identities of its files, including remembered files that were moved."""
        identities = set(self._remembered)
        for path in self.paths:
            try:
                identities.add(file_identity(path.stat()))
            except OSError:
                continue
        return identities

    def closed(self) -> None:
        """Unregister it; safe to call twice."""
        with _lock:
            _open.discard(self)


def file_identity(status: os.stat_result) -> FileIdentity:
    """Return the identity of the file that a status describes."""
    return status.st_dev, status.st_ino


def open_paths() -> frozenset[Path]:
    """Return the resolved paths of all files of open databases, whether they exist yet or not."""
    return frozenset[Path]().union(*(database.paths for database in _databases()))


def open_identities() -> frozenset[FileIdentity]:
    """Return the identities of the files of open databases."""
    return frozenset[FileIdentity]().union(*(database.identities() for database in _databases()))


def protect_folder(path: Path, owner: object) -> None:
    """Protect a folder, whether it exists or not, for the lifetime of its owner."""
    real = path.resolve()
    with _lock:
        _folders[owner] = real


def protected_folders() -> list[Path]:
    """Return the resolved paths of protected folders, whether they exist yet or not."""
    # Resolved each time, as a link may have changed since.
    own = [folder.resolve() for folder in state_folders()]
    with _lock:
        return [*_folders.values(), *own]


def protected_identities() -> frozenset[FileIdentity]:
    """Return the identities of the protected folders that exist."""
    return frozenset(_identities(protected_folders()))


def is_protected_file(status: os.stat_result) -> bool:
    """Return whether a file, under any name, belongs to a database or a protected folder."""
    if file_identity(status) in open_identities():
        return True
    return is_hard_linked(status) and file_identity(status) in hard_linked_identities()


def is_hard_linked(status: os.stat_result) -> bool:
    """Return whether a file has several names, one of which may be in a protected folder."""
    return status.st_nlink > 1 and stat.S_ISREG(status.st_mode)


def hard_linked_identities() -> frozenset[FileIdentity]:
    """Return the identities of hard-linked files in protected folders.

    Only a hard link leads from outside to a file in them.
    """
    identities: set[FileIdentity] = set()
    waiting = [str(folder) for folder in protected_folders()]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                        continue
                    # A file that disappears meanwhile must not hide the files after it.
                    with suppress(FileNotFoundError):
                        status = entry.stat(follow_symlinks=False)
                        if is_hard_linked(status):
                            identities.add(file_identity(status))
        except OSError:
            continue
    return frozenset(identities)


def _identities(paths: Iterable[Path]) -> set[FileIdentity]:
    identities: set[FileIdentity] = set()
    for path in paths:
        try:
            identities.add(file_identity(path.lstat()))
        except OSError:
            continue
    return identities


def _databases() -> list[OpenDatabase]:
    with _lock:
        return list(_open)
