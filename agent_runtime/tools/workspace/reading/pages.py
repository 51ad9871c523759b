"""Show a text file in pages: numbered lines, its size, where to go on, and what is in the rest."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import BinaryIO

from agent_runtime.tools.workspace.editing.text_file import NotText, TextFile, shown
from agent_runtime.tools.workspace.path_errors import show
from agent_runtime.tools.workspace.reading.outline import outline
from agent_runtime_config.counted import counted

PAGE_LINES = 300
"""The lines of a page."""
PAGE_CHARS = 14_000
"""The most characters of a page, about 4,000 tokens."""
LONGEST_PAGE = 2 * PAGE_CHARS
"""The most characters of a page whose number of lines is given."""
LINE_CHARS = 2000
"""How much is shown of a line, unless it is the only one asked for."""
WHOLE_BYTES = 16 << 20
"""Larger files are read in pieces, without an encoding, an outline and a digest."""
COUNTED_BYTES = 64 << 20
"""Lines of larger files are not counted to the end."""
READ_SECONDS = 10.0
"""How long a file is read for its lines."""


@dataclass(slots=True)
class LinePage:
    """Some lines of a file.

    Attributes:
        first: the number of the first line, from 1.
        lines: what is shown; long ones are shortened.
        total: how many lines the file has; None if they were not counted.
        whole: whether every line asked for is shown whole.
        cut: the number and length of lines of which only the beginning is shown.
        notes: what else to know of the bytes.
        rest: an outline of what follows.
        reached: the last line that could be looked at in time; None for the last of the file.
    """

    first: int
    lines: list[str]
    total: int | None
    cut: dict[int, int] = field(default_factory=dict[int, int])
    notes: list[str] = field(default_factory=list[str])
    rest: list[str] = field(default_factory=list[str])
    reached: int | None = None

    @property
    def last(self) -> int:
        """The number of the last line."""
        return self.first + len(self.lines) - 1

    @property
    def more(self) -> bool:
        """Whether the file goes on after the page."""
        return bool(self.lines) and (self.total is None or self.last < self.total)


def page_of(path: str, file: TextFile, first: int, limit: int | None) -> LinePage:
    """Return a page of a file that is in memory.

    Args:
        limit: how many lines; None for a page.
    """
    text = shown(file.text)
    lines = text.split("\n")
    if not lines[-1]:
        # After the last line end there is no line.
        lines.pop()
    page = LinePage(first, [], len(lines), notes=file.notes)
    if lines and text[-1] != "\n":
        page.notes.append("no newline at the end")
    room = _Room(limit)
    for number, line in enumerate(lines[first - 1 :], first):
        if not room.add(page, number, line):
            break
    if page.more and limit is None:
        rest = enumerate(lines[page.last :], page.last + 1)
        page.rest = outline(path, rest)
    return page


class _Room:
    """What fits into a page."""

    def __init__(self, limit: int | None) -> None:
        self._lines = limit or PAGE_LINES
        self._chars = PAGE_CHARS if limit is None else LONGEST_PAGE
        self._longest = LONGEST_PAGE if limit == 1 else LINE_CHARS

    def add(self, page: LinePage, number: int, line: str) -> bool:
        """Add a line; return whether there was room for it."""
        length = len(line)
        line = line[: self._longest]
        if len(page.lines) == self._lines or (page.lines and len(line) > self._chars):
            return False
        if length > self._longest:
            page.cut[number] = length
            line += "…"
        self._chars -= len(line) + len(str(number)) + 2
        page.lines.append(line)
        return True


def page_of_large(file: BinaryIO, size: int, first: int, limit: int | None) -> LinePage:
    """Return a page of a file that is too large to be in memory.

    Raises:
        NotText: it is binary.
    """
    # Read in pieces of limited size: a file may be one line of gigabytes.
    # As git and grep decide it: text has no zero byte near its beginning.
    if b"\0" in file.read(8192):
        raise NotText
    file.seek(0)
    deadline = time.monotonic() + READ_SECONDS
    page, room = LinePage(first, [], None), _Room(limit)
    number, length, kept, full = 0, 0, b"", False
    while piece := file.readline(LONGEST_PAGE * 4):
        # Of a sparse file there may be terabytes, whatever its disk holds.
        if time.monotonic() > deadline:
            page.reached = number
            return page
        if not length:
            number, kept = number + 1, piece
        length += len(piece)
        if not piece.endswith(b"\n"):
            continue
        full = full or (number >= first and not _add(page, room, number, kept, length))
        length = 0
        # From here on the rest is only read to count its lines.
        if full and size > COUNTED_BYTES:
            return page
    if length and number >= first and not full:
        _add(page, room, number, kept, length)
    page.total = number
    return page


def _add(page: LinePage, room: _Room, number: int, kept: bytes, length: int) -> bool:
    line = kept.decode(errors="replace").removesuffix("\n").removesuffix("\r")
    before = len(page.lines)
    added = room.add(page, number, line)
    if added and length > len(kept):
        page.cut[number] = length
        page.lines[before] = page.lines[before].removesuffix("…") + "…"
    return added


def render(path: str, size: int, page: LinePage) -> str:
    """Return a page as a model reads it."""
    total = "many lines" if page.total is None else counted(page.total, "line")
    header = [f"{show(path)}: {total}, {counted(size, 'byte')}"]
    if page.lines and (page.more or page.first > 1):
        one = page.first == page.last
        shown_lines = (
            f"line {page.first} follows" if one else f"lines {page.first}-{page.last} follow"
        )
        header.append(shown_lines)
    elif page.reached is not None:
        header.append(f"it was read for {READ_SECONDS:g} s, which led to line {page.reached:,}")
    elif not page.lines and page.first > 1:
        header.append(f"there is no line {page.first:,}")
    if page.more:
        header.append(f"next: offset={page.last + 1}")
    header += page.notes
    for number, length in list(page.cut.items())[:5]:
        way = "" if len(page.lines) == 1 else f"; offset={number} limit=1 shows more"
        header.append(f"line {number} is cut, of {length:,} characters{way}")
    body = [f"{number}|{line}" for number, line in enumerate(page.lines, page.first)]
    if page.rest:
        body += ["", "In the rest:", *page.rest]
    return "\n".join(["; ".join(header) + ".", *body])
