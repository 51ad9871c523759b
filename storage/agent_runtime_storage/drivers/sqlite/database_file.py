"""Where the database file lies: whether it can be one, and whether it still is the same."""

from __future__ import annotations

import os
import stat
import time
from contextlib import suppress
from pathlib import Path

from agent_runtime_storage.contract.errors import StoreError, StoreUnavailable

_LOOK_SECONDS = 0.25


def check_database_path(path: Path) -> None:
    """Look whether a database can lie at the path; creates and changes nothing.

    Raises:
        StoreUnavailable: it is a folder or no regular file, or its folder is not there.
    """
    try:
        mode = path.stat().st_mode
    except OSError:
        mode = None
    if mode is not None and stat.S_ISDIR(mode):
        raise StoreUnavailable(
            f"The database path {path} is a folder.", cure="Name a file inside of it."
        )
    if mode is not None and not stat.S_ISREG(mode):
        raise StoreUnavailable(
            f"The database path {path} is no regular file.", cure="Choose another path."
        )
    if not path.parent.is_dir():
        raise StoreUnavailable(
            f"The database's folder {path.parent.absolute()} is not there.",
            cure="Create the folder, or choose another path.",
        )


def make_private(path: Path) -> None:
    """Create the file, empty and for its user alone, if it is not there.

    SQLite gives its other files the permissions of this one.  What cannot be done here it tells.
    """
    real = path.resolve()
    with suppress(OSError):
        try:
            # Opening and closing it would drop the locks of a connection of this process.
            os.mknod(real, stat.S_IFREG | 0o600)
        except PermissionError:
            # Not every system lets its users do so.
            os.close(os.open(real, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


class OpenDatabaseFile:
    """The files of an open database, to notice when others lie at their paths.

    SQLite goes on with a file that was deleted or replaced, and what it writes is lost; beside a
    new file, the old write-ahead log would even damage it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        real = path.resolve()
        self._known: dict[str, tuple[int, int]] = {}
        self._problem: StoreError | None = None
        self._looked = 0.0
        # As text: this is looked at before and after each write.
        self._files = (str(path), str(real.with_name(real.name + "-wal")))

    def remember(self) -> None:
        """Take what lies there now for the database's; called once it is open."""
        for file in self._files:
            if found := _identity(file):
                self._known[file] = found

    def look(self) -> StoreError | None:
        """Return what is wrong if another file, or none, lies where one of them did."""
        self._looked = time.monotonic()
        self._problem = None
        for file in self._files:
            found = _identity(file)
            # The write-ahead log comes with the first write.
            known = self._known.setdefault(file, found) if found else self._known.get(file)
            if found != known:
                self._problem = StoreUnavailable(
                    f"The file {file} was deleted or replaced while the database was open; what "
                    "is being written would be lost.",
                    cure="Put the file back and open the store again.",
                )
        return self._problem

    def check(self) -> None:
        """Look, and raise what is wrong."""
        if problem := self.look():
            raise problem

    def glance(self) -> None:
        """Raise what was wrong at the last look, which is not long ago.

        For reads, which lose nothing: a look takes a tenth of the time of a short one.
        """
        if time.monotonic() - self._looked > _LOOK_SECONDS:
            self.look()
        if problem := self._problem:
            raise problem


def _identity(file: str) -> tuple[int, int] | None:
    try:
        found = os.stat(file)  # noqa: PTH116  # half the time of Path.stat
    except OSError:
        return None
    return found.st_dev, found.st_ino
