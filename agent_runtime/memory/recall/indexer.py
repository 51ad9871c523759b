"""Embedding in the background: what a thread holds becomes vectors, in order, no text paid twice.

A thread's branch is embedded from its beginning on, node after node, so the newest node that has a
vector tells what is still to be done: after a crash, on another branch, or by another model.  One
at a time embeds a thread, across processes: it holds the claim on the thread's job.  Whatever fails
stays to be done; no turn waits for it or fails by it.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Iterator, Sequence
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
from agent_runtime.memory.recall.embedder_client import EMBED, EmbedderClient, text_digest
from agent_runtime.memory.recall.passages import MESSAGE, Passage, passages
from agent_runtime.memory.transcript import characters
from agent_runtime.models.embedding import Vector
from agent_runtime.prompt.build import entry_of
from agent_runtime.prompt.view import Entry
from agent_runtime_storage.contract.records import NewEvent
from agent_runtime_storage.contract.search_records import VectorItem
from agent_runtime_storage.contract.store import UserStore

BATCH = 64
"""How many texts an embedder is asked for at once."""
NODES = 32
"""How many nodes are read at once."""
CLAIM_SECONDS = 30.0
"""How much longer than the embedder may take a claim lasts; so long after a kill others wait."""
ROUND_SECONDS = 20.0
"""After so long a claim is taken anew."""
RETRY_SECONDS = 5.0
"""How long is waited after the store, or another claim, was in the way."""
CLOSE_SECONDS = 2.0
"""How long what is to be embedded after a run's end may take when the runtime closes."""
SHORTEST = 200
"""With fewer characters than that, a text that the embedder refuses is passed over."""
HARMLESS = "Hello."
"""An embedder that refuses even this is itself at fault, not what it was asked for."""
OFF_LOOP = 50_000

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Line:
    """The work on one thread.

    Attributes:
        log: of the run that it is booked to: the newest.
        again: whether there may be more to do than when the work began.
    """

    log: RunLog
    again: bool = True


@dataclass(slots=True)
class _Text:
    """A passage, and the digest by which its vector is found again."""

    passage: Passage
    digest: str


