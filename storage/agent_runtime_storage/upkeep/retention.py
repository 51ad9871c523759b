"""Delete threads and everything that belongs to them.

The first transaction hides the threads, so a crash in between leaves rows that nobody sees, and
that `clean_up` deletes.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import NamedTuple

import orjson

from agent_runtime_storage.contract.errors import Conflict, StoreInDoubt
from agent_runtime_storage.contract.records.log import Thread
from agent_runtime_storage.drivers.protocol import (
    BatchMissed,
    Purging,
    Row,
    Scrubbing,
    Statement,
    Value,
)
from agent_runtime_storage.log.threads import thread_busy
from agent_runtime_storage.objects.documents import delete_documents
from agent_runtime_storage.queries.owner import OwnerScope, not_found
from agent_runtime_storage.queries.row_decoding import to_thread

_PIECE = 5_000
"""The rows of a table that one transaction deletes; other writers wait while it runs."""
_WHOLE = 20_000
"""Families of at most this many rows are deleted in one transaction."""
_FIRST_PURGES = (
    "unsettle_family",
    "book_family",
    "unlink_runs",
    "unlink_inbox",
    "purge_queue",
    "purge_inbox",
    "purge_jobs",
    "purge_files",
    "purge_questions",
    "purge_approvals",
    "purge_vectors",
)
# An import or a deletion renews its time with each batch; after so long without one its process
# is taken for killed.
_ABANDONED_SECONDS = 300.0
# Each follows a change of the family between reading it and hiding it.
_TRIES = 4


class _Member(NamedTuple):
    id: str
    hidden: str
    last_seq: int
    last_activation: int
    last_event: int
    last_usage: int


class Retention:
    """Deletes threads of one owner, and the remains of interrupted imports and deletions."""

    def __init__(self, scope: OwnerScope) -> None:
        self._scope = scope

    async def delete_thread(
        self, thread_id: str, *, unchanged_since: float | None = None
    ) -> list[str]:
        family = await self._family(thread_id)
        # Until it is hidden the family may grow: its runs start sub-agents on new threads.
        for _ in range(_TRIES):
            try:
                await self._delete(thread_id, family, unchanged_since=unchanged_since)
                return await self._deleted(thread_id, family)
            except BatchMissed as error:
                await self._why_not_hidden(thread_id, family, error, unchanged_since)
            except StoreInDoubt:
                # The answer of the last commit was lost, and the thread is gone: it was deleted.
                if not await self._scope.read("family", thread_id=thread_id):
                    return await self._deleted(thread_id, family)
            family = await self._family(thread_id)
        raise Conflict(
            f"Thread {thread_id} keeps starting sub-agents, or others delete it too.",
            cure="Cancel its run, then try again.",
        )

    async def delete_recorded(self, thread_id: str, first: Sequence[Statement]) -> None:
        """Delete a thread in the transaction of other statements, which come first.

        Raises:
            NotFound: there is no such thread.
            BatchMissed: a statement missed, also one of the deletion.
            StoreInDoubt: whether anything was written is not known.
        """
        family = await self._family(thread_id)
        await self._delete(thread_id, family, before=first)
        await self._deleted(thread_id, family)

    async def idle_threads(self, *, seconds: float, limit: int = 1000) -> list[Thread]:
        rows = await self._scope.read("idle_threads", seconds=seconds, limit=max(limit, 0))
        return [to_thread(row) for row in rows]

    async def clean_up(self) -> list[str]:
        cleaned: list[str] = []
        for (thread_id,) in await self._scope.read("cut_short", seconds=_ABANDONED_SECONDS):
            rows = await self._scope.read("family", thread_id=thread_id)
            cleaned += await self.delete_hidden(str(thread_id), rows)
        return cleaned

    async def delete_hidden(self, thread_id: str, rows: Sequence[Row]) -> list[str]:
        """Delete the remains of an import or a deletion, given as rows of `family`."""
        family = [_Member(*row) for row in rows]
        if not family:
            return []
        try:
            await self._delete(thread_id, family, abandoned=True)
        except BatchMissed:
            # Another process has taken over the deletion.
            return []
        return await self._deleted(thread_id, family)

    async def _family(self, thread_id: str) -> list[_Member]:
        family = [_Member(*row) for row in await self._scope.read("family", thread_id=thread_id)]
        # An interrupted deletion is continued; a thread of an unfinished import does not exist yet.
        if not any(member.id == thread_id and "import" not in member.hidden for member in family):
            raise not_found("thread", thread_id)
        return family

    async def _deleted(self, thread_id: str, family: Sequence[_Member]) -> list[str]:
        """Finish once the rows are deleted; return the ids, the thread's own first."""
        # The write-ahead log still holds the pages as they were.
        if isinstance(self._scope.driver, Scrubbing):
            await self._scope.driver.scrub()
        # So that followers of its events end, with `NotFound`.
        for member in family:
            self._scope.announce(member.id)
        return [thread_id, *sorted(member.id for member in family if member.id != thread_id)]

    async def _delete(
        self,
        thread_id: str,
        family: Sequence[_Member],
        *,
        unchanged_since: float | None = None,
        abandoned: bool = False,
        before: Sequence[Statement] = (),
    ) -> None:
        threads = _json(family)
        # A token of this call: a second deletion takes over by its own, and this one then misses.
        token = f"delete {secrets.token_hex(8)}"
        roots = await self._scope.read("family_roots", threads=threads)
        # Those of the trees too: reservations of the family's runs are settled on their roots.
        locks = sorted(
            [f"thread {member.id}" for member in family] + [f"tree {root}" for (root,) in roots]
        )
        hide = self._scope.statement(
            "hide_family",
            {
                "threads": threads,
                "thread_id": thread_id,
                "token": token,
                "unchanged_since": unchanged_since,
                "abandoned": int(abandoned),
            },
            rows=len(family),
            miss="changed",
        )
        first = [
            *before,
            hide,
            self._purge("require_whole_family", threads, rows=1, miss="family"),
            self._purge("require_idle_family", threads, rows=1, miss="busy"),
            *(self._purge(name, threads) for name in _FIRST_PURGES),
        ]
        # An estimate: each node counts twice, for its calls and its text in the index.
        rows = sum(
            2 * member.last_seq + member.last_activation + member.last_event + member.last_usage
            for member in family
        )
        if rows > _WHOLE:
            # Hidden first: nobody reads or extends it while it is deleted in pieces.
            await self._purge_batch(first, locks)
            for member in family:
                await self._trim(member, token, locks)
            guard = {"threads": threads, "token": token}
            first = [self._scope.statement("require_hidden", guard, rows=len(family), miss="taken")]
        rest = self._rest(threads, family)
        last = self._purge("purge_threads", threads, rows=len(family), miss="taken", token=token)
        if self._scope.objects is None:
            await self._purge_batch([*first, *rest, last], locks)
            return
        await self._purge_batch([*first, *rest], locks)
        # The hidden rows of the threads still block their ids: a new thread of the same id would
        # put objects under the prefixes that are deleted here.
        for member in family:
            await self._scope.objects.delete_thread(self._scope.user_id, member.id)
            await delete_documents(self._scope.objects, self._scope.user_id, member.id)
        await self._purge_batch([last], locks)

    def _rest(self, threads: str, family: Sequence[_Member]) -> list[Statement]:
        # Rows that refer to others come before them, for databases that check foreign keys.
        tables = ("events", "usage", "observations", "plans", "activations", "calls", "nodes")
        return [
            *(self._scope.statement("purge_search", {"thread_id": member.id}) for member in family),
            *(self._purge(f"purge_{table}", threads, after=0) for table in tables),
            self._purge("purge_totals", threads),
            self._purge("purge_runs", threads),
            self._purge("purge_blobs", threads),
        ]

    async def _trim(self, member: _Member, token: str, locks: Sequence[str]) -> None:
        """Delete the rows of a hidden thread in pieces, the newest (children) first."""
        threads = _json([member])
        guard = self._purge("require_hidden", threads, rows=1, miss="taken", token=token)
        tables = (
            (("events",), member.last_event),
            (("usage",), member.last_usage),
            (("activations",), member.last_activation),
            # Few, so all in one piece, and before the nodes.
            (("observations", "plans"), 1),
            (("texts", "calls", "nodes"), member.last_seq),
        )
        for names, last in tables:
            # The last piece begins below 0 unless the ids divide evenly; `max` cuts it.
            for after in range(last - _PIECE, -_PIECE, -_PIECE):
                key = max(after, 0)
                piece = [self._purge(f"purge_{name}", threads, after=key) for name in names]
                await self._purge_batch([guard, *piece], locks)
        # Fewer at a time, as they are large.
        blobs = self._scope.statement("trim_blobs", {"thread_id": member.id, "limit": _PIECE // 10})
        while (await self._purge_batch([guard, blobs], locks))[1]:
            continue

    def _purge(
        self, name: str, threads: str, *, rows: int | None = None, miss: str = "", **params: Value
    ) -> Statement:
        return self._scope.statement(name, {"threads": threads, **params}, rows=rows, miss=miss)

    async def _purge_batch(
        self, statements: Sequence[Statement], locks: Sequence[str]
    ) -> list[list[Row]]:
        if isinstance(self._scope.driver, Purging):
            return await self._scope.driver.purge(
                statements, owner=self._scope.user_id, locks=locks
            )
        return await self._scope.driver.batch(statements, owner=self._scope.user_id, locks=locks)

    async def _why_not_hidden(
        self,
        thread_id: str,
        family: Sequence[_Member],
        missed: BatchMissed,
        unchanged_since: float | None,
    ) -> None:
        """Raise the reason why the thread cannot be deleted; return if a retry may succeed."""
        if missed.label == "busy":
            active = await self._scope.read("family_at_work", threads=_json(family))
            if active:
                [(busy, run_id)] = active
                raise thread_busy(str(busy), str(run_id)) from missed
        if missed.label == "changed" and unchanged_since is not None:
            rows = await self._scope.read("thread", thread_id=thread_id)
            if rows and to_thread(rows[0]).updated_at >= unchanged_since:
                raise Conflict(
                    f"Thread {thread_id} was used meanwhile.",
                    cure="Leave it, or list the idle threads again.",
                ) from missed


def _json(family: Sequence[_Member]) -> str:
    return orjson.dumps([member.id for member in family]).decode()
