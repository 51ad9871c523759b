"""Vectors of the content of threads, separate for each model, searched by cosine similarity.

They are float32.  On SQLite the signs of every candidate's numbers are compared, then the best of
these exactly (see `signs`); Postgres compares all if they are few, and uses an index if they are
many (see `nearest_vectors` in its migrations).
"""

from __future__ import annotations

import logging
import math
import sys
from array import array
from collections.abc import Iterable, Mapping, Sequence

import anyio.lowlevel
import anyio.to_thread
import orjson

from agent_runtime_storage.contract.errors import DimensionMismatch, InvalidVector, StoreError
from agent_runtime_storage.contract.names import name_problem
from agent_runtime_storage.contract.records.search import (
    EmbedderRow,
    VectorHit,
    VectorItem,
    VectorKey,
)
from agent_runtime_storage.drivers.protocol import BatchMissed, Measuring, Row, Statement, Value
from agent_runtime_storage.queries.owner import OwnerScope, not_found
from agent_runtime_storage.search.signs import (
    OFF_LOOP,
    Candidates,
    little_endian,
    signs_of,
)

MOST_DIMENSIONS = 16_000
# Well within what float32 can square, as distances are computed in single precision.
_SHORTEST, _LONGEST = 1e-12, 1e12
_DISTANCE = "vec_distance_cosine"
_OVERSAMPLING, _LEAST_CANDIDATES = 10, 2_000
"""Candidates by their signs for each hit, and at least: up to these, a search is exact."""
_AT_A_TIME = 16
"""The vectors to pack before the event loop gets a turn: a few milliseconds."""

_log = logging.getLogger(__name__)


