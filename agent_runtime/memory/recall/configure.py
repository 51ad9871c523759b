"""From the settings to recall: the embedder of a runtime, and the retrievers of its runs."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from agent_runtime.log.run_log import RunLog
from agent_runtime.models import embedder_from_name
from agent_runtime.prompt.calendar import zone_of
from agent_runtime_config import Settings

if TYPE_CHECKING:
    from agent_runtime.memory.recall.indexer import VectorIndexer
    from agent_runtime.memory.recall.reranker_client import RerankerClient
    from agent_runtime.memory.recall.retriever import RecallPolicy, Retriever
    from agent_runtime.models.retrieval.embedding import Embedder

_log = logging.getLogger(__name__)


class RecallService:
    """The recall of all runs of a runtime; the owner closes it.

    Args:
        embedder: used instead of the one that the settings name.

    Raises:
        ConfigError: the name of the embedder or of the reranker is not usable.
    """

    def __init__(self, settings: Settings, embedder: Embedder | None = None) -> None:
        # Here and below, not above: a process without recall need not load any of it.
        from agent_runtime.memory.recall.embedder_client import EmbedderClient
        from agent_runtime.memory.recall.indexer import VectorIndexer
        from agent_runtime.memory.recall.retriever import RecallPolicy

        if embedder is None:
            embedder = embedder_from_name(settings.embedder_model, settings)
        client = EmbedderClient(embedder, seconds=settings.embedder_timeout)
        mode = settings.semantic_recall_mode
        if mode != "text" and not client.priced and settings.needs_prices:
            _log.warning(
                "Semantic recall: the price of %s is unknown, so a budget in dollars cannot be "
                "kept with it. Recall searches by full text instead.",
                client.name,
            )
            mode = "text"
        scope = settings.semantic_recall_scope
        self._policy: RecallPolicy = RecallPolicy(
            top_k=settings.semantic_recall_top_k,
            before=settings.semantic_recall_before,
            after=settings.semantic_recall_after,
            scope=scope,
            mode=mode,
            tokens=settings.semantic_recall_tokens,
            timeout=settings.semantic_recall_timeout,
            zone=zone_of(settings.timezone),
        )
        self._reranker = _reranker_client(settings)
        self._indexer: VectorIndexer | None = None
        if mode != "text":
            self._indexer = VectorIndexer(client, all_threads=scope == "user")

    @classmethod
    def of(cls, settings: Settings, embedder: Embedder | None) -> RecallService | None:
        """Return the recall that the settings ask for; None without an embedder."""
        wanted = embedder is not None or settings.embedder_model
        return cls(settings, embedder) if wanted else None

    def of_run(self, log: RunLog) -> Retriever:
        """Return the recall of a run; a sub-agent's run searches its own thread only."""
        from agent_runtime.memory.recall.retriever import Retriever

        child = log.lease.run_id != log.lease.root_run_id
        # A sub-agent knows only its assignment; other threads would leak the conversation into it.
        policy = replace(self._policy, scope="thread") if child else self._policy
        return Retriever(log, policy, self._indexer, automatic=not child, reranker=self._reranker)

    def end(self, log: RunLog) -> None:
        """Embed the thread of a run that has ended, in the background."""
        if self._indexer is not None:
            self._indexer.wake(log)

    async def close(self) -> None:
        """Finish the embedding in progress, or give it up for a later run to continue."""
        if self._indexer is not None:
            await self._indexer.close()


def _reranker_client(settings: Settings) -> RerankerClient | None:
    """Return the client of the reranker, where one is named and a budget can be kept with it."""
    from agent_runtime.memory.recall.reranker_client import RerankerClient
    from agent_runtime.models.retrieval.reranker import reranker_from_name

    if not settings.reranker_model:
        return None
    reranker = reranker_from_name(settings.reranker_model, settings)
    client = RerankerClient(reranker, seconds=settings.reranker_timeout)
    if client.priced or not settings.needs_prices:
        return client
    _log.warning(
        "Semantic recall: the price of %s is unknown, so a budget in dollars cannot be kept with "
        "it. What is found is not reranked. Set AGENT_RUNTIME_RERANKER_PRICE_INPUT.",
        client.name,
    )
    return None
