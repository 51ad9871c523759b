"""Read the placeholders of an SQL text, and whether it reads or writes."""

from __future__ import annotations

import functools
import re

_TOKEN = re.compile(
    r"""
    (?P<skip> '(?:[^']|'')*' | "(?:[^"]|"")*" | `[^`]*` | \[[^\]]*\] | --[^\n]* | /\*.*?\*/ )
    | (?P<name> :[A-Za-z_][A-Za-z_0-9]* )
    | (?P<word> [A-Za-z_][A-Za-z_0-9]* )
    | (?P<paren> [()] )
    """,
    re.VERBOSE | re.DOTALL,
)
# By their first word, or the first one after WITH: the store's own statements need no parser.
_QUERIES = frozenset({"SELECT", "VALUES"})
_WRITES = frozenset({"INSERT", "UPDATE", "DELETE", "REPLACE"})


@functools.lru_cache(maxsize=1024)
def placeholders(sql: str) -> tuple[str, ...]:
    """Return the names of the placeholders, each once: a server refuses surplus values."""
    found = (match["name"][1:] for match in _TOKEN.finditer(sql) if match["name"])
    return tuple(dict.fromkeys(found))


@functools.lru_cache(maxsize=1024)
def verb(sql: str) -> str:
    """Return the statement's verb in capitals; for a WITH, the verb after it."""
    depth, leading = 0, ""
    for match in _TOKEN.finditer(sql):
        if match["paren"]:
            depth += 1 if match["paren"] == "(" else -1
        elif match["word"] and depth == 0:
            word = match["word"].upper()
            if not leading:
                leading = word
                if word != "WITH":
                    return word
            elif word in _QUERIES or word in _WRITES:
                return word
    return leading


def is_query(sql: str) -> bool:
    """Whether the statement only returns rows."""
    return verb(sql) in _QUERIES


def is_write(sql: str) -> bool:
    """Whether the statement changes rows, so that `changes()` counts them."""
    return verb(sql) in _WRITES


def only_reads(sql: str) -> bool:
    """Whether the statement may be given to `Driver.read`."""
    return verb(sql) in _QUERIES or verb(sql) in ("EXPLAIN", "PRAGMA")
