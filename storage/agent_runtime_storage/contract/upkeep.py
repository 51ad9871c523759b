"""Deletion, export and import of threads, and the maintenance of a whole database."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Mapping
from typing import Any, Protocol

from agent_runtime_storage.contract.records.log import TextOf, Thread, Vet
from agent_runtime_storage.contract.reports import (
    ArchivedThread,
    Problem,
    StoreSizes,
    StoreStatus,
)


class Upkeep(Protocol):
    """Deletes, exports and imports the threads of one owner."""

    async def delete_thread(
        self, thread_id: str, *, unchanged_since: float | None = None
    ) -> list[str]:
        """Delete a thread and the threads of its runs' sub-agents; return the ids of all.

        Everything that belongs to them is deleted: nodes, results, events, usage, inbox, jobs,
        runs, vectors, text index, files, objects and documents, or the archive of an archived
        thread.  From the first transaction on
        nobody sees the thread; the rows of a large one are deleted in pieces, and calling this
        again, or `clean_up`, finishes a deletion that a crash interrupted.

        Nothing of it is left in a database file or its write-ahead log, unless a reader held the
        log open for seconds.  A server keeps deleted data until its own clean-up (`VACUUM`).

        Args:
            unchanged_since: delete only a thread that was last updated before this moment.

        Raises:
            NotFound: there is no such thread.
            ThreadBusy: one of its runs has a live lease.
            Conflict: it was updated since, or keeps starting sub-agents.
        """
        ...

    async def idle_threads(self, *, seconds: float, limit: int = 1000) -> list[Thread]:
        """Return threads without update for `seconds` and without a live run, oldest first.

        Threads of sub-agents are left out: they are deleted with the thread that they worked for.
        """
        ...

    async def clean_up(self) -> list[str]:
        """Delete the remains of interrupted imports and deletions; return the ids of the threads.

        An import or deletion counts as interrupted after 5 minutes without progress.
        """
        ...

    async def archive_thread(
        self, thread_id: str, *, unchanged_since: float | None = None
    ) -> ArchivedThread:
        """Move a thread, and the threads of its sub-agents, to the object store.

        Everything that belongs to them goes with them, as an export; what is left is one small row,
        and what was spent on each day.  The id stays taken.  Nobody sees a state between: until
        the archive is whole and recorded the thread is in the database, and from then on it is
        archived.  After a crash or a failure call this again; it finishes what was begun.  A thread
        that is archived already is returned as it is.

        Cancellation: nothing was archived, or all of it was.

        Args:
            unchanged_since: archive only a thread that was last updated before this moment.

        Raises:
            NotFound: there is no such thread.
            ThreadBusy: one of its runs is not over: it runs, waits, or is suspended.
            Conflict: it was updated since, is a sub-agent's, has a run in the queue or a job at
                work, or a message of it waits on another thread.
            ConfigError: there is no object store.
            ObjectsUnavailable, StoreFull: the object store cannot be written.
        """
        ...

    async def restore_thread(self, thread_id: str, *, texts: TextOf | None = None) -> list[str]:
        """Move an archived thread back into the database; return its id, then those of sub-agents.

        Every row is as it was; the text index is made again, from `texts` as by `import_thread`.
        The archive is deleted.  After a crash or a failure the thread is still archived, and
        calling this again restores it.

        It trusts what it reads, unlike an import: the database keeps a digest of every part, so
        these are the rows that this database held.

        Raises:
            NotFound: there is no such archived thread.
            Conflict: it is not archived, or something has taken its place.
            ObjectLost: a part is missing, or is not what was written; nothing was restored.
            ConfigError: there is no object store.
        """
        ...

    async def archivable_threads(self, *, seconds: float, limit: int = 1000) -> list[Thread]:
        """Return threads without update for `seconds` whose runs are all over, oldest first.

        Threads of sub-agents are left out: they are archived with the thread that they worked for.
        """
        ...

    async def archived_threads(
        self, *, limit: int = 50, before: ArchivedThread | None = None
    ) -> list[ArchivedThread]:
        """Return archived threads, the last archived first.

        Args:
            before: the last one of the page before.
        """
        ...

    async def archived_thread(self, thread_id: str) -> ArchivedThread:
        """Return an archived thread; raise `NotFound` if there is none."""
        ...

    def archive_parts(self, thread_id: str) -> AsyncGenerator[bytes]:
        """Yield the parts of an archived thread as they are stored: zstd frames of JSON lines.

        Raises:
            NotFound: there is no such archived thread.
            ObjectLost: a part is missing, or is not what was written.
        """
        ...

    async def adopt_archive(self, archived: ArchivedThread, parts: AsyncGenerator[bytes]) -> bool:
        """Store an archived thread of another database of the same owner, with its parts.

        Returns:
            Whether it was stored; not where there is a thread, archived or not, of its id.

        Raises:
            ConfigError: there is no object store.
            ObjectLost: as `archive_parts` of the other database.
        """
        ...

    async def clean_up_archives(self) -> int:
        """Delete what interrupted archives left in the object store a day ago or earlier.

        Returns:
            How many archives they belonged to.
        """
        ...

    async def reindex(self, texts: TextOf, *, limit: int = 100) -> int:
        """Index texts again that an earlier version of the runtime indexed.

        Searches find them before and after; before, only by their words as written.  Every text is
        replaced in one transaction, so it may be interrupted at any moment and continued by any
        process.  A text that cannot be read keeps the index that it has.

        Args:
            texts: returns the text of a node or result from its body.
            limit: the most texts to index.

        Returns:
            How many outdated texts were found, at most `limit`; 0 if all are current.
        """
        ...

    def export_thread(
        self, thread_id: str, *, documents: bool = True
    ) -> AsyncGenerator[Mapping[str, Any]]:
        """Yield a thread, and the threads of its sub-agents, as JSON records.

        The records hold everything but the text index, leases and secrets; `upkeep.export_format`
        describes them.  The last record is yielded only if nothing has changed during the export,
        so an import takes one consistent state of the thread.  Close the generator
        (`contextlib.aclosing`) when you leave it early.

        Args:
            documents: whether to include the threads' documents, such as node memories.  Each is
                as it is when it is read.

        Raises:
            NotFound: there is no such thread.
            CorruptDocument: a document is damaged.
            ThreadBusy: one of its runs has a live lease.
            ObjectLost: a body is lost.
            Conflict: the thread was changed during the export.
        """
        ...

    async def import_thread(
        self,
        records: AsyncIterable[Mapping[str, Any]],
        *,
        rename: str | None = None,
        texts: TextOf | None = None,
        vet: Vet | None = None,
        trusted: bool = False,
    ) -> list[str]:
        """Write an exported thread with those of its sub-agents; return the ids of all.

        Imported data is history and starts nothing: runs cannot be resumed and have no spec, calls
        that were not done become refused, and questions, inbox, jobs, activations and vectors are
        dropped.  A new run continues the conversation.

        Runs whose parent is not in the export become roots.  Nothing of the import is visible
        until all of it is written.  After a failure or cancellation its rows are deleted; after a
        crash they stay hidden until `clean_up`, or the next import 5 minutes later.  Only the
        documents, such as node memories, can be seen as they are written.

        Args:
            rename: another id for the thread; sub-agents' threads, runs and jobs get new ids.
            texts: returns the text by which search finds a node or result; without it search
                finds nothing of the import.
            vet: refuses bodies that the engine could not read.
            trusted: whether the records come directly from a database of the same owner: then
                everything is imported unchanged, and exporting it again yields the same records.

        Raises:
            InvalidExport: the records are not a complete export, or of another version.
            ThreadExists: one of its threads exists already.
            Conflict: another id of it is taken, or there are documents of one of its threads.
            ConfigError: it has documents, and the database has no object store.
        """
        ...


class Maintenance(Protocol):
    """Maintenance by an operator, over all owners.

    Without an up-to-date schema every method but `status` raises `MigrationError`.
    """

    async def status(self) -> StoreStatus:
        """Return the server, the schema and the pending migrations; changes nothing."""
        ...

    async def owners(self) -> list[str]:
        """Return the owners who have threads."""
        ...

    def thread_ids(self, user_id: str) -> AsyncGenerator[str]:
        """Yield the ids of all threads of an owner, those of sub-agents last."""
        ...

    async def outdated(self) -> list[str]:
        """Return the owners with texts that an earlier version indexed; see `Upkeep.reindex`."""
        ...

    async def check(self) -> list[Problem]:
        """Return what is damaged, lost or left over, at most 100 problems of a kind.

        It reads every table whole.
        """
        ...

    async def sizes(self, *, threads: int = 10) -> StoreSizes:
        """Return the size of the database, by table, by owner, and of the largest threads."""
        ...

    async def vacuum(self) -> None:
        """Free the space of deleted data; it takes as long as reading everything.

        A file is rewritten, and writers wait for it; on Postgres deleted data is unrecoverable
        from then on.

        Raises:
            StoreError: the database is a libSQL server, which frees space by itself.
        """
        ...
