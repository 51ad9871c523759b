"""A program that matches lines against a regular expression, in a process that can be killed.

It is started by its path and imports the standard library only, so it starts in a few
milliseconds.  `search` writes to its stdin: a line of JSON with the options, then each file as its
length in 8 bytes and its content.  To each it answers with a line of JSON.
"""

from __future__ import annotations

import collections
import contextlib
import io
import json
import re
import resource
import signal
import sys
from typing import Any, BinaryIO


class TooSlow(Exception):
    """The pattern takes too long on a line."""


class LineClock:
    """Raises `TooSlow` in a match that lasts from one tick of a timer over the next.

    Attributes:
        line: the number of the line in its file.
        turn: counts the lines of all files, since each file numbers its own from 1.
    """

    def __init__(self, seconds: float) -> None:
        self.line = 0
        self.turn = 0
        self.busy = False
        self._seen = -1
        signal.signal(signal.SIGALRM, self._tick)
        signal.setitimer(signal.ITIMER_REAL, seconds, seconds)

    def _tick(self, *_: object) -> None:
        # Python's `re` looks for signals while it matches.
        # The second tick on the same line: one tick may come right after its beginning.
        if self.busy and self._seen == self.turn:
            raise TooSlow
        self._seen = self.turn if self.busy else -1


class Shown:
    """The first matching lines of a file, with lines before and after them."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.lines: list[tuple[int, bool, str]] = []
        self._room: int = options["limit"]
        self._width: int = options["shown"]
        self._before: collections.deque[tuple[int, str]] = collections.deque(
            maxlen=options["before"]
        )
        self._after, self._following = options["after"], 0

    def matched(self, number: int, line: str, place: int) -> None:
        """Take a line that matches from a place on."""
        if not self._room:
            self._following = 0
            return
        self._room -= 1
        self.lines += [(one, False, self._cut(text)) for one, text in self._before]
        self._before.clear()
        self.lines.append((number, True, self._cut(line, place)))
        self._following = self._after

    def passed(self, number: int, line: str) -> None:
        """Take a line that does not match."""
        if self._following:
            self._following -= 1
            self.lines.append((number, False, self._cut(line)))
        else:
            self._before.append((number, line))

    def _cut(self, line: str, place: int = 0) -> str:
        if len(line) <= self._width:
            return line
        # A third of the room for what is before the match.
        start = max(0, min(place - self._width // 3, len(line) - self._width))
        end = start + self._width
        return f"{'…' * (start > 0)}{line[start:end]}{'…' * (end < len(line))}"


def find(pattern: re.Pattern[str], data: bytes, options: dict[str, Any], clock: LineClock) -> Any:
    """Return the number of matching lines, and the first of them with their numbers."""
    matches, shown = 0, Shown(options)
    clock.line, clock.turn, clock.busy = 0, clock.turn + 1, True
    try:
        for number, raw in enumerate(io.BytesIO(data), 1):
            clock.line, clock.turn = number, clock.turn + 1
            # One line end, as where the file is read: another carriage return is part of the line.
            line = raw.decode(errors="replace").removesuffix("\n").removesuffix("\r")
            if found := pattern.search(line):
                matches += 1
                shown.matched(number, line, found.start())
            else:
                shown.passed(number, line)
        clock.busy = False
    except TooSlow:
        return {"slow": clock.line}
    except (MemoryError, RecursionError):
        return {"memory": clock.line}
    finally:
        clock.busy = False
    return {"matches": matches, "lines": shown.lines}


def restrict(kind: int, most: int) -> None:
    """Set a limit of this process, unless a lower one holds."""
    _, hard = resource.getrlimit(kind)
    if hard != resource.RLIM_INFINITY:
        most = min(most, hard)
    # macOS refuses limits of memory.
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(kind, (most, most))


def answer(output: BinaryIO, value: Any) -> None:
    """Write an answer."""
    output.write(json.dumps(value).encode() + b"\n")
    output.flush()


def main() -> None:
    """Answer until stdin ends."""
    source, output = sys.stdin.buffer, sys.stdout.buffer
    options = json.loads(source.readline())
    restrict(resource.RLIMIT_AS, options["memory"])
    # If this process outlives the one that would kill it.
    restrict(resource.RLIMIT_CPU, int(options["seconds"]) + 1)
    try:
        pattern = re.compile(options["pattern"], re.IGNORECASE if options["ignore_case"] else 0)
    except (re.error, OverflowError, RecursionError, MemoryError) as error:
        answer(output, {"invalid": str(error) or "it is too large"})
        return
    answer(output, {})
    clock = LineClock(options["line_seconds"])
    while header := source.read(8):
        answer(output, find(pattern, source.read(int.from_bytes(header, "big")), options, clock))


if __name__ == "__main__":
    main()
