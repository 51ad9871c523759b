"""What a patch makes of the files of a folder: first in memory, then on the disk, all or none."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace

from agent_runtime.errors import ToolError
from agent_runtime.tools.workspace.editing.patch import FilePatch
from agent_runtime.tools.workspace.editing.patch_file import apply_hunks
from agent_runtime.tools.workspace.editing.replace import (
    EDITED_BYTES,
    count_of_lines,
    line_ranges,
    too_large,
)
from agent_runtime.tools.workspace.editing.staged_file import MISSING, FileState
from agent_runtime.tools.workspace.editing.text_file import NotText, TextFile
from agent_runtime.tools.workspace.path_errors import show
from agent_runtime.tools.workspace.protected_paths import ProtectedPaths
from agent_runtime.tools.workspace.root import Root
from agent_runtime_config.counted import counted


@dataclass(frozen=True, slots=True)
class Loaded:
    """A file that was read whole."""

    data: bytes
    state: FileState
    mode: int


def load(root: Root, path: str, rules: ProtectedPaths) -> Loaded | None:
    """Return a file's content, as far as it may be edited; None if there is no file."""
    try:
        with root.read(path, rules) as (opened, _):
            status = os.fstat(opened.fileno())
            mode = stat.S_IMODE(status.st_mode)
            return Loaded(opened.read(EDITED_BYTES + 1), FileState.of(status), mode)
    except ToolError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return None
        raise


def text_of(path: str, loaded: Loaded) -> TextFile:
    """Return a file's text. Raises `ToolError` if it is binary or too large."""
    _check_size(path, loaded)
    return _decoded(path, loaded.data)


def _decoded(path: str, data: bytes) -> TextFile:
    try:
        return TextFile.of(data)
    except NotText:
        raise ToolError(f"{show(path)} is a binary file of {counted(len(data), 'byte')}.") from None


def within_limit(path: str, data: bytes) -> bytes:
    """Return what is to be written. Raises `ToolError` if it is too large."""
    if len(data) > EDITED_BYTES:
        raise too_large(show(path), len(data))
    return data


def _check_size(path: str, loaded: Loaded) -> None:
    if len(loaded.data) > EDITED_BYTES:
        raise ToolError(f"{show(path)} has {loaded.state.size:,} bytes: too many to edit.")


@dataclass(slots=True)
class _Patched:
    """What a patch makes of one path.

    Attributes:
        loaded: the file there before; None if there was none.
        data: the file afterwards; None if it is deleted.
        mode: its permissions where there was none; None for the usual ones.
        executable: whether it may be run afterwards; None for as it was.
        file: `data` as text, if hunks have changed it.
    """

    loaded: Loaded | None
    data: bytes | None
    mode: int | None = None
    executable: bool | None = None
    file: TextFile | None = None

    @property
    def read(self) -> FileState:
        """The state of the file there before."""
        return MISSING if self.loaded is None else self.loaded.state

    def text(self, path: str) -> TextFile:
        """Return the file's text as it is by now. Raises `ToolError` if it is binary."""
        assert self.data is not None
        # Decoded again, changed text could be taken for another encoding.
        return self.file or _decoded(path, self.data)

    def becomes(self, other: _Patched, executable: bool | None) -> None:
        """Take over what another path has been until now."""
        self.data, self.file, self.executable = other.data, other.file, executable
        self.mode = other.mode if other.loaded is None else other.loaded.mode

    def delete(self) -> None:
        """Leave nothing of it."""
        self.data = self.file = None


