"""The inbox of threads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from agent_runtime_storage.contract.errors import InboxFull
from agent_runtime_storage.contract.records.files import NewFile
from agent_runtime_storage.contract.records.log import InboxItem
from agent_runtime_storage.drivers.protocol import BatchMissed, Value
from agent_runtime_storage.log.files import file_values
from agent_runtime_storage.queries.owner import OwnerScope, not_found
from agent_runtime_storage.queries.row_decoding import to_inbox_item

_FULL = "room"
_Room: TypeAlias = Sequence[tuple[str, dict[str, Value]]]


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
        file: NewFile | None = None,
    ) -> int:
        room = _room(thread_id, kind, most, most_of_user)
        bodies = self._scope.bodies(thread_id)
        if file is not None:
            # Before it may become an object, which the batch below could not take back.
            await self._check_room(thread_id, room)
            await bodies.pack([], blobs=[file.content])
        await bodies.pack([body])
        packed = bodies.get(body)
        # First, because it locks the thread's row: ids then rise in the order of the commits.
        count = self._scope.statement("count_post", {"thread_id": thread_id}, rows=1, miss="thread")
        batch = [count]
        batch += [self._scope.statement(*one, rows=1, miss=_FULL) for one in room]
        batch += bodies.statements()
        if file is not None:
            blob = bodies.blob(file.content).hash
            batch.append(self._scope.statement("put_file", file_values(thread_id, file, blob)))
        # A run of another owner, or one that was deleted, cannot be named as the recipient.
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
                raise _full(thread_id) from None
            missing = thread_id if error.label == "thread" else run_id
            raise not_found(error.label, missing) from error
        self._scope.announce(thread_id)
        return int(row[0])

    async def _check_room(self, thread_id: str, room: _Room) -> None:
        """Refuse a message for which there is no room. Raises `InboxFull`."""
        for name, values in room:
            if not await self._scope.read(name, **values):
                raise _full(thread_id)

    async def pending(self, thread_id: str) -> list[InboxItem]:
        rows = await self._scope.read("inbox", thread_id=thread_id)
        if not rows:
            await self._scope.require_thread(thread_id)
        return [to_inbox_item(row) for row in rows]


def _room(thread_id: str, kind: str, most: int | None, most_of_user: int | None) -> _Room:
    """Return the queries, with their values, that find no row where there is no room."""
    room: list[tuple[str, dict[str, Value]]] = []
    if most is not None:
        room.append(("inbox_room", {"thread_id": thread_id, "kind": kind, "most": most}))
    if most_of_user is not None:
        room.append(("user_inbox_room", {"kind": kind, "most": most_of_user}))
    return room


def _full(thread_id: str) -> InboxFull:
    return InboxFull(
        f"Too many messages wait to be read, on thread {thread_id} or on all of its owner's.",
        cure="Wait until a run has read them, or resume one that stopped.",
    )
