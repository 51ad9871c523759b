"""Connections to the database file: open them, run statements, map their errors."""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, Protocol, cast

import apsw

from agent_runtime_storage.contract.errors import (
    NotADatabase,
    StoreBusy,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)
from agent_runtime_storage.drivers.protocol import (
    BatchMissed,
    ConstraintFailed,
    Row,
    Statement,
    Value,
)
from agent_runtime_storage.drivers.sqlite.database_file import (
    check_database_path,
    make_private,
    refuse_journal,
)

Synchronous = Literal["full", "normal"]


class Cursor(Protocol):
    """The part of an apsw cursor that is used here."""

    def fetchall(self) -> list[Row]: ...


class SqliteConnection(Protocol):
    """The part of an apsw connection that is used here; its own types need Python 3.12."""

    @property
    def in_transaction(self) -> bool: ...
    def execute(self, statements: str, bindings: Mapping[str, Value] | None = None) -> Cursor: ...
    def pragma(self, name: str, value: bool | int | str | None = None) -> Any: ...
    def config(self, option: int, value: int, /) -> int: ...
    def changes(self) -> int: ...
    def total_changes(self) -> int: ...
    def readonly(self, name: str) -> bool: ...
    def set_busy_timeout(self, milliseconds: int) -> None: ...
    def enable_load_extension(self, enable: bool) -> None: ...
    def load_extension(self, filename: str) -> None: ...
    def wal_checkpoint(self, *, mode: int) -> tuple[int, int]: ...
    def close(self) -> None: ...


_TABLES = """
SELECT (SELECT count(*) FROM sqlite_schema WHERE type = 'table'),
       EXISTS (SELECT 1 FROM pragma_table_info('schema_migrations') WHERE name = 'checksum')
"""
# Without a limit the write-ahead log keeps the size of the largest burst.
_JOURNAL_LIMIT = 64 * 2**20
# The store has nearly 300 statements, of which apsw's default keeps 100.  It drops what was not
# run among as many of the last executions.
_STATEMENT_CACHE = 512
_BUSY = (apsw.BusyError, apsw.LockedError)


def map_sqlite_error(error: Exception, path: Path) -> Exception:
    """Return the store's error for an error of apsw; programming errors are returned unchanged."""
    if isinstance(error, apsw.ConstraintError):
        return ConstraintFailed(str(error))
    if getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_SHMSIZE:
        # The index of the write-ahead log could not grow.
        error = apsw.FullError(str(error))
    for kinds, mapped, what, cure in _MAPPING:
        if isinstance(error, kinds):
            return mapped(f"{what} (database {path}: {error}).", cure=cure)
    if isinstance(error, apsw.Error):
        return StoreError(f"The database {path} refused a statement: {error}.")
    if isinstance(error, UnicodeDecodeError):
        # The store writes valid UTF-8 only.
        return NotADatabase(
            f"A text in the database {path} is damaged: {error}.",
            cure="Restore the file from a backup.",
        )
    if isinstance(error, (UnicodeEncodeError, OverflowError)):
        return StoreError(
            f"A value cannot be stored: {error}.",
            cure="Text must be valid Unicode without lone surrogates, numbers fit 64 bits.",
        )
    return error


_MAPPING: tuple[tuple[tuple[type[apsw.Error], ...], type[StoreError], str, str], ...] = (
    (
        _BUSY,
        StoreBusy,
        "Another process kept its lock for longer than the deadline",
        "Try again; if it stays, find the process that holds a transaction open on the file.",
    ),
    (
        (apsw.FullError,),
        StoreFull,
        "There is no space left; nothing of the transaction was written",
        "Free some space on the device, then try again.",
    ),
    (
        (apsw.ReadOnlyError, apsw.PermissionsError, apsw.AuthError),
        StoreReadOnly,
        "The file cannot be written",
        "Give the process write permission on the file and on its folder.",
    ),
    (
        (apsw.NotADBError, apsw.CorruptError, apsw.FormatError),
        NotADatabase,
        "The file is no database, or it is damaged",
        "Choose another file, or restore this one from a backup.",
    ),
    (
        (apsw.CantOpenError,),
        StoreUnavailable,
        "The file cannot be opened",
        "Check that it is a file, and that the process may read it and write to its folder.",
    ),
    (
        (apsw.IOError, apsw.ProtocolError, apsw.NoLFSError),
        StoreUnavailable,
        "Reading or writing the file failed",
        "Check the device that holds it; it has to be a local file system.",
    ),
    (
        (apsw.NoMemError,),
        StoreUnavailable,
        "The database ran out of memory",
        "Free some memory, then try again.",
    ),
    (
        (apsw.TooBigError,),
        StoreError,
        "A value is larger than the database takes (1 GB)",
        "Keep it as a file, and store a reference to it.",
    ),
)