class PatchedFiles:
    """What a patch makes of the files of a folder.

    Args:
        read: returns the file of a path as the run knows it; None if there is none.
    """

    def __init__(
        self,
        root: Root,
        rules: ProtectedPaths,
        read: Callable[[str, ProtectedPaths], Loaded | None],
    ) -> None:
        self._root, self._rules, self._read = root, rules, read
        self._made: dict[str, _Patched] = {}

    def apply(self, patch: FilePatch) -> str:
        """Add what a patch makes of one file; return a line that says it.

        Raises:
            ToolError: it does not fit, or may not be written.
        """
        if patch.action == "add":
            return self._add(patch)
        path, moved = self._paths(patch)
        name, old = show(path), self._at(path)
        if old.data is None:
            raise ToolError(f"{name}: No such file. Nothing was changed.", cure="Check the path.")
        made, what = self._changed(path, patch, old)
        if patch.action == "delete":
            if patch.hunks and made.data:
                raise ToolError(
                    f"{name} has more than the lines that the patch deletes. Nothing was changed.",
                    cure="Read it again.",
                )
            old.delete()
            return f"deleted {name}"
        if not moved:
            old.data, old.file, old.executable = made.data, made.file, patch.executable
            return f"{name}: {'; '.join(what) or 'its permissions'}"
        new = self._at(moved)
        if new.data is not None:
            raise ToolError(
                f"{show(moved)} exists already. Nothing was changed.",
                cure="Delete it first, or give it as the file to update.",
            )
        new.becomes(made, patch.executable)
        if not patch.copied:
            old.delete()
        head = f"{'copied' if patch.copied else 'moved'} {name} to {show(moved)}"
        return ": ".join(filter(None, (head, "; ".join(what))))

    def _add(self, patch: FilePatch) -> str:
        name, new = show(patch.path), self._at(patch.path)
        if new.data is not None:
            raise ToolError(f"{name} exists already. Nothing was changed.", cure="Update it.")
        new.data = within_limit(patch.path, TextFile().rewritten(patch.added).encode())
        new.executable = patch.executable
        return f"added {name}: {count_of_lines(patch.added)}"

    def _paths(self, patch: FilePatch) -> tuple[str, str]:
        """Return the path of the file that a patch changes, and where it goes; empty if it stays.

        Two names without a word of a rename may also be of one file, as in `diff x.orig x`.
        """
        if not patch.moved or self._name(patch.moved) == self._name(patch.path):
            return patch.path, ""
        if not patch.named and self._at(patch.path).data is None:
            return patch.moved, ""
        return patch.path, patch.moved

    def _changed(self, path: str, patch: FilePatch, old: _Patched) -> tuple[_Patched, list[str]]:
        """Return what hunks make of a file, and what to say of them."""
        if not patch.hunks:
            # It may be binary: nothing is changed in it.
            return old, []
        try:
            file, ranges, remarks = apply_hunks(show(path), old.text(path), patch.hunks)
        except ToolError as error:
            raise ToolError(f"Nothing was changed. {error.message}", cure=error.cure) from None
        what = [line_ranges(ranges)] if ranges else []
        data = within_limit(path, file.encode())
        return replace(old, data=data, file=file), [*what, *remarks]

    def _name(self, path: str) -> str:
        # By the resolved path, as two names may lead to one file.
        return "/".join(self._root.parts(path))

    def _at(self, path: str) -> _Patched:
        self._root.check_writable(path, self._rules)
        name = self._name(path)
        if name not in self._made:
            loaded = self._read(path, self._rules)
            if loaded is not None:
                _check_size(path, loaded)
            self._made[name] = _Patched(loaded, None if loaded is None else loaded.data)
        return self._made[name]

    def written(self) -> Iterator[tuple[str, bytes]]:
        """Yield the path and the content of each file that is there afterwards."""
        for path, one in self._made.items():
            if one.data is not None:
                yield path, one.data

    def write(self) -> None:
        """Write what the patch made; where one file fails, put the others back."""
        undo: list[Callable[[], object]] = []
        with ExitStack() as stack:
            staged = [
                (path, one, stack.enter_context(self._staged(path, one, one.data)))
                for path, one in self._made.items()
                if one.data is not None and not self._is_as_before(one)
            ]
            try:
                for path, one, file in staged:
                    file.commit()
                    undo.append(self._undo(path, one))
                for path, one in self._made.items():
                    if one.data is None and one.loaded is not None:
                        self._root.remove(path, self._rules, read=one.read)
                        undo.append(self._undo(path, one))
            except BaseException as error:
                self._put_back(undo, error)
                raise

    def _put_back(self, undo: list[Callable[[], object]], error: BaseException) -> None:
        lost: list[str] = []
        # The newest first: a move has written its new place before it removed the old one.
        for back in reversed(undo):
            try:
                back()
            except ToolError as other:
                # The others are put back all the same.
                lost.append(other.message)
        if lost:
            raise ToolError(
                f"The patch failed ({error}), and not all is as before: {' '.join(lost)}"
            ) from error

    def _is_as_before(self, one: _Patched) -> bool:
        """Return whether nothing is to be written, as of a file that is only copied."""
        return one.loaded is not None and one.data is one.loaded.data and one.executable is None

    def _staged(self, path: str, one: _Patched, data: bytes):
        return self._root.staged(
            path, data, self._rules, read=one.read, mode=one.mode, executable=one.executable
        )

    def _undo(self, path: str, one: _Patched) -> Callable[[], object]:
        if one.loaded is None:
            return lambda: self._root.remove(path, self._rules)
        before = one.loaded

        def back() -> None:
            executable = None if one.executable is None else bool(before.mode & stat.S_IXUSR)
            with self._root.staged(
                path, before.data, self._rules, mode=before.mode, executable=executable
            ) as file:
                file.commit()

        return back
