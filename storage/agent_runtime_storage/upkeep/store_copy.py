"""Copy all threads, also archived ones, and documents of all owners to another database."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

from agent_runtime_config.errors import ConfigError
from agent_runtime_storage.contract.errors import Conflict, NotFound, StoreError
from agent_runtime_storage.contract.records.log import TextOf
from agent_runtime_storage.contract.records.objects import ObjectStore
from agent_runtime_storage.contract.reports import ArchivedThread, CopiedThread
from agent_runtime_storage.contract.store import Store, UserStore
from agent_runtime_storage.objects.documents import list_document_keys
from agent_runtime_storage.upkeep.export_format import ExportRecord
from agent_runtime_storage.upkeep.transfer import export_checksum

_PAGE = 500


async def copy_store(
    source: Store, target: Store, *, texts: TextOf | None = None
) -> AsyncGenerator[CopiedThread]:
    """Copy every thread and document that the target lacks, and yield the outcome of each.

    A thread counts as copied once its export from the target equals the original.  After a failure
    call it again: equal threads in the target are skipped.  A thread with a live run, or with
    another content in the target, is a conflict and is not copied.

    Args:
        texts: as for `Upkeep.import_thread`.

    Raises:
        StoreError: a database failed, or a copy differs from the original.
    """
    for user_id in await source.maintenance.owners():
        origin, place = source.of(user_id), target.of(user_id)
        done: set[str] = set()
        async with aclosing(source.maintenance.thread_ids(user_id)) as threads:
            async for thread_id in threads:
                # Threads of sub-agents come last, and were copied with those they worked for.
                if thread_id in done:
                    continue
                family, copied = await _copy(origin, place, thread_id, texts)
                done.update(family)
                yield copied
        async with aclosing(_archived(origin)) as archives:
            async for archived in archives:
                yield await _copy_archive(origin, place, archived)
    if source.objects is None:
        return
    async with aclosing(list_document_keys(source.objects)) as keys:
        async for key in keys:
            outcome = await _copy_document(source.objects, target.objects, key)
            if outcome is not None:
                yield outcome


async def _copy(
    origin: UserStore, place: UserStore, thread_id: str, texts: TextOf | None
) -> tuple[list[str], CopiedThread]:
    """Copy one thread with those of its sub-agents; return their ids and the outcome."""
    seen = _Seen()
    try:
        there = await _is_there(place, thread_id)
        # Documents are copied by themselves, as those without a thread are.
        async with aclosing(origin.upkeep.export_thread(thread_id, documents=False)) as records:
            if there:
                # Only to compare: an earlier copy may have been interrupted after this thread.
                await export_checksum(seen.watch(records))
            else:
                await place.upkeep.import_thread(seen.watch(records), texts=texts, trusted=True)
        async with aclosing(place.upkeep.export_thread(thread_id, documents=False)) as records:
            # Exported again from the target and compared: the copy is proved, not assumed.
            same = await export_checksum(records) == seen.digest
    except Conflict as error:
        return seen.threads, CopiedThread(origin.user_id, thread_id, "conflict", error.message)
    except NotFound:
        if await _is_there(origin, thread_id):
            raise
        # Deleted since it was listed.
        return [thread_id], CopiedThread(origin.user_id, thread_id, "conflict", "It is gone.")
    if same:
        outcome = "there" if there else "copied"
        return seen.threads, CopiedThread(origin.user_id, thread_id, outcome)
    if there:
        detail = "The target has another thread of this id."
        return seen.threads, CopiedThread(origin.user_id, thread_id, "conflict", detail)
    raise StoreError(
        f"The copy of thread {thread_id} is not what was exported.",
        cure="Leave the source as it is, and report this.",
    )


async def _archived(origin: UserStore) -> AsyncGenerator[ArchivedThread]:
    before: ArchivedThread | None = None
    while page := await origin.upkeep.archived_threads(limit=_PAGE, before=before):
        for archived in page:
            yield archived
        before = page[-1]


async def _copy_archive(
    origin: UserStore, place: UserStore, archived: ArchivedThread
) -> CopiedThread:
    """Copy an archived thread as it is stored, and return the outcome."""
    user_id, thread_id = origin.user_id, archived.thread_id
    try:
        there = await place.upkeep.archived_thread(thread_id)
    except NotFound:
        there = None
    if there is not None:
        if there.digests == archived.digests:
            return CopiedThread(user_id, thread_id, "there")
        detail = "The target has another archived thread of this id."
        return CopiedThread(user_id, thread_id, "conflict", detail)
    try:
        adopted = await place.upkeep.adopt_archive(archived, origin.upkeep.archive_parts(thread_id))
    except (NotFound, ConfigError) as error:
        return CopiedThread(user_id, thread_id, "conflict", error.message)
    if adopted:
        return CopiedThread(user_id, thread_id, "copied")
    detail = "The target has a thread of this id."
    return CopiedThread(user_id, thread_id, "conflict", detail)


async def _copy_document(
    origin: ObjectStore, place: ObjectStore | None, key: str
) -> CopiedThread | None:
    """Copy one document; None if it was deleted since it was listed."""
    owner, _, name = key.partition("/")
    if (document := await origin.read(key)) is None:
        return None
    if place is None:
        return CopiedThread(owner, name, "conflict", "The target has no object store.")
    # Never over an existing one, which a process may be writing.
    if await place.replace(key, document[0], None):
        return CopiedThread(owner, name, "copied")
    existing = await place.read(key)
    if existing is not None and existing[0] == document[0]:
        return CopiedThread(owner, name, "there")
    return CopiedThread(owner, name, "conflict", "The target has another document of this key.")


async def _is_there(store: UserStore, thread_id: str) -> bool:
    try:
        await store.threads.get(thread_id)
    except NotFound:
        return False
    return True


class _Seen:
    """The threads and the checksum of an export, collected as its records pass through."""

    def __init__(self) -> None:
        self.threads: list[str] = []
        self.digest = ""

    async def watch(self, records: AsyncIterator[ExportRecord]) -> AsyncGenerator[ExportRecord]:
        """Yield the records unchanged."""
        async for record in records:
            if record["section"] == "thread":
                self.threads.append(str(record["id"]))
            elif record["section"] == "end":
                self.digest = str(record["sha256"])
            yield record
