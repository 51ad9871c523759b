"""Embedders: through litellm and HTTP, with every way to fail; and the one without a model."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeAlias

import anyio
import pytest

from agent_runtime.errors import (
    ConfigError,
    ModelAuthError,
    ModelError,
    ModelOverflow,
    ModelProtocolError,
    ModelStalled,
    ModelUnavailable,
    RealModelForbidden,
)
from agent_runtime.models import attempts
from agent_runtime.models.catalog import embedding_price
from agent_runtime.models.retrieval.embedding import LiteLLMEmbedder, ScriptedEmbedder
from agent_runtime.models.tokens import count_text
from agent_runtime.testing.model_server import (
    OpenAIServer,
    Reply,
    overflow,
    rate_limited,
    server_error,
    unauthorized,
)

KEY = "sk-test-0123456789abcdef"
Play: TypeAlias = Callable[..., AbstractAsyncContextManager[tuple[LiteLLMEmbedder, OpenAIServer]]]


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Play:
    """Return what serves replies, and an embedder that talks to the server; no retry waits."""
    monkeypatch.setattr(attempts, "FIRST_WAIT", 0.0)

    @asynccontextmanager
    async def serve(
        *replies: Reply, **options: Any
    ) -> AsyncGenerator[tuple[LiteLLMEmbedder, OpenAIServer]]:
        async with OpenAIServer(lambda request, n: Reply()) as server:
            server.embed = lambda request, n: replies[n]
            options = {"base_url": server.base_url, "api_key": KEY, "retries": 2} | options
            yield LiteLLMEmbedder(options.pop("name", "openai/embed"), **options), server

    return serve


async def test_texts_become_vectors_in_their_order_with_usage_and_cost(play: Play) -> None:
    reply = Reply(vectors=[[1, 0], [0, 1.5]])
    async with play(reply, name="openai/text-embedding-3-small") as (embedder, server):
        made = await embedder.embed(["one text", "another"])
    assert [list(vector) for vector in made.vectors] == [[1, 0], [0, 1.5]]
    assert made.tokens == count_text("one text") + count_text("another")
    assert made.tokens and made.cost == 20 * made.tokens
    [request] = server.embeddings
    assert request.json["input"] == ["one text", "another"]
    assert request.json["model"] == "text-embedding-3-small"
    assert request.headers["authorization"] == f"Bearer {KEY}"


async def test_no_texts_are_no_call(play: Play) -> None:
    async with play() as (embedder, server):
        assert not (await embedder.embed([])).vectors
    assert not server.embeddings


async def test_what_may_pass_is_tried_again(play: Play) -> None:
    async with play(rate_limited("0"), server_error(), Reply()) as (embedder, server):
        made = await embedder.embed(["text"])
    assert len(made.vectors) == 1 and len(server.embeddings) == 3


async def test_a_provider_that_stays_down_is_unavailable(play: Play) -> None:
    async with play(*[server_error()] * 3) as (embedder, server):
        with pytest.raises(ModelUnavailable) as caught:
            await embedder.embed(["text"])
    assert "openai/embed" in caught.value.message and caught.value.cure
    assert len(server.embeddings) == 3


@pytest.mark.parametrize(
    "reply, error", [(unauthorized(KEY), ModelAuthError), (overflow(512), ModelOverflow)]
)
async def test_what_cannot_pass_is_not_tried_again(
    play: Play, reply: Reply, error: type[ModelError]
) -> None:
    async with play(reply) as (embedder, server):
        with pytest.raises(error) as caught:
            await embedder.embed(["text"])
    assert len(server.embeddings) == 1
    assert KEY not in str(caught.value) and caught.value.cure


async def test_an_embedder_that_hangs_is_given_up(play: Play) -> None:
    silent = [Reply(delay=60)] * 2
    async with play(*silent, timeout=0.2, retries=1) as (embedder, server):
        with anyio.fail_after(20), pytest.raises(ModelStalled) as caught:
            await embedder.embed(["text"])
    assert len(server.embeddings) == 2
    assert caught.value.lost == 2


@pytest.mark.parametrize(
    "vectors, said",
    [
        ([[1.0, 2.0]], "1 vectors for 2 texts"),
        ([[1.0], [1.0], [1.0]], "3 vectors for 2 texts"),
        ([[1.0, None], [1.0, 2.0]], "no vector of finite numbers"),
        ([[1.0, 2.0], [1.0]], "different lengths"),
        ([[1.0, 2.0], []], "different lengths"),
        ([[0.0, 0.0], [1.0, 2.0]], "without a direction"),
    ],
)
async def test_what_is_no_vector_for_each_text_is_no_answer(
    play: Play, vectors: list[list[float]], said: str
) -> None:
    async with play(Reply(vectors=vectors), retries=0) as (embedder, _):
        with pytest.raises(ModelProtocolError, match=said):
            await embedder.embed(["one", "two"])


async def test_cancelling_leaves_no_connection(play: Play) -> None:
    async with play(Reply(stall_after=0)) as (embedder, server):
        async with anyio.create_task_group() as group:
            group.start_soon(embedder.embed, ["text"])
            await server.wait_for_embeddings(1)
            group.cancel_scope.cancel()
        with anyio.fail_after(10):
            await server.wait_for_connections(0)


async def test_a_call_that_would_leave_this_machine_can_be_forbidden() -> None:
    embedder = LiteLLMEmbedder("openai/text-embedding-3-small", api_key=KEY, local_only=True)
    with pytest.raises(RealModelForbidden, match="text-embedding-3-small"):
        await embedder.embed(["text"])


async def test_a_missing_key_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AGENT_RUNTIME_FORBID_REAL_MODELS")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(ModelAuthError, match="OPENAI_API_KEY is not set"):
        await LiteLLMEmbedder("openai/text-embedding-3-small").check()


def test_an_embedder_has_a_name() -> None:
    with pytest.raises(ConfigError, match="no name"):
        LiteLLMEmbedder(" ")


def test_prices_of_embedders_are_known() -> None:
    assert embedding_price("openai/text-embedding-3-small") == 20
    assert embedding_price("text-embedding-3-large") == 130
    assert embedding_price("ollama/all-minilm") is None
    assert embedding_price("gpt-4.1") is None


def cosine(one: Any, other: Any) -> float:
    """Return how alike two vectors are."""
    dot = sum(a * b for a, b in zip(one, other, strict=True))
    return dot / math.hypot(*one) / math.hypot(*other)


async def test_the_scripted_embedder_finds_texts_alike_that_share_words() -> None:
    embedder = ScriptedEmbedder()
    texts = [
        "The deployment to Bergen failed.",
        "Why did Bergen's deployment fail?",
        "Oat milk.",
        "",
    ]
    made = await embedder.embed(texts)
    failed, why, milk, empty = made.vectors
    assert cosine(failed, why) > 0.5 > cosine(failed, milk)
    assert math.hypot(*empty) == pytest.approx(1)
    assert (await ScriptedEmbedder().embed(texts)).vectors == made.vectors
    assert embedder.requests == [tuple(texts)]
    assert made.tokens == sum(map(count_text, texts)) and made.cost == 0


async def test_the_scripted_embedder_obeys_its_function() -> None:
    down = ModelUnavailable("It is down.")
    with pytest.raises(ModelUnavailable, match="It is down"):
        await ScriptedEmbedder(lambda texts: down).embed(["text"])

    async def later(texts: Any) -> list[list[float]]:
        return [[float(len(text))] for text in texts]

    assert (await ScriptedEmbedder(later, price=3).embed(["abc"])).vectors == [[3.0]]
