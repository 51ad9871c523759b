"""Which files of this machine the open databases of this process are made of.

SQLite keeps other processes out by POSIX locks, and those belong to the process: closing *any*
descriptor of a locked file drops them all, also one that a tool opened only to read.  Another
process then writes at the same time, and the database breaks.  So whoever opens files on a model's
behalf asks here first.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import TypeAlias

Identity: TypeAlias = tuple[int, int]
"""Device and inode: the file itself, whatever its name."""

_ENDINGS = ("", "-wal", "-shm", "-journal")
_lock = threading.Lock()
_open: set[OpenDatabase] = set()


class OpenDatabase:
    """The files of one database, from before it is opened until after it is closed."""

    def __init__(self, path: Path) -> None:
        database = path.resolve()
        self.paths = frozenset(database.with_name(database.name + end) for end in _ENDINGS)
        self._kept: set[Identity] = set()
        with _lock:
            _open.add(self)

    def keep(self) -> None:
        """Remember the files that are there; called once it is open, so that none can be freed."""
        self._kept |= self.identities()

    def identities(self) -> set[Identity]:
        """Return those of its files: of the remembered ones wherever they were moved to."""
        found = set(self._kept)
        for path in self.paths:
            try:
                found.add(identity(path.stat()))
            except OSError:
                continue
        return found

    def closed(self) -> None:
        """Forget it; calling it twice is harmless."""
        with _lock:
            _open.discard(self)


def identity(status: os.stat_result) -> Identity:
    """Return which file a status is of."""
    return status.st_dev, status.st_ino


def open_paths() -> frozenset[Path]:
    """Return the resolved paths of all files of the open databases, also of those not there yet."""
    return frozenset[Path]().union(*(one.paths for one in _databases()))


def open_identities() -> frozenset[Identity]:
    """Return what the files of the open databases are known by, whatever their names."""
    return frozenset[Identity]().union(*(one.identities() for one in _databases()))


def _databases() -> list[OpenDatabase]:
    with _lock:
        return list(_open)
