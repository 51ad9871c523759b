"""Embedding in the background: everything on a thread's branch gets vectors, in order.

A branch is embedded from its beginning, node after node, so the newest node that has a vector shows
what is left to do: after a crash, on another branch, or with another model.  The claim on the
thread's job lets one process at a time embed a thread.  Whatever fails is left for later; no turn
waits for this work or fails by it.  No text is paid for twice: vectors are found by the text's
digest.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import anyio
import anyio.to_thread

from agent_runtime.concurrency import DetachedTasks, run_shielded
from agent_runtime.errors import (
    BudgetExceeded,
    ModelError,
    ModelOverflow,
    ModelRejected,
    NotFound,
    StoreError,
    StoreUnavailable,
)
from agent_runtime.log.run_log import RunLog
from agent_runtime.memory.recall.embedder_client import EMBED, EmbedderClient
from agent_runtime.memory.recall.passages import MESSAGE, Passage, passages
from agent_runtime.memory.recall.relevance import Nearness
from agent_runtime.memory.recall.search import Fitting
from agent_runtime.memory.transcript import characters
from agent_runtime.models.retrieval.embedding import Vector
from agent_runtime.prompt.build import entry_of
from agent_runtime.prompt.view import Entry
from agent_runtime_storage.contract.records.log import NewEvent
from agent_runtime_storage.contract.records.search import VectorItem
from agent_runtime_storage.contract.store import UserStore

BATCH = 64
"""Texts per call of the embedder."""
NODES = 32
"""Nodes read at once."""
CLAIM_SECONDS = 30.0
"""How much longer than the embedder's timeout a claim lasts; after a kill others wait that long."""
ROUND_SECONDS = 20.0
"""Seconds after which a claim is released and taken again."""
RETRY_SECONDS = 5.0
"""Pause when the store is unavailable or another process has the claim."""
CLOSE_SECONDS = 2.0
"""How long closing the runtime waits for embedding to finish."""
SHORTEST = 200
"""A text that the embedder refuses is halved down to this many characters, then skipped."""
HARMLESS = "Hello."
"""If the embedder refuses even this, the fault is its own and not the texts'."""
OFF_LOOP = 50_000
"""Characters above which passages are made in a worker thread."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _ThreadWork:
    """The embedding of one thread.

    Attributes:
        log: of the newest run on the thread, which pays.
        again: whether a run has added nodes since the last round began.
    """

    log: RunLog
    again: bool = True


class VectorIndexer:
    """Embeds the threads of a runtime in the background; the runtime closes it.

    Args:
        all_threads: whether to embed the owner's other threads as well if they have vectors of
            other models only.
    """

    def __init__(self, client: EmbedderClient, *, all_threads: bool = False) -> None:
        self.client = client
        self.nearness = Nearness(client.name)
        self._all_threads = all_threads
        self._background = DetachedTasks()
        self._work: dict[tuple[str, str], _ThreadWork] = {}
        self._renewed: set[tuple[str, str]] = set()

    @property
    def model(self) -> str:
        """The name under which vectors are stored."""
        return self.client.name

    def wake(self, log: RunLog) -> None:
        """Embed the run's thread in the background; return at once."""
        key = log.store.user_id, log.lease.thread_id
        work = self._work.get(key)
        if work is not None:
            # One task per thread: a second one would only wait for the first one's claim.
            work.log, work.again = log, True
        elif not self.client.down:
            self._work[key] = work = _ThreadWork(log)
            self._background.start(self._run(key, work))

    async def close(self) -> None:
        """Wait `CLOSE_SECONDS` for the work to finish, then cancel it; the next run continues."""
        with anyio.move_on_after(CLOSE_SECONDS):
            await self._background.wait()
        await self._background.close()

    async def _run(self, key: tuple[str, str], work: _ThreadWork) -> None:
        """Embed a thread until nothing is left; never raises an `Exception`."""
        try:
            while work.again and not self.client.down:
                work.again = False
                try:
                    await self._thread(work, key[1])
                    if self._all_threads:
                        await self._others(work)
                except BudgetExceeded:
                    # The rest of the budget belongs to the run; a later run continues here.
                    return
                except StoreUnavailable:
                    await anyio.sleep(RETRY_SECONDS)
                    work.again = True
        except NotFound:
            # The thread was deleted in the meantime.
            return
        except ModelError as error:
            await self._report(work.log, error)
        except StoreError as error:
            self.client.back_off(error)
            await self._report(work.log, error)
        except Exception as error:
            self.client.back_off(error)
            _log.warning("Embedding failed: %s", type(error).__name__)
        finally:
            # In the turn in which `again` was last read, so no wake falls between the two; after a
            # failure the next run wakes it again.
            del self._work[key]

    async def _report(self, log: RunLog, error: ModelError | StoreError) -> None:
        """Say why nothing is embedded, once until the embedder works again."""
        if not self.client.first_report():
            return
        _log.warning("Semantic recall: %s %s", error.message, error.cure)
        if not log.ended:
            with suppress(StoreError):
                await log.tell_of(NewEvent("recall", data={"found": [], "why": error.message}))

    async def _others(self, work: _ThreadWork) -> None:
        """Embed those of the owner's threads that only another model has embedded."""
        store, limit = work.log.store, 100
        while True:
            keys = await store.vectors.missing(self.model, limit=limit)
            threads = sorted({key.thread_id for key in keys})
            left = [thread for thread in threads if (store.user_id, thread) not in self._renewed]
            if not left and len(keys) < limit:
                return
            if not left:
                # The keys found are all of threads that this process has done: look further.
                limit *= 4
            for thread_id in left:
                # Vectors on its other branches stay those of the other model.
                self._renewed.add((store.user_id, thread_id))
                if (store.user_id, thread_id) not in self._work:
                    with suppress(NotFound):
                        await self._thread(_ThreadWork(work.log), thread_id)

    async def _thread(self, work: _ThreadWork, thread_id: str) -> None:
        """Embed a thread's branch until nothing is left."""
        store = work.log.store
        await store.jobs.enqueue(thread_id, EMBED, self.model, b"")
        todo: list[int] = []
        seen = 0
        while True:
            async with self._claimed(store, thread_id) as claimed:
                if claimed:
                    # A node up to `seen` that has no vector has nothing that can be embedded.
                    todo = todo or await self._todo(store, thread_id, seen)
                    if not todo:
                        return
                    # A newer run may have woken it since the last nodes; that one pays.
                    if await self._nodes(work.log, thread_id, todo[:NODES]):
                        seen, todo = todo[:NODES][-1], todo[NODES:]
            if not claimed:
                # Another process has the claim; if that process is dead, the claim has to expire.
                await anyio.sleep(RETRY_SECONDS)

    @asynccontextmanager
    async def _claimed(self, store: UserStore, thread_id: str) -> AsyncGenerator[bool]:
        """Hold the claim on the thread's job; yield False if another process has it.

        The job is given back and never finished, because the thread's later runs need it too.
        """
        seconds = self.client.seconds + CLAIM_SECONDS
        claim = store.jobs.claim(EMBED, seconds=seconds, thread_id=thread_id, key=self.model)
        # Shielded: a claim whose answer a cancellation discards would block the job until it
        # expires.
        job, interrupted = await run_shielded(claim)
        try:
            if interrupted is not None:
                raise interrupted
            yield job is not None
        finally:
            if job is not None:
                with anyio.move_on_after(RETRY_SECONDS, shield=True), suppress(StoreError):
                    await store.jobs.fail(job, retry_after=0.0, detail="")

    async def unembedded(self, store: UserStore, thread_id: str) -> list[int]:
        """Return the nodes of the thread's branch that wait for their vectors."""
        return await self._todo(store, thread_id, 0)

    async def _todo(self, store: UserStore, thread_id: str, seen: int) -> list[int]:
        """Return the branch's nodes after `seen` and after the newest node that has a vector."""
        head = (await store.threads.get(thread_id)).head
        if head is None:
            return []
        # From the head backwards in growing steps: mostly only the newest nodes lack vectors, and a
        # long branch is not read to its root.
        back = 2 * NODES
        while True:
            first = max(seen, head - back, 0)
            branch = await store.log.lineage(thread_id, head, first=first)
            known = await store.vectors.embedded_ids(thread_id, self.model, MESSAGE, branch)
            if known or first == seen:
                newest = max(known[-1] if known else 0, seen)
                return [seq for seq in branch if seq > newest]
            back *= 8

    async def _nodes(self, log: RunLog, thread_id: str, seqs: Sequence[int]) -> bool:
        """Write the vectors of consecutive nodes; return False if `ROUND_SECONDS` ran out."""
        nodes = await log.store.log.branch(thread_id, seqs[-1], first=seqs[0])
        texts = await _in_order(list(map(entry_of, nodes)))
        until = anyio.current_time() + ROUND_SECONDS
        digests = list(dict.fromkeys(text.digest for text in texts))
        known: dict[str, Vector | None] = {}
        known.update(await log.store.vectors.by_digest(self.model, digests))
        missing = {text.digest: text.text for text in texts if text.digest not in known}
        todo = list(missing.items())
        written, owner = 0, log.store.user_id
        for first in range(0, len(todo), BATCH):
            batch = dict(todo[first : first + BATCH])
            # A user message that was searched for has its vector already.
            recent = await self.client.recent(owner, batch)
            known.update(recent)
            batch = {digest: text for digest, text in batch.items() if digest not in recent}
            with self.client.indexing(owner, batch):
                try:
                    if batch:
                        vectors = await self._vectors(log, list(batch.values()))
                        known.update(zip(batch, vectors, strict=True))
                finally:
                    # Also after a failure: what is paid for is stored.
                    written = await self._write(log.store, thread_id, texts, known, written)
            # Ended early, or the claim could expire while this process still writes under it.
            if anyio.current_time() > until and written < len(texts):
                return False
        await self._write(log.store, thread_id, texts, known, written)
        return True

    async def _write(
        self,
        store: UserStore,
        thread_id: str,
        texts: Sequence[Passage],
        known: dict[str, Vector | None],
        written: int,
    ) -> int:
        """Write vectors up to the first text that has none yet; return how many texts that is.

        So a node that has a vector for its own words has those of its results, and so have all
        nodes before it.
        """
        end = written
        while end < len(texts) and texts[end].digest in known:
            end += 1
        items = [
            VectorItem(thread_id, text.source, text.source_id, vector, text.part, text.digest)
            for text in texts[written:end]
            if (vector := known[text.digest]) is not None
        ]
        for first in range(0, len(items), 4 * BATCH):
            await store.vectors.upsert(self.model, items[first : first + 4 * BATCH])
        return end

    async def _vectors(self, log: RunLog, texts: Sequence[str]) -> list[Vector | None]:
        """Return the vectors of texts; None for a text that the embedder refuses.

        Raises:
            ModelError: the embedder refuses everything, or is down.
        """
        try:
            return list(await self.client.embed(log, texts))
        except (ModelRejected, ModelOverflow):
            pass
        try:
            # An embedder that refuses everything would otherwise be called once for each text.
            await self.client.embed(log, [HARMLESS])
        except (ModelRejected, ModelOverflow) as error:
            self.client.back_off(error)
            raise
        return [await self._beginning(log, text) for text in texts]

    async def _beginning(self, log: RunLog, text: str) -> Vector | None:
        """Return the vector of a text, or of as much of its beginning as the embedder accepts."""
        while True:
            try:
                [vector] = await self.client.embed(log, [text])
                return vector
            except (ModelRejected, ModelOverflow):
                text = text[: len(text) // 2]
                if len(text) < SHORTEST:
                    return None


async def _in_order(entries: Sequence[Entry]) -> list[Passage]:
    """Return the passages of nodes; each node's own words come last, their beginning at the end.

    `_todo` takes a node's first vector as the sign that all the node has is embedded.
    """

    def make() -> list[Passage]:
        return [
            passage
            for entry in entries
            for passage in sorted(passages([entry]), key=lambda p: (p.source == MESSAGE, -p.part))
        ]

    return await anyio.to_thread.run_sync(make) if characters(entries) > OFF_LOOP else make()


async def least_fitting(
    log: RunLog, indexer: VectorIndexer | None, vector: Vector | None
) -> Fitting:
    """Return what makes hits fit on a run's thread: to be as near as its messages are."""
    if vector is None or indexer is None:
        return Fitting()
    least = await indexer.nearness.least(log.store, log.lease.thread_id)
    # Nothing is known of a short thread, so whatever is near may fit.
    return Fitting(-1.0 if least is None else least)
