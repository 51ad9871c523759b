"""A command at a terminal, with a screen that tests can read."""

from __future__ import annotations

import fcntl
import importlib
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from tests.support.command import COMMAND, clean_environ

# It has no types.
pyte: Any = importlib.import_module("pyte")

COLUMNS, ROWS = 160, 40
SECONDS = 90


class Screen:
    """The screen of a command's terminal."""

    def __init__(
        self, master: int, process: subprocess.Popen[bytes], folder: Path, columns: int, rows: int
    ) -> None:
        self.process = process
        self.folder = folder
        self.written = b""
        self.master = master
        self._screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self._screen)

    @property
    def buffer(self) -> Any:
        """The characters of the screen with their styles, as pyte keeps them."""
        return self._screen.buffer

    @property
    def rows(self) -> list[str]:
        """The rows, without trailing blanks."""
        return [str(row).rstrip() for row in self._screen.display]

    def cursor_row(self) -> int:
        """Return the number of the row in which the cursor is."""
        return int(self._screen.cursor.y)

    def row(self, text: str) -> int:
        """Return the number of the last row that contains a text; -1 if none does."""
        return max((n for n, row in enumerate(self.rows) if text in row), default=-1)

    def until(self, *texts: str, keys: str = "") -> None:
        """Type keys, and wait until all of these are on the screen at once."""
        os.write(self.master, keys.encode())
        deadline = time.monotonic() + SECONDS
        while not all(self.row(text) >= 0 for text in texts):
            assert time.monotonic() < deadline, "\n".join(self.rows)
            self.read()

    def read(self) -> None:
        """Read what the command writes, for up to a second."""
        self._read(1)

    def until_exit(self) -> int:
        """Wait until the command has ended; return its exit code."""
        deadline = time.monotonic() + SECONDS
        while self.process.poll() is None:
            assert time.monotonic() < deadline, "\n".join(self.rows)
            self._read(0.1)
        while self._read(0):
            pass
        return self.process.returncode

    def _read(self, seconds: float) -> bool:
        if not select.select([self.master], [], [], seconds)[0]:
            return False
        data = os.read(self.master, 10_000)
        self.written += data
        self._stream.feed(data)
        return True

    def type(self, line: str, end: str = "\n") -> None:
        """Type a line, or keys."""
        os.write(self.master, f"{line}{end}".encode())

    def resize(self, columns: int, rows: int) -> None:
        """Change the window's size."""
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self._screen.resize(rows, columns)


def _own_terminal(slave: int) -> None:
    """Make the terminal the one that controls the process, so that it gets Ctrl-C."""
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)


@contextmanager
def at_terminal(
    folder: Path,
    environ: Mapping[str, str],
    *arguments: str,
    columns: int = COLUMNS,
    rows: int = ROWS,
    term: str = "xterm-256color",
    stdout: bool = False,
) -> Generator[Screen]:
    """Start a command at a terminal; it is killed at the end if it still runs.

    COLUMNS and LINES stay those of the default, as after a change of the window's size.

    Args:
        stdout: whether its stdout is the terminal, too; otherwise it is a pipe.
    """
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    size = {"TERM": term, "COLUMNS": str(COLUMNS), "LINES": str(ROWS)}
    process = subprocess.Popen(
        [*COMMAND, *arguments],
        cwd=folder,
        env=clean_environ({**size, **environ}),
        stdin=slave,
        stdout=slave if stdout else subprocess.PIPE,
        stderr=slave,
        preexec_fn=partial(_own_terminal, slave),
        start_new_session=True,
    )
    try:
        yield Screen(master, process, folder, columns, rows)
    finally:
        process.kill()
        process.communicate()
        os.close(master)
        os.close(slave)
