"""The events of threads."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from agent_runtime_storage.contract.records.log import EventRow
from agent_runtime_storage.drivers.signals import topic_of
from agent_runtime_storage.queries.owner import OwnerScope
from agent_runtime_storage.queries.row_decoding import to_event


class SqlEvents:
    """`EventStore` over SQL."""

    def __init__(self, scope: OwnerScope) -> None:
        self._scope = scope

    async def list(self, thread_id: str, *, after: int = 0, limit: int = 1000) -> list[EventRow]:
        rows = await self._scope.read(
            "events", thread_id=thread_id, after=after, limit=max(limit, 0)
        )
        if not rows:
            await self._scope.require_thread(thread_id)
        return [to_event(row) for row in rows]

    async def follow(self, thread_id: str, *, after: int = 0) -> AsyncGenerator[EventRow]:
        signals = self._scope.driver.signals
        # Listen before the first read, so that every later commit wakes the listener.
        with signals.listen(topic_of(self._scope.user_id, thread_id)) as listener:
            while True:
                events = await self.list(thread_id, after=after)
                for event in events:
                    after = event.id
                    yield event
                # A page may be full, and a signal may have come while the caller worked.
                if not events:
                    await listener.wait(signals.poll_seconds)
