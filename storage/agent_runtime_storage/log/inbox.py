"""What comes into a thread and what goes out of it: the inbox, the events, the usage."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from agent_runtime_storage.contract.errors import StoreError
from agent_runtime_storage.contract.records import EventRow, InboxItem, Usage, UsageTotal
from agent_runtime_storage.drivers.protocol import BatchMissed
from agent_runtime_storage.drivers.signals import topic_of
from agent_runtime_storage.queries.owner import OwnerScope, not_found
from agent_runtime_storage.queries.row_decoding import (
    to_event,
    to_inbox_item,
    to_usage,
    to_usage_total,
)


class Inbox(OwnerScope):
    """The methods of `UserStore` for the inbox, events and usage."""

    async def post(
        self, thread_id: str, kind: str, body: bytes, *, run_id: str | None = None
    ) -> int:
        bodies = self._bodies(thread_id)
        await bodies.pack([body])
        packed = bodies.get(body)
        count = self._statement("count_post", {"thread_id": thread_id}, rows=1, miss="thread")
        batch = [count, *bodies.statements()]
        if run_id is not None:
            run = {"run_id": run_id}
            batch.append(self._statement("run_exists", run, rows=1, miss="run"))
        values = {
            "thread_id": thread_id,
            "run_id": run_id,
            "kind": kind,
            "body": packed.inline,
            "blob": packed.hash,
        }
        batch.append(self._statement("post", values, rows=1))
        try:
            [[row], *_] = await self._batch(batch, thread=thread_id)
        except BatchMissed as error:
            named = thread_id if error.label == "thread" else run_id
            raise not_found(error.label, named) from error
        self._announce(thread_id)
        return int(row[0])

    async def inbox(self, thread_id: str) -> list[InboxItem]:
        rows = await self._read("inbox", thread_id=thread_id)
        if not rows:
            await self._require_thread(thread_id)
        return [to_inbox_item(row) for row in rows]

    async def events(self, thread_id: str, *, after: int = 0, limit: int = 1000) -> list[EventRow]:
        rows = await self._read("events", thread_id=thread_id, after=after, limit=max(limit, 0))
        if not rows:
            await self._require_thread(thread_id)
        return [to_event(row) for row in rows]

    async def follow(self, thread_id: str, *, after: int = 0) -> AsyncGenerator[EventRow]:
        signals = self._driver.signals
        # Before the first read: what is committed after it wakes the listener.
        with signals.listen(topic_of(self.user_id, thread_id)) as listener:
            while True:
                events = await self.events(thread_id, after=after)
                for event in events:
                    after = event.id
                    yield event
                if not events:
                    await listener.wait(signals.poll_seconds)

    async def usage_total(
        self,
        *,
        root_run_id: str | None = None,
        run_id: str | None = None,
        thread_id: str | None = None,
    ) -> UsageTotal:
        found = await self.usage_by_purpose(
            root_run_id=root_run_id, run_id=run_id, thread_id=thread_id
        )
        return UsageTotal.of(found.values())

    async def usage_by_purpose(
        self,
        *,
        root_run_id: str | None = None,
        run_id: str | None = None,
        thread_id: str | None = None,
    ) -> dict[str, UsageTotal]:
        asked = [
            (name, identity)
            for name, identity in (
                ("usage_of_tree", root_run_id),
                ("usage_of_run", run_id),
                ("usage_of_thread", thread_id),
            )
            if identity is not None
        ]
        if len(asked) != 1:
            raise StoreError(
                f"Usage is summed over one thing, and {len(asked)} were given.",
                cure="Give exactly one of root_run_id, run_id and thread_id.",
            )
        [(name, identity)] = asked
        rows = await self._read(name, id=identity)
        if not rows:
            if thread_id is not None:
                await self._require_thread(identity)
            else:
                await self._require_run(identity)
        return {str(row[0]): to_usage_total(row[1:]) for row in rows}

    async def usage_by_run(self, root_run_id: str) -> dict[str, UsageTotal]:
        rows = await self._read("usage_of_runs", id=root_run_id)
        if not rows:
            await self._require_run(root_run_id)
        return {str(row[0]): to_usage_total(row[1:]) for row in rows}

    async def recent_usage(self, model: str, *, limit: int = 20) -> list[Usage]:
        rows = await self._read("recent_usage", model=model, limit=max(limit, 0))
        return [to_usage(row) for row in rows]
