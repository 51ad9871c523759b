"""The inbox of threads."""

from __future__ import annotations

from collections.abc import Iterator

from agent_runtime_storage.contract.errors import InboxFull
from agent_runtime_storage.contract.records.log import InboxItem
from agent_runtime_storage.drivers.protocol import BatchMissed, Statement
from agent_runtime_storage.queries.owner import OwnerScope, not_found
from agent_runtime_storage.queries.row_decoding import to_inbox_item

_FULL = "room"


class SqlInbox:
    """`InboxStore` over SQL."""

    def __init__(self, scope: OwnerScope) -> None:
        self._scope = scope

    async def post(
        self,
        thread_id: str,
        kind: str,
        body: bytes,
        *,
        run_id: str | None = None,
        most: int | None = None,
        most_of_user: int | None = None,
    ) -> int:
        bodies = self._scope.bodies(thread_id)
        await bodies.pack([body])
        packed = bodies.get(body)
        # First, because it locks the thread's row: ids then rise in the order of the commits.
        count = self._scope.statement("count_post", {"thread_id": thread_id}, rows=1, miss="thread")
        batch = [count, *self._room(thread_id, kind, most, most_of_user), *bodies.statements()]
        if run_id is not None:
            run = {"run_id": run_id}
            batch.append(self._scope.statement("run_exists", run, rows=1, miss="run"))
        values = {
            "thread_id": thread_id,
            "run_id": run_id,
            "kind": kind,
            "body": packed.inline,
            "blob": packed.hash,
        }
        batch.append(self._scope.statement("post", values, rows=1))
        try:
            [[row], *_] = await self._scope.batch(batch, thread=thread_id)
        except BatchMissed as error:
            if error.label == _FULL:
                raise InboxFull(
                    f"Too many messages wait to be read, on thread {thread_id} or on all of its "
                    "owner's.",
                    cure="Wait until a run has read them, or resume one that stopped.",
                ) from None
            missing = thread_id if error.label == "thread" else run_id
            raise not_found(error.label, missing) from error
        self._scope.announce(thread_id)
        return int(row[0])

    def _room(
        self, thread_id: str, kind: str, most: int | None, most_of_user: int | None
    ) -> Iterator[Statement]:
        """Yield the statements that fail where there is no room."""
        values = {"thread_id": thread_id, "kind": kind}
        if most is not None:
            yield self._scope.statement("inbox_room", {**values, "most": most}, rows=1, miss=_FULL)
        if most_of_user is not None:
            of_user = {"kind": kind, "most": most_of_user}
            yield self._scope.statement("user_inbox_room", of_user, rows=1, miss=_FULL)

    async def pending(self, thread_id: str) -> list[InboxItem]:
        rows = await self._scope.read("inbox", thread_id=thread_id)
        if not rows:
            await self._scope.require_thread(thread_id)
        return [to_inbox_item(row) for row in rows]
