"""Ids by their beginning or end."""

from __future__ import annotations

from agent_runtime_storage.contract.short_ids import IdKind, IdMatch
from agent_runtime_storage.queries.owner import OwnerScope

_QUERIES = {"thread": "find_threads", "run": "find_runs", "question": "find_questions"}


class SqlIds:
    """`IdStore` over SQL."""

    def __init__(self, scope: OwnerScope) -> None:
        self._scope = scope

    async def find(self, kind: IdKind, text: str, *, limit: int = 10) -> list[IdMatch]:
        escaped = text.lower()
        for one in "!%_":
            escaped = escaped.replace(one, f"!{one}")
        rows = await self._scope.read(
            _QUERIES[kind], prefix=f"{escaped}%", suffix=f"%{escaped}", limit=max(limit, 0)
        )
        return [IdMatch(str(name), str(title), float(at)) for name, title, at in rows]
