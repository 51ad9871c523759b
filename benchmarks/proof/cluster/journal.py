"""Lines that survive the process that wrote them: the effects of tools, as the tools write them."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import orjson

Fact = dict[str, Any]


class Journal:
    """A file to which any number of processes append.

    The times are those of the machine's monotonic clock, which all its processes share.
    """

    def __init__(self, path: str | Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(self, what: str, **facts: Any) -> None:
        """Append a line by a single write."""
        line = {"what": what, "at": time.monotonic(), **facts}
        os.write(self._file, orjson.dumps(line) + b"\n")


def read(path: Path) -> list[Fact]:
    """Return the lines in the order in which they were written."""
    lines = path.read_bytes().splitlines() if path.exists() else []
    return [orjson.loads(line) for line in lines]
