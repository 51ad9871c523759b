"""A model's text while it arrives: its finished blocks, and the end of the one being written."""

from __future__ import annotations

from dataclasses import dataclass, field

from agent_runtime.cli.display.rows import EMPTY, Row, joined
from agent_runtime.cli.terminal import printable, wrap

INDENT = 2
"""Columns before the text of a model, so that it cannot look like a line of this display."""
MOST_CHARS = 32 << 10
"""Characters; a longer block is printed before it is complete."""
RENDERED_CHARS = 2 << 10
"""Characters; a longer unfinished block is shown unrendered, to save rendering each change."""


@dataclass(slots=True)
class Prose:
    """A text that arrives in pieces.

    Attributes:
        shown: whether a part of it was given out.
    """

    shown: bool = False
    _pieces: list[str] = field(default_factory=list[str])
    _new_line: bool = False
    _in_list: bool = False
    _rest: list[Row] | None = None
    _width: int = 0

    def add(self, piece: str) -> None:
        """Add a piece."""
        self._pieces.append(piece)
        self._new_line = self._new_line or "\n" in piece
        self._rest = None

    def take_finished(self, width: int) -> list[Row]:
        """Return the rows of the blocks that are complete, and forget them."""
        # Only a new line can end a block: parsing after each piece would take the square of the
        # text.
        if not self._new_line:
            return []
        self._new_line = False
        from agent_runtime.cli.display.markdown import part_starts

        text = self._text()
        starts = part_starts(text)
        lines = text.splitlines(keepends=True)
        last, in_list = starts[-1] if starts else (0, False)
        if not last and len(text) > MOST_CHARS:
            last = len(lines) - 1
        if not last:
            return []
        self._pieces = ["".join(lines[last:])]
        rows = self._rendered("".join(lines[:last]), width)
        self._in_list = in_list
        return rows

    def take_all(self, width: int) -> list[Row]:
        """Return the rows of all that is left, and begin a new text."""
        text, shown, in_list = self._text(), self.shown, self._in_list
        self.drop()
        if not text.strip():
            return [EMPTY] if shown else []
        self.shown, self._in_list = shown, in_list
        rows = self._rendered(text, width)
        self.shown = self._in_list = False
        return [*rows, EMPTY]

    def unfinished(self, width: int, most: int) -> list[Row]:
        """Return the last rows of the block that is being written."""
        text = self._text()
        if not text.strip() or most < 1:
            return []
        if self._rest is None or self._width != width:
            self._rest, self._width = _unfinished_rows(text, width), width
        return self._rest[-most:]

    def drop(self) -> bool:
        """Forget the text; return whether a part of it was given out already."""
        shown, self.shown = self.shown, False
        self._pieces, self._new_line, self._rest = [], False, None
        self._in_list = False
        return shown

    def _rendered(self, text: str, width: int) -> list[Row]:
        from agent_runtime.cli.display.markdown import markdown_rows

        rows = _trimmed(markdown_rows(text, width, INDENT))
        # A blank row between blocks, and between the text and what was above it.
        before = [] if self._in_list else [EMPTY]
        self.shown = True
        return [*before, *rows] if rows else []

    def _text(self) -> str:
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""


def _unfinished_rows(text: str, width: int) -> list[Row]:
    if len(text) <= RENDERED_CHARS:
        from agent_runtime.cli.display.markdown import markdown_rows

        return _trimmed(markdown_rows(text, width, INDENT))
    # From the beginning of a line, if there is one.
    end = text[-RENDERED_CHARS:].partition("\n")[2] or text[-RENDERED_CHARS:]
    room = max(1, width - INDENT)
    rows = (row for line in printable(end).split("\n") for row in wrap(line, room))
    return [joined((" " * INDENT, ""), (row, "")) for row in rows]


def _trimmed(rows: list[Row]) -> list[Row]:
    """Return the rows without blank ones at the beginning and the end."""
    first = next((place for place, row in enumerate(rows) if row.text), len(rows))
    last = next((place for place, row in enumerate(reversed(rows)) if row.text), 0)
    return rows[first : len(rows) - last]
