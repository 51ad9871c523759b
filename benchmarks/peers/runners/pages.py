"""The pages of the book: Python's own source, 2 KB a page.

It is text as agents read it, every page differs, and every environment has it, because all are
made from the same interpreter.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path

PAGE_BYTES = 2048
_SOURCE = Path(os.__file__).parent


@functools.cache
def _places() -> tuple[tuple[Path, int], ...]:
    """Return where each full page of the modules at the top of the standard library begins."""
    return tuple(
        (path, start)
        for path in sorted(_SOURCE.glob("*.py"))
        for start in range(0, path.stat().st_size - PAGE_BYTES, PAGE_BYTES)
    )


def page(number: int) -> str:
    """Return the text of a page; after the last one (about 2,000) comes the first."""
    places = _places()
    path, start = places[number % len(places)]
    with path.open("rb") as file:
        file.seek(start)
        text = file.read(PAGE_BYTES).decode(errors="replace")
    return f"page {number}:\n{text}"[:PAGE_BYTES]
