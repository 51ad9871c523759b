"""Asking an embedder: in time, checked, booked to a run, and left in peace when it has failed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

import anyio

from agent_runtime.errors import (
    LeaseLost,
    ModelError,
    ModelOverflow,
    ModelProtocolError,
    ModelRejected,
    ModelStalled,
    ModelUnavailable,
)
from agent_runtime.log.run_log import RunLog
from agent_runtime.memory import accounting as keeping
from agent_runtime.models.embedding import (
    Embedder,
    Embeddings,
    LiteLLMEmbedder,
    Vector,
    vectors_of,
)
from agent_runtime.models.litellm import load_litellm
from agent_runtime.models.tokens import count_text
from agent_runtime_storage.contract.records import Amount, Usage

EMBED = "embed"
"""The purpose of the usage, and the kind of the jobs."""
AGAIN_SECONDS = 60.0
"""How long an embedder is left in peace after a failure."""
RECENT = 256
"""The vectors of so many queries are kept at hand."""
AT_MOST = 2
"""How many of its tokens one of ours is at most."""


class EmbedderClient:
    """An embedder, as all runs of a runtime share it.

    Args:
        seconds: how long it may take for texts, unless a call says otherwise.
    """

    def __init__(self, embedder: Embedder, *, seconds: float) -> None:
        self.seconds = seconds
        self._embedder = embedder
        self._again_at = 0.0
        self._slow_until = 0.0
        self._failure: Exception | None = None
        self._told = False
        self._recent: dict[tuple[str, str], Vector] = {}
        self._asking: dict[tuple[str, str], anyio.Event] = {}

    @property
    def name(self) -> str:
        """The embedder's name."""
        return self._embedder.name

    @property
    def priced(self) -> bool:
        """Whether it is known what it costs."""
        return self._embedder.price is not None

    @property
    def resting(self) -> bool:
        """Whether it has failed just now."""
        return anyio.current_time() < self._again_at

    @property
    def slow(self) -> bool:
        """Whether it has failed just now, or kept a turn waiting."""
        return self.resting or anyio.current_time() < self._slow_until

    def rest(self, failure: Exception) -> None:
        """Leave it in peace for a while."""
        self._failure = failure
        self._again_at = anyio.current_time() + AGAIN_SECONDS

    def untold(self) -> bool:
        """Return whether nobody was told yet that it fails; from now on somebody was."""
        told, self._told = self._told, True
        return not told

    async def ask_for(self, log: RunLog, query: str, *, seconds: float | None) -> Vector:
        """Return the vector of what is searched for, as `ask`; one that is known costs nothing."""
        owner, digest = log.store.user_id, text_digest(query)
        found = await self.recent(owner, [digest])
        if not found:
            key, asked = (owner, digest), anyio.Event()
            self._asking[key] = asked
            try:
                found = await log.store.vectors_by_digest(self.name, [digest])
                if not found:
                    found = {digest: (await self.ask(log, [query], seconds=seconds))[0]}
                self._recent[key] = found[digest]
            finally:
                del self._asking[key]
                asked.set()
            if len(self._recent) > RECENT:
                del self._recent[next(iter(self._recent))]
        return found[digest]

    async def recent(self, owner: str, digests: Iterable[str]) -> dict[str, Vector]:
        """Return the vectors of what an owner searched for of late, by the digests of the texts.

        What is being asked for just now is waited for.
        """
        keys = [(owner, digest) for digest in digests]
        for key in keys:
            while key in self._asking:
                await self._asking[key].wait()
        return {key[1]: self._recent[key] for key in keys if key in self._recent}

    async def ask(
        self, log: RunLog, texts: Sequence[str], *, seconds: float | None = None
    ) -> Sequence[Vector]:
        """Return the vectors of texts, paid for by the run.

        Args:
            seconds: how long a turn can wait for them; then it is only that which goes without.

        Raises:
            ModelError: it refuses them, or fails: then at once for a while.
            BudgetExceeded: the run's budget does not allow it.
            StoreError: what it costs cannot be booked.
        """
        if self.resting and self._failure is not None:
            raise ModelUnavailable(f"{self.name} has failed just now: {self._failure}")
        counted = sum(map(count_text, texts))
        tokens = AT_MOST * counted + len(texts)
        price = self._embedder.price
        bound = Amount(tokens, tokens * (price or 0))
        held = await self._hold(log, bound)
        made, lost = Embeddings(()), 1
        try:
            made = await self._asked(texts, self.seconds if seconds is None else seconds)
            lost = made.lost + (made.tokens is None)
            vectors = vectors_of(made.vectors, len(texts), self.name)
        except (ModelRejected, ModelOverflow) as error:
            lost = error.lost
            raise
        except ModelError as error:
            lost = error.lost
            if seconds is not None and isinstance(error, ModelStalled):
                self._slow_until = anyio.current_time() + AGAIN_SECONDS
            else:
                self.rest(error)
            raise
        finally:
            with anyio.CancelScope(shield=True):
                await self._book(log, made, counted, held, lost)
        if isinstance(self._failure, ModelError):
            self._failure, self._told = None, False
        return vectors

    async def _asked(self, texts: Sequence[str], seconds: float) -> Embeddings:
        if isinstance(self._embedder, LiteLLMEmbedder):
            # It takes seconds, once, and is not the embedder's fault.
            await load_litellm()
        with anyio.move_on_after(seconds):
            try:
                return await self._embedder.embed(texts)
            except ModelError:
                raise
            except Exception as error:
                # A mistake of who wrote the embedder must not end the run.
                raise ModelProtocolError(
                    f"{self.name} failed unexpectedly: {type(error).__name__}.", lost=1
                ) from error
        raise ModelStalled(
            f"{self.name} gave no vectors within {seconds:g} s.",
            cure="Look at the embedder, or raise AGENT_RUNTIME_EMBEDDER_TIMEOUT and "
            "AGENT_RUNTIME_SEMANTIC_RECALL_TIMEOUT.",
            lost=1,
        )

    async def _hold(self, log: RunLog, bound: Amount) -> Amount:
        """Reserve what it may cost; nothing where the run is over, which has spent all it held."""
        if log.ended:
            return Amount()
        try:
            await keeping.reserve_for_memory(log, bound)
        except LeaseLost:
            return Amount()
        return bound

    async def _book(
        self, log: RunLog, made: Embeddings, counted: int, held: Amount, lost: int
    ) -> None:
        usage = [self._usage(log, made, counted)] if made.tokens is not None else []
        if not log.ended:
            try:
                await keeping.record_failed_calls(log, usage, held=held, lost=bool(lost))
                return
            except LeaseLost:
                # The run has ended meanwhile.
                pass
        if usage:
            await log.store.book_late(log.lease, usage)

    def _usage(self, log: RunLog, made: Embeddings, counted: int) -> Usage:
        return Usage(
            run_id=log.lease.run_id,
            root_run_id=log.lease.root_run_id,
            node_id=None,
            purpose=EMBED,
            model=self.name,
            prompt_tokens=made.tokens or 0,
            cached_tokens=0,
            cache_write_tokens=0,
            completion_tokens=0,
            counted_tokens=counted,
            cost=made.cost,
        )


def text_digest(text: str) -> str:
    """Return what a text is known by."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
