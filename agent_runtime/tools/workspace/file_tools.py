"""`FileTools`: the tools with which a model reads and changes files; it reads their docstrings."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field, WithJsonSchema

from agent_runtime.errors import ToolError
from agent_runtime.files.attach import File
from agent_runtime.files.media_types import IMAGES, PDF, sniff
from agent_runtime.messages import SeenFile, ToolResult
from agent_runtime.tools.base import Tool
from agent_runtime.tools.context import ToolContext
from agent_runtime.tools.function import tool
from agent_runtime.tools.parameters import ContextLines, Count, Offset, Pattern
from agent_runtime.tools.workspace.editing.patch import FilePatch, read_patch
from agent_runtime.tools.workspace.editing.patch_file import apply_hunks
from agent_runtime.tools.workspace.editing.replace import (
    EDITED_BYTES,
    Range,
    Replacement,
    apply_edits,
    too_large,
)
from agent_runtime.tools.workspace.editing.staged_file import MISSING, FileState
from agent_runtime.tools.workspace.editing.text_file import NotText, TextFile
from agent_runtime.tools.workspace.listing import list_matches
from agent_runtime.tools.workspace.path_errors import show
from agent_runtime.tools.workspace.protected_paths import DEFAULT, ProtectedPaths
from agent_runtime.tools.workspace.reading.pages import (
    WHOLE_BYTES,
    LinePage,
    page_of,
    page_of_large,
    render,
)
from agent_runtime.tools.workspace.reading.seen_files import SeenFiles, digest_of
from agent_runtime.tools.workspace.root import Root
from agent_runtime.tools.workspace.searching.search import Query, search_files

WORTH_CHARS = 600
"""Shorter texts are shown again, as a line that says where they stand is as long."""
MOST_EDITS = 100
MOST_FILES = 100
"""The most files of one patch."""

Edits = Annotated[
    list[Replacement],
    Field(min_length=1, max_length=MOST_EDITS),
    WithJsonSchema(
        {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "old": {"type": "string"},
                    "new": {"type": "string"},
                    "all": {"type": "boolean"},
                },
                "required": ["old", "new"],
            },
        }
    ),
]


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A file that was read whole."""

    data: bytes
    state: FileState
    mode: int


@dataclass(slots=True)
class _Patched:
    """What a patch makes of one path.

    Attributes:
        loaded: the file there before; None if there was none.
        file: the file afterwards; None if it is deleted.
        mode: its permissions where there was none; None for the usual ones.
    """

    loaded: _Loaded | None
    file: TextFile | None
    mode: int | None = None

    @property
    def read(self) -> FileState:
        """The state of the file there before."""
        return MISSING if self.loaded is None else self.loaded.state


