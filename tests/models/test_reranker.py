"""Rerankers through litellm and HTTP: Cohere's and Jina's API, and every way to fail."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import anyio
import pytest

from agent_runtime.errors import (
    ConfigError,
    ModelAuthError,
    ModelProtocolError,
    ModelStalled,
    ModelUnavailable,
    RealModelForbidden,
)
from agent_runtime.models import attempts
from agent_runtime.models.catalog import RerankPrice, rerank_price
from agent_runtime.models.retrieval.reranker import LiteLLMReranker
from tests.support.rerank_server import KEY, RerankServer

TEXTS = ["The sky is blue.", "Otto the dog ate a shoe.", "A dog."]


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[RerankServer]:
    monkeypatch.setattr(attempts, "FIRST_WAIT", 0.0)
    async with RerankServer() as server:
        yield server


def of(
    server: RerankServer, name: str = "cohere/rerank-v3.5", **options: object
) -> LiteLLMReranker:
    """Return a reranker that talks to the server."""
    given = {"base_url": server.url, "api_key": KEY, "timeout": 20.0} | options
    return LiteLLMReranker(name, **given)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("name", "price", "tokens", "cost"),
    [
        ("cohere/rerank-v3.5", None, 0, 2_000_000),
        ("jina_ai/jina-reranker-v2-base-multilingual", RerankPrice(per_token=20), 12, 240),
    ],
)
async def test_texts_get_scores_in_their_own_order_with_usage_and_cost(
    server: RerankServer, name: str, price: RerankPrice | None, tokens: int, cost: int
) -> None:
    made = await of(server, name, price=price).rerank("Otto the dog", TEXTS)
    assert [round(score, 2) for score in made.scores] == [0.33, 1.0, 0.33]
    assert (made.tokens, made.cost) == (tokens, cost)
    [request] = server.requests
    assert request["documents"] == TEXTS


async def test_what_may_pass_is_tried_again(server: RerankServer) -> None:
    server.reply = lambda number: 503 if number == 0 else None
    assert len((await of(server).rerank("dog", TEXTS)).scores) == 3
    assert len(server.requests) == 2
    server.reply = lambda number: 503
    with pytest.raises(ModelUnavailable):
        await of(server).rerank("dog", TEXTS)


async def test_a_wrong_key_is_an_error_at_once_that_does_not_show_it(server: RerankServer) -> None:
    with pytest.raises(ModelAuthError) as caught:
        await of(server, api_key="co-wrong-0123456789").rerank("dog", TEXTS)
    assert len(server.requests) == 1
    assert "0123456789" not in str(caught.value)


async def test_a_reranker_that_hangs_is_given_up(server: RerankServer) -> None:
    await of(server).rerank("dog", TEXTS)
    server.delay = 60
    with anyio.fail_after(20), pytest.raises(ModelStalled) as caught:
        await of(server, timeout=0.2).rerank("dog", TEXTS)
    assert caught.value.lost == 2


@pytest.mark.parametrize(
    "results",
    [
        [],
        [{"index": 0, "relevance_score": 0.5}],
        [{"index": place, "relevance_score": 0.5} for place in (0, 1, 1)],
        [{"index": place, "relevance_score": 0.5} for place in (1, 2, 3)],
        [{"index": place, "relevance_score": None} for place in (0, 1, 2)],
    ],
)
async def test_scores_that_do_not_match_the_texts_are_refused(
    server: RerankServer, results: list[dict[str, object]]
) -> None:
    server.reply = lambda number: {"id": "1", "results": results}
    with pytest.raises((ModelProtocolError, ModelUnavailable)):
        await of(server).rerank("dog", TEXTS)


async def test_no_texts_are_no_call(server: RerankServer) -> None:
    assert not (await of(server).rerank("dog", [])).scores
    assert not server.requests


async def test_real_rerankers_may_not_be_called_where_that_is_forbidden() -> None:
    with pytest.raises(RealModelForbidden):
        await LiteLLMReranker("cohere/rerank-v3.5", api_key=KEY, local_only=True).rerank("a", ["b"])
    with pytest.raises(ConfigError):
        LiteLLMReranker(" ")


def test_prices_are_by_search_or_by_token() -> None:
    assert rerank_price("cohere/rerank-v3.5") == RerankPrice(per_search=2_000_000)
    assert rerank_price("cohere/unknown") is None
    assert rerank_price("openai/gpt-4o") is None
    assert RerankPrice(per_search=5).of(100, None) is None
    assert RerankPrice(per_token=5).of(None, 1) is None
