"""Run a batch in a transaction of the caller's own connection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from agent_runtime_storage.contract.errors import StoreError
from agent_runtime_storage.drivers.postgres.translation import (
    missed_statement_index,
    translate,
    translate_counted,
)
from agent_runtime_storage.drivers.protocol import BatchMissed, ConstraintFailed, Statement

_SETTINGS = ("search_path", "role", "agent_runtime.user_id")


async def run_joined(
    connection: Any, prologue: Statement, statements: Sequence[Statement], *, path: str
) -> None:
    """Run the statements after the prologue, then give the caller's settings back.

    Args:
        path: the search path of the store's tables.

    Raises:
        BatchMissed, ConstraintFailed, StoreError: nothing was written, and the transaction is as
            before.
    """
    if not isinstance(connection, psycopg.AsyncConnection):
        raise StoreError(
            "The `connection` is no psycopg `AsyncConnection`.",
            cure="Give the asynchronous connection whose transaction the run is to join.",
        )
    caller = cast("psycopg.AsyncConnection[Any]", connection)
    if caller.autocommit and caller.info.transaction_status == TransactionStatus.IDLE:
        raise StoreError(
            "The connection has no transaction to join.",
            cure="Enqueue inside of `async with connection.transaction()`.",
        )
    # The caller's own rows may be dicts or objects.
    cursor = psycopg.AsyncRawCursor(caller, row_factory=tuple_row)
    try:
        # It also begins the transaction of a connection without autocommit, which otherwise ended
        # with the savepoint.
        before = await _settings(cursor)
        # A savepoint: an error here leaves the caller's transaction usable.
        async with caller.transaction():
            await cursor.execute("SELECT set_config('search_path', $1, true)", [path])
            await _execute(cursor, prologue, 0)
            for place, statement in enumerate(statements):
                await _execute(cursor, statement, place)
            # A `SET LOCAL` lasts to the end of the caller's transaction, beyond the savepoint.
            for name, value in before.items():
                await cursor.execute("SELECT set_config($1, $2, true)", [name, value])
    except psycopg.errors.IntegrityError as error:
        raise ConstraintFailed(error.diag.message_primary or "") from None
    except psycopg.Error as error:
        place = missed_statement_index(str(error))
        if place is not None:
            raise BatchMissed(statements[place].miss, place) from None
        # The message may quote a value.
        raise StoreError(
            f"The run could not join the transaction (SQLSTATE {error.sqlstate}).",
            cure="Use a connection to the store's database, by a login that may write to it.",
        ) from None


async def _settings(cursor: psycopg.AsyncRawCursor[Any]) -> dict[str, str]:
    values: dict[str, str] = {}
    for name in _SETTINGS:
        await cursor.execute("SELECT coalesce(current_setting($1, true), '')", [name])
        [row] = await cursor.fetchall()
        values[name] = str(row[0])
    return values


async def _execute(cursor: psycopg.AsyncRawCursor[Any], statement: Statement, place: int) -> None:
    counted = statement.rows is not None
    text = translate_counted(statement.sql) if counted else translate(statement.sql)
    values = [statement.params[name] for name in text.names]
    if counted:
        values += [place, statement.rows]
    await cursor.execute(text.sql, values)
