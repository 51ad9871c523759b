"""Hrana, the protocol of libSQL servers, without I/O.

A batch of the store becomes one conditional batch of Hrana: BEGIN IMMEDIATE, each statement only if
the previous one succeeded, a check of the row count after each counted statement, COMMIT, and
ROLLBACK if COMMIT was not reached.  The server decides everything in one request, and no
transaction waits for the network.
"""

from __future__ import annotations

import binascii
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, NotRequired, TypedDict

from agent_runtime_storage.contract.errors import StoreError
from agent_runtime_storage.drivers.libsql.error_mapping import (
    PROXY_ERROR,
    TransientFailure,
    map_libsql_error,
)
from agent_runtime_storage.drivers.libsql.sql_text import is_query, is_write, placeholders
from agent_runtime_storage.drivers.protocol import BatchMissed, Row, Statement, Value


class HranaError(TypedDict, total=False):
    """An error as the server reports it."""

    message: str
    code: str | None


class HranaStep(TypedDict):
    """A step of a conditional batch."""

    stmt: dict[str, Any]
    condition: NotRequired[dict[str, Any]]


class StepResult(TypedDict):
    """The result of a step; fields that are not used here are left out."""

    rows: list[list[dict[str, Any]]]


class BatchAnswer(TypedDict):
    """The answer to a conditional batch: for each step its result, its error, or neither.

    The replication index, where a server has one, is the state of the database after it.
    """

    step_results: list[StepResult | None]
    step_errors: list[HranaError | None]
    replication_index: NotRequired[str | None]


class HranaBatchPlan(NamedTuple):
    """A batch as Hrana's steps.

    Attributes:
        results: for each statement the step that runs it.
        missed: for each check, the label and the index of its statement.
        first: the first step that must succeed; the last is `commit`.
        size: its approximate size in bytes as a request.
    """

    steps: list[HranaStep]
    results: list[int]
    missed: dict[int, tuple[str, int]]
    first: int
    commit: int
    size: int


# SQLite has no statement that fails on demand, but a malformed JSON path fails and its error shows
# the path.
_MISSED = "missed-its-rows"
_CHECK = "SELECT json_extract('{{}}', iif(({count}) = {rows}, '$', '" + _MISSED + "'))"
# Bytes of a step's JSON, without its SQL and its values.
_STEP_BYTES = 150
_INTEGER_LIMIT = 2**63


def encode_hrana_statement(
    sql: str, params: Mapping[str, Value], *, rows: bool = True
) -> dict[str, Any]:
    """Return a statement with the values of its placeholders.

    Raises:
        StoreError: a value cannot be stored.
        KeyError: a value is missing.
    """
    named = [
        {"name": name, "value": encode_hrana_value(params[name])} for name in placeholders(sql)
    ]
    return {"sql": sql, "named_args": named, "want_rows": rows}


def plan_batch(
    statements: Sequence[Statement], *, foreign_keys: bool | None = None
) -> HranaBatchPlan:
    """Return the conditional batch that runs the statements in one transaction.

    Args:
        foreign_keys: True switches their checks on, and must succeed; False tries to switch them
            off for this batch; None leaves them as they are.

    Raises:
        StoreError: a value cannot be stored.
    """
    steps: list[HranaStep] = []
    results: list[int] = []
    missed: dict[int, tuple[str, int]] = {}

    def add(stmt: dict[str, Any]) -> None:
        step: HranaStep = {"stmt": stmt}
        if len(steps) > first:
            # Each step needs the one before, so that the first error skips the rest.
            step["condition"] = {"type": "ok", "step": len(steps) - 1}
        steps.append(step)

    first = 0
    if foreign_keys is False:
        steps.append({"stmt": encode_hrana_statement("PRAGMA foreign_keys = OFF", {}, rows=False)})
        first = 1
    elif foreign_keys:
        add(encode_hrana_statement("PRAGMA foreign_keys = ON", {}, rows=False))
    begin = len(steps)
    # A deferred transaction that reads first can fail to get the lock when it writes.
    add(encode_hrana_statement("BEGIN IMMEDIATE", {}, rows=False))
    for index, item in enumerate(statements):
        results.append(len(steps))
        add(encode_hrana_statement(item.sql, item.params))
        # `changes()` belongs to the last statement, so its check comes directly after it.
        if item.rows is not None:
            missed[len(steps)] = (item.miss, index)
            add(_check(item))
    commit = len(steps)
    add(encode_hrana_statement("COMMIT", {}, rows=False))
    # After some errors the transaction has already ended; a failing ROLLBACK is harmless.
    undone = {"type": "not", "cond": {"type": "ok", "step": commit}}
    steps.append(
        {
            "stmt": encode_hrana_statement("ROLLBACK", {}, rows=False),
            "condition": {"type": "and", "conds": [{"type": "ok", "step": begin}, undone]},
        }
    )
    if foreign_keys is False:
        # The stream may run other batches after this one.
        steps.append({"stmt": encode_hrana_statement("PRAGMA foreign_keys = ON", {}, rows=False)})
    return HranaBatchPlan(
        steps, results, missed, first, commit, sum(map(estimate_step_bytes, steps))
    )


