"""Read, branch, follow, archive and delete threads; see `Runtime.threads`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass

import anyio

from agent_runtime.errors import Conflict, ThreadBusy
from agent_runtime.log import branches
from agent_runtime.log.leases import is_dead
from agent_runtime.messages import (
    LoggedMessage,
    ToolResult,
    decode_message,
    decode_result,
    searchable_if_readable,
)
from agent_runtime.run.takeover import end_if_dead
from agent_runtime_storage.contract.records.log import EventRow, Node, Thread
from agent_runtime_storage.contract.records.usage import UsageTotal
from agent_runtime_storage.contract.reports import ArchivedThread
from agent_runtime_storage.contract.store import Store, UserStore

STOP_SECONDS = 30.0
"""How long a cancelled run may take to end before its thread is deleted."""

_POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class ThreadMessage:
    """A message of a thread, as the log keeps it.

    Attributes:
        node_id: its node; `Threads.fork` and `Threads.edit` take it.
        parent_id: the node before it on its branch; None for the first.
        run_id: the run that wrote it; None for one that was imported without its run.
        results: the results of its tool calls in their order; None for a call that is not done.
        created_at: seconds since the epoch, by the database's clock.
    """

    node_id: int
    parent_id: int | None
    run_id: str | None
    message: LoggedMessage
    results: tuple[ToolResult | None, ...]
    created_at: float

    @property
    def text(self) -> str:
        """The message's text."""
        return self.message.text


