"""Semantic recall whose embedder fails, or whose budget is used up: the turn goes on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio
import pytest

from agent_runtime.errors import ModelAuthError
from agent_runtime.models.retrieval.embedding import ScriptedEmbedder, Vector
from tests.memory.recall.recalling import (
    FACTS,
    QUESTION,
    Open,
    embedded,
    world,
)

__all__ = ["world"]


def broken(kind: str) -> Any:
    """Return a script of an embedder that embeds passages and fails on the question."""
    good = ScriptedEmbedder()

    async def embed(texts: Sequence[str]) -> Sequence[Vector]:
        vectors = (await good.embed(texts)).vectors
        if tuple(texts) != (QUESTION,):
            return vectors
        match kind:
            case "raises":
                raise RuntimeError("a bug")
            case "hangs":
                await anyio.sleep_forever()
                return []
            case "nan":
                return [[float("nan")] * 256]
            case "fewer":
                return []
            case _:
                return [[1.0, 2.0]]

    return embed


@pytest.mark.backends("file")
@pytest.mark.parametrize("kind", ["raises", "hangs", "nan", "fewer", "dimensions"])
async def test_a_failing_embedder_is_reported_and_full_text_replaces_it(
    world: Open, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    # Only one of them has to be waited for, and full text needs its time too.
    limit = 2.0 if kind == "hangs" else 60.0
    async with world(embedder=ScriptedEmbedder(broken(kind)), semantic_recall_timeout=limit) as one:
        await one.prepare()
        result = await one.say(QUESTION)
        assert result.ok and one.found() == [("t", 1)]
        # Embedding in the background may meet a failure first, and reports it.
        assert one.recalled[-1].data["why"] or kind != "hangs"
        assert (
            len([record for record in caplog.records if "Semantic recall" in record.message]) == 1
        )
        # It is not called for a while, and the failure is not logged again.
        await one.say(QUESTION.replace("large", "big"))
        assert (
            len([record for record in caplog.records if "Semantic recall" in record.message]) == 1
        )


@pytest.mark.backends("file")
async def test_an_unreachable_embedder_fails_no_turn(
    world: Open, caplog: pytest.LogCaptureFixture
) -> None:
    async def down(texts: Sequence[str]) -> Sequence[Vector]:
        raise OSError("no network")

    async with world(embedder=ScriptedEmbedder(down)) as one:
        await one.converse()
        assert (await one.say("Hm.")).ok
        assert (await one.say(QUESTION)).ok
        assert one.found() == [("t", 1)]
        assert len(one.embedder.requests) == 1
        assert (
            len([record for record in caplog.records if "Semantic recall" in record.message]) == 1
        )
        assert len([event for event in one.recalled if event.data["why"]]) == 1


class Unusable(ScriptedEmbedder):
    """An embedder whose check fails."""

    async def check(self) -> None:
        raise ModelAuthError("The key is missing.")


@pytest.mark.backends("file")
async def test_any_embedder_is_checked_before_its_first_call(world: Open) -> None:
    embedder = Unusable()
    async with world(embedder=embedder) as one:
        await one.converse()
        assert (await one.say(QUESTION)).ok
        assert one.found() == [("t", 1)]
        assert one.recalled[-1].data["why"] == "The key is missing."
        assert embedder.requests == []


@pytest.mark.backends("file")
async def test_vector_mode_has_no_fallback(world: Open) -> None:
    embedder = ScriptedEmbedder(broken("raises"))
    async with world(embedder=embedder, semantic_recall_mode="vectors") as one:
        await one.prepare()
        assert (await one.say(QUESTION)).ok
        assert one.recalled[-1].data == one.recalled[-1].data | {"found": [], "mode": "vectors"}
        assert "RuntimeError" in one.recalled[-1].data["why"]


# Costs


@pytest.mark.backends("file", "postgres")
async def test_embedding_is_booked_and_counts_toward_the_budget(world: Open) -> None:
    embedder = ScriptedEmbedder(price=5)
    async with world(embedder=embedder, budget_usd=1.0) as one:
        await one.prepare(FACTS[:3])
        result = await one.say(QUESTION)
        spent = result.usage_by_purpose["embed"]
        assert spent.calls >= 1 and spent.cost == 5 * spent.prompt_tokens > 0
        run = await one.store.runs.get(result.run_id)
        # The run is booked for the question's cost; the later embeddings are booked afterwards.
        assert run.settled.cost >= 5 * len(QUESTION.split())
        await embedded(one.store, "t")
        total = await one.store.spending.usage_by_purpose(thread_id="t")
        embedded_texts = [text for texts in embedder.requests for text in texts]
        assert len(set(embedded_texts)) == len(embedded_texts)
        assert total["embed"].calls == len(embedder.requests)


@pytest.mark.backends("file")
async def test_an_exhausted_budget_stops_embedding_and_not_the_run(world: Open) -> None:
    async with world(embedder=ScriptedEmbedder(price=10**12), budget_usd=1.0) as one:
        await one.converse()
        assert (await one.say(QUESTION)).ok
        assert "budget" in one.recalled[-1].data["why"]
        assert one.found() == [("t", 1)]


@pytest.mark.backends("file")
async def test_an_unpriced_embedder_is_not_called_under_a_budget_in_dollars(
    world: Open, caplog: pytest.LogCaptureFixture
) -> None:
    async with world(embedder=ScriptedEmbedder(price=None), budget_usd=1.0) as one:
        await one.converse()
        await one.say(QUESTION)
        assert one.found() == [("t", 1)] and not one.embedder.requests
    assert "price of scripted-embedder is unknown" in caplog.text
