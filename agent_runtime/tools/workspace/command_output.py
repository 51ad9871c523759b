"""A command's output: collected within bounds, and as plain text without a terminal's controls."""

from __future__ import annotations

import os
import re
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from agent_runtime_config.counted import counted

MOST_BYTES = 256 << 10
"""How many bytes of an output's beginning, and of its end, a result has."""
KEPT_BYTES = 1 << 20
"""How many bytes of a background command's output are kept at least, its newest ones."""

# Each alternative stops at the next ESC, so that many that are not complete take linear time.
_CONTROL = re.compile(
    r"\x1b\[[0-?]*[ -/]*(?P<csi>[@-~])?"  # colours, the cursor
    # Titles, links.  One that is not complete, as in binary data, must not hide later lines.
    r"|\x1b[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)?"
    r"|\x1b[ -/]*[0-~]?"
    r"|[\x00-\x07\x0b\x0c\x0e-\x1f\x7f]"
)
_PROMPT = re.compile(
    r"(?:\[[yYnN]/[yYnN]\]|\([yYnN](?:es)?/[nNyY]o?\)|[Pp]ass(?:word|phrase)[^\n]{0,80}:|"
    r"[Cc]ontinue ?\?|\(yes/no\S*|[Uu]sername[^\n]{0,80}:)\s*\Z"
)
_NO_TERMINAL = re.compile(
    r"not a (?:tty|terminal)|(?:a|no) (?:tty|terminal) (?:is )?(?:present|required|available)|"
    r"/dev/tty|could not read (?:Username|Password)|terminal prompts disabled|"
    r"EOFError: EOF when reading a line|Input is not from a terminal|must be run (?:in|from) a "
    r"terminal|no askpass program",
    re.IGNORECASE,
)


def plain_text(text: str) -> str:
    """Return an output as it stays on a terminal: without colours, and with progress overwritten.

    Of a line that was written over (`\\r`, cursor to the beginning), the last version is kept; a
    backspace takes away a character.  Takes linear time.
    """
    if not any(control in text for control in ("\x1b", "\r", "\b", "\x00")):
        # Mostly so.  Other controls do no harm.
        return text
    text = _CONTROL.sub(_shown, text)
    if "\b" not in text and "\r" not in text:
        return text
    return "\n".join(map(_line, text.split("\n")))


def _shown(control: re.Match[str]) -> str:
    # To the first column, as progress bars also do.
    return "\r" if control["csi"] == "G" else ""


def _line(line: str) -> str:
    """Return a line as it was overwritten."""
    versions = [one for one in line.split("\r") if one]
    if not versions:
        return ""
    last = versions[-1]
    if "\b" not in last:
        return last
    kept: list[str] = []
    for char in last:
        if char != "\b":
            kept.append(char)
        elif kept:
            kept.pop()
    return "".join(kept)


def asks_for_input(text: str) -> bool:
    """Return whether a command seems to have asked for input, or missed a terminal."""
    # Only the end: an earlier prompt was answered.
    end = text[-4000:]
    return bool(_PROMPT.search(end[-200:]) or _NO_TERMINAL.search(end))


@dataclass(slots=True)
class CommandOutput:
    """A command's output: its beginning, its end, and the size of what is left out."""

    head: bytearray = field(default_factory=bytearray)
    tail: bytearray = field(default_factory=bytearray)
    left_out: int = 0

    def add(self, data: bytes) -> None:
        """Add a piece of output."""
        room = MOST_BYTES - len(self.head)
        self.head += data[:room]
        self.tail += data[room:]
        over = max(0, len(self.tail) - MOST_BYTES)
        self.left_out += over
        del self.tail[:over]

    def text(self) -> str:
        """Return the output as plain text, with a line for what is left out."""
        if not self.left_out:
            # Joined before decoding: a character may have been split between the two.
            return plain_text((self.head + self.tail).decode(errors="replace"))
        head, tail = (plain_text(one.decode(errors="replace")) for one in (self.head, self.tail))
        return f"{head}\n[... {counted(self.left_out, 'byte')} left out ...]\n{tail}"


class OutputFile:
    """The newest output of a background command, in a file that outlives the runtime.

    Its methods block.

    Args:
        path: a new file; None keeps the output in memory.

    Attributes:
        size: how many bytes were added.
    """

    def __init__(self, path: Path | None) -> None:
        self.size = 0
        self._path = path
        self._memory = bytearray()
        self._lock = threading.Lock()

    def add(self, data: bytes) -> None:
        """Add a piece of output; the oldest is dropped once there is twice as much as is kept."""
        with self._lock:
            self._add(data)

    def _add(self, data: bytes) -> None:
        self.size += len(data)
        self._memory += data
        # Twice as much, so that the file is rewritten once for each megabyte and not for each
        # piece.
        full = len(self._memory) > 2 * KEPT_BYTES
        if full:
            del self._memory[:-KEPT_BYTES]
        if self._path is None:
            return
        # A full disk must not end the command.
        with suppress(OSError):
            if not full:
                _append(self._path, data)
                return
            # Renamed, so that a crash leaves either the old or the new output.
            draft = self._path.with_suffix(".new")
            draft.unlink(missing_ok=True)
            _append(draft, self._memory)
            draft.rename(self._path)

    def since(self, place: int) -> tuple[bytes, int]:
        """Return the output after the first `place` bytes, and how much of it is not kept."""
        with self._lock:
            first = self.size - len(self._memory)
            return bytes(self._memory[max(0, place - first) :]), max(0, first - place)

    def remove(self) -> None:
        """Remove the file."""
        if self._path is not None:
            with suppress(OSError):
                self._path.unlink(missing_ok=True)


def _append(path: Path, data: bytes | bytearray) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
    with os.fdopen(os.open(path, flags, 0o600), "wb") as stream:
        stream.write(data)
