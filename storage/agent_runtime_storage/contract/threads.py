"""Threads, their inboxes, and their events."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Any, Protocol

from agent_runtime_storage.contract.records.files import NewFile
from agent_runtime_storage.contract.records.log import EventRow, InboxItem, Thread, ThreadPlace


class ThreadStore(Protocol):
    """The threads of one owner: their metadata and their heads."""

    async def ensure(
        self, thread_id: str, *, title: str = "", metadata: Mapping[str, Any] | None = None
    ) -> Thread:
        """Return the thread; create it, with this title and metadata, if it does not exist.

        Raises:
            StoreError: the id or the title is too long, or holds what cannot be stored.
        """
        ...

    async def get(self, thread_id: str) -> Thread:
        """Return the thread; raise `NotFound` if there is none."""
        ...

    async def list(
        self, *, limit: int = 50, before: float | None = None, children: bool = True
    ) -> list[Thread]:
        """Return threads, the most recently updated first.

        Args:
            before: an `updated_at` cursor.
            children: whether to include threads in which child runs work.
        """
        ...

    async def update(
        self, thread_id: str, *, title: str | None = None, metadata: Mapping[str, Any] | None = None
    ) -> Thread:
        """Set the title, and merge the given keys into the metadata; None removes a key."""
        ...

    async def move_head(self, thread_id: str, head: int | None, *, expect: int | None) -> None:
        """Point the head at another closed node, or before the first one.

        Raises:
            ThreadBusy: a run is active.
            NotFound: there is no such node, or it is not closed.
            Conflict: the head is no longer `expect`.
        """
        ...


class InboxStore(Protocol):
    """Messages to threads, until a commit of the thread's run drains them."""

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
        """Append to the thread's inbox, without a lease; return the item's id.

        Args:
            most: how many items of this kind may wait on the thread, this one included.
            most_of_user: the same, on all threads of the owner.
            file: to store with the thread; a refused item leaves none behind.

        Raises:
            InboxFull: as many wait already.
            NotFound: there is no such thread or run.
        """
        ...

    async def pending(self, thread_id: str) -> list[InboxItem]:
        """Return the items that no commit has drained, oldest first."""
        ...


class EventStore(Protocol):
    """The events of threads, in commit order without gaps."""

    async def list(self, thread_id: str, *, after: int = 0, limit: int = 1000) -> list[EventRow]:
        """Return events with ids above `after`, in order, without gaps. Raises `NotFound`."""
        ...

    def follow(
        self, thread_id: str, *, after: int = 0, pause: float = 0.0
    ) -> AsyncGenerator[EventRow]:
        """Iterate without end over the events with ids above `after`, in order, without gaps.

        Existing events come at once, new ones as any process commits them: within milliseconds
        where the database notifies its clients (and always within this process), else within a
        quarter of a second.  Cancellation ends it at any time; close the iterator
        (`contextlib.aclosing`) when you leave it otherwise.  It ends with `NotFound` when the
        thread is deleted, also if another one has got its id since.

        Args:
            pause: the least seconds between two groups of new events, so that a fast run costs
                less.

        Raises:
            NotFound: there is no such thread.
        """
        ...

    async def of_tree(
        self, run_id: str, *, after: Mapping[str, int] | None = None, limit: int = 1000
    ) -> list[tuple[str, EventRow]]:
        """Return events of a run and of all runs below it, each with its thread.

        In order within each thread, without gaps among the events of these runs; those of different
        threads are ordered by time.

        Args:
            after: by thread, the id of the last event that is known already.

        Raises:
            NotFound: there is no such run.
        """
        ...

    async def places_of_tree(self, run_id: str) -> dict[str, ThreadPlace]:
        """Return how far the events of each thread of a run and of all runs below it go.

        Raises:
            NotFound: there is no such run.
        """
        ...

    def follow_tree(
        self, run_id: str, *, after: Mapping[str, int] | None = None, pause: float = 0.0
    ) -> AsyncGenerator[tuple[str, EventRow]]:
        """Iterate without end over the events that `of_tree` returns, as `follow` does.

        Raises:
            NotFound: there is no such run.
        """
        ...
