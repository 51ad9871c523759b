"""The workspace tools: list, read, search, write and edit the files of one folder."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, BinaryIO

from pydantic import Field

from agent_runtime.errors import ConfigError, ToolError
from agent_runtime.tools.base import NeedsApproval, Tool
from agent_runtime.tools.context import ToolContext
from agent_runtime.tools.function import tool
from agent_runtime.tools.workspace.protected_paths import DEFAULT, ProtectedPaths
from agent_runtime.tools.workspace.root import FolderEntry, Root, Walk, show
from agent_runtime.tools.workspace.search import is_binary, search_folder
from agent_runtime.tools.workspace.shell import MOST_SECONDS, Shell, ShellOptions

MOST_BYTES = 1 << 20
"""The most bytes of a file that one call returns."""
COUNTED_BYTES = 64 << 20
"""Lines of larger files are not counted to the end."""
READ_SECONDS = 10.0
"""How long a file is read for its lines, or a folder for its entries."""
EDITED_BYTES = 16 << 20
"""The most bytes of a file that is edited, before and after."""

Offset = Annotated[int, Field(ge=0)]


def workspace_tools(
    root: str | os.PathLike[str],
    *,
    shell: bool = False,
    shell_approval: NeedsApproval = False,
    shell_timeout: float = MOST_SECONDS,
    environment: Mapping[str, str] | None = None,
    pass_environment: Sequence[str] = (),
    sandbox: str | None = None,
    sandbox_network: bool | None = None,
    read_only: bool = False,
    protected: Iterable[str] = (),
    hidden: Iterable[str] = (),
) -> list[Tool]:
    """Return tools that list, read, search, write and edit the files of one folder.

    Paths cannot lead out of it: `..`, absolute paths and links that do so are refused, even links
    swapped in during a call.  Not fenced are hard links and mounts inside of it, replacing the
    folder itself, and commands.  The files of an open database are always refused; your own tools
    must not open them either (see `agent_runtime_storage.open_store`).

    By default the files that git, virtual environments, shells, editors and package managers act on
    by themselves are not written, and files of secrets, such as `.env`, are not read or searched
    either.  Settings of the same names come after `protected` and `hidden`.

    Args:
        root: the folder.
        shell: whether to add `bash`; without a sandbox commands have all rights of this process.
        shell_approval: which commands need an approval, as in `@tool(needs_approval=...)`.
        shell_timeout: the most seconds that a command may take, unless it is in the background.
        environment: the variables of commands; None for a few of this process's own (`PATH`,
            `HOME`, `LANG` and others without secrets), with the folder's virtual environment
            (`.venv`, `venv`) instead of the runtime's.
        pass_environment: names of this process's variables that commands get in addition.
        sandbox: what confines commands: `none`, `bwrap` or `docker:IMAGE`; None for the setting.
        sandbox_network: whether commands in it may use the network; None for the setting.
        read_only: whether to leave out the tools that write.
        protected: globs of paths that must not be written.  A glob without `/` matches a name in
            any folder, one with `/` from the root on; `**` stands for any folders, and `!` before a
            glob makes an exception.
        hidden: globs of paths that must be neither written, nor read, nor searched.

    Raises:
        ConfigError: the root is not a folder, a name is not valid, or a shell is wanted for
            reading only.
    """
    if read_only and shell:
        raise ConfigError(
            "Commands can write, so they are not for a workspace that is only read.",
            cure="Leave out either `shell` or `read_only`.",
        )
    folder = Root(root)
    tools = Files(folder, DEFAULT + ProtectedPaths.of(protected, hidden)).tools(read_only)
    if shell:
        options = ShellOptions(sandbox, sandbox_network, tuple(pass_environment))
        commands = Shell(folder.path, shell_timeout, environment, options)
        tools += commands.tools(shell_approval)
    for one in tools:
        one.folder = folder.path
    return tools


class Files:
    """The file tools; a model reads their docstrings."""

    def __init__(self, root: Root, rules: ProtectedPaths = DEFAULT) -> None:
        self._root = root
        self._own_rules = rules
        # Calls of one answer run in parallel; of two edits of a file none must be lost.
        self._writing = threading.Lock()

    def tools(self, read_only: bool) -> list[Tool]:
        """Return its methods as tools."""
        tools: list[Tool] = [
            tool(self.list_files, idempotent=True),
            tool(self.read_file, idempotent=True),
            tool(self.search_files, idempotent=True),
        ]
        return tools if read_only else [*tools, tool(self.write_file), tool(self.edit_file)]

    def _rules(self, context: ToolContext) -> ProtectedPaths:
        return self._own_rules + (context.service(ProtectedPaths) or ProtectedPaths())

    def list_files(
        self,
        path: str = ".",
        recursive: bool = False,
        offset: Offset = 0,
        limit: Annotated[int, Field(ge=1, le=1000)] = 200,
    ) -> str:
        """List a folder, sorted; sizes in bytes, folders end with `/`.

        Args:
            path: the folder.
            recursive: whether to list its subfolders too.
            offset: how many entries to skip.
            limit: how many entries to show.
        """
        deadline = time.monotonic() + READ_SECONDS
        walk = self._root.walk(path, recursive=recursive, deadline=deadline)
        page = walk.found[offset : offset + limit]
        lines = [_listing_header(path, walk, recursive, offset, len(page))]
        lines += [_listing_line(one) for one in page]
        return "\n".join(lines)

    def read_file(
        self,
        context: ToolContext,
        path: str,
        offset: Offset = 0,
        limit: Annotated[int, Field(ge=1, le=10_000)] = 400,
    ) -> str:
        """Read a text file; returns a line with its size, then its text.

        Args:
            path: the file.
            offset: how many lines to skip.
            limit: how many lines to show.
        """
        with self._root.read(path, self._rules(context)) as (file, size):
            part = _read_lines(file, size, offset, limit)
        if part is None:
            raise ToolError(f"{show(path)} is a binary file of {size:,} bytes; it is not shown.")
        text = part.data.decode(errors="replace").replace("\r\n", "\n")
        return f"{_reading_header(path, size, offset, part)}\n{text}"

    def search_files(
        self,
        context: ToolContext,
        pattern: Annotated[str, Field(min_length=1, max_length=1000)],
        path: str = ".",
        glob: str = "*",
        limit: Annotated[int, Field(ge=1, le=1000)] = 100,
    ) -> str:
        """Search the text files below a folder for a regular expression.

        Args:
            pattern: a regular expression (Python's `re`), matched within each line.
            path: the folder, or one file.
            glob: which files, by name (`*.py`) or by path below the folder (`src/*.py`); `*`
                matches any characters, including `/`.
            limit: how many matching lines to show; all are counted.
        """
        return search_folder(self._root, pattern, path, glob, limit, self._rules(context))

    def write_file(
        self, context: ToolContext, path: str, content: str, append: bool = False
    ) -> str:
        """Write or append to a text file; missing folders are created.

        Args:
            path: the file.
            content: the whole text, or the text to append.
            append: whether to append instead of replacing the file.
        """
        data, rules = _encode(content), self._rules(context)
        with self._writing:
            if append:
                now = self._root.append(path, data, rules)
                return f"Appended {len(data):,} bytes to {show(path)}; it has {now:,} bytes now."
            before = self._root.replace(path, data, rules)
        old = "a new file" if before is None else f"it had {before:,} bytes before"
        return f"Wrote {len(data):,} bytes to {show(path)}; {old}."

    def edit_file(
        self,
        context: ToolContext,
        path: str,
        old: Annotated[str, Field(min_length=1)],
        new: str,
        replace_all: bool = False,
    ) -> str:
        """Replace text in a file.

        Args:
            path: the file.
            old: the text to replace, exactly as in the file; it must occur only once.
            new: the text to put there.
            replace_all: whether to replace every occurrence; there may then be several.
        """
        rules = self._rules(context)
        with self._writing:
            with self._root.read(path, rules) as (file, size):
                if size > EDITED_BYTES:
                    raise ToolError(f"{show(path)} has {size:,} bytes: too many to edit.")
                # The file may grow meanwhile.
                data = file.read(EDITED_BYTES + 1)
            if is_binary(data):
                raise ToolError(f"{show(path)} is a binary file of {len(data):,} bytes.")
            wanted, wished = _encode(old), _encode(new)
            count = data.count(wanted)
            if not count and b"\r\n" in data:
                # Models see and write \n only.
                wanted, wished = _crlf(wanted), _crlf(wished)
                count = data.count(wanted)
            if not count:
                raise ToolError(
                    f"{show(path)} does not contain that text.",
                    cure="Read the file, and give the text exactly, with its spaces.",
                )
            if count > 1 and not replace_all:
                raise ToolError(
                    f"{show(path)} contains that text {count} times.",
                    cure="Give more of the text around it, or set replace_all.",
                )
            length = len(data) + count * (len(wished) - len(wanted))
            if length > EDITED_BYTES:
                raise ToolError(
                    f"{show(path)} would grow to {length:,} bytes, of at most {EDITED_BYTES:,}.",
                    cure="Replace fewer occurrences, or put less text in their place.",
                )
            self._root.replace(path, data.replace(wanted, wished), rules)
        return f"Replaced {count} occurrence{'s' * (count > 1)} in {show(path)}."


@dataclass(slots=True)
class FileLines:
    """Some lines of a file.

    Attributes:
        lines: how many there are in `data`.
        total: how many the file has; None if they were not counted.
        cut: how many bytes of an overlong last line are left out.
        reached: the last line that could be looked at in time; None for the last of the file.
    """

    data: bytes
    lines: int
    total: int | None
    cut: int = 0
    reached: int | None = None


def _read_lines(file: BinaryIO, size: int, offset: int, limit: int) -> FileLines | None:
    """Return some lines; None for a binary file."""
    # Read in pieces of limited size: a file may be one line of gigabytes.
    if is_binary(file.read(8192)):
        return None
    file.seek(0)
    deadline = time.monotonic() + READ_SECONDS
    kept: list[bytes] = []
    room, cut, number = MOST_BYTES, 0, 0
    line_begins, full = True, False
    while piece := file.readline(MOST_BYTES):
        continues = not line_begins
        line_begins = piece.endswith(b"\n")
        number += not continues
        # Of a sparse file there may be terabytes, whatever its disk holds.
        if time.monotonic() > deadline:
            return FileLines(b"".join(kept), len(kept), None, cut, number)
        if number <= offset or full:
            continue
        if continues:
            cut += len(piece)
        elif len(kept) == limit or (kept and len(piece) > room):
            full = True
            # From here on the rest is only read to count its lines.
            if size > COUNTED_BYTES:
                return FileLines(b"".join(kept), len(kept), None, cut)
        else:
            kept.append(piece)
            room -= len(piece)
    return FileLines(b"".join(kept), len(kept), number, cut)


def _reading_header(path: str, size: int, offset: int, part: FileLines) -> str:
    total = "many lines" if part.total is None else f"{part.total:,} lines"
    texts = [f"{show(path)}: {total}, {size:,} bytes"]
    end = offset + part.lines
    if part.lines:
        texts.append(f"lines {offset + 1:,} to {end:,} follow")
    elif part.reached is not None:
        texts.append(f"it was read for {READ_SECONDS:g} s, which led to line {part.reached:,}")
    elif offset:
        texts.append(f"there is nothing after line {offset:,}")
    if part.lines and (part.total is None or end < part.total):
        texts.append(f"next: offset={end}")
    if part.cut:
        texts.append(f"the last {part.cut:,} bytes of line {end:,} are left out")
    if b"\r\n" in part.data:
        texts.append("its line ends are CRLF")
    try:
        part.data.decode()
    except UnicodeDecodeError:
        texts.append("bytes that are not UTF-8 are shown as �")
    return "; ".join(texts) + "."


def _listing_header(path: str, walk: Walk, recursive: bool, offset: int, shown: int) -> str:
    counts: dict[str, int] = dict.fromkeys(("file", "folder", "link", "other"), 0)
    for one in walk.found:
        counts[one.kind] += 1
    size = sum(one.size for one in walk.found)
    total = len(walk.found)
    kinds = [f"{counts['file']:,} files of {size:,} bytes", f"{counts['folder']:,} folders"]
    kinds += [f"{counts[kind]:,} {name}" for kind, name in _RARE.items() if counts[kind]]
    below = " and below" if recursive else ""
    text = f"{total:,} entries in {show(path)}{below}: {', '.join(kinds)}."
    if shown < total:
        text += f" Entries {offset + 1:,} to {offset + shown:,} follow" if shown else " None follow"
        text += f"; next: offset={offset + shown}." if offset + shown < total else "."
    if walk.stopped:
        text += f" It was stopped after {READ_SECONDS:g} s, so entries are missing."
    if walk.skipped:
        text += f" Left out: {', '.join(map(show, walk.skipped))}."
    for one, reason in walk.unreadable.items():
        text += f" Not readable: {show(one)}/ ({reason})."
    return text


_RARE = {"link": "symbolic links (not followed)", "other": "special files"}


def _listing_line(one: FolderEntry) -> str:
    if one.kind == "folder":
        return f"{'-':>10}  {show(one.path + '/')}"
    if one.kind == "link":
        return f"{'link':>10}  {show(one.path)} -> {show(one.target)}"
    size: Any = one.size if one.kind == "file" else "special"
    return f"{size:>10}  {show(one.path)}"


def _encode(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ToolError(f"The text cannot be written as UTF-8: {error.reason}.") from None


def _crlf(data: bytes) -> bytes:
    return data.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
