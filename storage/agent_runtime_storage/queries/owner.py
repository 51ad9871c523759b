"""One owner's view of a database, shared by all subjects of the owner's store."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, cast

import orjson

from agent_runtime_storage.contract.errors import (
    Conflict,
    NotFound,
    ObjectLost,
    StoreError,
    ThreadArchived,
)
from agent_runtime_storage.contract.names import MAX_TITLE_CHARS
from agent_runtime_storage.contract.records.log import Thread
from agent_runtime_storage.drivers.protocol import (
    Announce,
    ConstraintFailed,
    Driver,
    LimitedValues,
    Row,
    Statement,
    Value,
)
from agent_runtime_storage.drivers.signals import topic_of
from agent_runtime_storage.objects.bodies import BodyWriter, fetch_bodies, verified_body
from agent_runtime_storage.objects.object_store import Objects
from agent_runtime_storage.objects.parts import PREFIX, Parted
from agent_runtime_storage.queries.row_decoding import BODIES, objects_in, to_thread, with_bodies
from agent_runtime_storage.sql.loader import load_queries


class OwnerScope:
    """One owner's view of a database: adds the owner to every statement."""

    def __init__(
        self,
        driver: Driver,
        user_id: str,
        objects: Objects | None = None,
        *,
        max_title_chars: int = MAX_TITLE_CHARS,
    ) -> None:
        self.user_id = user_id
        self.max_title_chars = max_title_chars
        self.driver = driver
        self.objects = objects
        self.sql = load_queries(driver.dialect)

    async def read(self, name: str, **params: Value) -> list[Row]:
        """Answer a query by its name; bodies stored in objects are fetched.

        Raises:
            ObjectLost, ObjectsUnavailable: a body cannot be fetched.
        """
        values = {"user_id": self.user_id, **params}
        rows = await self.driver.read(self.sql[name], values, owner=self.user_id)
        columns = BODIES.get(name)
        # Nearly always: only the largest bodies are objects.
        if not columns or not (keys := objects_in(rows, columns)):
            return rows
        try:
            bodies = await self._fetch(keys)
        except ObjectLost:
            # If the thread was deleted since the read, its rows are gone by now: they are deleted
            # before the objects.
            rows = await self.driver.read(self.sql[name], values, owner=self.user_id)
            if objects_in(rows, columns) >= keys:
                raise
            bodies = await self._fetch(objects_in(rows, columns))
        return with_bodies(rows, columns, bodies)

    async def _fetch(self, keys: Set[str]) -> Mapping[str, bytes]:
        """Return the bodies in these objects, or in parts, by their keys."""
        parted = {key for key in keys if key.startswith(PREFIX)}
        bodies = dict(await fetch_bodies(self.objects, keys - parted))
        for key in parted:
            bodies[key] = await self._whole(key)
        return bodies

    async def _whole(self, key: str) -> bytes:
        parted, thread_id = Parted.parse(key)
        data = bytearray()
        # One at a time: servers limit their answers.
        for number in range(parted.number):
            place = {"thread_id": thread_id, "hash": parted.hash_of(number)}
            values = {"user_id": self.user_id, **place}
            for row in await self.driver.read(self.sql["blob"], values, owner=self.user_id):
                data += row[1]
        return await verified_body(parted.name, bytes(data), key, "the database")

    def bodies(self, thread_id: str) -> BodyWriter:
        driver = self.driver
        part_bytes = driver.part_bytes if isinstance(driver, LimitedValues) else None
        return BodyWriter(self.sql["put_blob"], self.user_id, thread_id, self.objects, part_bytes)

    def statement(
        self, name: str, params: Mapping[str, Value], *, rows: int | None = None, miss: str = ""
    ) -> Statement:
        return Statement(self.sql[name], {"user_id": self.user_id, **params}, rows, miss)

    async def batch(
        self,
        statements: Sequence[Statement],
        *,
        thread: str | None = None,
        threads: Sequence[str] = (),
        tree: str | None = None,
        spending: bool = False,
        repeatable: bool = False,
        announce: Announce | None = None,
    ) -> list[list[Row]]:
        """Run a batch; batches on the same threads or the same run tree run one after another.

        Args:
            thread, threads: the threads whose rows it writes.
            tree: the root of the runs whose rows it writes.
            spending: whether it makes a reservation that depends on the spending of all runs.
            repeatable: as for `Driver.batch`.
            announce: called with the rows once they are durable; see `Driver.batch`.

        Raises:
            BatchMissed, StoreInDoubt: as `Driver.batch`.
            Conflict: it breaks a constraint.
        """
        ids = threads if thread is None else (thread, *threads)
        locks = [f"thread {thread_id}" for thread_id in ids]
        if tree is not None:
            locks.append(f"tree {tree}")
        if spending:
            locks.append("spending")
        try:
            return await self.driver.batch(
                statements,
                owner=self.user_id,
                locks=locks,
                repeatable=repeatable,
                announce=announce,
            )
        except ConstraintFailed as error:
            raise Conflict(
                f"The write breaks a rule of the store: {error}.",
                cure="Read the thread again; an id may be taken, or may not exist.",
            ) from error

    def announce(self, thread_id: str, news: Callable[[], Sequence[object]] | None = None) -> None:
        """Wake the listeners of the thread; see `Signals.announce`."""
        self.driver.signals.announce(topic_of(self.user_id, thread_id), news)

    async def thread(self, thread_id: str) -> Thread:
        """Return a thread. Raises `NotFound`, also if it is archived or hidden."""
        rows = await self.read("thread", thread_id=thread_id)
        if not rows:
            raise await self.no_thread(thread_id)
        return to_thread(rows[0])

    async def require_thread(self, thread_id: str) -> None:
        if not await self.read("thread_exists", thread_id=thread_id):
            raise await self.no_thread(thread_id)

    async def no_thread(self, thread_id: str) -> NotFound:
        """Return the error for a thread that is not there: it may be archived."""
        if not await self.read("archive", thread_id=thread_id):
            return not_found("thread", thread_id)
        return ThreadArchived(
            f"Thread {thread_id} is archived.",
            cure=f"Restore it: `agent-runtime threads restore {thread_id}`.",
        )

    async def require_run(self, run_id: str) -> None:
        if not await self.read("run_exists", run_id=run_id):
            raise not_found("run", run_id)


def not_found(what: str, name: object) -> NotFound:
    """Return the error for an id that does not exist, or belongs to another owner."""
    cure = "`agent-runtime show THREAD` prints the numbers of its nodes."
    return NotFound(
        f"There is no {what} {name} of this owner.",
        cure=cure if what == "node" else "Check the id.",
    )


def encode_json(value: Mapping[str, Any], what: str, *, lossy: bool = False) -> str:
    """Return an object as JSON text.

    Args:
        lossy: whether NaN and infinities become null instead of an error.

    Raises:
        StoreError: it holds a value that JSON cannot represent.
    """
    try:
        # orjson writes NaN and infinities as null without a word, so they are looked for here.
        text = orjson.dumps(dict(value)).decode()
        if not lossy and not _finite(value):
            raise TypeError("it has a number that is not finite")
    except TypeError as error:
        raise StoreError(
            f"The {what} is no JSON object: {error}.",
            cure="Use only strings, finite numbers, booleans, None, lists and dicts with string "
            "keys.",
        ) from error
    return text


def _finite(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, Mapping):
        return all(map(_finite, cast("Mapping[Any, Any]", value).values()))
    return not isinstance(value, list | tuple) or all(map(_finite, cast("list[Any]", value)))
