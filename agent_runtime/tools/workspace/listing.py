"""List the files that a glob names, the newest first, and the entries of folders."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any

from agent_runtime.tools.workspace.path_errors import show
from agent_runtime.tools.workspace.root import FolderEntry, Root, Walk
from agent_runtime.tools.workspace.searching.globs import PathGlob
from agent_runtime.tools.workspace.searching.ignored import IgnoredFiles
from agent_runtime_config.counted import counted

LIST_SECONDS = 60.0
"""How long a folder is looked through; the result says so if that was not enough."""
RESULT_CHARS = 7000
"""How much is shown of a listing, about 2,000 tokens."""
PAGE = 100
"""The entries of a page."""
LONGEST = 4 * RESULT_CHARS
"""How much is shown where more entries are asked for."""
_RARE = {
    "link": ("symbolic link (not followed)", "symbolic links (not followed)"),
    "other": ("special file", "special files"),
}


def list_matches(
    root: Root,
    pattern: str,
    path: str,
    *,
    ignored: bool,
    newest: bool,
    offset: int,
    limit: int,
) -> str:
    """Return the entries below a folder that match a glob, as text for a model.  Blocks.

    Args:
        ignored: whether to include what `.gitignore` leaves out.
        newest: whether the newest come first; else they are sorted by path.

    Raises:
        ToolError: the folder does not exist, or the glob is not usable.
    """
    glob = PathGlob.of(_below(root, pattern))
    start = glob.start
    folder = "/".join((path, *start)) if start else path
    parts = root.parts(folder)
    rules = None if ignored else IgnoredFiles(root, parts).matches
    depth = None if glob.depth is None else glob.depth - len(start)
    deadline = time.monotonic() + LIST_SECONDS
    walk = root.walk(folder, depth=depth, deadline=deadline, ignored=rules)
    walk.found = [
        one for one in walk.found if glob.matches((*start, *one.path.split("/")[len(parts) :]))
    ]
    if newest:
        walk.found.sort(key=lambda one: -one.modified)
    room = RESULT_CHARS if limit <= PAGE else LONGEST
    page = _fitting(walk.found[offset : offset + limit], room)
    what = pattern if path == "." else f"{path}/{pattern}"
    header = _header(what, walk, offset, len(page), newest=newest)
    return "\n".join([header, *page])


def _below(root: Root, pattern: str) -> str:
    path = PurePosixPath(pattern)
    inside = path.is_absolute() and path.is_relative_to(root.path)
    return str(path.relative_to(root.path)) if inside else pattern


def _fitting(entries: Sequence[FolderEntry], room: int) -> list[str]:
    lines: list[str] = []
    for one in entries:
        line = _line(one)
        room -= len(line) + 1
        # At least one, so that paging always gets on.
        if room < 0 and lines:
            break
        lines.append(line)
    return lines


def _header(what: str, walk: Walk, offset: int, shown: int, *, newest: bool) -> str:
    counts: dict[str, int] = dict.fromkeys(("file", "folder", "link", "other"), 0)
    for one in walk.found:
        counts[one.kind] += 1
    size = sum(one.size for one in walk.found)
    total = len(walk.found)
    files, folders = counted(counts["file"], "file"), counted(counts["folder"], "folder")
    kinds = [f"{files} of {counted(size, 'byte')}", folders]
    kinds += [counted(counts[kind], *names) for kind, names in _RARE.items() if counts[kind]]
    order = ", newest first" if newest and total > 1 else ""
    text = f"{counted(total, 'entry', 'entries')} for {show(what)}: {', '.join(kinds)}{order}."
    if shown < total:
        text += f" Entries {offset + 1:,}-{offset + shown:,} follow" if shown else " None follow"
        text += f"; next: offset={offset + shown}." if offset + shown < total and shown else "."
    if walk.stopped:
        text += f" It was stopped after {LIST_SECONDS:g} s, so entries are missing."
    if walk.skipped:
        text += f" Left out: {', '.join(map(show, walk.skipped[:20]))}"
        more = len(walk.skipped) - 20
        text += f" and {more:,} more." if more > 0 else "."
    if walk.ignored:
        text += f" In .gitignore: {walk.ignored:,}."
    for one, reason in list(walk.unreadable.items())[:20]:
        text += f" Not readable: {show(one)}/ ({reason})."
    return text


def _line(one: FolderEntry) -> str:
    if one.kind == "folder":
        return f"-  {show(one.path + '/')}"
    if one.kind == "link":
        return f"link  {show(one.path)} -> {show(one.target)}"
    size: Any = one.size if one.kind == "file" else "special"
    return f"{size}  {show(one.path)}"