class SqlVectors:
    """`VectorStore` over SQL."""

    def __init__(self, scope: OwnerScope) -> None:
        self._scope = scope

    async def upsert(self, model: str, items: Sequence[VectorItem]) -> None:
        _check_name(model, "embedder's name")
        for source in {item.source for item in items}:
            _check_name(source, "source of a vector")
        if not items:
            return
        dimensions = len(items[0].values)
        vectors: list[Statement] = []
        for number, item in enumerate(items):
            if number % _AT_A_TIME == _AT_A_TIME - 1:
                await anyio.lowlevel.checkpoint()
            vectors.append(self.put(model, item))
            if len(item.values) != dimensions:
                raise _mismatch(model, dimensions, len(item.values), _name(item))
        threads = sorted({item.thread_id for item in items})
        batch = [
            *await self.require_model(model, dimensions),
            *(
                self._scope.statement(
                    "thread_exists",
                    {"thread_id": thread_id},
                    rows=1,
                    miss=f"thread {thread_id}",
                )
                for thread_id in threads
            ),
            *vectors,
            # In the same batch, to save a round trip.
            self._scope.statement(
                "vector_index_is_due", {"model": model, "dimensions": dimensions}
            ),
        ]
        if in_blocks := self._makes_blocks and signs_of(array("f", items[0].values)) != b"":
            due_of = {"model": model, "threads": _json(threads)}
            batch.append(self._scope.statement("sources_with_blocks_due", due_of))
        try:
            answers = await self._scope.batch(batch, threads=threads, repeatable=True)
        except BatchMissed as error:
            if error.label.startswith("thread "):
                raise not_found("thread", error.label.removeprefix("thread ")) from error
            known = await self._dimensions(model)
            raise _mismatch(model, known or 0, dimensions, _name(items[0])) from error
        sources = answers.pop() if in_blocks else []
        [[due]] = answers[-1]
        if due and (self._scope.driver.dialect == "postgres" or self._can_compare_signs):
            await self._make_index(model)
        for thread_id, source in sources:
            await self._make_blocks(model, str(thread_id), str(source))

    async def nearest(
        self,
        model: str,
        query: Sequence[float],
        *,
        limit: int = 10,
        thread_id: str | None = None,
        sources: Sequence[str] | None = None,
    ) -> list[VectorHit]:
        values = _pack(query, "the query")
        _check_name(model, "embedder's name")
        # What a LIMIT of Postgres can take, cast to an integer.
        limit = min(max(limit, 0), 2**31 - 1)
        params: dict[str, Value] = {
            "user_id": self._scope.user_id,
            "model": model,
            "dimensions": len(values),
            "query": self._encode_vector(values),
            "sources": None if sources is None else _json(sources),
            "limit": limit,
        }
        if self._can_compare_signs and (signs := signs_of(values)):
            rows = await self._nearest_by_signs(params, signs, thread_id)
        else:
            name = "search_vectors"
            if thread_id is not None:
                name, params["thread_id"] = f"{name}_of_thread", thread_id
            rows = await self._read(name, params)
        if not rows:
            await self._why_nothing(model, len(values), thread_id)
        return [_to_hit(row) for row in rows]

    async def _nearest_by_signs(
        self, params: Mapping[str, Value], signs: bytes, thread_id: str | None
    ) -> list[Row]:
        """Return the nearest of the vectors whose signs differ least from those of the query."""
        most = max(_OVERSAMPLING * int(params["limit"] or 0), _LEAST_CANDIDATES)
        of_all = {name: params[name] for name in ("user_id", "model", "sources")}
        likely: dict[str, Value] = {**of_all, "signs": signs, "candidates": most}
        name = "likely_vectors"
        if thread_id is not None:
            name, likely["thread_id"] = f"{name}_of_thread", thread_id
        candidates = Candidates(await self._read(name, likely))
        if candidates.number > OFF_LOOP:
            places = await anyio.to_thread.run_sync(candidates.likeliest, signs, most)
        else:
            places = candidates.likeliest(signs, most)
        of_query = {name: value for name, value in params.items() if name != "sources"}
        return await self._read("nearest_vectors", {**of_query, "places": places})

    async def _read(self, name: str, params: Mapping[str, Value]) -> list[Row]:
        sql = self._with_distance(self._scope.sql[name])
        return await self._scope.driver.read(sql, params, owner=self._scope.user_id)

    async def delete(
        self,
        thread_id: str,
        *,
        model: str | None = None,
        source: str | None = None,
        source_ids: Sequence[int] | None = None,
    ) -> int:
        params = {
            "thread_id": thread_id,
            "model": model,
            "source": source,
            "source_ids": None if source_ids is None else _json(source_ids),
        }
        # A batch returns no number of affected rows, so they are counted before.
        batch = [
            self._scope.statement("thread_exists", {"thread_id": thread_id}, rows=1),
            self._scope.statement("count_vectors", params),
            self._scope.statement("delete_vectors", params),
        ]
        try:
            rows = await self._scope.batch(batch, thread=thread_id)
        except BatchMissed as error:
            raise not_found("thread", thread_id) from error
        return int(rows[1][0][0])

    async def by_digest(self, model: str, digests: Sequence[str]) -> dict[str, tuple[float, ...]]:
        rows = await self._scope.read("vectors_by_digest", model=model, digests=_json(digests))
        return {str(digest): _decode(stored) for digest, stored in rows}

    async def embedded_ids(
        self, thread_id: str, model: str, source: str, source_ids: Sequence[int]
    ) -> list[int]:
        values = {"thread_id": thread_id, "model": model, "source": source}
        rows = await self._scope.read("embedded", **values, source_ids=_json(source_ids))
        return [int(source_id) for (source_id,) in rows]

    async def models(self) -> list[EmbedderRow]:
        return [EmbedderRow(*row) for row in await self._scope.read("embedders")]

    async def missing(self, model: str, *, limit: int = 100) -> list[VectorKey]:
        rows = await self._scope.read("vectors_to_embed", model=model, limit=max(limit, 0))
        return [VectorKey(*row) for row in rows]

    async def of_thread(
        self,
        thread_id: str,
        *,
        after: tuple[str, VectorKey | VectorItem] | None = None,
        limit: int = 500,
    ) -> list[tuple[str, VectorItem]]:
        if after is None:
            name, cursor = "vectors_of_thread", dict[str, Value]()
        else:
            name = "vectors_of_thread_after"
            cursor = {"model": after[0], **_key(after[1])}
        values = {**cursor, "thread_id": thread_id, "limit": max(limit, 0)}
        rows = await self._scope.read(name, **values)
        return [_to_item(thread_id, row) for row in rows]

    async def _why_nothing(self, model: str, dimensions: int, thread_id: str | None) -> None:
        """Raise an error if a search has found nothing because of a mistake of its caller."""
        if thread_id is not None:
            await self._scope.require_thread(thread_id)
        known = await self._dimensions(model)
        if known is not None and known != dimensions:
            raise _mismatch(model, known, dimensions, "the query")

    async def _dimensions(self, model: str) -> int | None:
        rows = await self._scope.read("embedder_dimensions", model=model)
        return int(rows[0][0]) if rows else None

    async def require_model(self, model: str, dimensions: int) -> list[Statement]:
        """Return statements that miss unless the model has, or may take, this many dimensions."""
        params: dict[str, Value] = {"model": model, "dimensions": dimensions}
        fits = self._scope.statement("embedder_fits", params, rows=1, miss="dimensions")
        # Read first: an INSERT ... ON CONFLICT in every batch would make all writers of the model's
        # vectors wait for each other.
        known = await self._dimensions(model)
        if known == dimensions:
            return [fits]
        name = "put_embedder" if known is None else "resize_embedder"
        return [self._scope.statement(name, params), fits]

    async def _make_index(self, model: str) -> None:
        """Create the index for the vectors of this model."""
        batch = [
            Statement(self._scope.sql["allow_time"], {}),
            self._scope.statement("make_vector_index", {"model": model}),
        ]
        try:
            await self._scope.driver.batch(
                batch, owner=None, locks=["vector indexes"], repeatable=True
            )
        except StoreError as error:
            # No error for the caller: the vectors are written, and a search without the index is
            # slow but exact.
            _log.warning(
                "The index for the vectors of model %r was not made, so searches among them are "
                "slow: %s  The next vectors that are written try it again.",
                model,
                error,
            )

    async def _make_blocks(self, model: str, thread_id: str, source: str) -> None:
        """Put the signs of vectors that wait for it into blocks."""
        values: dict[str, Value] = {"model": model, "thread_id": thread_id, "source": source}
        batch = [
            self._scope.statement("open_vector_blocks", values),
            self._scope.statement("make_vector_blocks", values),
        ]
        try:
            await self._scope.batch(batch, thread=thread_id, repeatable=True)
        except StoreError as error:
            # As for the index: a search is only slower without.
            _log.warning(
                "The signs of vectors of model %r were not put into blocks, so searches among them "
                "are slow: %s  The next vectors that are written try it again.",
                model,
                error,
            )

    def put(self, model: str, item: VectorItem) -> Statement:
        """Return the statement that writes a vector, after those of `require_model`."""
        packed = _pack(item.values, _name(item))
        values: dict[str, Value] = {
            "thread_id": item.thread_id,
            "model": model,
            **_key(item),
            "dimensions": len(packed),
            "embedding": self._encode_vector(packed),
            "digest": item.digest,
        }
        if self._scope.driver.dialect == "sqlite":
            # Postgres has an index of its own for this.
            values["signs"] = signs_of(packed)
        return self._scope.statement("put_vector", values, rows=1, miss="dimensions")

    @property
    def _can_compare_signs(self) -> bool:
        # libSQL's own functions cannot, but sqlite-vec's can.
        driver = self._scope.driver
        if driver.dialect != "sqlite":
            return False
        return not isinstance(driver, Measuring) or driver.vector_function == _DISTANCE

    @property
    def _makes_blocks(self) -> bool:
        # Only a file: a search in blocks reads megabytes, which should not go over a network.
        driver = self._scope.driver
        return driver.dialect == "sqlite" and not isinstance(driver, Measuring)

    def _encode_vector(self, values: array[float]) -> Value:
        if self._scope.driver.dialect == "postgres":
            # Nine digits tell every float32 from its neighbours.
            return f"[{','.join([format(value, '.9g') for value in values])}]"
        return little_endian(values)

    def _with_distance(self, sql: str) -> str:
        """Return the search with the distance function that the database has.

        sqlite-vec's and libSQL's take the same blobs and return the same.
        """
        function = _DISTANCE
        if isinstance(self._scope.driver, Measuring):
            function = self._scope.driver.vector_function
        if function is None:
            raise StoreError(
                "The database server cannot compare vectors.",
                cure="Load sqlite-vec into it, or use a libSQL server, which needs no extension.",
            )
        return sql.replace(f"{_DISTANCE}(", f"{function}(")


