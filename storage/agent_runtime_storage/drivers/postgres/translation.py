"""Translate the store's SQL and values for libpq.

The store writes `:name` in every dialect; Postgres wants `$1`.  A statement with a row count is
wrapped so that a miss is a server error in the same round trip: the server skips the statements
after it and commits nothing.
"""

from __future__ import annotations

import functools
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass

from agent_runtime_storage.contract.errors import StoreError
from agent_runtime_storage.drivers.protocol import Statement, Value

# First match texts whose colons do not start a placeholder.
_TOKEN = re.compile(
    r"""
      \b[eE]'(?:[^'\\]|\\.|'')*'
    | '(?:[^']|'')*'
    | "(?:[^"]|"")*"
    | \$(?P<tag>[A-Za-z_]\w*|)\$.*?\$(?P=tag)\$
    | --[^\n]*
    | /\*.*?\*/
    | ::
    | :(?P<name>[a-z_][a-z0-9_]*)
    """,
    re.VERBOSE | re.DOTALL,
)
_WORD = re.compile(r"[A-Za-z_]+")
_CHANGES = frozenset({"INSERT", "UPDATE", "DELETE", "MERGE"})
_MISSED = re.compile(r"agent_runtime: statement (\d+) affected")

# The types' OIDs; 0 lets the server choose.
_INT8, _FLOAT8, _BYTEA, _UNKNOWN = 20, 701, 17, 0
_pack_int = struct.Struct("!q").pack
_pack_float = struct.Struct("!d").pack


@dataclass(frozen=True, slots=True)
class TranslatedSql:
    """A statement in the server's syntax.

    Attributes:
        names: the value's name for each placeholder, in order.
        returns: whether it returns rows to the store.
    """

    sql: bytes
    names: tuple[str, ...]
    returns: bool = True


@dataclass(frozen=True, slots=True)
class PipelineCommand:
    """A statement with its values, encoded for libpq."""

    sql: bytes
    values: tuple[bytes | None, ...] = ()
    types: tuple[int, ...] = ()
    formats: tuple[int, ...] = ()
    prepare: bool = True
    returns: bool = True


@functools.lru_cache(maxsize=1024)
def translate(sql: str) -> TranslatedSql:
    """Return the text with `$1`, `$2`... as placeholders; literals and casts stay.

    A slice of an array must be written with spaces or parentheses (`a[1 : n]`), for `:n` is a
    placeholder.
    """
    numbers: dict[str, int] = {}

    def number(match: re.Match[str]) -> str:
        name = match["name"]
        if name is None:
            return match[0]
        # A name that occurs twice is one parameter.
        return f"${numbers.setdefault(name, len(numbers) + 1)}"

    return TranslatedSql(_TOKEN.sub(number, sql).encode(), tuple(numbers))


@functools.lru_cache(maxsize=1024)
def translate_counted(sql: str) -> TranslatedSql:
    """Return the statement wrapped so that a wrong number of rows is an error.

    The two placeholders after the statement's own are its index in the batch and the number of rows
    that it must affect.  The error comes from casting a text to a number, so it needs no function
    in the database; `missed_statement_index` parses it.  A statement whose WITH changes rows cannot
    be wrapped.
    """
    inner = translate(sql)
    place, wanted = len(inner.names) + 1, len(inner.names) + 2
    changes, returning = _kind(sql)
    body = inner.sql.decode()
    if changes and not returning:
        body += "\nRETURNING 1"
    check = (
        f"CASE WHEN {{count}} = ${wanted}::bigint THEN 1 ELSE ('agent_runtime: statement ' "
        f"|| ${place}::bigint || ' affected ' || {{count}} || ' rows')::integer END"
    )
    if changes and not returning:
        wrapped = f"WITH s AS (\n{body}\n)\nSELECT {check.format(count='count(*)')} FROM s"
    else:
        # `c` always has one row, so the check runs even if `s` is empty.
        wrapped = (
            f"WITH s AS MATERIALIZED (\n{body}\n), c AS (SELECT count(*) AS n FROM s)\n"
            f"SELECT s.* FROM c LEFT JOIN s ON true WHERE {check.format(count='c.n')} = 1"
        )
    return TranslatedSql(wrapped.encode(), inner.names, returns=returning or not changes)


