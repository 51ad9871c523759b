"""The rows of a run's progress above the line that a person edits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from agent_runtime.cli.chat.editor import MENU_ROWS
from agent_runtime.cli.terminal import terminal_size

if TYPE_CHECKING:
    from agent_runtime.cli.chat.editor import Editor
    from agent_runtime.cli.display.rows import Row

EDITED = MENU_ROWS + 2
"""Rows that are left to the edited line and its menu."""


class RowsAbove:
    """A region of the screen that the line editor paints, with its own line below.

    Args:
        size: returns the columns and rows of the terminal.
    """

    def __init__(
        self,
        editor: Editor,
        *,
        color: bool,
        size: Callable[[], tuple[int, int]] = terminal_size,
    ) -> None:
        self._editor, self._color, self._size = editor, color, size
        self._shown: list[str] = []

    @property
    def width(self) -> int:
        """Columns of a row: fewer than the terminal's, some of which wrap a row that fills it."""
        return max(1, self._size()[0] - 1)

    @property
    def height(self) -> int:
        """Rows that the region may have."""
        return max(1, self._size()[1] - EDITED)

    def frame(self, printed: Sequence[Row], region: Sequence[Row]) -> None:
        """Print rows, and paint the region below them."""
        above = "".join(f"{row.shown(color=self._color)}\r\n" for row in printed)
        rows = [row.shown(color=self._color) for row in region[: self.height]]
        # Nothing new: painting it again would make the terminal flicker.
        if above or rows != self._shown:
            self._editor.paint(above, rows)
            self._shown = rows

    def erase(self, printed: Sequence[Row] = ()) -> None:
        """Remove the region, and print rows where it was."""
        self.frame(printed, ())