def _check_name(name: str, what: str) -> None:
    if problem := name_problem(name):
        raise StoreError(f"The {what} {problem}.", cure="Name it otherwise.")


def _pack(values: Sequence[float], what: str) -> array[float]:
    """Return a vector in single precision.

    Raises:
        InvalidVector: it has no direction, or too many numbers.
    """
    if not 1 <= len(values) <= MOST_DIMENSIONS:
        raise InvalidVector(
            f"The vector of {what} has {len(values)} numbers.",
            cure=f"It must have 1 to {MOST_DIMENSIONS}; look at what the embedder answered.",
        )
    try:
        packed = array("f", values)
    except TypeError as error:
        raise InvalidVector(
            f"The vector of {what} holds something that is no number: {error}.",
            cure="Look at what the embedder answered.",
        ) from error
    length = math.hypot(*packed)
    if not math.isfinite(length):
        raise InvalidVector(
            f"The vector of {what} holds a number that is not finite in single precision.",
            cure="Look at what the embedder answered; nothing of it was stored.",
        )
    if not _SHORTEST <= length <= _LONGEST:
        raise InvalidVector(
            f"The vector of {what} has the length {length:g}: it has no direction to compare.",
            cure="Leave out what has an empty text; scale vectors to a length of about 1.",
        )
    return packed


