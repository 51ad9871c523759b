"""Archive threads to the object store, and restore them.

An archive is an export.  It is whole before the transaction that records it, hides the thread and
begins the thread's deletion; from then on the archive is the thread.  A restoration is an import
whose last transaction shows the thread and forgets the archive.  So a process that dies leaves the
thread or the archive, and repeating the call finishes what it began.

An import does not trust its file.  A restoration does, because the digests of the parts are kept in
the database, which only the runtime writes: a part that somebody changed is refused, and what is
left is what this database itself held.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress
from time import time

import anyio
import orjson

from agent_runtime_config.errors import ConfigError
from agent_runtime_storage.contract.errors import (
    Conflict,
    StoreError,
    StoreInDoubt,
    ThreadBusy,
)
from agent_runtime_storage.contract.records.log import TextOf, Thread
from agent_runtime_storage.contract.reports import ArchivedThread
from agent_runtime_storage.drivers.protocol import BatchMissed, Row, Statement
from agent_runtime_storage.log.threads import thread_busy
from agent_runtime_storage.objects.archive_parts import (
    PartWriter,
    archives_prefix,
    delete_parts,
    list_places,
    new_place,
    part_key,
    read_lines,
    read_parts,
)
from agent_runtime_storage.objects.object_store import Objects
from agent_runtime_storage.queries.owner import OwnerScope, not_found
from agent_runtime_storage.queries.row_decoding import to_thread
from agent_runtime_storage.upkeep.export_format import ExportRecord, dump_record, load_records
from agent_runtime_storage.upkeep.import_batches import ImportBatches
from agent_runtime_storage.upkeep.importer import Importer
from agent_runtime_storage.upkeep.orphans import AGE_SECONDS
from agent_runtime_storage.upkeep.retention import Retention

Export = Callable[[str], AsyncGenerator[ExportRecord]]


class Archives:
    """The archived threads of one owner.

    Args:
        export: yields the records of a thread and of those of its sub-agents.
    """

    def __init__(
        self, scope: OwnerScope, retention: Retention, batches: ImportBatches, export: Export
    ) -> None:
        self._scope = scope
        self._retention = retention
        self._batches = batches
        self._export = export

    async def find(self, thread_id: str) -> ArchivedThread | None:
        rows = await self._scope.read("archive", thread_id=thread_id)
        return ArchivedThread(*rows[0]) if rows else None

    async def list(
        self, *, limit: int, before: ArchivedThread | None = None
    ) -> list[ArchivedThread]:
        rows = await self._scope.read(
            "archives",
            limit=max(limit, 0),
            before=None if before is None else before.archived_at,
            before_id="" if before is None else before.thread_id,
        )
        return [ArchivedThread(*row) for row in rows]

    async def archivable(self, *, seconds: float, limit: int) -> list[Thread]:
        rows = await self._scope.read("archivable_threads", seconds=seconds, limit=max(limit, 0))
        return [to_thread(row) for row in rows]

    # Archive

    async def archive(
        self, thread_id: str, *, unchanged_since: float | None = None
    ) -> ArchivedThread:
        objects = self._objects()
        if recorded := await self.find(thread_id):
            # Not a restoration, which may be under way.
            await self._finish_deletion(thread_id, "delete ")
            return recorded
        family = [str(row[0]) for row in await self._scope.read("family", thread_id=thread_id)]
        threads = orjson.dumps(family).decode()
        thread = await self._scope.thread(thread_id)
        if unchanged_since is not None and thread.updated_at >= unchanged_since:
            raise _used(thread_id)
        await self._require_archivable(threads)
        # Before the export: the transaction that records the archive compares them, so that a
        # change meanwhile makes it miss and nothing is lost.
        stamps = await self._scope.read("archive_stamp", threads=threads)
        # A new folder each time: two processes that archive the same thread do not write the same
        # parts.
        place = new_place(self._scope.user_id)
        try:
            kept = await self._write(objects, place, thread, len(family))
            await self._record(thread, kept, threads, stamps)
        except BaseException:
            with anyio.CancelScope(shield=True):
                recorded = await self._after_failure(objects, thread_id, place)
            if recorded is None:
                raise
            # The commit's answer was lost, or another process finishes the deletion.
            await self._finish_deletion(thread_id, "delete ")
            return recorded
        recorded = await self.find(thread_id)
        # Restored, or deleted, since.
        return kept if recorded is None else recorded

    async def _write(
        self, objects: Objects, place: str, thread: Thread, threads: int
    ) -> ArchivedThread:
        writer, records = PartWriter(objects, place), 0
        async with aclosing(self._export(thread.id)) as exported:
            async for record in exported:
                await writer.add(dump_record(record))
                records += 1
        await writer.close()
        return ArchivedThread(
            thread.id,
            thread.title,
            thread.created_at,
            thread.updated_at,
            time(),
            place,
            writer.digests,
            threads,
            records,
            writer.bytes,
            writer.stored_bytes,
        )

    async def _record(
        self, thread: Thread, kept: ArchivedThread, threads: str, stamps: Sequence[Row]
    ) -> None:
        """Record the archive and delete the rows of the thread."""
        scope = self._scope
        first = [
            scope.statement("hold_thread", {"threads": threads}, rows=len(stamps), miss="changed"),
            *(
                scope.statement(
                    "require_stamp",
                    {"id": row[0], **{f"v{place}": value for place, value in enumerate(row[1:])}},
                    rows=1,
                    miss="changed",
                )
                for row in stamps
            ),
            scope.statement("require_archivable", {"threads": threads}, rows=1, miss="changed"),
            # NULL: the database's own clock sets the moment.
            self._keep(kept, archived_at=None),
        ]
        try:
            await self._retention.delete_recorded(thread.id, first)
        except BatchMissed as error:
            # For the reason, if it is one that lasts.
            await self._require_archivable(threads)
            raise Conflict(
                f"Thread {thread.id} was changed while it was being archived.",
                cure="Archive it again.",
            ) from error

    async def _require_archivable(self, threads: str) -> None:
        rows = await self._scope.read("archive_obstacle", threads=threads)
        if rows:
            raise _obstacle(*map(str, rows[0]))

    async def _after_failure(
        self, objects: Objects, thread_id: str, place: str
    ) -> ArchivedThread | None:
        """Return the archive if it was recorded after all; else delete its parts."""
        try:
            recorded = await self.find(thread_id)
            if recorded is not None and recorded.place == place:
                return recorded
            await delete_parts(objects, [place])
        except StoreError:
            # Whether it was recorded is not known, so its parts stay; `clean_up` deletes them.
            return None
        return None

    async def _finish_deletion(self, thread_id: str, kind: str = "") -> None:
        """Delete what an interrupted archive or restoration has left of the thread's rows.

        Args:
            kind: how the token of what was interrupted begins.
        """
        family = await self._scope.read("family", thread_id=thread_id)
        for name, token, *_ in family:
            if name == thread_id and token and str(token).startswith(kind):
                # By the token: the rows by which a family is found may be deleted already.
                rows = await self._scope.read("import_members", token=token)
                await self._retention.delete_hidden(thread_id, rows)

    # Restore

    async def restore(self, thread_id: str, *, texts: TextOf | None) -> list[str]:
        objects = self._objects()
        archived = await self.find(thread_id)
        if archived is None:
            await self._scope.thread(thread_id)
            raise Conflict(f"Thread {thread_id} is not archived.", cure="Use it as it is.")
        await self._finish_deletion(thread_id)
        # A restoration that fails deletes the thread's documents, which must then be its own.
        await self._batches.require_no_documents(thread_id)
        importer = Importer(
            self._batches, rename=None, texts=texts, vet=None, trusted=True, restores=thread_id
        )
        forget = self._scope.statement(
            "forget_archive",
            {"thread_id": thread_id, "place": archived.place},
            rows=1,
            miss="taken",
        )
        line = 0
        try:
            async with aclosing(read_lines(self._parts(objects, archived))) as lines:
                async for record in load_records(lines):
                    line += 1
                    await importer.take(record, line)
            # In the transaction that shows the thread, so that it is never both archived and
            # there.
            await importer.finish(line, also=[forget])
        except BaseException as error:
            with anyio.CancelScope(shield=True):
                await self._withdraw(importer.token)
            # The answer of the commit was lost, and the archive's row is gone: it was restored.
            if not isinstance(error, StoreInDoubt) or await self.find(thread_id) is not None:
                raise
        for member in importer.threads:
            self._scope.announce(member)
        # What is left of them is found by `clean_up`.
        with suppress(StoreError):
            await delete_parts(objects, [archived.place])
        return importer.threads

    async def _withdraw(self, token: str) -> None:
        members = await self._scope.read("import_members", token=token)
        if members:
            await self._retention.delete_hidden(str(members[0][0]), members)

    # Delete, copy, clean up

    async def delete(self, thread_id: str) -> bool:
        """Delete an archived thread; return whether there was one."""
        archived = await self.find(thread_id)
        if archived is None:
            return False
        await self._finish_deletion(thread_id)
        values = {"thread_id": thread_id, "place": archived.place}
        await self._scope.batch(
            [self._scope.statement("forget_archive", values)], thread=thread_id, repeatable=True
        )
        # After the row: killed in between, this leaves parts that `clean_up` finds, and no row
        # without parts.
        if self._scope.objects is not None:
            await delete_parts(self._scope.objects, [archived.place])
        return True

    async def parts(self, thread_id: str) -> AsyncGenerator[bytes]:
        archived = await self.find(thread_id)
        if archived is None:
            raise not_found("archived thread", thread_id)
        async with aclosing(self._parts(self._objects(), archived)) as parts:
            async for part in parts:
                yield part

    async def adopt(self, archived: ArchivedThread, parts: AsyncGenerator[bytes]) -> bool:
        objects = self._objects()
        thread_id = archived.thread_id
        if not archived.place.startswith(f"{archives_prefix(self._scope.user_id)}/"):
            raise Conflict(
                f"The archive of thread {thread_id} is another owner's.",
                cure="Copy it for the owner that it belongs to.",
            )
        async with aclosing(parts):
            if await self.find(thread_id) or await self._scope.read("family", thread_id=thread_id):
                return False
            number = 0
            async for part in parts:
                await objects.put(part_key(archived.place, number), part)
                number += 1
        # Again, in the transaction: a thread of this id may have begun while the parts were
        # copied.
        free = self._scope.statement("require_no_thread", {"thread_id": thread_id}, rows=1)
        keep = self._keep(archived, archived_at=archived.archived_at)
        try:
            await self._scope.batch([free, keep], thread=thread_id)
        except (BatchMissed, Conflict):
            return False
        return True

    async def clean_up(self, *, age: float = AGE_SECONDS) -> int:
        """Delete the parts of interrupted archives; return how many archives.

        Args:
            age: in seconds.  Younger parts may belong to an archive that is being written.
        """
        objects = self._scope.objects
        if objects is None:
            return 0
        before = time() - age
        found = await list_places(objects, archives_prefix(self._scope.user_id))
        old = [
            place
            for place, parts in found.items()
            if all(part.modified <= before for part in parts)
        ]
        # After the listing, so that what was recorded since is seen.
        rows = await self._scope.read("known_archives", places=orjson.dumps(old).decode())
        known = {str(place) for (place,) in rows}
        stray = [place for place in old if place not in known]
        await delete_parts(objects, stray)
        return len(stray)

    def _keep(self, kept: ArchivedThread, *, archived_at: float | None) -> Statement:
        values = {
            "thread_id": kept.thread_id,
            "title": kept.title,
            "created_at": kept.created_at,
            "updated_at": kept.updated_at,
            "archived_at": archived_at,
            "place": kept.place,
            "digests": kept.digests,
            "threads": kept.threads,
            "records": kept.records,
            "bytes": kept.bytes,
            "stored_bytes": kept.stored_bytes,
        }
        return self._scope.statement("keep_archive", values, rows=1)

    def _parts(self, objects: Objects, archived: ArchivedThread) -> AsyncGenerator[bytes]:
        return read_parts(objects, archived.place, archived.digests, archived.stored_bytes)

    def _objects(self) -> Objects:
        if self._scope.objects is None:
            raise ConfigError(
                "Threads are archived to an object store, and none is set for a database on a "
                "server.",
                cure="Set AGENT_RUNTIME_OBJECT_STORE_URL to a bucket, or to a folder that all "
                "machines share.",
            )
        return self._scope.objects


def _used(thread_id: str) -> Conflict:
    return Conflict(
        f"Thread {thread_id} was used meanwhile.",
        cure="Leave it, or list the threads to archive again.",
    )


def _obstacle(kind: str, thread_id: str, name: str) -> Conflict:
    """Return the error for what keeps a thread from being archived."""
    match kind:
        case "active":
            busy: ThreadBusy = thread_busy(thread_id, name)
            return ThreadBusy(
                f"Run {name} on thread {thread_id} is not over, so the thread is not archived.",
                run_id=name,
                cure=busy.cure,
            )
        case "child":
            return Conflict(
                f"Thread {thread_id} is a sub-agent's and belongs to thread {name}.",
                cure=f"Archive thread {name}; its sub-agents' threads go with it.",
            )
        case "queued":
            return Conflict(
                f"Run {name} of thread {thread_id} is in the queue.",
                cure=f"`agent-runtime queue retry {name}`, or `queue forget {name}`, first.",
            )
        case "job":
            return Conflict(
                f"A process works on a job ({name}) of thread {thread_id}.",
                cure="Try again in some minutes.",
            )
        case _:
            return Conflict(
                f"A message of a run of thread {thread_id} waits on thread {name}.",
                cure=f"Let a run of thread {name} read it first.",
            )
