"""Which files of this machine the open databases of this process are made of.

SQLite keeps other processes out by POSIX locks, and those belong to the process: closing *any*
descriptor of a locked file drops them all, also one that a tool opened only to read.  Another
process then writes at the same time, and the database breaks.  So whoever opens files on a model's
behalf asks here first.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

_ENDINGS = ("", "-wal", "-shm", "-journal")
_open: Counter[Path] = Counter()


def register(database: Path) -> None:
    """Note that this process has the database open (once more)."""
    _open[database.resolve()] += 1


def unregister(database: Path) -> None:
    """Note that it was closed (once)."""
    path = database.resolve()
    _open[path] -= 1
    if _open[path] <= 0:
        del _open[path]


def open_paths() -> frozenset[Path]:
    """Return the resolved paths of all files of the open databases, also of those not there yet."""
    return frozenset(
        path.with_name(path.name + ending) for path in list(_open) for ending in _ENDINGS
    )


def is_open(status: os.stat_result) -> bool:
    """Return whether a file, by whatever name it was found, belongs to an open database."""
    for path in open_paths():
        try:
            if os.path.samestat(status, path.stat()):
                return True
        except OSError:
            continue
    return False
