"""The path of the database file: check it before opening, and notice when the file is replaced."""

from __future__ import annotations

import os
import stat
import time
from contextlib import suppress
from pathlib import Path

import apsw

from agent_runtime_storage.contract.errors import StoreError, StoreUnavailable

# A read relies on a look of this age; a look costs two calls of the system.
_LOOK_SECONDS = 0.25
JOURNAL_SECONDS = 1.0
"""How long a journal may be there of another process that creates the database just now."""
_LARGEST_PAGE = 65_536


def check_database_path(path: Path) -> None:
    """Check that a database can be at the path; creates and changes nothing.

    Raises:
        StoreUnavailable: it is a folder or not a regular file, or its folder does not exist.
    """
    mode = _mode(path)
    if mode is not None and stat.S_ISDIR(mode):
        raise StoreUnavailable(
            f"The database path {path} is a folder.", cure="Name a file inside of it."
        )
    if mode is not None and not stat.S_ISREG(mode):
        raise StoreUnavailable(
            f"The database path {path} is no regular file.", cure="Choose another path."
        )
    folder = _mode(path.parent)
    if folder is None or not stat.S_ISDIR(folder):
        raise StoreUnavailable(
            f"The database's folder {path.parent.absolute()} is not there.",
            cure="Create the folder, or choose another path.",
        )


def _mode(path: Path) -> int | None:
    # `Path.is_dir` raises for some paths, such as those with a name that is too long.
    try:
        return path.stat().st_mode
    except OSError:
        return None


def make_private(path: Path) -> None:
    """Create the file if it does not exist, empty and private to its user.

    SQLite gives its other files the permissions of this one, and reports what fails here.
    """
    real = path.resolve()
    with suppress(OSError):
        try:
            # Opening and closing it would drop the locks of this process's connections.
            os.mknod(real, stat.S_IFREG | 0o600)
        except PermissionError:
            # Not every system allows it.
            os.close(os.open(real, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def refuse_journal(path: Path) -> None:
    """Refuse a rollback journal next to the database, before SQLite writes its content over it.

    The runtime writes ahead, and leaves no journal: one was written by something else, such as a
    confined command that can write to the database's folder.  Blocks.

    Raises:
        StoreUnavailable: there is one.
    """
    real = path.resolve()
    journal = real.with_name(f"{real.name}-journal")
    deadline = time.monotonic() + JOURNAL_SECONDS
    while _size(journal) and _writes_ahead(real):
        if time.monotonic() > deadline:
            raise StoreUnavailable(
                f"Next to the database {path} lies a rollback journal, which the runtime does not "
                "write; opening the database would overwrite it with what is in there.",
                cure=f"Delete {journal}; the database itself is whole.",
            )
        time.sleep(0.02)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _writes_ahead(path: Path) -> bool:
    """Return whether a file is a database with content that has a write-ahead log."""
    flags = apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READONLY
    try:
        # By SQLite, because closing the file in any other way would drop the locks of this
        # process's connections.
        file = apsw.VFSFile("", str(path), [flags, 0])
    except apsw.Error:
        return False
    try:
        # Bytes 18 and 19 are 2 with a write-ahead log; the first page alone holds no content yet.
        return file.xRead(20, 0)[18:] == b"\2\2" and file.xFileSize() > _LARGEST_PAGE
    except apsw.Error:
        return False
    finally:
        file.xClose()


class OpenDatabaseFile:
    """The files of an open database, to notice when their paths lead to other files.

    SQLite keeps writing to a file that was deleted or replaced, and those writes are lost; an old
    write-ahead log would even damage a new file next to it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        real = path.resolve()
        self._known: dict[str, tuple[int, int]] = {}
        self._problem: StoreError | None = None
        self._looked = 0.0
        # Text is cheaper than Path, and this runs before and after each write.
        self._files = (str(path), str(real.with_name(real.name + "-wal")))

    def remember(self) -> None:
        """Remember the present files as the database's; call it once the database is open."""
        for file in self._files:
            if identity := _identity(file):
                self._known[file] = identity

    def look(self) -> StoreError | None:
        """Return the problem if a file is missing or was replaced, else None."""
        self._looked = time.monotonic()
        self._problem = None
        for file in self._files:
            present = _identity(file)
            # The first write creates the write-ahead log.
            known = self._known.setdefault(file, present) if present else self._known.get(file)
            if present != known:
                self._problem = StoreUnavailable(
                    f"The file {file} was deleted or replaced while the database was open; what "
                    "is being written would be lost.",
                    cure="Put the file back and open the store again.",
                )
        return self._problem

    def check(self) -> None:
        """Look, and raise the problem if there is one."""
        if problem := self.look():
            raise problem

    def glance(self) -> None:
        """Raise the problem of the last look, if it was recent.

        For reads, which lose nothing: a look would cost a tenth of a short read.
        """
        if time.monotonic() - self._looked > _LOOK_SECONDS:
            self.look()
        if problem := self._problem:
            raise problem


def _identity(file: str) -> tuple[int, int] | None:
    try:
        status = os.stat(file)  # noqa: PTH116  # half the time of Path.stat
    except OSError:
        return None
    return status.st_dev, status.st_ino
