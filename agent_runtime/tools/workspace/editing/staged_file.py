"""`StagedFile`: a file's new content, written whole before it takes the file's place."""

from __future__ import annotations

import errno
import os
import stat
import uuid
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from agent_runtime.errors import ToolError
from agent_runtime.tools.workspace.path_errors import path_errors, show, status_of

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# Linux alone has files without a name.
_UNNAMED = getattr(os, "O_TMPFILE", 0)
_NO_UNNAMED = (errno.EISDIR, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOENT)


@dataclass(frozen=True, slots=True)
class FileState:
    """What shows that a file's content has changed."""

    inode: int
    size: int
    modified: int

    @classmethod
    def of(cls, status: os.stat_result) -> FileState:
        """Return the state of the file with this status."""
        return cls(status.st_ino, status.st_size, status.st_mtime_ns)


MISSING = FileState(0, 0, 0)
"""The state of a file that does not exist."""


@dataclass(slots=True)
class StagedFile:
    """A file's new content, on disk in the same folder.

    Attributes:
        before: the size of the file in its place; None if there is none.
    """

    path: str
    before: int | None
    _folder: int
    _name: str
    _read: FileState | None
    _opened: int
    _temporary: str
    _named: bool

    def commit(self) -> None:
        """Put it in its place.  Raises `ToolError`, also if the file has changed meanwhile."""
        with path_errors(self.path):
            # Just before the rename, which is as late as a check can be without a lock that other
            # programs know.
            check_state(self.path, self._name, self._folder, self._read)
            if not self._named:
                # A link to an open file cannot replace another file; a rename can.
                os.link(f"/proc/self/fd/{self._opened}", self._temporary, dst_dir_fd=self._folder)
                self._named = True
            os.replace(
                self._temporary, self._name, src_dir_fd=self._folder, dst_dir_fd=self._folder
            )

    def make_executable(self, executable: bool) -> None:
        """Let those run it who can read it, or nobody."""
        mode = stat.S_IMODE(os.fstat(self._opened).st_mode)
        os.fchmod(self._opened, mode | (mode & 0o444) >> 2 if executable else mode & ~0o111)

    def close(self) -> None:
        """Drop what was not put in its place."""
        os.close(self._opened)
        if self._named:
            with suppress(FileNotFoundError):
                os.unlink(self._temporary, dir_fd=self._folder)


@contextmanager
def staged(
    path: str,
    name: str,
    folder: int,
    data: bytes,
    *,
    old: os.stat_result | None,
    read: FileState | None,
    mode: int | None,
) -> Generator[StagedFile]:
    """Write a file's new content and sync it to disk; yield what puts it in place.

    Where the file system allows it the content has no name until it is committed, so a process that
    is killed while it writes leaves nothing behind.

    Args:
        folder: a descriptor of the file's folder.
        old: the status of the file in its place, whose owner and permissions it keeps.
        read: the file as it was read, or `MISSING`; None for any.
        mode: the permissions where there is no old file; None for the usual ones.
    """
    # In the same folder, because a rename is atomic only within one file system.
    temporary = f".agent-runtime-{uuid.uuid4().hex}.tmp"
    opened = _open_unnamed(folder)
    named = opened is None
    if opened is None:
        opened = os.open(temporary, _NEW, 0o666, dir_fd=folder)
    size = None if old is None else old.st_size
    file = StagedFile(path, size, folder, name, read, opened, temporary, named)
    try:
        if old is not None:
            _take_over(opened, old)
        elif mode is not None:
            os.fchmod(opened, mode)
        with os.fdopen(os.dup(opened), "wb") as writer:
            writer.write(data)
        # Before it replaces the old file: after a power cut there is the old content or the new,
        # never none.
        os.fsync(opened)
        yield file
    finally:
        file.close()


def check_state(path: str, name: str, folder: int, read: FileState | None) -> None:
    """Raise `ToolError` if a file is not as it was read; None for any state."""
    if read is None:
        return
    status = status_of(path, name, folder)
    if read != (MISSING if status is None else FileState.of(status)):
        raise ToolError(
            f"{show(path)} was changed by another program during this call.",
            cure="Read it again.",
        )


def _open_unnamed(folder: int) -> int | None:
    """Open a new file without a name; return None where the system or its disk has none."""
    if not _UNNAMED:
        return None
    try:
        opened = os.open(".", _UNNAMED | os.O_WRONLY | os.O_CLOEXEC, 0o666, dir_fd=folder)
    except OSError as error:
        if error.errno in _NO_UNNAMED:
            return None
        raise
    if not Path(f"/proc/self/fd/{opened}").exists():
        # Its name is given by way of /proc.
        os.close(opened)
        return None
    return opened


def _take_over(opened: int, old: os.stat_result) -> None:
    """Give a new file the owner, as far as allowed, and the permissions of an old one."""
    made = os.fstat(opened)
    if (made.st_uid, made.st_gid) != (old.st_uid, old.st_gid):
        with suppress(OSError):
            os.fchown(opened, old.st_uid, old.st_gid)
    # Afterwards, as another owner clears some of them.
    os.fchmod(opened, stat.S_IMODE(old.st_mode))
