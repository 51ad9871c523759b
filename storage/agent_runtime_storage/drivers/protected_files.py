"""Which files and folders of this machine hold the runtime's own state.

SQLite keeps other processes out by POSIX locks, and those belong to the process: closing *any*
descriptor of a locked file drops them all, also one that a tool opened only to read.  Another
process then writes at the same time, and the database breaks.  So whoever opens files on a model's
behalf asks here first.  The folder of a store's objects, and the user's folder for state, are kept
from them as well: whoever changes an object there loses what the log refers to.
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
    """The files of one database, from before it is opened until after it is closed."""

    def __init__(self, path: Path) -> None:
        database = path.resolve()
        self.paths = frozenset(database.with_name(database.name + end) for end in _ENDINGS)
        self._kept: set[FileIdentity] = set()
        with _lock:
            _open.add(self)

    def keep(self) -> None:
        """Remember the files that are there; called once it is open, so that none can be freed."""
        self._kept |= self.identities()

    def identities(self) -> set[FileIdentity]:
        """Return those of its files: of the remembered ones wherever they were moved to."""
        found = set(self._kept)
        for path in self.paths:
            try:
                found.add(file_identity(path.stat()))
            except OSError:
                continue
        return found

    def closed(self) -> None:
        """Forget it; calling it twice is harmless."""
        with _lock:
            _open.discard(self)


def file_identity(status: os.stat_result) -> FileIdentity:
    """Return which file a status is of."""
    return status.st_dev, status.st_ino


def open_paths() -> frozenset[Path]:
    """Return the resolved paths of all files of the open databases, also of those not there yet."""
    return frozenset[Path]().union(*(one.paths for one in _databases()))


def open_identities() -> frozenset[FileIdentity]:
    """Return what the files of the open databases are known by, whatever their names."""
    return frozenset[FileIdentity]().union(*(one.identities() for one in _databases()))


def protect_folder(path: Path, owner: object) -> None:
    """Keep a folder of objects from tools, be it there or not, for as long as its owner lives."""
    real = path.resolve()
    with _lock:
        _folders[owner] = real


def protected_folders() -> list[Path]:
    """Return the resolved paths of the folders that hold state, also of those not there yet."""
    own = [folder.resolve() for folder in state_folders()]
    with _lock:
        return [*_folders.values(), *own]


def protected_identities() -> frozenset[FileIdentity]:
    """Return what those of them that are there are known by, whatever their names."""
    return frozenset(_identities(protected_folders()))


def is_protected_file(status: os.stat_result) -> bool:
    """Return whether a file, by whatever name, is one of a database or of such a folder."""
    if file_identity(status) in open_identities():
        return True
    return is_hard_linked(status) and file_identity(status) in hard_linked_identities()


def is_hard_linked(status: os.stat_result) -> bool:
    """Return whether a file has several names, of which one may lie where state is held."""
    return status.st_nlink > 1 and stat.S_ISREG(status.st_mode)


def hard_linked_identities() -> frozenset[FileIdentity]:
    """Return what the files with several names are known by that lie in folders that hold state.

    Only a hard link leads from elsewhere to a file that lies there.
    """
    found: set[FileIdentity] = set()
    waiting = [str(kept) for kept in protected_folders()]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                        continue
                    # What goes meanwhile must not hide what comes after it.
                    with suppress(FileNotFoundError):
                        status = entry.stat(follow_symlinks=False)
                        found |= {file_identity(status)} if is_hard_linked(status) else set()
        except OSError:
            continue
    return frozenset(found)


def _identities(paths: Iterable[Path]) -> set[FileIdentity]:
    found: set[FileIdentity] = set()
    for path in paths:
        try:
            found.add(file_identity(path.lstat()))
        except OSError:
            continue
    return found


def _databases() -> list[OpenDatabase]:
    with _lock:
        return list(_open)
