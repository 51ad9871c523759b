"""A terminal in memory, to see what a person would."""

from __future__ import annotations

import importlib
from typing import Any

# It has no types.
pyte: Any = importlib.import_module("pyte")

HISTORY = 100_000
"""Rows above the screen that are kept."""


class Emulator:
    """A terminal that is written to, and what its screen and its scrollback show."""

    def __init__(self, columns: int, rows: int) -> None:
        self.screen = pyte.HistoryScreen(columns, rows, history=HISTORY, ratio=0.5)
        self._stream = pyte.Stream(self.screen)
        # What a terminal's driver does with line ends.
        self.screen.set_mode(pyte.modes.LNM)

    def write(self, text: str) -> None:
        """Write to it."""
        self._stream.feed(text)

    def size(self) -> tuple[int, int]:
        """Return its columns and rows."""
        return self.screen.columns, self.screen.lines

    def resize(self, columns: int, rows: int) -> None:
        """Change its window."""
        self.screen.resize(rows, columns)

    @property
    def rows(self) -> list[str]:
        """The rows of the screen, without trailing blanks."""
        return [str(row).rstrip() for row in self.screen.display]

    @property
    def scrollback(self) -> list[str]:
        """The rows that have left the screen at its top."""
        return [self._text(line) for line in self.screen.history.top]

    @property
    def everything(self) -> list[str]:
        """The scrollback and the screen."""
        return [*self.scrollback, *self.rows]

    def _text(self, line: Any) -> str:
        return "".join(line[column].data for column in range(self.screen.columns)).rstrip()
