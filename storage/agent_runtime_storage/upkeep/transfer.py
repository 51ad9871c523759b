"""Export threads as records, and import them into this database or another one."""

from __future__ import annotations

import functools
import sys
from array import array
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, TypeVar, cast

import anyio
import anyio.to_thread
import orjson

from agent_runtime_storage.contract.errors import Conflict, InvalidExport, StoreError
from agent_runtime_storage.contract.names import name_problem
from agent_runtime_storage.contract.records.log import TextOf, Thread, Vet
from agent_runtime_storage.contract.records.search import VectorItem
from agent_runtime_storage.contract.reports import ArchivedThread
from agent_runtime_storage.drivers.protocol import Row, Value
from agent_runtime_storage.log.threads import thread_busy
from agent_runtime_storage.objects.bodies import THREAD_BYTES
from agent_runtime_storage.objects.documents import (
    is_document_place,
    plain_document,
    thread_document_key,
    thread_documents,
)
from agent_runtime_storage.queries.owner import OwnerScope, not_found
from agent_runtime_storage.search.full_text import TextIndexer
from agent_runtime_storage.search.vectors import SqlVectors
from agent_runtime_storage.upkeep.archives import Archives
from agent_runtime_storage.upkeep.export_format import (
    LOG,
    RUNS,
    SECTIONS,
    THREAD,
    VECTORS,
    Checksum,
    ExportRecord,
    Section,
    document_record,
    encode_export_body,
    header,
    to_record,
)
from agent_runtime_storage.upkeep.import_batches import ImportBatches
from agent_runtime_storage.upkeep.importer import Importer
from agent_runtime_storage.upkeep.reindexing import Reindexing
from agent_runtime_storage.upkeep.retention import Retention

T = TypeVar("T")

_PAGE_ROWS = 500
_PAGE_BYTES = 2 * 2**20
"""The size of an export's page, unless a single row is larger; servers limit their answers."""


