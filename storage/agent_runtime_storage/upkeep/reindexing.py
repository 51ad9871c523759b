"""Index texts again that an earlier version of the runtime indexed."""

from __future__ import annotations

import itertools
import logging

from agent_runtime_storage.contract.errors import (
    CorruptThread,
    NotFound,
    ObjectLost,
    StoreError,
)
from agent_runtime_storage.contract.records.log import TextOf
from agent_runtime_storage.contract.records.search import NodeText
from agent_runtime_storage.drivers.protocol import Statement
from agent_runtime_storage.log.reader import SqlLog
from agent_runtime_storage.queries.owner import OwnerScope
from agent_runtime_storage.search.full_text import TextIndexer

_log = logging.getLogger(__name__)


class Reindexing:
    """Indexes an owner's outdated texts again, some at a time.

    Each text is replaced in one transaction and only if it is still outdated.  So it may be
    interrupted at any moment, and processes may do it at the same time.
    """

    def __init__(self, scope: OwnerScope, indexer: TextIndexer) -> None:
        self._scope = scope
        self._indexer = indexer
        self._log = SqlLog(scope)

    async def some(self, text_of: TextOf, *, limit: int) -> int:
        """Index up to `limit` outdated texts again; return how many were outdated."""
        rows = await self._scope.read("outdated_texts", limit=max(limit, 0))
        for thread_id, of_thread in itertools.groupby(rows, key=lambda row: str(row[0])):
            batch: list[Statement] = []
            for node_id, places in itertools.groupby(of_thread, key=lambda row: int(row[1])):
                calls = [int(place[2]) for place in places]
                for text in await self._texts(thread_id, node_id, calls, text_of):
                    batch.append(await self._indexer.again(thread_id, text))
            await self._scope.batch(batch, thread=thread_id, repeatable=True)
        return len(rows)

    async def _texts(
        self, thread_id: str, node_id: int, calls: list[int], text_of: TextOf
    ) -> list[NodeText]:
        """Return the texts of a node and of its calls; a call of -1 stands for the node itself."""
        try:
            node = await self._log.node(thread_id, node_id)
        except (CorruptThread, NotFound, ObjectLost) as error:
            # What cannot be read keeps the index that it has, and is not tried again.
            _log.warning("Node %d was not indexed again: %s", node_id, type(error).__name__)
            return [NodeText(node_id, None if call < 0 else call, "") for call in calls]
        bodies = {call.index: call.body for call in node.calls}
        texts: list[NodeText] = []
        for call in calls:
            kind, body = ("node", node.body) if call < 0 else ("call", bodies.get(call, b""))
            try:
                text = text_of(kind, body) if body else ""
            except (StoreError, ValueError) as error:
                _log.warning("Node %d was not indexed again: %s", node_id, type(error).__name__)
                text = ""
            texts.append(NodeText(node_id, None if call < 0 else call, text))
        return texts
