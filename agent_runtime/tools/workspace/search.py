"""Search files for a regular expression, within time limits that hold for any pattern."""

from __future__ import annotations

import fnmatch
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import regex

from agent_runtime.errors import ToolError
from agent_runtime.tools.workspace.root import FolderEntry, Root, show

SECONDS = 20.0
"""How long a search may take; it then returns the matches so far."""
LINE_SECONDS = 1.0
"""How long the pattern may take on one line."""
MOST_BYTES = 16 << 20
"""Larger files are not searched."""
SHOWN_CHARS = 300
"""How much is shown of a matching line."""


@dataclass(slots=True)
class FileSearch:
    """The state of a search."""

    limit: int
    deadline: float
    lines: list[str] = field(default_factory=list[str])
    matches: int = 0
    matching: int = 0
    searched: int = 0
    left_out: list[str] = field(default_factory=list[str])
    stopped: bool = False


def is_binary(data: bytes) -> bool:
    """Return whether a file's first bytes show that it is binary."""
    return b"\0" in data[:8192]


def search_folder(root: Root, pattern: str, path: str, glob: str, limit: int) -> str:
    """Search below `path`; return the matching lines as text for a model.  Blocks.

    Raises:
        ToolError: the pattern is not a regular expression or takes too long, or the path does not
            exist.
    """
    try:
        compiled = regex.compile(pattern)
    except regex.error as error:
        raise ToolError(f"{pattern!r} is no regular expression: {error}.") from None
    state = FileSearch(limit, time.monotonic() + SECONDS)
    files, unreadable = _files(root, path, glob)
    for file in files:
        if time.monotonic() > state.deadline:
            state.stopped = True
            break
        _search_file(root, compiled, file, state)
    state.left_out += [f"{show(one)}/ ({reason})" for one, reason in unreadable.items()]
    return _text(state, pattern, len(files))


def _files(root: Root, path: str, glob: str) -> tuple[list[FolderEntry], dict[str, str]]:
    if root.is_file(path):
        with root.read(path) as (_, size):
            return [FolderEntry("/".join(root.parts(path)), "file", size)], {}
    walk = root.walk(path, recursive=True)
    start = len("/".join((*root.parts(path), "")))
    files = [one for one in walk.found if one.kind == "file" and _wanted(one.path[start:], glob)]
    return files, walk.unreadable


def _wanted(path: str, glob: str) -> bool:
    if "/" not in glob:
        return fnmatch.fnmatchcase(path.rpartition("/")[2], glob)
    # `**/` also matches no folder at all.
    globs = (glob, glob.replace("**/", ""))
    return any(fnmatch.fnmatchcase(path, one.removeprefix("./")) for one in globs)


def _search_file(
    root: Root, compiled: regex.Pattern[str], file: FolderEntry, state: FileSearch
) -> None:
    if file.size > MOST_BYTES:
        state.left_out.append(f"{show(file.path)} (larger than {MOST_BYTES:,} bytes)")
        return
    try:
        with root.read(file.path) as (opened, _):
            data = opened.read(MOST_BYTES)
    except ToolError as error:
        state.left_out.append(error.message.removesuffix("."))
        return
    if is_binary(data):
        state.left_out.append(f"{show(file.path)} (binary)")
        return
    state.searched += 1
    before = state.matches
    for number, line in _matching(compiled, data.decode(errors="replace"), file, state):
        state.matches += 1
        if len(state.lines) < state.limit:
            state.lines.append(f"{show(file.path)}:{number}: {line[:SHOWN_CHARS]}")
    state.matching += state.matches > before


def _matching(
    compiled: regex.Pattern[str], text: str, file: FolderEntry, state: FileSearch
) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.split("\n"), 1):
        if number % 1000 == 0 and time.monotonic() > state.deadline:
            state.stopped = True
            return
        try:
            found = compiled.search(line, timeout=LINE_SECONDS)
        except TimeoutError:
            raise ToolError(
                f"The pattern takes more than {LINE_SECONDS:g} s on line {number} of "
                f"{show(file.path)}.",
                cure="Use a simpler one, without a repetition inside a repetition.",
            ) from None
        if found is not None:
            yield number, line.rstrip("\r")


def _text(state: FileSearch, pattern: str, files: int) -> str:
    text = (
        f"{state.matches:,} matching lines in {state.matching:,} files; "
        f"{state.searched:,} of {files:,} files were searched for {pattern!r}."
    )
    if len(state.lines) < state.matches:
        text += f" The first {len(state.lines):,} lines follow."
    if state.stopped:
        text += f" It was stopped after {SECONDS:g} s; search a smaller folder."
    if state.left_out:
        text += f" Not searched: {', '.join(state.left_out[:20])}"
        text += f" and {len(state.left_out) - 20:,} more." if len(state.left_out) > 20 else "."
    return "\n".join([text, *state.lines])
