"""`FileTools`: the tools with which a model reads and changes files; it reads their docstrings."""

from __future__ import annotations

import threading
from functools import partial
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
from agent_runtime.tools.parameters import ContextLines, Count, Line, Offset, Pattern
from agent_runtime.tools.workspace.editing.patch import read_patch
from agent_runtime.tools.workspace.editing.replace import (
    EDITED_BYTES,
    Replacement,
    apply_edits,
    line_ranges,
)
from agent_runtime.tools.workspace.editing.staged_file import MISSING
from agent_runtime.tools.workspace.editing.text_file import NotText, TextFile
from agent_runtime.tools.workspace.listing import list_matches
from agent_runtime.tools.workspace.patched_files import (
    Loaded,
    PatchedFiles,
    load,
    text_of,
    within_limit,
)
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
from agent_runtime_config.counted import counted

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
        offset: Line = 1,
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
            text = f"{show(path)}: {media_type}, {counted(len(data), 'byte')}; it is attached."
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
                one = before.first == before.last
                lines = f"line {before.first}" if one else f"lines {before.first}-{before.last}"
                return ToolResult(
                    f"{show(path)} is unchanged since step {before.step}: the result of read_file "
                    f"there still shows you {lines}. Call again to see {'it' if one else 'them'} "
                    "all the same."
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
            loaded = load(self._root, path, rules)
            if loaded is None:
                raise ToolError(f"{show(path)}: No such file.", cure="Create it with write_file.")
            self._check_unchanged(context, path, loaded)
            file, ranges = apply_edits(show(path), text_of(path, loaded), edits)
            data = within_limit(path, file.encode())
            self._root.replace(path, data, rules, read=loaded.state)
            text = f"Edited {show(path)}: {line_ranges(ranges)}."
            return self._known(context, text, self._version(context, path, data))

    def write_file(
        self, context: ToolContext, path: str, content: str, append: bool = False
    ) -> ToolResult:
        """Write a text file, or append to it."""
        rules = self._rules(context)
        self._root.check_writable(path, rules)
        with self._writing:
            loaded = load(self._root, path, rules)
            old = loaded and self._text_or_none(loaded)
            if append:
                data = (old or TextFile()).appended(content)
                now = self._root.append(path, data, rules)
                whole = (loaded.data if loaded else b"") + data
                text = (
                    f"Appended {counted(len(data), 'byte')} to {show(path)}; "
                    f"it has {counted(now, 'byte')} now."
                )
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
                had = "" if before is None else f"it had {counted(before, 'byte')} before"
                wrote = counted(len(whole), "byte")
                text = f"Wrote {wrote} to {show(path)}; {had or 'a new file'}."
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
            patched = PatchedFiles(self._root, rules, partial(self._load_unchanged, context))
            # All in memory first, so that a patch that does not fit changes nothing.
            lines = [patched.apply(one) for one in files]
            patched.write()
            seen = [self._version(context, path, data) for path, data in patched.written()]
            return self._known(context, "\n".join(["Patched:", *lines]), *seen)

    # What they share

    def _key(self, path: str) -> str:
        return str(self._root.path.joinpath(*self._root.parts(path)))

    def _version(self, context: ToolContext, path: str, data: bytes) -> SeenFile:
        return SeenFile(self._key(path), digest_of(data), context.step)

    def _load_unchanged(
        self, context: ToolContext, path: str, rules: ProtectedPaths
    ) -> Loaded | None:
        """Return a file as `load` does. Raises `ToolError` if the run knows an older one."""
        if (loaded := load(self._root, path, rules)) is not None:
            self._check_unchanged(context, path, loaded)
        return loaded

    def _text_or_none(self, loaded: Loaded) -> TextFile | None:
        try:
            return TextFile.of(loaded.data) if len(loaded.data) <= EDITED_BYTES else None
        except NotText:
            return None

    def _changed(self, context: ToolContext, path: str, loaded: Loaded) -> int | None:
        files = context.service(SeenFiles)
        if files is None or len(loaded.data) > EDITED_BYTES:
            return None
        return files.changed(self._key(path), digest_of(loaded.data))

    def _check_unchanged(self, context: ToolContext, path: str, loaded: Loaded) -> None:
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
    return ToolError(f"{show(path)} is a binary file of {counted(size, 'byte')}; it is not shown.")
