"""A reranker in runs: it orders what recall found, is paid, and may fail."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import pytest

from tests.memory.recall.recalling import FACTS, QUESTION, Open, world
from tests.support.rerank_server import KEY, RerankServer

__all__ = ["world"]


@pytest.fixture
async def reranking(world: Open) -> AsyncGenerator[tuple[RerankServer, Open]]:
    """Yield a rerank server, and what opens a runtime that uses it."""

    def opened(**settings: Any) -> Any:
        named = {
            "reranker_model": "cohere/rerank-v3.5",
            "reranker_base_url": server.url,
            "reranker_api_key": KEY,
            "reranker_timeout": 20.0,
            "semantic_recall_timeout": 20.0,
            "semantic_recall_top_k": 1,
            "semantic_recall_before": 0,
            "semantic_recall_after": 0,
        }
        return world(**(named | settings))

    async with RerankServer() as server:
        yield server, opened


# The search ranks the short text first; the reranker sees that the long one has every word.
RIVALS = [
    "The bridge! The bridge! The Bergen bridge!",
    "The large Bergen bridge was built within its budget, how we do not know, of course.",
]


@pytest.mark.backends("file")
async def test_a_reranker_orders_what_was_found_and_is_paid(
    reranking: tuple[RerankServer, Open],
) -> None:
    server, world = reranking
    async with world(budget_usd=5.0) as one:
        await one.prepare([*RIVALS, *FACTS[1:]])
        server.requests.clear()
        result = await one.say(QUESTION)
        assert one.found() == [("t", 3)] and not one.recalled[-1].data["why"]
        [request] = server.requests
        assert request["query"] == QUESTION and RIVALS[1] in request["documents"]
        spent = await one.store.spending.usage_by_purpose(run_id=result.run_id)
        assert (spent["rerank"].calls, spent["rerank"].cost) == (1, 2_000_000)


@pytest.mark.backends("file")
async def test_without_its_reranker_a_search_keeps_its_order_and_says_why(
    reranking: tuple[RerankServer, Open],
) -> None:
    server, world = reranking
    server.reply = lambda number: 500
    async with world() as one:
        await one.prepare([*RIVALS, *FACTS[1:]])
        server.requests.clear()
        await one.say(QUESTION)
        assert one.found() == [("t", 1)]
        assert "Not reranked: " in one.recalled[-1].data["why"]
        # For a while it is not called again.
        asked = len(server.requests)
        await one.say(f"Once more: {QUESTION}")
        assert len(server.requests) == asked


@pytest.mark.backends("file")
async def test_a_budget_that_does_not_allow_reranking_allows_the_search(
    reranking: tuple[RerankServer, Open],
) -> None:
    server, world = reranking
    async with world(budget_usd=0.001) as one:
        await one.prepare([*RIVALS, *FACTS[1:]])
        server.requests.clear()
        await one.say(QUESTION)
        assert one.found() == [("t", 1)] and not server.requests
        assert one.recalled[-1].data["why"] == "The budget allows no reranking."
