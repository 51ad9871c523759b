"""Which names every database can hold, and tell apart, as part of a key."""

from __future__ import annotations

MAX_NAME_BYTES = 512
"""Keys of several names have to fit a page of every database's index."""


def name_problem(name: str) -> str | None:
    """Return what is wrong with a name that is to be part of a key, after `it`; None if nothing."""
    if not name:
        return "is empty"
    if "\0" in name:
        return "holds a zero byte"
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return "is not valid Unicode: it holds half of a surrogate pair"
    if size > MAX_NAME_BYTES:
        return f"is {size} bytes long, and {MAX_NAME_BYTES} are the most"
    return None
