"""`Root`: a folder that file tools cannot leave.

A path is resolved first, with its links, and refused if it ends outside.  The resolved path is then
opened folder by folder without following links, so that a link swapped in meanwhile makes the call
fail instead of leading it outside.

What the rules of `protected_paths` name is refused as well, by its resolved path.

Not fenced: hard links (except to the runtime's state) and mounts inside the folder, and replacing
the folder itself, or one above it, while a tool works.
"""

from __future__ import annotations

import errno
import math
import os
import stat
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Literal

from agent_runtime.errors import ConfigError, ToolError
from agent_runtime.tools.workspace.editing.staged_file import (
    FileState,
    StagedFile,
    check_state,
    staged,
)
from agent_runtime.tools.workspace.git_programs import run_by_git
from agent_runtime.tools.workspace.path_errors import (
    check_regular,
    hidden_error,
    path_errors,
    protected_error,
    reason_of,
    show,
    state_error,
    status_of,
)
from agent_runtime.tools.workspace.protected_paths import DEFAULT, ProtectedPaths
from agent_runtime_storage.drivers.protected_files import (
    FileIdentity,
    file_identity,
    hard_linked_identities,
    is_hard_linked,
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
"""Folders that a walk skips unless it starts there: they hold other programs' data."""

LONGEST_PATH = 4000
"""The most bytes of a path: one made folder by folder could be longer than programs can open."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# A FIFO without a writer would block the call.
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class FolderEntry:
    """An entry of a folder.

    Attributes:
        path: relative to the root, with `/`.
        size: bytes, for a file.
        target: for a link, its text.
        modified: when its content changed, in nanoseconds since the epoch.
    """

    path: str
    kind: EntryKind
    size: int = 0
    target: str = ""
    modified: int = 0


@dataclass(slots=True)
class Walk:
    """The result of a walk, sorted by path."""

    found: list[FolderEntry] = field(default_factory=list[FolderEntry])
    skipped: list[str] = field(default_factory=list[str])
    """What was skipped on purpose; folders end with `/`."""
    unreadable: dict[str, str] = field(default_factory=dict[str, str])
    """Folders that could not be listed, with the reason."""
    ignored: int = 0
    """How many entries were left out as ignored."""
    stopped: bool = False
    """Whether it ended at its deadline."""
    _linked: frozenset[FileIdentity] | None = None

    def is_linked(self, status: os.stat_result) -> bool:
        """Return whether a file is a hard link to the runtime's state, which is looked up once."""
        if not is_hard_linked(status):
            return False
        if self._linked is None:
            self._linked = hard_linked_identities()
        return file_identity(status) in self._linked


class Root:
    """A folder and its files.

    The runtime's own state is listed but never opened: closing the file of a database that this
    process has open would drop its locks, and tools must not change it.

    Every method blocks.  Failures raise `ToolError`, which names paths as they were given.

    Raises:
        ConfigError: the path is not a folder, or holds the runtime's state.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).resolve()
        if not self.path.is_dir():
            raise ConfigError(
                f"The workspace {self.path} is no folder.",
                cure="Create it, or name another one.",
            )
        if any(self.path.is_relative_to(one) for one in protected_folders()):
            raise ConfigError(
                f"The workspace {self.path} lies where the runtime keeps its own state.",
                cure="Name another folder.",
            )

    def parts(self, path: str) -> tuple[str, ...]:
        """Return the parts of a resolved path below the root."""
        try:
            if len(os.fsencode(self.path / path)) > LONGEST_PATH:
                raise ToolError(f"The path is longer than {LONGEST_PATH:,} bytes.")
            real = Path(os.path.realpath(self.path / path))
            parts = real.relative_to(self.path).parts
        except ValueError:
            if not _may_exist(path):
                raise ToolError(f"{show(path)} cannot be the name of a file.") from None
            raise ToolError(
                f"{show(path)} lies outside of the workspace.",
                cure="Give a path relative to its root.",
            ) from None
        if real in open_paths() or any(real.is_relative_to(one) for one in protected_folders()):
            raise state_error(path)
        return parts

    @contextmanager
    def folder(
        self,
        parts: Sequence[str],
        *,
        made: list[Sequence[str]] | None = None,
        no_programs: bool = False,
    ) -> Generator[int]:
        """Open a folder without following links; yield its descriptor.

        Args:
            made: creates missing folders, and adds the parts of each; None creates none.
            no_programs: whether to refuse a virtual environment or a repository, under any name.

        Raises:
            OSError, ToolError.
        """
        kept = protected_identities()
        opened = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            # Of the workspace itself, an environment may lie between the project's files.
            if no_programs and _is_repository(opened):
                raise protected_error("/".join(parts) or ".")
            for depth, part in enumerate(parts, 1):
                if made is not None:
                    with suppress(FileExistsError):
                        os.mkdir(part, dir_fd=opened)
                        made.append(parts[:depth])
                # Relative to the open folder, so that renaming one above it changes nothing.
                child = os.open(part, _FOLDER, dir_fd=opened)
                os.close(opened)
                opened = child
                if file_identity(os.fstat(opened)) in kept:
                    raise state_error("/".join(parts))
                if no_programs and (_is_environment(opened) or _is_repository(opened)):
                    raise protected_error("/".join(parts))
            yield opened
        finally:
            os.close(opened)

    @contextmanager
    def read(self, path: str, rules: ProtectedPaths = DEFAULT) -> Generator[tuple[BinaryIO, int]]:
        """Open a regular file; yield it and its size in bytes."""
        parts = self._file_parts(path)
        if rules.hidden.matches(parts):
            raise hidden_error(path)
        opened = self._open(path, parts, _READ)
        with os.fdopen(opened, "rb") as file, path_errors(path):
            yield file, os.fstat(opened).st_size

    def replace(
        self,
        path: str,
        data: bytes,
        rules: ProtectedPaths = DEFAULT,
        *,
        read: FileState | None = None,
        mode: int | None = None,
    ) -> int | None:
        """Write a whole file; return the size of the file it replaces, or None.

        Missing folders are created.  Readers see the old file or the new one, never a part.  The
        new file keeps the old one's permissions and owner and is synced to disk on return.

        Args:
            read: the file as it was read, or `MISSING`; if it has changed since, this fails.
            mode: the permissions where there is no old one; None for the usual ones.
        """
        with self.staged(path, data, rules, read=read, mode=mode) as staged:
            staged.commit()
        return staged.before

    @contextmanager
    def _created(self, parts: Sequence[str], *, no_programs: bool) -> Generator[int]:
        """Open a folder as `folder` does, with missing ones created.

        In the end those that it created are removed if they are still empty, as they are where no
        file was written.
        """
        made: list[Sequence[str]] = []
        try:
            with self.folder(parts, made=made, no_programs=no_programs) as folder:
                yield folder
        finally:
            for one in reversed(made):
                with suppress(OSError, ToolError), self.folder(one[:-1]) as above:
                    # Fails, as it should, for a folder that holds something by now.
                    os.rmdir(one[-1], dir_fd=above)

    @contextmanager
    def staged(
        self,
        path: str,
        data: bytes,
        rules: ProtectedPaths = DEFAULT,
        *,
        read: FileState | None = None,
        mode: int | None = None,
        executable: bool | None = None,
    ) -> Generator[StagedFile]:
        """Write a file's new content next to it; yield what puts it in place, as `replace` does.

        Args:
            executable: whether those who can read the new file can run it; None for as it is.
        """
        parts, unchecked = self._writable(path, rules)
        with (
            path_errors(path),
            self._created(parts[:-1], no_programs=not unchecked) as folder,
        ):
            old = status_of(path, parts[-1], folder)
            if old is not None:
                check_regular(path, old)
                # Renaming over a file needs no permission of that file.
                if not os.access(parts[-1], os.W_OK, dir_fd=folder):
                    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            with staged(path, parts[-1], folder, data, old=old, read=read, mode=mode) as file:
                if executable is not None:
                    file.make_executable(executable)
                yield file

    def remove(
        self, path: str, rules: ProtectedPaths = DEFAULT, *, read: FileState | None = None
    ) -> None:
        """Delete a regular file; with `read`, only if it has not changed since."""
        parts, unchecked = self._writable(path, rules)
        opening = self.folder(parts[:-1], no_programs=not unchecked)
        with path_errors(path), opening as folder:
            status = status_of(path, parts[-1], folder)
            if status is not None:
                check_regular(path, status)
            check_state(path, parts[-1], folder, read)
            os.unlink(parts[-1], dir_fd=folder)

    def check_writable(self, path: str, rules: ProtectedPaths = DEFAULT) -> None:
        """Raise `ToolError` where rules do not let a file be written."""
        self._writable(path, rules)

    def append(self, path: str, data: bytes, rules: ProtectedPaths = DEFAULT) -> int:
        """Append to a file; return its new size.  A missing file is created with its folders."""
        parts, unchecked = self._writable(path, rules)
        opened = self._open(path, parts, _APPEND, create=True, no_programs=not unchecked)
        with path_errors(path), os.fdopen(opened, "ab") as file:
            file.write(data)
            file.flush()
            os.fsync(opened)
            return os.fstat(opened).st_size

    def walk(
        self,
        path: str,
        *,
        depth: int | None = None,
        deadline: float = math.inf,
        ignored: Callable[[tuple[str, ...], bool], bool] | None = None,
    ) -> Walk:
        """List a folder; links are listed and never followed.

        Args:
            depth: how many folders deep; None for all.
            deadline: when to stop, by `time.monotonic`; within one folder it goes on.
            ignored: called with the parts of a path and whether it is a folder; True leaves it out.
        """
        start = self.parts(path)
        walk = Walk()
        end = math.inf if depth is None else len(start) + depth
        with path_errors(path), self.folder(start) as folder:
            waiting = self._look(folder, start, walk, end, ignored)
        while waiting:
            if time.monotonic() > deadline:
                walk.stopped = True
                break
            parts = waiting.pop()
            try:
                with self.folder(parts) as folder:
                    waiting += self._look(folder, parts, walk, end, ignored)
            except FileNotFoundError:
                # Deleted since its parent was listed.
                continue
            except OSError as error:
                walk.unreadable["/".join(parts)] = reason_of(error)
        # By the parts, or `a.txt` would stand between `a` and what is in it.
        walk.found.sort(key=lambda one: one.path.split("/"))
        walk.skipped.sort()
        return walk

    def _look(
        self,
        folder: int,
        parts: tuple[str, ...],
        walk: Walk,
        end: float,
        ignored: Callable[[tuple[str, ...], bool], bool] | None,
    ) -> list[tuple[str, ...]]:
        """Add the entries of one folder; return the folders to list next.

        Args:
            end: how many names the paths of entries have at most.
        """
        below: list[tuple[str, ...]] = []
        # By device and inode, because a name may be a link or a mount of the runtime's folder.
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
                if ignored is not None and ignored((*parts, entry.name), kind == "folder"):
                    walk.ignored += 1
                    continue
                size = status.st_size if kind == "file" else 0
                walk.found.append(FolderEntry(path, kind, size, target, status.st_mtime_ns))
                if kind == "folder" and len(parts) + 1 < end:
                    below.append((*parts, entry.name))
        return below

    def is_file(self, path: str) -> bool:
        """Return whether a path leads to something other than a folder."""
        parts = self.parts(path)
        if not parts:
            return False
        with path_errors(path), self.folder(parts[:-1]) as folder:
            return not stat.S_ISDIR(os.lstat(parts[-1], dir_fd=folder).st_mode)

    def _open(
        self,
        path: str,
        parts: tuple[str, ...],
        flags: int,
        *,
        create: bool = False,
        no_programs: bool = False,
    ) -> int:
        """Open a regular file; return its descriptor.  Raises `ToolError`."""
        opens = self._created if create else self.folder
        opening = opens(parts[:-1], no_programs=no_programs)
        with path_errors(path), opening as folder:
            # Before it is opened: closing a file of an open database would drop its locks.
            status_of(path, parts[-1], folder)
            opened = os.open(parts[-1], flags, 0o666, dir_fd=folder)
            try:
                check_regular(path, os.fstat(opened))
            except BaseException:
                os.close(opened)
                raise
        return opened

    def _writable(self, path: str, rules: ProtectedPaths) -> tuple[tuple[str, ...], bool]:
        """Return the parts of a file that may be written, and whether a rule names it as such."""
        # The resolved parts, which are opened without following links, so none can be swapped in.
        parts = self._file_parts(path)
        if rules.hidden.matches(parts):
            raise hidden_error(path)
        verdict = rules.protected.matches(parts)
        if verdict or (verdict is None and self._is_run_by_git(parts)):
            raise protected_error(path)
        return parts, verdict is False

    def _is_run_by_git(self, parts: tuple[str, ...]) -> bool:
        real = self.path.joinpath(*parts)
        # The workspace itself would mean all of it: `hooksPath = .`.
        return any(real.is_relative_to(one) for one in run_by_git(self.path) if one != self.path)

    def _file_parts(self, path: str) -> tuple[str, ...]:
        parts = self.parts(path)
        if not parts or path.endswith("/"):
            raise ToolError(f"{show(path)} names a folder, not a file.")
        return parts


def _is_environment(folder: int) -> bool:
    return _has(folder, "pyvenv.cfg")


def _is_repository(folder: int) -> bool:
    """Return whether git takes a folder for a repository: a bare one, or one kept apart."""
    # The latter two: of a linked worktree.
    return _has(folder, "HEAD") and any(
        _has(folder, name) for name in ("objects", "commondir", "gitdir")
    )


def _has(folder: int, name: str) -> bool:
    try:
        os.lstat(name, dir_fd=folder)
    except FileNotFoundError:
        return False
    return True


def _kind(status: os.stat_result) -> EntryKind:
    if stat.S_ISREG(status.st_mode):
        return "file"
    if stat.S_ISDIR(status.st_mode):
        return "folder"
    return "link" if stat.S_ISLNK(status.st_mode) else "other"


def _may_exist(path: str) -> bool:
    """Return whether a file may have this name."""
    try:
        return b"\0" not in os.fsencode(path)
    except UnicodeEncodeError:
        return False