def _check(item: Statement) -> dict[str, Any]:
    if is_write(item.sql):
        return encode_hrana_statement(
            _CHECK.format(count="changes()", rows=item.rows), {}, rows=False
        )
    if not is_query(item.sql):
        raise ValueError(f"rows of this statement cannot be counted: {item.sql}")
    # Runs the query a second time, in the same transaction: its rows cannot have changed.
    count = f"SELECT count(*) FROM ({item.sql})"
    return encode_hrana_statement(
        _CHECK.format(count=count, rows=item.rows), item.params, rows=False
    )


def batch_rows(plan: HranaBatchPlan, answer: BatchAnswer, shown: str) -> list[list[Row]]:
    """Return the rows of each statement of a committed batch.

    Raises:
        BatchMissed, ConstraintFailed, Failure, StoreError: it was not.
    """
    # ROLLBACK, the last step, may fail; the statement that caused it has its own error.
    for step in range(plan.first, plan.commit + 1):
        error = answer["step_errors"][step]
        if error is None:
            continue
        code, message = error.get("code"), error.get("message", "")
        if step in plan.missed and _MISSED in message:
            raise BatchMissed(*plan.missed[step])
        if step == plan.commit and code == PROXY_ERROR:
            # A replica reports any failure of its primary like this; the commit may be done.
            raise TransientFailure("lost", message)
        raise map_libsql_error(code, message, shown)
    results = answer["step_results"]
    if len(results) != len(plan.steps) or results[plan.commit] is None:
        raise TransientFailure("lost", "the server's answer does not tell whether it committed")
    return [decode_rows(results[step], shown) for step in plan.results]


def encode_hrana_value(value: Value) -> dict[str, Any]:
    """Encode a value for Hrana.

    Raises:
        StoreError: it cannot be stored.
    """
    match value:
        case None:
            return {"type": "null"}
        case str():
            try:
                value.encode()
            except UnicodeEncodeError as error:
                raise _cannot_store(str(error)) from error
            return {"type": "text", "value": value}
        case int():
            if not -_INTEGER_LIMIT <= value < _INTEGER_LIMIT:
                raise _cannot_store("the integer needs more than 64 bits")
            # As text: JSON numbers are exact up to 53 bits only.  `int`, as True is one as well.
            return {"type": "integer", "value": str(int(value))}
        case float():
            # SQLite stores NaN as NULL, and JSON has neither NaN nor infinity.
            if math.isnan(value):
                return {"type": "null"}
            if math.isinf(value):
                raise _cannot_store("the number is infinite, which the protocol cannot carry")
            return {"type": "float", "value": value}
        case _:
            text = binascii.b2a_base64(value, newline=False).decode()
            return {"type": "blob", "base64": text}


def decode_rows(result: StepResult | None, shown: str) -> list[Row]:
    """Return the rows of a result.

    Raises:
        StoreError: they contain a value that the protocol does not know.
    """
    if result is None:
        return []
    return [tuple([_decode(value, shown) for value in row]) for row in result["rows"]]


def _decode(value: Mapping[str, Any], shown: str) -> Value:
    match value["type"]:
        case "null":
            return None
        case "text":
            return value["value"]
        case "integer":
            return int(value["value"])
        case "float" if value["value"] is not None:
            return float(value["value"])
        case "blob":
            text: str = value["base64"]
            # Servers omit the padding.
            return binascii.a2b_base64(text + "=" * (-len(text) % 4))
        case _:
            raise StoreError(f"The database {shown} holds a number that the protocol cannot carry.")


def _cannot_store(why: str) -> StoreError:
    return StoreError(
        f"A value cannot be stored: {why}.",
        cure="Text must be valid Unicode without lone surrogates, numbers finite and of 64 bits.",
    )


def estimate_step_bytes(step: HranaStep) -> int:
    """Return the approximate size of a step in bytes."""
    size = _STEP_BYTES + len(step["stmt"]["sql"])
    for argument in step["stmt"]["named_args"]:
        value = argument["value"]
        size += 40 + len(value.get("base64") or str(value.get("value", "")))
    return size
