"""Reading plans."""

from __future__ import annotations

from agent_runtime_storage.contract.plan_records import PlanRow
from agent_runtime_storage.drivers.protocol import Row
from agent_runtime_storage.objects.bodies import unpack_body
from agent_runtime_storage.queries.owner import OwnerScope


class Plans(OwnerScope):
    """The methods of `UserStore` that read plans."""

    async def plan(self, thread_id: str, head: int) -> PlanRow | None:
        rows = await self._read("plan", thread_id=thread_id, head=head)
        if not rows:
            await self._require_thread(thread_id)
            return None
        return _to_plan(rows[0])

    async def plans(
        self, thread_id: str, head: int, *, first: int = 0, limit: int = 100
    ) -> list[PlanRow]:
        rows = await self._read("plans", thread_id=thread_id, head=head, first=first, limit=limit)
        if not rows:
            await self._require_thread(thread_id)
        return [_to_plan(row) for row in rows]

    async def last_plan(self, thread_id: str) -> int:
        [(newest,)] = await self._read("last_plan", thread_id=thread_id)
        if newest is None:
            await self._require_thread(thread_id)
        return int(newest or 0)


def _to_plan(row: Row) -> PlanRow:
    """Decode `plan_columns`."""
    identity, node_id, call_id, run_id, inline, codec, data, at = row
    body = unpack_body(inline, codec, data, {"plan": identity})
    return PlanRow(identity, node_id, call_id, run_id, body, at)