class FileTools:
    """The tools for the files of one folder.

    Args:
        rules: what they must not write or read; the settings' rules come after these.
    """

    def __init__(self, root: Root, rules: ProtectedPaths = DEFAULT) -> None:
        self._root = root
        self._own_rules = rules
        # Calls of one answer run in parallel: of two edits of a file none must be lost, and the
        # second must know the version that the first has made.
        self._writing = threading.Lock()

    @property
    def folder(self) -> Path:
        """Their folder."""
        return self._root.path

    @property
    def rules(self) -> ProtectedPaths:
        """What they must not write or read, before the settings' rules."""
        return self._own_rules

    def tools(self) -> list[Tool]:
        """Return its methods as tools."""
        return [
            tool(self.read_file, idempotent=True),
            tool(self.search, idempotent=True),
            tool(self.glob, idempotent=True),
            tool(self.edit_file),
            tool(self.write_file),
            tool(self.apply_patch),
        ]

    def _rules(self, context: ToolContext) -> ProtectedPaths:
        return self._own_rules + (context.service(ProtectedPaths) or ProtectedPaths())

    # Reading

    def read_file(
        self,
        context: ToolContext,
        path: str,
        offset: Count = 1,
        limit: Count | None = None,
    ) -> ToolResult | list[str | File]:
        """Read a file as numbered lines (`12|text`), 300 at once; see an image or a PDF.

        Args:
            offset: the first line.
        """
        with self._root.read(path, self._rules(context)) as (opened, size):
            if size > WHOLE_BYTES:
                try:
                    page = page_of_large(opened, size, offset, limit)
                except NotText:
                    raise _binary(path, size) from None
                return ToolResult(render(path, size, page))
            # The file may grow meanwhile.
            data = opened.read(WHOLE_BYTES + 1)
        if (media_type := sniff(data)) and _is_shown(media_type):
            name = path.rstrip("/").rpartition("/")[2]
            text = f"{show(path)}: {media_type}, {len(data):,} bytes; it is attached."
            return [text, File(data, name=name, media_type=media_type)]
        try:
            page = page_of(path, TextFile.of(data), offset, limit)
        except NotText:
            raise _binary(path, len(data)) from None
        return self._shown(context, path, data, page)

    def _shown(self, context: ToolContext, path: str, data: bytes, page: LinePage) -> ToolResult:
        key, digest = self._key(path), digest_of(data)
        files = context.service(SeenFiles)
        text = render(path, len(data), page)
        if files is not None and page.lines and len(text) > WORTH_CHARS:
            before = files.still_shown(key, digest, page.first, page.last)
            if before is not None:
                return ToolResult(
                    f"{show(path)} is unchanged since step {before.step}: the result of read_file "
                    f"there still shows you lines {before.first}-{before.last}. Call again to see "
                    "them all the same."
                )
        last = 0 if page.cut else page.last
        return self._known(context, text, SeenFile(key, digest, context.step, page.first, last))

    def search(
        self,
        context: ToolContext,
        pattern: Pattern,
        path: str = ".",
        globs: str = "",
        ignore_case: bool = False,
        before: ContextLines = 0,
        after: ContextLines = 0,
        files_only: bool = False,
        ignored: bool = False,
        offset: Offset = 0,
    ) -> str:
        """Search the lines of text files.

        Args:
            pattern: a Python regular expression.
            globs: `*.py`, `src/**`, `*.{ts,tsx},!test_*`.
            before: lines to show.
            ignored: also what .gitignore has.
            offset: matches to skip.
        """
        query = Query(pattern, path, globs, ignore_case, before, after, files_only, ignored, offset)
        return search_files(self._root, query, self._rules(context))

    def glob(
        self,
        pattern: str = "*",
        path: str = ".",
        by_path: bool = False,
        ignored: bool = False,
        offset: Offset = 0,
        limit: Count = 100,
    ) -> str:
        """List files and folders, newest first or by path.

        Args:
            pattern: `**/*.py` goes into folders.
        """
        return list_matches(
            self._root,
            pattern,
            path,
            ignored=ignored,
            newest=not by_path,
            offset=offset,
            limit=limit,
        )

    # Writing

    def edit_file(
        self,
        context: ToolContext,
        path: str,
        edits: Edits,
    ) -> ToolResult:
        """Replace texts in a file, in order, all or none.

        Args:
            edits: `old` is exactly as in the file, and there once unless `all`.
        """
        rules = self._rules(context)
        # Before it is read, so that the tools tell of no file that they may not write.
        self._root.check_writable(path, rules)
        with self._writing:
            loaded = self._load(path, rules)
            if loaded is None:
                raise ToolError(f"{show(path)}: No such file.", cure="write_file makes one.")
            self._check_unchanged(context, path, loaded)
            file, ranges = apply_edits(show(path), self._text(path, loaded), edits)
            data = _within_limit(path, file.encode())
            self._root.replace(path, data, rules, read=loaded.state)
            text = f"Edited {show(path)}: {_lines(ranges)}."
            return self._known(context, text, self._version(context, path, data))

    def write_file(
        self, context: ToolContext, path: str, content: str, append: bool = False
    ) -> ToolResult:
        """Write a text file, or append to it."""
        rules = self._rules(context)
        self._root.check_writable(path, rules)
        with self._writing:
            loaded = self._load(path, rules)
            old = loaded and self._text_or_none(loaded)
            if append:
                data = (old or TextFile()).appended(content)
                now = self._root.append(path, data, rules)
                whole = (loaded.data if loaded else b"") + data
                text = f"Appended {len(data):,} bytes to {show(path)}; it has {now:,} bytes now."
                if loaded and self._changed(context, path, loaded) is not None:
                    # What was added before is still unknown to the run.
                    return ToolResult(text)
            else:
                whole = (old or TextFile()).rewritten(content).encode()
                # The same content may be what an interrupted call has written.
                if loaded is not None and loaded.data != whole:
                    self._check_unchanged(context, path, loaded)
                state = MISSING if loaded is None else loaded.state
                before = self._root.replace(path, whole, rules, read=state)
                was = "a new file" if before is None else f"it had {before:,} bytes before"
                text = f"Wrote {len(whole):,} bytes to {show(path)}; {was}."
            return self._known(context, text, self._version(context, path, whole))

    def apply_patch(self, context: ToolContext, patch: str) -> ToolResult:
        """Apply a patch to several files, all or none.

        Args:
            patch: a unified diff, or `*** Begin Patch` with `*** Update File: path`,
                `*** Add File: path`, `*** Delete File: path`, `@@` and lines that begin with a
                blank, `-` or `+`.
        """
        rules, files = self._rules(context), read_patch(patch)
        if len(files) > MOST_FILES:
            raise ToolError(f"The patch has more than {MOST_FILES} files.", cure="Split it.")
        with self._writing:
            made: dict[str, _Patched] = {}
            # All in memory first, so that a patch that does not fit changes nothing.
            lines = [self._patch(context, one, made, rules) for one in files]
            self._write_all(made, rules)
            seen = [
                self._version(context, path, one.file.encode())
                for path, one in made.items()
                if one.file is not None
            ]
            return self._known(context, "\n".join(["Patched:", *lines]), *seen)

    def _patch(
        self,
        context: ToolContext,
        patch: FilePatch,
        made: dict[str, _Patched],
        rules: ProtectedPaths,
    ) -> str:
        """Add what a patch makes of one file; return a line that says it."""
        name = show(patch.path)
        old = self._patched(context, patch.path, made, rules)
        if patch.action == "add":
            if old.file is not None:
                raise ToolError(f"{name} exists already. Nothing was changed.", cure="Update it.")
            old.file = TextFile().rewritten(patch.added)
            return f"added {name}: {old.file.raw.count(chr(10)):,} lines"
        if old.file is None:
            raise ToolError(f"{name}: No such file. Nothing was changed.", cure="Check the path.")
        try:
            file, ranges, remarks = apply_hunks(name, old.file, patch.hunks)
        except ToolError as error:
            raise ToolError(f"Nothing was changed. {error.message}", cure=error.cure) from None
        if patch.action == "delete":
            if patch.hunks and file.raw:
                raise ToolError(
                    f"{name} has more than the lines that the patch deletes. Nothing was changed.",
                    cure="Read it again.",
                )
            old.file = None
            return f"deleted {name}"
        _within_limit(patch.path, file.encode())
        old.file = file
        what = "; ".join([*([_lines(ranges)] if ranges else []), *remarks])
        if not patch.moved:
            return f"{name}: {what}"
        new = self._patched(context, patch.moved, made, rules)
        if new.file is not None:
            raise ToolError(f"{show(patch.moved)} exists already. Nothing was changed.")
        new.mode = old.mode if old.loaded is None else old.loaded.mode
        new.file, old.file = file, None
        return f"moved {name} to {show(patch.moved)}{': ' * bool(what)}{what}"

    def _patched(
        self, context: ToolContext, path: str, made: dict[str, _Patched], rules: ProtectedPaths
    ) -> _Patched:
        self._root.check_writable(path, rules)
        # By the resolved path, as two names may lead to one file.
        name = "/".join(self._root.parts(path))
        if name not in made:
            loaded = self._load(path, rules)
            if loaded is not None:
                self._check_unchanged(context, path, loaded)
            made[name] = _Patched(loaded, loaded and self._text(path, loaded))
        return made[name]

    def _write_all(self, made: dict[str, _Patched], rules: ProtectedPaths) -> None:
        """Write what a patch made; where one file fails, put the others back."""
        undo: list[Callable[[], object]] = []
        with ExitStack() as stack:
            staged = [
                (path, one, stack.enter_context(self._staged(path, one, one.file, rules)))
                for path, one in made.items()
                if one.file is not None
            ]
            try:
                for path, one, file in staged:
                    file.commit()
                    undo.append(self._undo(path, one, rules))
                for path, one in made.items():
                    if one.file is None and one.loaded is not None:
                        self._root.remove(path, rules, read=one.read)
                        undo.append(self._undo(path, one, rules))
            except BaseException as error:
                lost: list[str] = []
                # The newest first: a move has written its new place before it removed the old
                # one.
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
                raise

    def _staged(self, path: str, one: _Patched, file: TextFile, rules: ProtectedPaths):
        return self._root.staged(path, file.encode(), rules, read=one.read, mode=one.mode)

    def _undo(self, path: str, one: _Patched, rules: ProtectedPaths) -> Callable[[], object]:
        if one.loaded is None:
            return lambda: self._root.remove(path, rules)
        before = one.loaded
        return lambda: self._root.replace(path, before.data, rules, mode=before.mode)

    # What they share

    def _key(self, path: str) -> str:
        return str(self._root.path.joinpath(*self._root.parts(path)))

    def _version(self, context: ToolContext, path: str, data: bytes) -> SeenFile:
        return SeenFile(self._key(path), digest_of(data), context.step)

    def _load(self, path: str, rules: ProtectedPaths) -> _Loaded | None:
        """Return a file's content, as far as it may be edited; None if there is no file."""
        try:
            with self._root.read(path, rules) as (opened, _):
                status = os.fstat(opened.fileno())
                mode = stat.S_IMODE(status.st_mode)
                return _Loaded(opened.read(EDITED_BYTES + 1), FileState.of(status), mode)
        except ToolError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return None
            raise

    def _text(self, path: str, loaded: _Loaded) -> TextFile:
        if len(loaded.data) > EDITED_BYTES:
            raise ToolError(f"{show(path)} has {loaded.state.size:,} bytes: too many to edit.")
        try:
            return TextFile.of(loaded.data)
        except NotText:
            raise ToolError(
                f"{show(path)} is a binary file of {len(loaded.data):,} bytes."
            ) from None

    def _text_or_none(self, loaded: _Loaded) -> TextFile | None:
        try:
            return TextFile.of(loaded.data) if len(loaded.data) <= EDITED_BYTES else None
        except NotText:
            return None

    def _changed(self, context: ToolContext, path: str, loaded: _Loaded) -> int | None:
        files = context.service(SeenFiles)
        if files is None or len(loaded.data) > EDITED_BYTES:
            return None
        return files.changed(self._key(path), digest_of(loaded.data))

    def _check_unchanged(self, context: ToolContext, path: str, loaded: _Loaded) -> None:
        """Raise `ToolError` if the file is not as the run last saw it."""
        step = self._changed(context, path, loaded)
        if step is not None:
            raise ToolError(
                f"{show(path)} has changed since you last saw it, in step {step}: another program, "
                "a command or an interrupted call wrote it. Nothing was changed.",
                cure="Read it again first.",
            )

    def _known(self, context: ToolContext, text: str, *seen: SeenFile) -> ToolResult:
        """Return a result with the versions of files that the run knows by it."""
        files = context.service(SeenFiles)
        if files is not None:
            files.record(context.call_id, seen)
        return ToolResult(text, seen=seen)


def _is_shown(media_type: str) -> bool:
    return media_type == PDF or media_type in IMAGES


def _binary(path: str, size: int) -> ToolError:
    return ToolError(f"{show(path)} is a binary file of {size:,} bytes; it is not shown.")


def _within_limit(path: str, data: bytes) -> bytes:
    if len(data) > EDITED_BYTES:
        raise too_large(show(path), len(data))
    return data


def _lines(ranges: Sequence[Range]) -> str:
    shown = [str(one) for one in ranges[:20]]
    more = f" and {len(ranges) - 20} more" if len(ranges) > 20 else ""
    one = len(ranges) == 1 and ranges[0].last <= ranges[0].first
    return f"line{'' if one else 's'} {', '.join(shown)}{more}"
