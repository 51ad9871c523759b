"""Calls to a reranker: it orders what a search found, with a timeout, budgets and a fallback."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

import anyio

from agent_runtime.errors import (
    BudgetExceeded,
    ModelError,
    ModelOverflow,
    ModelRejected,
    StoreError,
    StoreUnavailable,
)
from agent_runtime.log.run_log import RunLog
from agent_runtime.memory.recall.excerpts import excerpt, words_of
from agent_runtime.memory.recall.provider_client import TOKEN_RATIO, ProviderClient
from agent_runtime.memory.recall.search import SearchHit
from agent_runtime.messages import decode_message, decode_result, encodable, searchable
from agent_runtime.models.catalog import RerankPrice
from agent_runtime.models.retrieval.reranker import Reranked, Reranker, searches_for
from agent_runtime.models.tokens import count_text
from agent_runtime_storage.contract.records.log import Amount

_log = logging.getLogger(__name__)

RERANK = "rerank"
"""The purpose of the usage."""
RERANKED = 50
"""How many hits of a search a reranker reads."""
TEXT = 1_500
"""Characters that it reads of each: most have a window of 512 tokens for query and text."""
QUERY = 500
"""Characters that it reads of the query."""


class RerankerClient(ProviderClient):
    """A reranker as the runs of a runtime share it.

    Args:
        seconds: timeout of a call.
    """

    def __init__(self, reranker: Reranker, *, seconds: float) -> None:
        super().__init__(reranker.name, RERANK, seconds=seconds, role="reranker", gives="scores")
        self._reranker = reranker

    @property
    def priced(self) -> bool:
        """Whether the reranker's price is known."""
        return self._reranker.price is not None

    async def order(
        self, log: RunLog, query: str, hits: Sequence[SearchHit], *, seconds: float | None = None
    ) -> list[SearchHit]:
        """Return the hits in the reranker's order, with its scores; the run pays for the call.

        Hits after the first `RERANKED` keep their order behind these.

        Args:
            seconds: a turn's timeout, where it is shorter than the client's.

        Raises:
            ModelError: the reranker refuses or fails; after a failure all calls raise at once for
                a while.
            BudgetExceeded: the run's budget does not allow the call.
            StoreError: the log cannot be read, or the cost not be recorded.
        """
        self.check_up()
        first, rest = hits[:RERANKED], hits[RERANKED:]
        if len(first) < 2:
            return list(hits)
        words, query = words_of(query), encodable(query[:QUERY])
        texts = [await _text(log, hit, words) for hit in first]
        scores = (await self._rerank(log, query, texts, seconds)).scores
        least = min(scores)
        scored = [replace(hit, score=score) for hit, score in zip(first, scores, strict=True)]
        # Stable: hits with equal scores keep the search's order.
        scored.sort(key=lambda hit: -hit.score)
        return [*scored, *(replace(hit, score=least) for hit in rest)]

    async def order_if_possible(
        self, log: RunLog, query: str, hits: list[SearchHit], seconds: float | None
    ) -> tuple[list[SearchHit], str]:
        """Return the hits in the reranker's order, or as they are with the reason for that.

        Raises:
            StoreUnavailable: the store cannot be reached.
        """
        try:
            return await self.order(log, query, hits, seconds=seconds), ""
        except StoreUnavailable:
            raise
        except BudgetExceeded:
            return hits, "The budget allows no reranking."
        except (ModelError, StoreError) as error:
            if self.first_report():
                _log.warning("Semantic recall: %s %s", error.message, error.cure)
            return hits, f"Not reranked: {error.message}"

    async def _rerank(
        self, log: RunLog, query: str, texts: Sequence[str], seconds: float | None
    ) -> Reranked:
        asked = count_text(query)
        # The query is read again with each text.
        counted = sum(asked + count_text(text) for text in texts)
        held = await self.reserve(log, self._bound(counted, len(texts)))
        unanswered = made = Reranked(())
        # What holds if the call is cancelled: it may be billed.
        lost = 1
        try:
            made = await self.answered(
                self._reranker,
                lambda: self._reranker.rerank(query, texts),
                min(self.seconds, seconds or self.seconds),
            )
            lost = made.lost + (made.tokens is None)
        except ModelError as error:
            lost = error.lost if made is unanswered else lost
            # A refusal is the query's fault, so the reranker stays in use.
            if not isinstance(error, ModelRejected | ModelOverflow):
                self.back_off(error)
            raise
        finally:
            # The call may be billed although it was cancelled or failed.
            with anyio.CancelScope(shield=True):
                usage = self.usage(log, tokens=made.tokens or 0, counted=counted, cost=made.cost)
                known = made.tokens is not None
                await self.record(log, [usage] if known else [], held=held, lost=lost)
        self.worked()
        return made

    def _bound(self, counted: int, texts: int) -> Amount:
        """Return the most that a call may cost."""
        tokens = TOKEN_RATIO * counted + texts
        price = self._reranker.price or RerankPrice()
        return Amount(tokens, price.of(tokens, searches_for(texts)) or 0)


async def _text(log: RunLog, hit: SearchHit, words: Sequence[str]) -> str:
    """Return the part of a hit that has most of the query's words."""
    node = await log.store.log.node(hit.thread_id, hit.node)
    if hit.call is None:
        text = searchable(decode_message(node.body))
    else:
        call = node.calls[hit.call]
        text = searchable(decode_result(call.body), call.tool)
    # Providers refuse empty texts.
    return encodable(excerpt(text, words, TEXT)[1]) or "-"
