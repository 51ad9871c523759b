"""What every part of the store shares: the driver, the owner, and how a batch's errors are told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from .driver import ConstraintFailed, Driver, Row, Statement, Value
from .errors import Conflict, NotFound, StoreError
from .queries import load_queries


class Owner:
    """One owner's view of a database: it adds the owner to every statement."""

    def __init__(self, driver: Driver, user_id: str) -> None:
        self.user_id = user_id
        self._driver = driver
        self._sql = load_queries(driver.dialect)

    async def _read(self, name: str, **params: Value) -> list[Row]:
        return await self._driver.read(self._sql[name], {"user_id": self.user_id, **params})

    def _statement(
        self, name: str, params: Mapping[str, Value], *, rows: int | None = None, miss: str = ""
    ) -> Statement:
        return Statement(self._sql[name], {"user_id": self.user_id, **params}, rows, miss)

    async def _batch(self, statements: Sequence[Statement]) -> list[list[Row]]:
        try:
            return await self._driver.batch(statements)
        except ConstraintFailed as error:
            raise Conflict(
                f"The write breaks a rule of the store: {error}.",
                cure="Read the thread again; an id may be taken, or may belong to nothing.",
            ) from error

    async def _require_thread(self, thread_id: str) -> None:
        if not await self._read("thread_exists", thread_id=thread_id):
            raise not_found("thread", thread_id)

    async def _require_run(self, run_id: str) -> None:
        if not await self._read("run_exists", run_id=run_id):
            raise not_found("run", run_id)


def not_found(what: str, name: object) -> NotFound:
    """Return the error for what is not there, or is another owner's, which is the same."""
    return NotFound(f"There is no {what} {name} of this owner.", cure="Check the id.")


def encode_json(value: Mapping[str, Any], what: str) -> str:
    """Return an object as JSON text.

    Raises:
        StoreError: it holds something that JSON cannot.
    """
    try:
        return orjson.dumps(dict(value)).decode()
    except TypeError as error:
        raise StoreError(
            f"The {what} is no JSON object: {error}.",
            cure="Use only strings, numbers, booleans, None, lists and dicts with string keys.",
        ) from error