@functools.lru_cache(maxsize=1024)
def _kind(sql: str) -> tuple[bool, bool]:
    """Return whether a statement changes rows, and whether it has RETURNING."""
    depth = 0
    changes = returning = False
    bare = _TOKEN.sub(" ", sql)
    for match in re.finditer(r"[()]|[A-Za-z_]+", bare):
        token = match[0].upper()
        if token == "(":
            depth += 1
        elif token == ")":
            depth -= 1
        elif depth == 0:
            changes = changes or token in _CHANGES
            returning = returning or token == "RETURNING"
            # The main statement, after any WITH, is a query.
            if token == "SELECT" and not changes:
                return False, True
    return changes, returning


def missed_statement_index(message: str) -> int | None:
    """Return the index of the statement with the wrong count; None for other errors."""
    match = _MISSED.search(message)
    return int(match[1]) if match else None


def query_command(
    sql: str, params: Mapping[str, Value], *, prepare: bool = True
) -> PipelineCommand:
    """Return a query or an uncounted statement with its values."""
    text = translate(sql)
    values, types, formats = _encode(text.names, params)
    return PipelineCommand(text.sql, values, types, formats, prepare)


def batch_command(statement: Statement, place: int, *, prepare: bool = True) -> PipelineCommand:
    """Return the statement at this index of a batch."""
    if statement.rows is None:
        return query_command(statement.sql, statement.params, prepare=prepare)
    text = translate_counted(statement.sql)
    values, types, formats = _encode(text.names, statement.params)
    return PipelineCommand(
        text.sql,
        (*values, _pack_int(place), _pack_int(statement.rows)),
        (*types, _INT8, _INT8),
        (*formats, 1, 1),
        prepare,
        # For a statement that must affect none, the wrapping leaves one row of NULLs.
        text.returns and statement.rows > 0,
    )


def _encode(
    names: tuple[str, ...], params: Mapping[str, Value]
) -> tuple[tuple[bytes | None, ...], tuple[int, ...], tuple[int, ...]]:
    values: list[bytes | None] = []
    types: list[int] = []
    formats: list[int] = []
    for name in names:
        value, kind, form = _encode_value(name, params[name])
        values.append(value)
        types.append(kind)
        formats.append(form)
    return tuple(values), tuple(types), tuple(formats)


def _encode_value(name: str, value: Value) -> tuple[bytes | None, int, int]:
    """Return the value's bytes, type and format (0: text, 1: binary).

    Every whole number has one type, whatever its size, so that a statement is not prepared again
    for each combination.  The server takes the type of a text from where it stands.
    """
    # A test by type, not by isinstance: this runs for every value of every statement.
    kind = type(value)
    if kind is str:
        return _encode_text(name, str(value)), _UNKNOWN, 0
    if value is None:
        return None, _UNKNOWN, 0
    if isinstance(value, bytes):
        return value, _BYTEA, 1
    if isinstance(value, float):
        return _pack_float(value), _FLOAT8, 1
    if isinstance(value, int):
        try:
            return _pack_int(value), _INT8, 1
        except struct.error as error:
            raise _unstorable(name, "the number does not fit 64 bits") from error
    return _encode_text(name, value), _UNKNOWN, 0


def _encode_text(name: str, value: str) -> bytes:
    try:
        encoded = value.encode()
    except UnicodeEncodeError:
        # The codec's error holds the whole text.
        raise _unstorable(name, "the text holds a lone surrogate") from None
    if b"\0" in encoded:
        raise _unstorable(name, "the text holds a zero byte, which Postgres does not take")
    return encoded


def _unstorable(name: str, why: str) -> StoreError:
    return StoreError(
        f"A value ({name}) cannot be stored: {why}.",
        cure="Text must be valid Unicode without zero bytes and lone surrogates, numbers fit "
        "64 bits.",
    )
