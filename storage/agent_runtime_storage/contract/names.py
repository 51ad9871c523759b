"""The names that every database can store, and tell apart, as part of a key; and titles."""

from __future__ import annotations

MAX_NAME_BYTES = 512
"""A key of several names has to fit into a page of every database's index."""
MAX_TITLE_CHARS = 500
"""Of a thread's title, which stands in every list of threads, unless `open_store` says another."""


def title_problem(title: str, most: int) -> str | None:
    """Return why a thread cannot have this title, as the end of a sentence; None if it can."""
    if len(title) > most:
        return f"has {len(title):,} characters, and {most:,} are the most"
    if "\0" in title:
        return "holds a zero byte"
    return None


def name_problem(name: str) -> str | None:
    """Return why a name cannot be part of a key, as the end of a sentence; None if it can."""
    if not name:
        return "is empty"
    # Postgres stores none in a text.
    if "\0" in name:
        return "holds a zero byte"
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return "is not valid Unicode: it holds half of a surrogate pair"
    if size > MAX_NAME_BYTES:
        return f"is {size} bytes long, and {MAX_NAME_BYTES} are the most"
    return None
