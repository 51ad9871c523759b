"""Threads: their metadata and their heads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent_runtime_storage.contract.errors import (
    Conflict,
    StoreError,
    StoreInDoubt,
    ThreadArchived,
    ThreadBusy,
)
from agent_runtime_storage.contract.names import name_problem, title_problem
from agent_runtime_storage.contract.records.log import Thread
from agent_runtime_storage.drivers.protocol import BatchMissed
from agent_runtime_storage.queries.owner import OwnerScope, encode_json, not_found
from agent_runtime_storage.queries.row_decoding import to_thread

# Each miss means that another update went through, so the writers together make progress.
_TRIES = 16


class SqlThreads:
    """`ThreadStore` over SQL."""

    def __init__(self, scope: OwnerScope) -> None:
        self._scope = scope

    async def ensure(
        self, thread_id: str, *, title: str = "", metadata: Mapping[str, Any] | None = None
    ) -> Thread:
        if problem := name_problem(thread_id):
            raise StoreError(f"The thread's id {problem}.", cure="Give the thread a short id.")
        self._check_title(title)
        # Nearly always the thread exists, and a read takes no lock.
        if rows := await self._scope.read("thread", thread_id=thread_id):
            return to_thread(rows[0])
        values = {
            "thread_id": thread_id,
            "title": title,
            "metadata": encode_json(metadata or {}, "thread's metadata"),
        }
        create = self._scope.statement("create_thread", values)
        read = self._scope.statement("thread", {"thread_id": thread_id}, rows=1)
        try:
            _, rows = await self._scope.batch([create, read], thread=thread_id, repeatable=True)
        except BatchMissed as error:
            missing = await self._scope.no_thread(thread_id)
            if isinstance(missing, ThreadArchived):
                raise missing from error
            # The row is there, so nothing was inserted, but hidden.
            raise Conflict(
                f"Thread {thread_id} is being imported or deleted.",
                cure="Wait until that is done; if it was interrupted, import or delete it again.",
            ) from error
        return to_thread(rows[0])

    async def get(self, thread_id: str) -> Thread:
        return await self._scope.thread(thread_id)

    async def list(
        self, *, limit: int = 50, before: float | None = None, children: bool = True
    ) -> list[Thread]:
        rows = await self._scope.read(
            "threads", limit=max(limit, 0), before=before, children=int(children)
        )
        return [to_thread(row) for row in rows]

    async def update(
        self, thread_id: str, *, title: str | None = None, metadata: Mapping[str, Any] | None = None
    ) -> Thread:
        self._check_title(title)
        # Merged here and not in SQL, so that every dialect gives the same.  The update misses if
        # the row has changed since it was read, and the merge is repeated on the new row.
        for _ in range(_TRIES):
            old = await self.get(thread_id)
            merged = {**old.metadata, **(metadata or {})}
            remaining = {key: value for key, value in merged.items() if value is not None}
            update = self._scope.statement(
                "update_thread",
                {
                    "thread_id": thread_id,
                    "title": old.title if title is None else title,
                    "metadata": encode_json(remaining, "thread's metadata"),
                    "old_title": old.title,
                    "old_metadata": encode_json(old.metadata, "thread's metadata"),
                },
                rows=1,
            )
            try:
                [[row]] = await self._scope.batch([update], thread=thread_id, repeatable=True)
            except BatchMissed:
                continue
            return to_thread(row)
        raise Conflict(
            f"Thread {thread_id} was changed by others {_TRIES} times in a row.", cure="Try again."
        )

    async def move_head(self, thread_id: str, head: int | None, *, expect: int | None) -> None:
        values = {"thread_id": thread_id, "head": head, "expect": expect}
        try:
            await self._scope.batch(
                [self._scope.statement("move_head", values, rows=1)], thread=thread_id
            )
        except StoreInDoubt:
            # If another process moved it to the same node, that is as good.
            if (await self.get(thread_id)).head != head:
                raise
        except BatchMissed as error:
            thread = await self.get(thread_id)
            if thread.active_run is not None:
                raise thread_busy(thread_id, thread.active_run) from error
            if thread.head != expect:
                raise Conflict(
                    f"The head of thread {thread_id} is {thread.head}, not {expect}.",
                    cure="Read the thread again.",
                ) from error
            raise not_found("closed node", head) from error

    def _check_title(self, title: str | None) -> None:
        if title is not None and (problem := title_problem(title, self._scope.max_title_chars)):
            raise StoreError(
                f"The thread's title {problem}.", cure="Give the thread a short title."
            )


def thread_busy(
    thread_id: str, run_id: str, *, question_id: str | None = None, suspended: str | None = None
) -> ThreadBusy:
    """Return the error for a thread that a run occupies.

    Args:
        question_id: an open question of the run.
        suspended: why the run is suspended, if it has no open question; None if it is running.
    """
    message, cure = f"Run {run_id} is active on thread {thread_id}", "Wait for it, steer it"
    if question_id is not None:
        message += f": it waits for the answer to question {question_id}"
        cure = f"Answer it (`agent-runtime answer {question_id}`)"
    elif suspended is not None:
        message += f": it is suspended ({suspended.rstrip('.') or 'it waits for nobody'})"
        cure = "See what waits for an answer (`agent-runtime questions`)"
    return ThreadBusy(f"{message}.", run_id=run_id, cure=f"{cure}, resume it, or cancel it.")
