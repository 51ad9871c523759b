"""Read what the inspector shows; see `InspectionStore`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import anyio
import orjson

from agent_runtime_storage.contract.records.inspection import (
    Skeleton,
    SkeletonNode,
    SkeletonUsage,
)
from agent_runtime_storage.contract.records.log import Activation, JsonObject, Run
from agent_runtime_storage.queries.owner import OwnerScope
from agent_runtime_storage.queries.row_decoding import to_activation, to_run

_LATEST = (2.0**53, "")
"""A cursor before every run."""


class SqlInspection:
    """`InspectionStore` over SQL."""

    def __init__(self, scope: OwnerScope) -> None:
        self._scope = scope

    async def skeleton(self, thread_id: str, *, after: int = 0) -> Skeleton:
        await self._scope.require_thread(thread_id)
        found: dict[str, list[list[Any]]] = {}

        async def read(name: str) -> None:
            found[name] = await self._columns(name, thread_id=thread_id, after=after)

        # At once: each takes the database a while, and the program nearly none.
        async with anyio.create_task_group() as group:
            for name in ("skeleton_calls", "skeleton_usage", "skeleton_events"):
                group.start_soon(read, name)
        nodes, seconds, retries, sources = found["skeleton_events"]
        asked = await self._scope.read("skeleton_questions", thread_id=thread_id, after=after)
        return Skeleton(
            calls=tuple(zip(*found["skeleton_calls"], strict=True)),
            usage=tuple(map(SkeletonUsage, *found["skeleton_usage"])),
            seconds=dict(zip(nodes, seconds, strict=True)),
            retries={node: count for node, count in zip(nodes, retries, strict=True) if count},
            steered=tuple(
                node for node, source in zip(nodes, sources, strict=True) if source == "steer"
            ),
            asked=tuple(node for (node,) in asked),
            parts=await self.parts(thread_id),
        )

    async def nodes(self, thread_id: str, *, after: int = 0) -> list[SkeletonNode]:
        columns = await self._columns("skeleton_nodes", thread_id=thread_id, after=after)
        if not columns[0]:
            await self._scope.require_thread(thread_id)
        return list(map(SkeletonNode, *columns))

    async def _columns(self, name: str, **key: str | int) -> list[list[Any]]:
        """Answer a query whose one row has a JSON array for each column."""
        (row,) = await self._scope.read(name, **key)
        return [_values(column) for column in row]

    async def activations(self, thread_id: str, ids: Sequence[int]) -> list[Activation]:
        rows = await self._scope.read(
            "activations_by_id", thread_id=thread_id, ids=orjson.dumps(list(ids)).decode()
        )
        if not rows:
            await self._scope.require_thread(thread_id)
        return [to_activation(row) for row in rows]

    async def parts(self, thread_id: str) -> Mapping[int, str | None]:
        rows = await self._scope.read("activation_parts", thread_id=thread_id)
        return {int(row[0]): row[1] for row in rows}

    async def children(self, thread_id: str, parents: Sequence[int]) -> list[tuple[int, int]]:
        rows = await self._scope.read(
            "children_of", thread_id=thread_id, parents=orjson.dumps(list(parents)).decode()
        )
        return [(seq, parent) for seq, parent in rows]

    async def active_roots(self, *, limit: int = 200) -> list[Run]:
        return [to_run(row) for row in await self._scope.read("active_roots", limit=limit)]

    async def ended_roots(
        self, *, before: tuple[float, str] | None = None, limit: int = 50
    ) -> list[Run]:
        at, run_id = before or _LATEST
        rows = await self._scope.read("ended_roots", before=at, before_id=run_id, limit=limit)
        return [to_run(row) for row in rows]

    async def last_start(self, thread_id: str) -> JsonObject:
        rows = await self._scope.read("last_start", thread_id=thread_id)
        return orjson.loads(rows[0][0]) if rows else {}

    async def last_prompts(self, thread_id: str, run_id: str, *, limit: int = 60) -> list[int]:
        rows = await self._scope.read(
            "last_prompts", thread_id=thread_id, run_id=run_id, limit=limit
        )
        return [tokens for (tokens,) in reversed(rows)]

    async def last_model(self, thread_id: str, run_id: str) -> str:
        rows = await self._scope.read("last_model", thread_id=thread_id, run_id=run_id)
        return rows[0][0] if rows else ""


def _values(column: str | None) -> list[Any]:
    """Return the values of a column; without rows, some databases return none."""
    return orjson.loads(column or "[]")