def sqlite_closed_error(path: Path) -> StoreUnavailable:
    """Return the error for use after close."""
    return StoreUnavailable(f"The store {path} is closed.", cure="Open it again.")


def open_connection(
    path: Path, *, write: bool, synchronous: Synchronous, busy_seconds: float
) -> SqliteConnection:
    """Open the file with the common settings.  Blocks; do not call it on the event loop.

    Raises:
        StoreUnavailable, StoreReadOnly, StoreBusy, NotADatabase: it cannot be used.
    """
    if write:
        check_database_path(path)
        refuse_journal(path)
        make_private(path)
    # A reader never creates the file: if it is gone, that is an error, not an empty database.
    flags = apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_CREATE if write else 0)
    try:
        opened = apsw.Connection(str(path), flags=flags, statementcachesize=_STATEMENT_CACHE)
    except apsw.Error as error:
        raise map_sqlite_error(error, path) from error
    connection = cast("SqliteConnection", opened)
    try:
        connection.set_busy_timeout(round(busy_seconds * 1000))
        keep_plans(connection)
        # SQLite opens a file that it may not write for reading only, without an error.
        if connection.readonly("main"):
            raise StoreReadOnly(
                f"The database {path} can be read but not written.",
                cure="Give the process write permission on the file and on its folder.",
            )
        if write:
            _use_wal(connection, path, busy_seconds)
        connection.pragma("synchronous", synchronous)
        connection.pragma("foreign_keys", True)
        # Deleted content is overwritten with zeros.
        connection.pragma("secure_delete", True)
        connection.pragma("journal_size_limit", _JOURNAL_LIMIT)
        if not write:
            # A statement that writes would compete with the writer thread for the lock.
            connection.pragma("query_only", True)
        connection.enable_load_extension(True)
        connection.load_extension(_vector_extension())
        # Off again, so that no SQL can load other code.
        connection.enable_load_extension(False)
    except apsw.Error as error:
        connection.close()
        raise map_sqlite_error(error, path) from error
    except BaseException:
        connection.close()
        raise
    return connection


def keep_plans(connection: SqliteConnection) -> None:
    """Plan each statement once.

    Otherwise SQLite plans most joins again whenever they are run with other values, which takes
    many times as long as to run them.  No statement of the store gets another plan by its values.
    """
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)


@functools.cache
def _vector_extension() -> str:
    """Return the path of sqlite-vec.

    Its package is found but not imported: where numpy is installed, it imports numpy, which takes
    longer than to open a database.
    """
    spec = find_spec("sqlite_vec")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("No module named 'sqlite_vec'", name="sqlite_vec")
    return str(Path(spec.origin).with_name("vec0"))


def _use_wal(connection: SqliteConnection, path: Path, busy_seconds: float) -> None:
    # SQLite does not wait for the lock that changing the mode needs, so wait here.
    deadline = time.monotonic() + busy_seconds
    while True:
        try:
            # Only a change of mode writes; `apply_migrations` checks files that are in it already.
            if connection.pragma("journal_mode") != "wal":
                _refuse_another_programs(connection, path)
            mode = connection.pragma("journal_mode", "wal")
            break
        except apsw.BusyError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
    if mode != "wal":
        raise StoreUnavailable(
            f"The file system of {path} does not support write-ahead logging.",
            cure="Put the database on a local file system.",
        )


def _refuse_another_programs(connection: SqliteConnection, path: Path) -> None:
    """Raise `NotADatabase` before changing the mode writes to another program's file."""
    [(tables, ours)] = connection.execute(_TABLES).fetchall()
    if tables and not ours:
        raise NotADatabase(
            f"The database {path} holds tables of another program and none of the runtime's.",
            cure="Choose a database of its own for the runtime.",
        )


def run_query(connection: SqliteConnection, sql: str, params: Mapping[str, Value]) -> list[Row]:
    """Return the rows of one query."""
    return connection.execute(sql, params).fetchall()


def run_statements(
    connection: SqliteConnection, statements: Sequence[Statement]
) -> list[list[Row]]:
    """Run the statements of a batch inside the open transaction, and return the rows of each.

    Raises:
        BatchMissed: a statement affected the wrong number of rows.
    """
    results: list[list[Row]] = []
    for index, statement in enumerate(statements):
        before = connection.total_changes()
        rows: list[Row] = connection.execute(statement.sql, statement.params).fetchall()
        if statement.rows is not None:
            affected = len(rows)
            # changes() counts the last writing statement, and a query is not one.
            if not affected and connection.total_changes() != before:
                affected = connection.changes()
            if affected != statement.rows:
                raise BatchMissed(statement.miss, index)
        results.append(rows)
    return results