class SqlUpkeep:
    """`Upkeep` over SQL."""

    def __init__(self, scope: OwnerScope, vectors: SqlVectors, indexer: TextIndexer) -> None:
        self._scope = scope
        self._vectors = vectors
        self._batches = ImportBatches(scope, vectors, indexer)
        self._retention = Retention(scope)
        self._reindexing = Reindexing(scope, indexer)
        self._archives = Archives(scope, self._retention, self._batches, self.export_thread)

    async def delete_thread(
        self, thread_id: str, *, unchanged_since: float | None = None
    ) -> list[str]:
        # First: of a thread whose archiving was cut short there are rows as well.
        if await self._archives.delete(thread_id):
            return [thread_id]
        return await self._retention.delete_thread(thread_id, unchanged_since=unchanged_since)

    async def idle_threads(self, *, seconds: float, limit: int = 1000) -> list[Thread]:
        return await self._retention.idle_threads(seconds=seconds, limit=limit)

    async def clean_up(self) -> list[str]:
        return await self._retention.clean_up()

    async def archive_thread(
        self, thread_id: str, *, unchanged_since: float | None = None
    ) -> ArchivedThread:
        return await self._archives.archive(thread_id, unchanged_since=unchanged_since)

    async def restore_thread(self, thread_id: str, *, texts: TextOf | None = None) -> list[str]:
        return await self._archives.restore(thread_id, texts=texts)

    async def archivable_threads(self, *, seconds: float, limit: int = 1000) -> list[Thread]:
        return await self._archives.archivable(seconds=seconds, limit=limit)

    async def archived_threads(
        self, *, limit: int = 50, before: ArchivedThread | None = None
    ) -> list[ArchivedThread]:
        return await self._archives.list(limit=limit, before=before)

    async def archived_thread(self, thread_id: str) -> ArchivedThread:
        archived = await self._archives.find(thread_id)
        if archived is None:
            raise not_found("archived thread", thread_id)
        return archived

    def archive_parts(self, thread_id: str) -> AsyncGenerator[bytes]:
        return self._archives.parts(thread_id)

    async def adopt_archive(self, archived: ArchivedThread, parts: AsyncGenerator[bytes]) -> bool:
        return await self._archives.adopt(archived, parts)

    async def clean_up_archives(self) -> int:
        return await self._archives.clean_up()

    async def reindex(self, texts: TextOf, *, limit: int = 100) -> int:
        return await self._reindexing.some(texts, limit=limit)

    async def export_thread(
        self, thread_id: str, *, documents: bool = True
    ) -> AsyncGenerator[ExportRecord]:
        before = await self._stamp(thread_id)
        yield header(thread_id, _writer())
        checksum = Checksum()
        threads = [str(member[0]) for member in before]
        async with aclosing(self._records(threads, documents=documents)) as records:
            async for record in records:
                await _aside(checksum.add, record, weight=_weight(record))
                yield record
        # Not one snapshot: an export may take minutes, and no transaction stays open for that.
        if await self._stamp(thread_id) != before:
            raise Conflict(
                f"Thread {thread_id} was changed while it was being exported.",
                cure="Export it again; what was written so far lacks its end and is refused.",
            )
        yield checksum.end()

    async def import_thread(
        self,
        records: AsyncIterable[ExportRecord],
        *,
        rename: str | None = None,
        texts: TextOf | None = None,
        vet: Vet | None = None,
        trusted: bool = False,
    ) -> list[str]:
        if rename is not None and (problem := name_problem(rename)):
            raise StoreError(f"The thread's id {problem}.", cure="Give the thread a short id.")
        # Otherwise the remains of an import that was killed would keep the id.
        await self.clean_up()
        importer = Importer(self._batches, rename=rename, texts=texts, vet=vet, trusted=trusted)
        try:
            line = 0
            async for record in records:
                line += 1
                await importer.take(record, line)
            await importer.finish(line)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self._withdraw(importer.token)
            raise
        for thread_id in importer.threads:
            self._scope.announce(thread_id)
        return importer.threads

    async def _withdraw(self, token: str) -> None:
        """Delete the rows that an import has written."""
        members = await self._scope.read("import_members", token=token)
        if members:
            await self._retention.delete_hidden(str(members[0][0]), members)

    async def _stamp(self, thread_id: str) -> list[Row]:
        """Return values that change with the threads of a family, the named thread's first.

        Raises:
            NotFound: there is no such thread.
            ThreadBusy: one of its runs has a live lease.
        """
        family = await self._scope.read("family", thread_id=thread_id)
        threads = orjson.dumps([str(row[0]) for row in family]).decode()
        rows = await self._scope.read("export_stamp", threads=threads)
        if not any(row[0] == thread_id and row[1] == "" for row in rows):
            raise await self._scope.no_thread(thread_id)
        for busy, run_id in await self._scope.read("family_at_work", threads=threads):
            raise thread_busy(str(busy), str(run_id))
        return sorted(rows, key=lambda row: row[0] != thread_id)

    async def _records(
        self, threads: Sequence[str], *, documents: bool
    ) -> AsyncGenerator[ExportRecord]:
        # All runs before all logs: an inbox or a usage may refer to a run of another thread.
        for thread_id in threads:
            for row in await self._scope.read("export_thread", thread_id=thread_id):
                yield to_record(THREAD, row)
            async for row in self._rows(RUNS, thread_id):
                yield to_record(RUNS, row)
        for thread_id in threads:
            yield to_record(LOG, (thread_id,))
            for section in SECTIONS:
                async for row in self._rows(section, thread_id):
                    weight = sum(len(value) for value in row if isinstance(value, bytes))
                    yield await _aside(to_record, section, row, weight=weight)
            cursor: tuple[str, VectorItem] | None = None
            while page := await self._vectors.of_thread(thread_id, after=cursor):
                for model, item in page:
                    yield _vector_record(model, item)
                cursor = page[-1]
            if documents:
                async with aclosing(self._documents(thread_id)) as records:
                    async for record in records:
                        yield record

    async def _documents(self, thread_id: str) -> AsyncGenerator[ExportRecord]:
        objects, user_id = self._scope.objects, self._scope.user_id
        if objects is None:
            return
        async with aclosing(thread_documents(objects, user_id, thread_id)) as places:
            async for place in places:
                if not is_document_place(thread_id, *place):
                    continue
                key = thread_document_key(user_id, thread_id, *place)
                # Deleted since it was listed: the thread has one less.
                if (stored := await objects.read(key)) is None:
                    continue
                body = await _aside(plain_document, key, stored[0], weight=len(stored[0]))
                yield document_record(place, body)

    async def _rows(self, section: Section, thread_id: str) -> AsyncGenerator[Row]:
        """Yield the rows of a section in the order of its key, in pages of limited size."""
        name = f"export_{section.name}"
        after: Value = "" if section.columns[0].kind == "text" else 0
        while True:
            # The sizes first, as a page of 500 rows could hold 500 large bodies.
            sizes = await self._scope.read(
                f"{name}_sizes", thread_id=thread_id, after=after, limit=_PAGE_ROWS
            )
            start = 0
            while start < len(sizes):
                end, weight = start + 1, int(sizes[start][1])
                while end < len(sizes) and weight + int(sizes[end][1]) <= _PAGE_BYTES:
                    weight += int(sizes[end][1])
                    end += 1
                last = sizes[end - 1][0]
                for row in await self._scope.read(
                    name, thread_id=thread_id, after=after, last=last
                ):
                    yield row
                after, start = last, end
            # A full page may have been the last; the next query then returns nothing.
            if len(sizes) < _PAGE_ROWS:
                return


async def _aside(work: Callable[..., T], *args: Any, weight: int) -> T:
    """Call `work`, in a thread if its input is large."""
    if weight <= THREAD_BYTES:
        return work(*args)
    return await anyio.to_thread.run_sync(work, *args)


def _weight(record: ExportRecord) -> int:
    values: list[Any] = [
        cast("ExportRecord", value).get("base64") if isinstance(value, dict) else value
        for value in record.values()
    ]
    return sum(len(value) for value in values if isinstance(value, str))


def _vector_record(model: str, item: VectorItem) -> dict[str, Any]:
    values = array("f", item.values)
    # An export is the same on every machine.
    if sys.byteorder == "big":
        values.byteswap()
    return {
        "section": VECTORS.name,
        "version": VECTORS.version,
        "model": model,
        "source": item.source,
        "source_id": item.source_id,
        "part": item.part,
        "values": encode_export_body(values.tobytes()),
    }


@functools.cache
def _writer() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return f"agent-runtime-om {version('agent-runtime-om')}"
    except PackageNotFoundError:
        return "agent-runtime-om"


async def export_checksum(records: AsyncIterable[Mapping[str, Any]]) -> str:
    """Return the checksum in an export's last record.

    Raises:
        InvalidExport: the last record is missing.
    """
    line = 0
    async for record in records:
        line += 1
        if record.get("section") == "end":
            return str(record["sha256"])
    raise InvalidExport("the export has no end.", line=line + 1, cure="Export it again.")
