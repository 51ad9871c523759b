"""Mark which runs this process works on, by locks that the operating system releases at its end.

Each process has its own file, named by a random id, in the user's state folder.  It locks one byte
of it for as long as it lives, and one more for each run that it works on.  Reused process ids,
stopped processes and clocks that jump do not falsify these marks.
"""

from __future__ import annotations

import atexit
import fcntl
import hashlib
import os
import struct
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

from agent_runtime_config.state import state_folders

ProcessActivity = Literal["working", "idle", "gone", "unknown"]

_KEPT_SECONDS = 7 * 24 * 3600.0
"""How long the file of a dead process stays; all leases that name it have expired by then."""


def private_folder(folder: Path) -> None:
    """Create a folder that only this user can use. Raises `OSError` if it is another user's."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    about = folder.lstat()
    # `lstat`, so that a symbolic link, which anyone may place in a shared folder, is refused as
    # well.
    if about.st_uid != os.geteuid() or about.st_mode & 0o022:
        raise PermissionError(f"{folder} is not private to this user")


class _Marker:
    """The file of this process; if none can be created, other processes see no marks."""

    def __init__(self) -> None:
        self.instance = uuid.uuid4().hex
        self.path: Path | None = None
        self.file = -1
        # The first folder that can be used; others look into all of them.
        for folder in _folders():
            path = folder / self.instance
            try:
                private_folder(folder.parent)
                private_folder(folder)
                self.file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
                # Byte 0 for as long as the process lives, whatever runs it works on.
                _lock(self.file, 0, working=True)
            except OSError:
                self.close()
                continue
            self.path = path
            break

    def mark(self, run_id: str, *, working: bool) -> None:
        """Lock the run's byte, or unlock it."""
        if self.path is not None:
            # Without a mark other processes wait for the lease to expire, as on another machine.
            with suppress(OSError):
                _lock(self.file, _place(run_id), working=working)

    def close(self) -> None:
        """Close the file, which drops all its locks."""
        if self.file >= 0:
            os.close(self.file)
        self.file = -1


_marker: _Marker | None = None
_changing = threading.RLock()
"""Runtimes in several threads share the marks; `at_work` holds it while it calls `_own`."""
_at_work = Counter[str]()
"""By run, how many tasks of this process hold its lease or may be about to take it."""


def instance() -> str:
    """Return the random id of this process; a forked process gets its own."""
    return _own().instance


def is_at_work(run_id: str) -> bool:
    """Return whether this process works on a run."""
    return run_id in _at_work


@contextmanager
def at_work(run_id: str) -> Generator[None]:
    """Mark a run as being worked on in this process, for as long as its lease may be held here."""
    with _changing:
        _at_work[run_id] += 1
        _own().mark(run_id, working=True)
    try:
        yield
    finally:
        with _changing:
            _at_work[run_id] -= 1
            if _at_work[run_id] <= 0:
                del _at_work[run_id]
                _own().mark(run_id, working=False)


def activity_of(other: str, run_id: str) -> ProcessActivity:
    """Return whether another process works on a run, is idle with respect to it, or is dead.

    `unknown` if no file of the process can be seen from here.
    """
    # The name comes from the database, so it must not lead to another file.
    for folder in _folders() if _is_name(other) else []:
        try:
            # In a folder that others can write to, anyone could fake a mark.
            private_folder(folder)
            file = os.open(folder / other, os.O_RDONLY | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            if _locked(file, _place(run_id)):
                return "working"
            return "idle" if _locked(file, 0) else "gone"
        except OSError:
            continue
        finally:
            os.close(file)
    return "unknown"


def _own() -> _Marker:
    global _marker
    with _changing:
        if _marker is None:
            _marker = _Marker()
            _remove_old()
        return _marker


def _folders() -> list[Path]:
    return [folder / "processes" for folder in state_folders()]


def _is_name(text: str) -> bool:
    # As `uuid4().hex` writes it.
    return len(text) == 32 and text.isalnum()


def _place(run_id: str) -> int:
    # Byte 0 is the process itself.  Seven bytes, because offsets are signed 64-bit numbers; the
    # file stays empty, since bytes beyond its end can be locked.
    return 1 + int.from_bytes(hashlib.blake2b(run_id.encode(), digest_size=7).digest(), "big")


def _lock(file: int, place: int, *, working: bool) -> None:
    """Lock a byte, or unlock it; raises `OSError`."""
    if sys.platform == "linux":
        # A per-process lock would be dropped as soon as anything in this process closes the file,
        # such as a tool that reads the folder's files.
        kind = fcntl.F_WRLCK if working else fcntl.F_UNLCK
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, _flock(kind, place))
    else:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB if working else fcntl.LOCK_UN, 1, place)


def _flock(kind: int, place: int) -> bytes:
    """Return Linux's `struct flock` for one byte."""
    return struct.pack("@hhqqi4x", kind, os.SEEK_SET, place, 1, 0)


def _locked(file: int, place: int) -> bool:
    """Return whether another process has locked a byte, without locking it meanwhile."""
    # For a read lock, because the file is open for reading only; marks are write locks.
    if sys.platform == "linux":
        request = _flock(fcntl.F_RDLCK, place)
        kind = struct.unpack("@hhqqi4x", fcntl.fcntl(file, fcntl.F_GETLK, request))[0]
    else:
        # The BSDs and macOS order the fields of `struct flock` differently.
        request = struct.pack("@qqihh", place, 1, 0, fcntl.F_RDLCK, os.SEEK_SET)
        kind = struct.unpack("@qqihh", fcntl.fcntl(file, fcntl.F_GETLK, request))[3]
    return kind != fcntl.F_UNLCK


def _remove_old() -> None:
    for folder in _folders():
        with suppress(OSError):
            for path in list(folder.iterdir()):
                age = time.time() - path.stat().st_mtime
                if (
                    _is_name(path.name)
                    and age > _KEPT_SECONDS
                    and activity_of(path.name, "") == "gone"
                ):
                    path.unlink()


@atexit.register
def _leave() -> None:
    """Remove this process's file at exit, unless a run still refers to it."""
    if _marker is not None and _marker.path is not None and not _at_work:
        with suppress(OSError):
            _marker.path.unlink()


def _forked() -> None:
    """Drop the parent's marks in a forked process: the locks are the parent's."""
    global _marker, _changing
    if _marker is not None:
        _marker.close()
    _marker, _changing = None, threading.RLock()
    _at_work.clear()


os.register_at_fork(after_in_child=_forked)