@dataclass(frozen=True, slots=True)
class Threads:
    """The threads of an owner; `user` is the settings' user where a method is given none.

    Attributes:
        cancel: cancels a run of an owner.
    """

    store: Store
    user: str
    cancel: Callable[[str, str], Awaitable[object]]

    async def list(
        self, *, limit: int = 50, children: bool = False, user: str | None = None
    ) -> list[Thread]:
        """Return threads, the most recently updated first.

        Args:
            children: include the threads in which sub-agents work.
        """
        return await self._of(user).threads.list(limit=limit, children=children)

    async def get(self, thread: str, *, user: str | None = None) -> Thread:
        """Return a thread. Raises `NotFound`."""
        return await self._of(user).threads.get(thread)

    async def rename(self, thread: str, title: str, *, user: str | None = None) -> Thread:
        """Set a thread's title. Raises `NotFound`, and `StoreError` for one that is too long."""
        return await self._of(user).threads.update(thread, title=title)

    async def messages(
        self,
        thread: str,
        *,
        limit: int | None = None,
        at: int | None = None,
        user: str | None = None,
    ) -> list[ThreadMessage]:
        """Return the messages of a branch of the thread, oldest first.

        An exchange whose calls are still open is not among them.

        Args:
            limit: only the last messages.
            at: the node at which the branch ends; None for the thread's head.

        Raises:
            NotFound: there is no such thread or node.
        """
        store = self._of(user)
        head = (await store.threads.get(thread)).head if at is None else at
        if head is None:
            return []
        return [_message_of(node) for node in await store.log.branch(thread, head, limit=limit)]

    async def usage(self, thread: str, *, user: str | None = None) -> UsageTotal:
        """Return what the runs on a thread used, without those of sub-agents. Raises `NotFound`."""
        store = self._of(user)
        await store.threads.get(thread)
        return await store.spending.usage_total(thread_id=thread)

    # Branches

    async def branches(self, thread: str, *, user: str | None = None) -> list[int]:
        """Return the last node of each branch, the newest first. Raises `NotFound`."""
        store = self._of(user)
        return await branches.branch_heads(store, await store.threads.get(thread))

    async def fork(self, thread: str, node_id: int | None, *, user: str | None = None) -> None:
        """Continue from another node, on a branch of its own; the other branches stay.

        Args:
            node_id: None for the place before the first node; the last node of a branch switches
                to that branch.

        Raises:
            NotFound: there is no such thread or closed node.
            ThreadBusy: a run is active on the thread.
        """
        await branches.fork(self._of(user), thread, node_id)

    async def edit(self, thread: str, node_id: int, *, user: str | None = None) -> None:
        """Continue from before a user's message, so that the next message replaces it.

        Raises:
            Conflict: the node is not a message of the user.
            NotFound: there is no such thread or node.
            ThreadBusy: a run is active on the thread.
        """
        await branches.edit(self._of(user), thread, node_id)

    # Events

    async def events(
        self,
        thread: str,
        *,
        after: int = 0,
        limit: int = 1000,
        created_at: float | None = None,
        user: str | None = None,
    ) -> list[EventRow]:
        """Return events in commit order, without gaps.

        Args:
            after: the id of the last event that is known already.
            created_at: the `created_at` of the thread that `after` came from. Give it where a
                thread may be deleted and its id used again: numbers begin at 1 in each thread.

        Raises:
            NotFound: there is no such thread.
            Conflict: `after` came from another thread of this id: the thread was created at
                another time, or has fewer events.
        """
        store = self._of(user)
        await _check_cursor(store, thread, after, created_at)
        return await store.events.list(thread, after=after, limit=limit)

    async def follow(
        self,
        thread: str,
        *,
        after: int = 0,
        created_at: float | None = None,
        user: str | None = None,
    ) -> AsyncGenerator[EventRow]:
        """Iterate without end over events: the existing ones, then each as it is committed.

        Any process may commit them.  Close the iterator (`contextlib.aclosing`) when you leave it.

        Args:
            after, created_at: as for `events`.

        Raises:
            NotFound: there is no such thread, or it is deleted meanwhile.
            Conflict: as for `events`.
        """
        store = self._of(user)
        await _check_cursor(store, thread, after, created_at)
        async with aclosing(store.events.follow(thread, after=after)) as events:
            async for event in events:
                yield event

    # Archive

    async def archive(
        self, thread: str, *, unchanged_since: float | None = None, user: str | None = None
    ) -> ArchivedThread:
        """Move a thread, with its sub-agents' threads, to the object store.

        It is listed by `archived` and comes back, row by row, by `restore`. A call that failed or
        was cut short can be repeated.

        Args:
            unchanged_since: archive only a thread that was last updated before this moment.

        Raises:
            NotFound: there is no such thread.
            ThreadBusy: a run of it is not over.
            Conflict: it was updated since, belongs to a sub-agent, or is waited for.
            ConfigError: there is no object store.
        """
        return await self._of(user).upkeep.archive_thread(thread, unchanged_since=unchanged_since)

    async def restore(self, thread: str, *, user: str | None = None) -> list[str]:
        """Move an archived thread back; return its id, then those of its sub-agents' threads.

        Everything is as it was: approvals, runs and memory too.

        Raises:
            NotFound: there is no such archived thread.
            Conflict: it is not archived, or something has taken its place.
            ObjectLost: the archive is damaged; nothing was restored.
        """
        return await self._of(user).upkeep.restore_thread(thread, texts=searchable_if_readable)

    async def archived(
        self, *, limit: int = 50, before: ArchivedThread | None = None, user: str | None = None
    ) -> list[ArchivedThread]:
        """Return archived threads, the last archived first.

        Args:
            before: the last one of the page before.
        """
        return await self._of(user).upkeep.archived_threads(limit=limit, before=before)

    # Deletion

    async def delete(
        self,
        thread: str,
        *,
        force: bool = False,
        unchanged_since: float | None = None,
        user: str | None = None,
    ) -> list[str]:
        """Delete a thread with all its data and the threads of its sub-agents; return their ids.

        Runs whose process is dead are ended first.

        Args:
            force: cancel active runs, in any process, and wait until they end.
            unchanged_since: delete only a thread that was last updated before this moment.

        Raises:
            NotFound: there is no such thread.
            ThreadBusy: a run is active, or did not end in time.
            Conflict: the thread was updated since.
        """
        store = self._of(user)
        deadline = anyio.current_time() + STOP_SECONDS
        while True:
            try:
                return await store.upkeep.delete_thread(thread, unchanged_since=unchanged_since)
            except ThreadBusy as error:
                run = await store.runs.get(error.run_id)
                dead = is_dead(run)
                if await end_if_dead(store, run):
                    # Ending the run changed the thread.
                    unchanged_since = None
                # A dead process cannot end its run; the takeover is tried until it succeeds.
                elif not (force or dead) or anyio.current_time() > deadline:
                    raise
                elif not dead and not run.cancel_requested:
                    await self.cancel(run.id, user or self.user)
                await anyio.sleep(_POLL_SECONDS)

    def _of(self, user: str | None) -> UserStore:
        return self.store.of(user or self.user)


async def _check_cursor(
    store: UserStore, thread: str, after: int, created_at: float | None
) -> None:
    """Refuse a cursor from another thread that had this id: it would silently skip events."""
    found = await store.threads.get(thread)
    if created_at is not None and created_at != found.created_at:
        raise Conflict(
            f"Thread {thread} was created at another time than the one of the cursor {after}.",
            cure="The thread was deleted and its id used again: follow it from the start, 0.",
        )
    if after > found.last_event:
        raise Conflict(
            f"Thread {thread} has {found.last_event} events, fewer than the cursor {after}.",
            cure="The thread was deleted and its id used again: follow it from the start, 0.",
        )


def _message_of(node: Node) -> ThreadMessage:
    return ThreadMessage(
        node_id=node.seq,
        parent_id=node.parent_id,
        run_id=node.run_id,
        message=decode_message(node.body),
        results=tuple(
            decode_result(call.body) if call.status == "done" else None for call in node.calls
        ),
        created_at=node.created_at,
    )
