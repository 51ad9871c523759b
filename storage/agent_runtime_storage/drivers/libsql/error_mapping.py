"""Map the failures of a libSQL server to the store's errors."""

from __future__ import annotations

from typing import Literal

from agent_runtime_storage.contract.errors import (
    NotADatabase,
    StoreBusy,
    StoreError,
    StoreFull,
    StoreInDoubt,
    StoreReadOnly,
    StoreUnavailable,
)
from agent_runtime_storage.drivers.protocol import ConstraintFailed

FailureKind = Literal["unsent", "lost", "busy"]


class TransientFailure(Exception):
    """A failure that may pass, so the request is retried.

    Attributes:
        kind: `unsent` if the request never reached the server, `lost` if its outcome is unknown,
            `busy` if the server refused it.
        why: what happened.
    """

    def __init__(self, kind: FailureKind, why: str) -> None:
        super().__init__(kind, why)
        self.kind: FailureKind = kind
        self.why = why


def retries_exhausted_error(
    failure: TransientFailure, shown: str, *, in_doubt: bool
) -> StoreUnavailable:
    """Return the error for when the retries are exhausted."""
    if in_doubt:
        return StoreInDoubt(
            f"The connection to the database {shown} broke while a write was on its way: "
            f"{failure.why}.",
            cure="Read what it was to write before it is tried again.",
        )
    if failure.kind == "busy":
        return StoreBusy(
            f"The database {shown} was busy for longer than the deadline: {failure.why}.",
            cure="Try again; if it stays, find who holds a transaction open on the server.",
        )
    return StoreUnavailable(
        f"The database {shown} cannot be reached: {failure.why}.",
        cure="Check that the server runs, and that the URL names its host and port.",
    )


def libsql_closed_error(shown: str) -> StoreUnavailable:
    """Return the error for use after close."""
    return StoreUnavailable(f"The store {shown} is closed.", cure="Open it again.")


def refused_token(shown: str) -> StoreUnavailable:
    """Return the error for a refused token."""
    return StoreUnavailable(
        f"The database {shown} refused the auth token, or asks for one and got none.",
        cure="Set a valid token: in the auth token setting, or as `?authToken=…` in the URL.",
    )


def not_a_server(shown: str, why: str) -> StoreUnavailable:
    """Return the error for a URL that is not a libSQL server's."""
    return StoreUnavailable(
        f"What answers under {shown} is no libSQL server: {why}.",
        cure="Check host, port and path of the database URL.",
    )


PROXY_ERROR = "PROXY_ERROR"
"""The code of a replica for any error on its primary."""

_FROM_PRIMARY = "error executing a request on the primary: "
# A replica forwards only the text of its primary's error.
_TEXTS = (
    ("constraint failed", "SQLITE_CONSTRAINT"),
    ("database is locked", "SQLITE_BUSY"),
    ("string or blob too big", "SQLITE_TOOBIG"),
    ("disk is full", "SQLITE_FULL"),
    ("readonly database", "SQLITE_READONLY"),
)

# Nothing was written; `batch_rows` treats a COMMIT that a replica reports as failed apart.
_TRANSIENT = (
    "SQLITE_BUSY",
    "SQLITE_LOCKED",
    "TRANSACTION_BUSY",
    "TRANSACTION_TIMEOUT",
    "STREAM_EXPIRED",
    "STREAM_CLOSED",
    PROXY_ERROR,
)

_MAPPING: tuple[tuple[tuple[str, ...], type[StoreError], str, str], ...] = (
    (
        ("SQLITE_FULL",),
        StoreFull,
        "There is no space left; nothing of the transaction was written",
        "Free some space on the server or raise the database's limit, then try again.",
    ),
    (
        ("SQLITE_READONLY", "SQLITE_PERM", "SQLITE_AUTH", "BLOCKED"),
        StoreReadOnly,
        "The server does not let the database be written",
        "Use a token that may write, the primary instead of a replica, and see whether the "
        "server blocks the database.",
    ),
    (
        ("SQLITE_NOTADB", "SQLITE_CORRUPT", "SQLITE_FORMAT"),
        NotADatabase,
        "The server's file is no database, or it is damaged",
        "Restore it from a backup.",
    ),
    (
        ("SQLITE_IOERR", "SQLITE_CANTOPEN", "SQLITE_NOMEM", "SQLITE_PROTOCOL"),
        StoreUnavailable,
        "The server failed to read or write the database",
        "Look into the server's log.",
    ),
    (
        ("SQLITE_TOOBIG",),
        StoreError,
        "A value is larger than the server takes",
        "Raise the server's `--max-response-size` to twice its size, or set "
        "AGENT_RUNTIME_OBJECT_STORE_URL, which takes large bodies out of the database.",
    ),
    (
        ("RESPONSE_TOO_LARGE",),
        StoreError,
        "The answer is larger than the server gives at once; nothing was written",
        "Ask for less, or raise the server's `--max-response-size`.",
    ),
)


def map_libsql_error(code: str | None, message: str, shown: str) -> Exception:
    """Return the store's error, or a `TransientFailure`, for a server's error."""
    code = code or ""
    message = message.removeprefix(_FROM_PRIMARY).removeprefix("SQLite error: ").rstrip(".")
    if code in ("", "SQLITE_UNKNOWN", "ARGS_INVALID", PROXY_ERROR):
        code = next((known for text, known in _TEXTS if text in message), code)
    if code.startswith("SQLITE_CONSTRAINT"):
        return ConstraintFailed(message)
    if code.startswith(_TRANSIENT):
        return TransientFailure("busy", message)
    if code.startswith("AUTH_"):
        return refused_token(shown)
    for codes, mapped, what, cure in _MAPPING:
        # Prefixes, because SQLite has extended codes such as SQLITE_IOERR_WRITE.
        if code.startswith(codes):
            return mapped(f"{what} (database {shown}: {message}).", cure=cure)
    return StoreError(f"The database {shown} refused a statement: {message}.")