class VectorIndexer:
    """Embeds what threads hold; a runtime has one, and closes it.

    Args:
        everywhere: whether other threads, which have vectors of another model only, are embedded
            again as well.
    """

    def __init__(self, asking: EmbedderClient, *, everywhere: bool = False) -> None:
        self.asking = asking
        self._everywhere = everywhere
        self._background = DetachedTasks()
        self._lines: dict[tuple[str, str], _Line] = {}
        self._renewed: set[tuple[str, str]] = set()

    @property
    def model(self) -> str:
        """The name under which vectors are kept."""
        return self.asking.name

    def wake(self, log: RunLog) -> None:
        """Embed in the background what the run's thread holds; returns at once."""
        key = log.store.user_id, log.lease.thread_id
        line = self._lines.get(key)
        if line is not None:
            line.log, line.again = log, True
        elif not self.asking.resting:
            self._lines[key] = line = _Line(log)
            self._background.start(self._work(key, line))

    async def close(self) -> None:
        """Finish what can be finished shortly; give back the rest, for the next run."""
        with anyio.move_on_after(CLOSE_SECONDS):
            await self._background.wait()
        await self._background.close()

    async def _work(self, key: tuple[str, str], line: _Line) -> None:
        """Do what is to be done for a thread; raises nothing."""
        try:
            while line.again and not self.asking.resting:
                line.again = False
                try:
                    await self._thread(line, key[1])
                    if self._everywhere:
                        await self._others(line)
                except BudgetExceeded:
                    # What is left of the budget is the run's; a later run goes on.
                    return
                except StoreUnavailable:
                    await anyio.sleep(RETRY_SECONDS)
                    line.again = True
        except NotFound:
            # The thread was deleted meanwhile.
            return
        except ModelError as error:
            await self._tell(line.log, error)
        except StoreError as error:
            self.asking.rest(error)
            await self._tell(line.log, error)
        except Exception as error:
            self.asking.rest(error)
            _log.warning("Embedding failed: %s", type(error).__name__)
        finally:
            del self._lines[key]

    async def _tell(self, log: RunLog, error: ModelError | StoreError) -> None:
        """Say once, while the embedder is left in peace, why nothing is embedded."""
        if not self.asking.untold():
            return
        _log.warning("Semantic recall: %s %s", error.message, error.cure)
        if not log.ended:
            with suppress(StoreError):
                await log.tell_of(NewEvent("recall", data={"found": [], "why": error.message}))

    async def _others(self, line: _Line) -> None:
        """Embed the owner's threads again that another model has embedded."""
        store, limit = line.log.store, 100
        while True:
            keys = await store.to_embed(self.model, limit=limit)
            threads = {key.thread_id for key in keys}
            left = sorted(one for one in threads if (store.user_id, one) not in self._renewed)
            if not left and len(keys) < limit:
                return
            if not left:
                limit *= 4
            for thread_id in left:
                # What lies on other branches of it stays as it is.
                self._renewed.add((store.user_id, thread_id))
                if (store.user_id, thread_id) not in self._lines:
                    with suppress(NotFound):
                        await self._thread(_Line(line.log), thread_id)

    async def _thread(self, line: _Line, thread_id: str) -> None:
        """Embed what a thread's branch holds, until nothing is left."""
        store = line.log.store
        await store.enqueue(thread_id, EMBED, self.model, b"")
        todo: list[int] = []
        seen = 0
        while True:
            async with self._claimed(store, thread_id) as free:
                if free:
                    # A node that has no vector now, though it was seen, has none to be had.
                    todo = todo or await self._todo(store, thread_id, seen)
                    if not todo:
                        return
                    if await self._nodes(line.log, thread_id, todo[:NODES]):
                        seen, todo = todo[:NODES][-1], todo[NODES:]
            if not free:
                # Another process is at it, or has died over it: then the claim has to expire.
                await anyio.sleep(RETRY_SECONDS)

    @asynccontextmanager
    async def _claimed(self, store: UserStore, thread_id: str) -> AsyncGenerator[bool]:
        """Hold the claim on the thread's job for a `with`; it is given back, never finished."""
        seconds = self.asking.seconds + CLAIM_SECONDS
        claim = store.claim(EMBED, seconds=seconds, thread_id=thread_id, key=self.model)
        job, interrupted = await run_shielded(claim)
        try:
            if interrupted is not None:
                raise interrupted
            yield job is not None
        finally:
            if job is not None:
                with anyio.move_on_after(RETRY_SECONDS, shield=True), suppress(StoreError):
                    await store.fail_job(job, retry_after=0.0, detail="")

    async def _todo(self, store: UserStore, thread_id: str, seen: int) -> list[int]:
        """Return the branch's nodes after `seen`, and after the newest that has a vector."""
        head = (await store.thread(thread_id)).head
        if head is None:
            return []
        back = 2 * NODES
        while True:
            first = max(seen, head - back, 0)
            branch = await store.lineage(thread_id, head, first=first)
            known = await store.embedded(thread_id, self.model, MESSAGE, branch)
            if known or first == seen:
                newest = max(known[-1] if known else 0, seen)
                return [seq for seq in branch if seq > newest]
            back *= 8

    async def _nodes(self, log: RunLog, thread_id: str, seqs: Sequence[int]) -> bool:
        """Embed nodes that follow each other; False if it took too long for all of them."""
        nodes = await log.store.branch(thread_id, seqs[-1], first=seqs[0])
        return await self._embed(log, thread_id, await _texts(list(map(entry_of, nodes))))

    async def _embed(self, log: RunLog, thread_id: str, texts: Sequence[_Text]) -> bool:
        """Write the vectors of texts, in their order; False if it took too long for all of them."""
        until = anyio.current_time() + ROUND_SECONDS
        digests = list(dict.fromkeys(text.digest for text in texts))
        recent = await self.asking.recent(log.store.user_id, digests)
        known: dict[str, Vector | None] = dict(recent)
        known.update(await log.store.vectors_by_digest(self.model, digests))
        missing = {text.digest: text.passage.text for text in texts if text.digest not in known}
        written = 0
        for batch in _batches(list(missing.items())):
            try:
                vectors = await self._vectors(log, [text for _, text in batch])
                known.update(zip((digest for digest, _ in batch), vectors, strict=True))
            finally:
                written = await self._write(log.store, thread_id, texts, known, written)
            if anyio.current_time() > until and written < len(texts):
                return False
        await self._write(log.store, thread_id, texts, known, written)
        return True

    async def _write(
        self,
        store: UserStore,
        thread_id: str,
        texts: Sequence[_Text],
        known: dict[str, Vector | None],
        written: int,
    ) -> int:
        """Write what stands before the first text without a vector; return how many texts that is.

        So a node that has its own vector has those of its results, and all nodes before it.
        """
        end = written
        while end < len(texts) and texts[end].digest in known:
            end += 1
        items = [
            _item(thread_id, text, vector)
            for text in texts[written:end]
            if (vector := known[text.digest]) is not None
        ]
        for first in range(0, len(items), 4 * BATCH):
            await store.upsert_vectors(self.model, items[first : first + 4 * BATCH])
        return end

    async def _vectors(self, log: RunLog, texts: Sequence[str]) -> list[Vector | None]:
        """Return the vectors of texts; None for one that the embedder refuses by itself.

        Raises:
            ModelError: the embedder refuses all, or is down.
        """
        try:
            return list(await self.asking.ask(log, texts))
        except (ModelRejected, ModelOverflow):
            pass
        try:
            await self.asking.ask(log, [HARMLESS])
        except (ModelRejected, ModelOverflow) as error:
            self.asking.rest(error)
            raise
        return [await self._beginning(log, text) for text in texts]

    async def _beginning(self, log: RunLog, text: str) -> Vector | None:
        """Return the vector of a text, or of as much of its beginning as the embedder takes."""
        while True:
            try:
                [vector] = await self.asking.ask(log, [text])
                return vector
            except (ModelRejected, ModelOverflow):
                text = text[: len(text) // 2]
                if len(text) < SHORTEST:
                    return None


def _batches(items: list[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    for first in range(0, len(items), BATCH):
        yield items[first : first + BATCH]


def _item(thread_id: str, text: _Text, vector: Vector) -> VectorItem:
    one = text.passage
    return VectorItem(thread_id, one.source, one.source_id, vector, one.part, text.digest)


async def _texts(entries: Sequence[Entry]) -> list[_Text]:
    """Return the passages of nodes, each node's own words last, and of these the beginning."""

    def made() -> list[_Text]:
        texts: list[_Text] = []
        for entry in entries:
            found = sorted(passages([entry]), key=lambda one: (one.source == MESSAGE, -one.part))
            texts += [_Text(one, text_digest(one.text)) for one in found]
        return texts

    if characters(entries) > OFF_LOOP:
        return await anyio.to_thread.run_sync(made)
    return made()
