"""A program that matches lines against a regular expression, in a process that can be killed.

It is started by its path and imports the standard library only, so it starts in a few
milliseconds.  `search` writes to its stdin: a line of JSON with the options, then each file as its
length in 8 bytes and its content.  To each it answers with a line of JSON.
"""

from __future__ import annotations

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
        if self.busy and self._seen == self.turn:
            raise TooSlow
        self._seen = self.turn if self.busy else -1


def find(pattern: re.Pattern[str], data: bytes, options: dict[str, Any], clock: LineClock) -> Any:
    """Return the number of matching lines, and the first of them with their numbers."""
    matches, lines = 0, list[tuple[int, str]]()
    clock.line, clock.turn, clock.busy = 0, clock.turn + 1, True
    try:
        for number, raw in enumerate(io.BytesIO(data), 1):
            clock.line, clock.turn = number, clock.turn + 1
            line = raw.decode(errors="replace").rstrip("\r\n")
            if pattern.search(line):
                matches += 1
                if len(lines) < options["limit"]:
                    lines.append((number, line[: options["shown"]]))
        clock.busy = False
    except TooSlow:
        return {"slow": clock.line}
    except (MemoryError, RecursionError):
        return {"memory": clock.line}
    finally:
        clock.busy = False
    return {"matches": matches, "lines": lines}


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
        pattern = re.compile(options["pattern"])
    except (re.error, OverflowError, RecursionError, MemoryError) as error:
        answer(output, {"invalid": str(error) or "it is too large"})
        return
    answer(output, {})
    clock = LineClock(options["line_seconds"])
    while header := source.read(8):
        answer(output, find(pattern, source.read(int.from_bytes(header, "big")), options, clock))


if __name__ == "__main__":
    main()