def _mismatch(model: str, known: int, given: int, what: str) -> DimensionMismatch:
    return DimensionMismatch(
        f"The vectors of model {model!r} have {known} dimensions; that of {what} has {given}.",
        known=known,
        given=given,
        cure=f"Use another name for the model, such as {f'{model}@{given}'!r}, and embed again "
        f"what `vectors.missing` lists; or delete all vectors of {model!r} first.",
    )


def _name(key: VectorKey | VectorItem) -> str:
    part = f", part {key.part}" if key.part else ""
    return f"{key.source} {key.source_id}{part}"


def _key(key: VectorKey | VectorItem) -> Mapping[str, Value]:
    return {"source": key.source, "source_id": key.source_id, "part": key.part}


def _to_hit(row: Row) -> VectorHit:
    *key, similarity = row
    return VectorHit(*key, similarity=min(max(float(similarity), -1.0), 1.0))


def _to_item(thread_id: str, row: Row) -> tuple[str, VectorItem]:
    model, source, source_id, part, stored = row
    return model, VectorItem(thread_id, source, source_id, _decode(stored), part)


def _decode(stored: bytes | str) -> tuple[float, ...]:
    if isinstance(stored, str):
        # Through float32, so that the value is the one that was written, not the decimal's double.
        return tuple(array("f", orjson.loads(stored)))
    values = array("f", stored)
    if sys.byteorder == "big":
        values.byteswap()
    return tuple(values)


def _json(values: Iterable[str] | Iterable[int]) -> str:
    return orjson.dumps(list(values)).decode()
