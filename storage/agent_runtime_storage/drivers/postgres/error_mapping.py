"""Map errors of libpq and of the server to the store's errors.

Only the primary message of an error is reported: its DETAIL shows values of rows, possibly another
owner's.  libpq's errors about a URL show parts of it, possibly the password, so they are never
reported.
"""

from __future__ import annotations

import re

from agent_runtime_storage.contract.errors import (
    StoreBusy,
    StoreError,
    StoreFull,
    StoreInDoubt,
    StoreReadOnly,
    StoreUnavailable,
)
from agent_runtime_storage.drivers.postgres.pipeline import ServerError
from agent_runtime_storage.drivers.protocol import ConstraintFailed

# A deadlock or a serialization failure: the batch can be retried.
RETRYABLE_STATES = frozenset({"40P01", "40001"})
# The server has lost a prepared statement (behind a pooler, say), or a migration has changed the
# columns that it returns ("cached plan must not change result type").
STALE_STATEMENT_STATES = frozenset({"26000", "42P05", "0A000"})
READ_ONLY_STATE = "25006"

# The first prefix that fits wins, so a state comes before its class.
_BY_STATE: tuple[tuple[str, type[StoreError], str, str], ...] = (
    (
        "53100",
        StoreFull,
        "The server has no space left on its device; nothing was written",
        "Free some space there, then try again.",
    ),
    (
        "53300",
        StoreUnavailable,
        "The server takes no more connections",
        "Raise its max_connections, or lower the number of processes that use it.",
    ),
    (
        "53",
        StoreUnavailable,
        "The server ran out of a resource",
        "Give the server more memory, then try again.",
    ),
    (
        READ_ONLY_STATE,
        StoreReadOnly,
        "The database is read-only here",
        "Connect to the primary server, and check default_transaction_read_only.",
    ),
    (
        "55P03",
        StoreBusy,
        "Another transaction kept its lock for longer than the deadline",
        "Try again; if it stays, find the transaction that stays open in pg_stat_activity.",
    ),
    (
        "40",
        StoreBusy,
        "Other transactions got in the way several times in a row",
        "Try again.",
    ),
    (
        "57014",
        StoreBusy,
        "The server cancelled the statement, on its timeout or on request",
        "Try again; if it stays, look at the server's load and for missing statistics (ANALYZE).",
    ),
    (
        "42501",
        StoreError,
        "The login lacks a right",
        "Use the login that owns the schema agent_runtime, or grant it that right.",
    ),
    (
        "42704",
        StoreError,
        "The server does not know something that the statement names",
        "If it is the type vector, install pgvector 0.8 or newer, then open the store again.",
    ),
    (
        "42P05",
        StoreError,
        "A connection of the server's has prepared statements of another client",
        "If a pooler lies between, such as PgBouncer, set its pool_mode to session.",
    ),
    (
        "26000",
        StoreError,
        "A connection of the server's has lost its prepared statements",
        "If a pooler lies between, such as PgBouncer, set its pool_mode to session.",
    ),
    (
        "58",
        StoreUnavailable,
        "The server could not read or write its files",
        "Look at the server's log and at its device.",
    ),
    (
        "XX001",
        StoreUnavailable,
        "The server found damaged data",
        "Restore the database from a backup.",
    ),
    (
        "XX002",
        StoreUnavailable,
        "The server found a damaged index",
        "Rebuild it (REINDEX), or restore the database from a backup.",
    ),
)


def map_refusal(error: ServerError, shown: str) -> Exception:
    """Return the store's error for one of the server's.

    Args:
        shown: the URL as it may be shown.
    """
    # The class of integrity constraints; its message names the constraint and no value.
    if error.sqlstate.startswith("23"):
        return ConstraintFailed(error.message)
    for state, kind, what, cure in _BY_STATE:
        if error.sqlstate.startswith(state):
            return kind(f"{what} (database {shown}: {error.message}).", cure=cure)
    return StoreError(
        f"The database {shown} refused a statement: {error.message} ({error.sqlstate})."
    )


class Unreachable(Exception):
    """A connection could not be made, or not to a server that can be written.

    Attributes:
        error: the error for the caller.
        lasting: whether a retry cannot help.
    """

    def __init__(self, error: Exception, *, lasting: bool) -> None:
        super().__init__(str(error))
        self.error = error
        self.lasting = lasting


# The server refuses connections without an SQLSTATE, so the texts are matched.  A refusal in
# another language counts as temporary, and is reported after a wait.
_LASTING: tuple[tuple[str, str, str], ...] = (
    (
        r"password authentication failed|no password supplied|authentication failed",
        "The server refused the login",
        "Check user and password in the URL.",
    ),
    (
        r"no pg_hba\.conf entry|requires? SSL|server does not support SSL|certificate",
        "The server refuses connections of this kind",
        "Check sslmode in the URL, and the server's pg_hba.conf.",
    ),
    (
        r'database ".*" does not exist',
        "There is no such database",
        "Create it (CREATE DATABASE), or correct its name in the URL.",
    ),
    (r'role ".*" does not exist', "There is no such login", "Check the user in the URL."),
    (
        r"permission denied for database",
        "The login may not use the database",
        "Grant it CONNECT on the database.",
    ),
)
_FULL = re.compile(r"too many (clients|connections)|remaining connection slots")


def map_connect(message: str, shown: str) -> Unreachable:
    """Return the error for a failed attempt to connect."""
    reason = _last_line(message)
    for pattern, what, cure in _LASTING:
        if re.search(pattern, message):
            error = StoreUnavailable(f"{what} (database {shown}: {reason}).", cure=cure)
            return Unreachable(error, lasting=True)
    if _FULL.search(message):
        what = "The server takes no more connections"
        cure = "Raise its max_connections, or lower the number of processes that use it."
    else:
        what = "The server cannot be reached"
        cure = "Check that it runs, and host and port in the URL."
    return Unreachable(
        StoreUnavailable(f"{what} (database {shown}: {reason}).", cure=cure), lasting=False
    )


def _last_line(message: str) -> str:
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    # libpq reports one attempt for each address of a host, and the last one decided.
    reasons = [line for line in lines if "FATAL" in line or "failed:" in line]
    line = (reasons or lines or ["no reason given"])[-1]
    return line.rpartition("failed: ")[2].removeprefix("FATAL:").strip()


def lost_error(reason: str, shown: str) -> StoreUnavailable:
    """Return the error for a connection that broke, with nothing written."""
    return StoreUnavailable(
        f"The connection broke and did not come back (database {shown}: {_last_line(reason)}).",
        cure="Check that the server runs and is reachable, then try again.",
    )


def doubt_error(reason: str, shown: str) -> StoreInDoubt:
    """Return the error for a connection that broke during a batch."""
    return StoreInDoubt(
        f"The connection broke while a write was on its way (database {shown}: "
        f"{_last_line(reason)}).",
        cure="Read what is there before writing it again.",
    )


def postgres_closed_error(shown: str) -> StoreUnavailable:
    """Return the error for use after close."""
    return StoreUnavailable(f"The store {shown} is closed.", cure="Open it again.")
