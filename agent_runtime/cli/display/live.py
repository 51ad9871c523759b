"""Rows at the end of the output that are repainted in place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from agent_runtime.cli.display.rows import Row
from agent_runtime.cli.terminal import terminal_size, write_frame

ERASE = "\r\x1b[K\x1b[C\x1b[J\r"
"""Erases from the cursor's row to the end of the screen.

The row first, and the rest from its second column: tmux takes an erasure from the screen's first
cell for the end of a screen, and moves all rows to its scrollback, with each frame.
"""
CUT, WRAP = "\x1b[?7l", "\x1b[?7h"
"""Between them, a row that is too long ends at the edge of the window."""
BEGIN, END = "\x1b[?2026h", "\x1b[?2026l"
"""Between them, terminals that know them show nothing, so that no half of a frame is seen."""


class Region(Protocol):
    """Where printed rows go, and the rows below them that change."""

    @property
    def width(self) -> int:
        """Columns of a row."""
        ...

    @property
    def height(self) -> int:
        """Rows that the region may have."""
        ...

    def frame(self, printed: Sequence[Row], region: Sequence[Row]) -> None:
        """Print rows, and paint the region below them."""
        ...

    def erase(self, printed: Sequence[Row] = ()) -> None:
        """Remove the region, and print rows where it was."""
        ...


class LiveRegion:
    """A few rows at the end of what is printed.

    The cursor rests at the beginning of the first of them.  So everything from the cursor on is
    the region, whatever its height was and however the window has changed since, and nothing above
    can be erased.

    Args:
        size: returns the columns and rows of the terminal.
        write: writes a frame to it.
    """

    def __init__(
        self,
        *,
        color: bool,
        size: Callable[[], tuple[int, int]] = terminal_size,
        write: Callable[[str], None] = write_frame,
    ) -> None:
        self._color, self._size, self._write = color, size, write
        self._shown: object = None

    @property
    def width(self) -> int:
        """Columns of a row: fewer than the terminal's, some of which wrap a row that fills it.

        Ctrl-C writes `^C` at the cursor, at the beginning of a row, where it has room.
        """
        return max(1, self._size()[0] - 1)

    @property
    def height(self) -> int:
        """Rows that the region may have, so that what is printed stays in sight."""
        return max(1, self._size()[1] - 2)

    def frame(self, printed: Sequence[Row], region: Sequence[Row]) -> None:
        """Print rows, and paint the region below them."""
        rows = region[: self.height]
        below = "\r\n".join(row.shown(color=self._color) for row in rows)
        if len(rows) > 1:
            # The window may be narrower by now than these rows, which would wrap.
            below = f"{CUT}{below}{WRAP}"
            # Back to the region's first row, where the next frame begins.
            below += f"\x1b[{len(rows) - 1}A"
        above = "".join(f"{row.shown(color=self._color)}\r\n" for row in printed)
        # A window that changed may have cut or moved what was painted.
        shown = below, self._size()
        if above or shown != self._shown:
            self._write(f"{BEGIN}{ERASE}{above}{below}\r{END}")
            self._shown = shown

    def forget(self) -> None:
        """Paint the next frame even if it is the same, since something else was written."""
        self._shown = None

    def erase(self, printed: Sequence[Row] = ()) -> None:
        """Remove the region, and print rows where it was."""
        self.forget()
        self.frame(printed, ())
        self.forget()
