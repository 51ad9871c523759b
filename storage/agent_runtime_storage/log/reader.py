"""Read the log: branches, nodes, calls, activations, observations and plans.

A query that returns nothing asks again whether the thread exists: an empty result is right for a
thread without such rows, and `NotFound` for one that is not the owner's.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Collection, Sequence

import orjson

from agent_runtime_storage.contract.errors import CorruptThread
from agent_runtime_storage.contract.records.log import Activation, CallRow, Node, Outline
from agent_runtime_storage.contract.records.observations import ObservationRow
from agent_runtime_storage.contract.records.plans import PlanRow
from agent_runtime_storage.queries.owner import OwnerScope, not_found
from agent_runtime_storage.queries.row_decoding import (
    to_activation,
    to_call,
    to_nodes,
    to_observation,
    to_plan,
    to_thread,
)

# Above every id, with room for a query to add to it within 64 bits.
_NO_LIMIT = 2**62


class SqlLog:
    """`LogStore` over SQL."""

    def __init__(self, scope: OwnerScope) -> None:
        self._scope = scope

    async def branch(
        self, thread_id: str, head: int, *, first: int | None = None, limit: int | None = None
    ) -> list[Node]:
        if limit is not None and limit < 1:
            return []
        rows = await self._scope.read(
            "branch",
            thread_id=thread_id,
            head=head,
            first=first or 0,
            limit=_NO_LIMIT if limit is None else limit,
        )
        if not rows:
            raise await self._missing_head(thread_id, head)
        nodes = to_nodes(rows)
        oldest = nodes[0]
        # The walk may end at the root, at `first` or at the limit; elsewhere a node is missing.
        ended = oldest.parent_id is None and first is None
        if not (ended or oldest.seq == first or len(nodes) == limit):
            raise _broken(thread_id, oldest.seq, oldest.parent_id, first)
        return nodes

    async def lineage(self, thread_id: str, head: int, *, first: int = 0) -> list[int]:
        rows = await self._scope.read("lineage", thread_id=thread_id, head=head, first=first)
        if not rows:
            raise await self._missing_head(thread_id, head)
        oldest, parent = rows[0]
        if parent is not None and parent >= first:
            raise _broken(thread_id, oldest, parent, None)
        return [seq for seq, _ in rows if seq >= first]

    async def outlines(
        self, places: Collection[tuple[str, int]], *, before: int = 0, after: int = 0
    ) -> list[Outline]:
        wanted: dict[str, list[int]] = {}
        for thread_id, seq in places:
            wanted.setdefault(thread_id, []).append(seq)
        if not wanted:
            return []
        # Earlier by `before`, as neighbours of the oldest node may be in an older stretch.
        threads = [(thread_id, max(min(seqs) - before, 1)) for thread_id, seqs in wanted.items()]
        rows = await self._scope.read("stretches", threads=orjson.dumps(threads).decode())
        stretches: dict[str, list[tuple[int, int]]] = {}
        for thread_id, first, last in rows:
            stretches.setdefault(thread_id, []).append((first, last))
        near = [
            (thread_id, _near(branch, wanted[thread_id], before, after))
            for thread_id, branch in stretches.items()
        ]
        rows = await self._scope.read("outlines", places=orjson.dumps(near).decode())
        return list(map(Outline._make, rows))

    async def _missing_head(self, thread_id: str, head: int) -> Exception:
        rows = await self._scope.read("thread", thread_id=thread_id)
        # The thread's counter has passed the node, so the node existed.
        if rows and to_thread(rows[0]).last_seq >= head > 0:
            return CorruptThread(
                f"Node {head} of thread {thread_id} is missing from the log.",
                cure="Restore the database from a backup.",
            )
        return not_found("node", f"{head} in thread {thread_id}")

    async def node(self, thread_id: str, seq: int) -> Node:
        nodes = to_nodes(await self._scope.read("node", thread_id=thread_id, id=seq))
        if not nodes:
            raise not_found("node", f"{seq} in thread {thread_id}")
        return nodes[0]

    async def children(self, thread_id: str, parent_id: int | None) -> list[Node]:
        rows = await self._scope.read("children", thread_id=thread_id, parent_id=parent_id)
        if not rows:
            await self._scope.require_thread(thread_id)
        return to_nodes(rows)

    async def call(self, thread_id: str, node_id: int, index: int) -> CallRow:
        rows = await self._scope.read("call", thread_id=thread_id, node_id=node_id, position=index)
        if not rows:
            raise not_found("call", f"{index} of node {node_id} in thread {thread_id}")
        return to_call(rows[0])

    async def activation(self, thread_id: str, head: int | None) -> Activation | None:
        rows = await self._scope.read("activation", thread_id=thread_id, head=head)
        if not rows:
            raise not_found("thread", thread_id)
        stored_head, wanted, *columns = rows[0]
        if stored_head != head:
            raise await self._missing_head(thread_id, head or 0)
        # 0: no activation was in force, as in an imported thread.
        if not wanted:
            return None
        if columns[0] is None:
            raise CorruptThread(
                f"Activation {wanted} of thread {thread_id} is missing from the log.",
                cure="Restore the database from a backup.",
            )
        return to_activation(tuple(columns))

    async def activations(self, thread_id: str) -> list[Activation]:
        rows = await self._scope.read("activations", thread_id=thread_id)
        if not rows:
            await self._scope.require_thread(thread_id)
        return [to_activation(row) for row in rows]

    async def last_observation_id(self, thread_id: str) -> int:
        [(newest,)] = await self._scope.read("last_observation", thread_id=thread_id)
        if newest is None:
            await self._scope.require_thread(thread_id)
        return int(newest or 0)

    async def observations(
        self, thread_id: str, *, ids: Sequence[int] = (), ending_from: int | None = None
    ) -> list[ObservationRow]:
        rows = await self._scope.read(
            "observations",
            thread_id=thread_id,
            ids=orjson.dumps(list(ids)).decode(),
            ending_from=_NO_LIMIT if ending_from is None else ending_from,
        )
        if not rows:
            await self._scope.require_thread(thread_id)
        return [to_observation(row) for row in rows]

    async def plan(self, thread_id: str, head: int) -> PlanRow | None:
        rows = await self._scope.read("plan", thread_id=thread_id, head=head)
        if not rows:
            await self._scope.require_thread(thread_id)
            return None
        return to_plan(rows[0])

    async def plans(
        self, thread_id: str, head: int, *, first: int = 0, limit: int = 100
    ) -> list[PlanRow]:
        rows = await self._scope.read(
            "plans", thread_id=thread_id, head=head, first=first, limit=limit
        )
        if not rows:
            await self._scope.require_thread(thread_id)
        return [to_plan(row) for row in rows]

    async def last_plan_id(self, thread_id: str) -> int:
        [(newest,)] = await self._scope.read("last_plan", thread_id=thread_id)
        if newest is None:
            await self._scope.require_thread(thread_id)
        return int(newest or 0)


def _near(
    branch: Sequence[tuple[int, int]], seqs: Sequence[int], before: int, after: int
) -> list[int]:
    """Return the nodes of a branch that are at most `before` and `after` places from given ones.

    Args:
        branch: its stretches, the first and the last node of each, oldest first.
    """
    lasts = [last for _, last in branch]
    # How many nodes of the branch come before each stretch.
    counts = list(itertools.accumulate((last - first + 1 for first, last in branch), initial=0))
    places: set[int] = set()
    for seq in seqs:
        at = bisect.bisect_left(lasts, seq)
        if at < len(branch) and branch[at][0] <= seq:
            place = counts[at] + seq - branch[at][0]
            places.update(range(max(place - before, 0), min(place + after + 1, counts[-1])))
    near: list[int] = []
    for place in sorted(places):
        at = bisect.bisect_right(counts, place) - 1
        near.append(branch[at][0] + place - counts[at])
    return near


def _broken(thread_id: str, oldest: int, parent: int | None, first: int | None) -> CorruptThread:
    if parent is not None and parent >= oldest:
        what = f"runs in a circle: the parent of node {oldest} is node {parent}"
    elif parent is not None and (first is None or oldest > first):
        what = f"is broken: node {parent}, the parent of node {oldest}, is missing"
    else:
        what = f"does not pass through node {first}"
    return CorruptThread(
        f"The branch of thread {thread_id} {what}.",
        cure="Move the head to a branch that is whole, or restore the database from a backup.",
    )
