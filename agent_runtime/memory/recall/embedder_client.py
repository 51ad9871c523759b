"""Calls to an embedder: with timeouts, budgets and a pause after a failure."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from functools import partial

import anyio

from agent_runtime.errors import (
    ModelError,
    ModelOverflow,
    ModelRejected,
    ModelStalled,
)
from agent_runtime.log.run_log import RunLog
from agent_runtime.memory.recall.passages import text_digest
from agent_runtime.memory.recall.provider_client import (
    BACKOFF_SECONDS,
    TOKEN_RATIO,
    ProviderClient,
)
from agent_runtime.models.retrieval.embedding import Embedder, Embeddings, Vector, vectors_of
from agent_runtime.models.telemetry.model_calls import embedding
from agent_runtime.models.tokens import count_text
from agent_runtime_storage.contract.records.log import Amount

EMBED = "embed"
"""The purpose of the usage, and the kind of the jobs."""
CACHED_QUERIES = 256
"""How many query vectors are cached."""
INDEXED_SECONDS = 2.0
"""How long a query waits for the vector of an equal text that is being indexed."""


class EmbedderClient(ProviderClient):
    """An embedder as the runs of a runtime share it.

    Args:
        seconds: timeout of a call that names none.
    """

    def __init__(self, embedder: Embedder, *, seconds: float) -> None:
        super().__init__(embedder.name, EMBED, seconds=seconds, role="embedder", gives="vectors")
        self._embedder = embedder
        self._slow_until = 0.0
        self._queries: dict[tuple[str, str], Vector] = {}
        self._in_progress: dict[tuple[str, str], anyio.Event] = {}
        self._indexed: dict[tuple[str, str], anyio.Event] = {}

    @property
    def priced(self) -> bool:
        """Whether the embedder's price is known."""
        return self._embedder.price is not None

    @property
    def slow(self) -> bool:
        """Whether the embedder recently failed, or exceeded a turn's timeout."""
        return self.down or anyio.current_time() < self._slow_until

    async def embed_query(self, log: RunLog, query: str, *, seconds: float | None) -> Vector:
        """Return the vector of a query, from the cache or the store where it is known.

        Raises like `embed`.
        """
        owner, digest = log.store.user_id, text_digest(query)
        # Also waits for an equal query in progress, so that no two runs pay for the same text.
        known = await self.recent(owner, [digest])
        if not known:
            key, done = (owner, digest), anyio.Event()
            self._in_progress[key] = done
            try:
                if indexed := self._indexed.get(key):
                    with anyio.move_on_after(INDEXED_SECONDS):
                        await indexed.wait()
                known = await log.store.vectors.by_digest(self.name, [digest])
                if not known:
                    known = {digest: (await self.embed(log, [query], seconds=seconds))[0]}
                self._queries[key] = known[digest]
            finally:
                # Also after a failure, or the others would wait forever; one of them then tries
                # itself.
                del self._in_progress[key]
                done.set()
            if len(self._queries) > CACHED_QUERIES:
                del self._queries[next(iter(self._queries))]
        return known[digest]

    async def recent(self, owner: str, digests: Iterable[str]) -> dict[str, Vector]:
        """Return the cached vectors of an owner's queries by digest; wait for those in progress."""
        keys = [(owner, digest) for digest in digests]
        for key in keys:
            while key in self._in_progress:
                await self._in_progress[key].wait()
        return {key[1]: self._queries[key] for key in keys if key in self._queries}

    @contextmanager
    def indexing(self, owner: str, digests: Iterable[str]) -> Generator[None]:
        """Let queries for these texts wait until the context ends: their vectors are stored then.

        Call `recent` right before, so that no query for one of them is in progress.
        """
        done = anyio.Event()
        keys = [key for digest in digests if (key := (owner, digest)) not in self._indexed]
        self._indexed.update(dict.fromkeys(keys, done))
        try:
            yield
        finally:
            for key in keys:
                del self._indexed[key]
            done.set()

    async def embed(
        self, log: RunLog, texts: Sequence[str], *, seconds: float | None = None
    ) -> Sequence[Vector]:
        """Return the vectors of texts; the run pays for them.

        Args:
            seconds: a turn's timeout.  When it passes, only that turn does without vectors; the
                embedder counts as slow, not as down.

        Raises:
            ModelError: the embedder refuses the texts or fails; after a failure all calls raise at
                once for a while.
            BudgetExceeded: the run's budget does not allow the call.
            StoreError: the cost cannot be recorded.
        """
        self.check_up()
        counted = sum(map(count_text, texts))
        tokens = TOKEN_RATIO * counted + len(texts)
        held = await self.reserve(log, Amount(tokens, tokens * (self._embedder.price or 0)))
        unanswered = made = Embeddings(())
        # What holds if the call is cancelled: it may be billed.
        lost = 1
        try:
            with embedding(self.name) as answers:
                embed = partial(self._embedder.embed, texts)
                made = await self.answered(self._embedder, embed, seconds)
                answers.append(made)
            lost = made.lost + (made.tokens is None)
            vectors = vectors_of(made.vectors, len(texts), self.name)
        except ModelError as error:
            if made is unanswered:
                lost = error.lost
            # Otherwise the vectors are unusable, but the answer has said what was lost.
            if isinstance(error, ModelRejected | ModelOverflow):
                raise
            if seconds is not None and isinstance(error, ModelStalled):
                # A turn waits much less long than background work may; that can still use the
                # embedder.
                self._slow_until = anyio.current_time() + BACKOFF_SECONDS
            else:
                self.back_off(error)
            raise
        finally:
            # The call may be billed although it was cancelled or failed: its cost is recorded in
            # any case.
            with anyio.CancelScope(shield=True):
                await self._record(log, made, counted, held, lost)
        self.worked()
        return vectors

    async def _record(
        self, log: RunLog, made: Embeddings, counted: int, held: Amount, lost: int
    ) -> None:
        known = made.tokens is not None
        usage = self.usage(log, tokens=made.tokens or 0, counted=counted, cost=made.cost)
        await self.record(log, [usage] if known else [], held=held, lost=lost)
