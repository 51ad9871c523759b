"""Embedding in the background: every message, in order, and no text is paid for twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio
import pytest

from agent_runtime import Agent, Event, Runtime, ScriptedModel, Settings, tool
from agent_runtime.errors import ModelRejected
from agent_runtime.log import branches
from agent_runtime.log.branch import entry_of
from agent_runtime.memory.recall import embedder_client
from agent_runtime.memory.recall import indexer as embedding
from agent_runtime.memory.recall.passages import passages
from agent_runtime.messages import Note, decode_message
from agent_runtime.models import attempts
from agent_runtime.models.base import ModelRequest
from agent_runtime.models.retrieval.embedding import Embeddings, ScriptedEmbedder, Vector
from agent_runtime.models.scripted import Scripted, call, say
from agent_runtime.run.budget import spending_of_tree
from agent_runtime.testing.model_server import OpenAIServer, Reply, server_error
from agent_runtime_storage import UserStore

pytestmark = pytest.mark.backends("file")
NAME = "scripted-embedder"
SAID = [f"This is number {number} of the things that were said." for number in range(6)]


@asynccontextmanager
async def opened(
    url: str, embedder: ScriptedEmbedder | None, model: ScriptedModel | None = None, **settings: Any
) -> AsyncGenerator[Runtime]:
    """A runtime with recall; its model gives each request a distinct answer."""
    model = model or ScriptedModel(lambda request: say(f"I heard {request.messages[-1].text[:24]}"))
    # On a slow machine a query that timed out would be embedded a second time.
    patient: dict[str, Any] = {"semantic_recall_timeout": 60.0, **settings}
    configured = Settings(database_url=url, observational_memory=False, **patient)
    async with Runtime.open(configured, model=model, embedder=embedder) as runtime:
        yield runtime


async def converse(runtime: Runtime, texts: Sequence[str] = SAID, thread: str = "t") -> list[Event]:
    """Send messages one after another, each in a run of its own; return the events."""
    events: list[Event] = []
    for text in texts:
        assert (await runtime.run(Agent(), text, thread=thread, on_event=events.append)).ok
    return events


async def expected_keys(store: UserStore, thread: str = "t") -> set[tuple[str, int, int]]:
    """Return the keys of all passages of a thread's branch."""
    head = (await store.threads.get(thread)).head
    assert head is not None
    entries = [entry_of(node) for node in await store.log.branch(thread, head)]
    return {(passage.source, passage.source_id, passage.part) for passage in passages(entries)}


async def stored_keys(
    store: UserStore, thread: str = "t", model: str = NAME
) -> set[tuple[str, int, int]]:
    """Return the keys of a thread's vectors."""
    vectors = await store.vectors.of_thread(thread, limit=10_000)
    return {(one.source, one.source_id, one.part) for by, one in vectors if by == model}


async def embedded(store: UserStore, thread: str = "t", model: str = NAME) -> None:
    """Wait until every passage of a thread's branch has a vector."""
    with anyio.fail_after(60):
        while not await expected_keys(store, thread) <= await stored_keys(store, thread, model):  # noqa: ASYNC110
            await anyio.sleep(0.01)


def texts_of(embedder: ScriptedEmbedder) -> list[str]:
    """Return all texts that an embedder received."""
    return [text for texts in embedder.requests for text in texts]


def embedded_twice(*embedders: ScriptedEmbedder) -> set[str]:
    """Return the texts that embedders received more than once.

    One process may search for a user's message while another embeds it.
    """
    counts = Counter(text for embedder in embedders for text in texts_of(embedder))
    repeated = {text for text, count in counts.items() if count > 1}
    return repeated - set(SAID) if len(embedders) > 1 else repeated


async def test_messages_and_results_are_embedded_in_the_background(database_url: str) -> None:
    @tool
    def look(number: int) -> str:
        """Look."""
        return f"what is seen at {number}: " + "a word and another one " * (100 * number)

    def script(request: ModelRequest) -> Scripted:
        done = sum(message.role == "tool" for message in request.messages)
        return call("look", number=done) if done < 12 else say("Done.")

    embedder = ScriptedEmbedder()
    async with opened(database_url, embedder, ScriptedModel(script)) as runtime:
        store = runtime.store.of("local")
        result = await runtime.run(Agent(tools=[look]), "Look around.", thread="t")
        await embedded(store)
        keys = await stored_keys(store)
        # A long result is embedded in parts.
        assert max(part for source, _, part in keys if source == "result") > 1
        assert all(len(texts) <= embedding.BATCH for texts in embedder.requests)
        # The run did not wait for it, but embedding started during the run.
        first = await store.spending.usage_by_purpose(run_id=result.run_id)
        assert first["embed"].calls == len(embedder.requests) > 1


async def test_a_query_waits_for_an_equal_text_that_is_being_indexed(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedder_client, "INDEXED_SECONDS", 60.0)
    indexing, go_on = anyio.Event(), anyio.Event()

    # What the model says is not searched for, only indexed.
    said = "The bridge was opened in 1998, by the king, in the rain."

    async def slow(texts: Sequence[str]) -> Sequence[Vector]:
        if not indexing.is_set() and said in texts:
            indexing.set()
            await go_on.wait()
        return [[1.0, 2.0] for _ in texts]

    embedder = ScriptedEmbedder(slow)
    async with opened(database_url, embedder, ScriptedModel([say(said), say("Yes.")])) as runtime:
        await runtime.run(Agent(), SAID[0], thread="t")
        await indexing.wait()
        async with anyio.create_task_group() as group:
            group.start_soon(partial(runtime.run, Agent(), said, thread="other"))
            # Enough for a query that would not wait.
            await anyio.sleep(0.2)
            go_on.set()
        await embedded(runtime.store.of("local"), "other")
    assert not embedded_twice(embedder)


async def test_no_text_is_paid_for_twice(database_url: str) -> None:
    embedder = ScriptedEmbedder()
    async with opened(database_url, embedder) as runtime:
        await converse(runtime)
        await embedded(runtime.store.of("local"))
    # Another thread of the same owner, another runtime, the same words.
    async with opened(database_url, embedder) as runtime:
        await converse(runtime, thread="other")
        await embedded(runtime.store.of("local"), "other")
        assert not embedded_twice(embedder)
        before = len(texts_of(embedder))
        # Each owner pays separately.
        await runtime.run(Agent(), SAID[0], thread="theirs", user="ada")
        await embedded(runtime.store.of("ada"), "theirs")
        assert len(texts_of(embedder)) > before


async def test_the_next_runtime_embeds_what_one_left_over(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedding, "CLOSE_SECONDS", 0.05)
    stuck = anyio.Event()

    async def hang(texts: Sequence[str]) -> Sequence[Vector]:
        stuck.set()
        await anyio.sleep_forever()
        return []

    hanging = ScriptedEmbedder(hang)
    with anyio.fail_after(60):
        async with opened(database_url, hanging, semantic_recall_timeout=0.05) as runtime:
            await converse(runtime, SAID[:3])
            await stuck.wait()
    embedder = ScriptedEmbedder()
    # The claim was released, so no runtime has to wait until it expires.
    async with opened(database_url, embedder) as runtime:
        await converse(runtime, SAID[3:])
        await embedded(runtime.store.of("local"))


async def test_a_dead_workers_claim_is_waited_for_until_it_expires(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedding, "RETRY_SECONDS", 0.05)
    async with opened(database_url, None) as runtime:
        await converse(runtime, SAID[:2])
        store = runtime.store.of("local")
        await store.jobs.enqueue("t", "embed", NAME, b"")
        assert await store.jobs.claim("embed", seconds=1.0, thread_id="t", key=NAME)
    embedder = ScriptedEmbedder()
    async with opened(database_url, embedder) as runtime:
        await converse(runtime, SAID[2:3])
        await embedded(runtime.store.of("local"))
        assert not embedded_twice(embedder)


async def test_a_long_thread_is_embedded_from_its_start(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedding, "NODES", 8)
    monkeypatch.setattr(embedding, "ROUND_SECONDS", 0.0)

    @tool
    def look(number: int) -> str:
        """Look."""
        return f"what is seen at {number}"

    def script(request: ModelRequest) -> Scripted:
        *_, last = (message.text for message in request.messages if message.role != "system")
        number = int(last.rsplit(" ", 1)[-1]) + 1 if last.startswith("what") else 0
        return call("look", number=number) if number < 60 else say("Done.")

    async with opened(database_url, None, ScriptedModel(script)) as runtime:
        await runtime.run(Agent(tools=[look]), "Look around.", thread="t")
    embedder = ScriptedEmbedder()
    async with opened(database_url, embedder) as runtime:
        store = runtime.store.of("local")
        await converse(runtime, SAID[:1])
        await embedded(store)
        assert len(await expected_keys(store)) > 120 and not embedded_twice(embedder)
        order = [text for text in texts_of(embedder) if text.startswith("what is seen")]
        assert order == [f"what is seen at {number}" for number in range(60)]


def stopped_embedder() -> tuple[ScriptedEmbedder, anyio.Event, anyio.Event]:
    """Return an embedder that sets the first event at a batch, and waits for the second."""
    asked, go = anyio.Event(), anyio.Event()
    plain = ScriptedEmbedder()

    async def slowly(texts: Sequence[str]) -> Sequence[Vector]:
        if len(texts) > 1:
            asked.set()
            await go.wait()
        return (await plain.embed(texts)).vectors

    return ScriptedEmbedder(slowly), asked, go


async def test_two_runtimes_do_not_pay_for_the_same_text(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedding, "RETRY_SECONDS", 0.05)
    first, asked, go = stopped_embedder()
    second = ScriptedEmbedder()
    async with opened(database_url, None) as runtime:
        await converse(runtime, SAID[:4])
    async with opened(database_url, first) as one, opened(database_url, second) as two:
        await converse(one, SAID[4:5])
        with anyio.fail_after(60):
            await asked.wait()
        await converse(two, SAID[5:])
        await anyio.sleep(0.3)
        go.set()
        await embedded(two.store.of("local"))
    assert not embedded_twice(first, second)


async def test_the_newest_run_of_a_thread_pays(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedding, "NODES", 2)
    slow, asked, go = stopped_embedder()
    async with opened(database_url, None) as runtime:
        await converse(runtime, SAID[:4])
    async with opened(database_url, slow) as runtime:
        store = runtime.store.of("local")
        first = await runtime.run(Agent(), SAID[4], thread="t")
        with anyio.fail_after(60):
            await asked.wait()
        second = await runtime.run(Agent(), SAID[5], thread="t")
        go.set()
        await embedded(store)
        by_run = [
            (await store.spending.usage_by_purpose(root_run_id=run.run_id))[embedding.EMBED].calls
            for run in (first, second)
        ]
    # The first run pays for its query and for the two nodes already in progress.
    assert by_run[0] == 2
    assert by_run[1] > 2


async def test_another_embedder_embeds_everything_again(database_url: str) -> None:
    async with opened(database_url, ScriptedEmbedder(name="old")) as runtime:
        for thread in ("t", "other"):
            await converse(runtime, SAID[:3], thread)
            await embedded(runtime.store.of("local"), thread, "old")
    new = ScriptedEmbedder(name="new", dimensions=64)
    async with opened(database_url, new, semantic_recall_scope="user") as runtime:
        store = runtime.store.of("local")
        await converse(runtime, SAID[3:4])
        await embedded(store, "t", "new")
        # With the scope `user` the other threads follow, without a run on them.
        await embedded(store, "other", "new")
        assert not await store.vectors.missing("new")
        assert {model.model for model in await store.vectors.models()} == {"old", "new"}


async def test_an_abandoned_branch_is_embedded_when_it_is_continued(database_url: str) -> None:
    async with opened(database_url, None) as runtime:
        await converse(runtime, SAID[:4])
        store = runtime.store.of("local")
        left = (await store.threads.get("t")).head
        await branches.fork(store, "t", 2)
    async with opened(database_url, ScriptedEmbedder()) as runtime:
        store = runtime.store.of("local")
        await converse(runtime, SAID[4:5])
        await embedded(store)
        head = (await store.threads.get("t")).head
        assert not await store.vectors.embedded_ids("t", NAME, "message", [5, 6, 7])
        await store.threads.move_head("t", left, expect=head)
        await converse(runtime, SAID[5:])
        await embedded(store)
        assert await store.vectors.embedded_ids("t", NAME, "message", [5, 6, 7]) == [5, 6, 7]


async def test_a_refused_text_is_skipped_or_shortened(
    database_url: str,
) -> None:
    plain = ScriptedEmbedder()

    async def embed(texts: Sequence[str]) -> Any:
        if any("poison" in text for text in texts) or any(len(text) > 400 for text in texts):
            return ModelRejected("It is refused.")
        return (await plain.embed(texts)).vectors

    texts = ["This one is poison.", "long " * 150, *SAID]
    async with opened(database_url, ScriptedEmbedder(embed)) as runtime:
        store = runtime.store.of("local")
        await converse(runtime, texts)
        with anyio.fail_after(60):
            head = (await store.threads.get("t")).head or 0
            while not await store.vectors.embedded_ids("t", NAME, "message", [head]):  # noqa: ASYNC110
                await anyio.sleep(0.01)
        entries = [entry_of(node) for node in await store.log.branch("t", head)]
        poisoned = {passage.source_id for passage in passages(entries) if "poison" in passage.text}
        long = {passage.source_id for passage in passages(entries) if "long long" in passage.text}
        known = {source_id for _, source_id, _ in await stored_keys(store)}
        assert poisoned and long and long <= known
        assert not poisoned - long & known


async def test_an_embedder_that_refuses_everything_is_not_called_again(database_url: str) -> None:
    refusing = ScriptedEmbedder(lambda texts: ModelRejected("No."))
    async with opened(database_url, refusing) as runtime:
        for _ in range(3):
            await converse(runtime)
        assert not await runtime.store.of("local").vectors.models()
        assert len(refusing.requests) < 40


async def test_vectors_that_are_unusable_are_paid_for_all_the_same(database_url: str) -> None:
    class Unusable(ScriptedEmbedder):
        async def embed(self, texts: Sequence[str]) -> Embeddings:
            return Embeddings([[0.0, 0.0] for _ in texts])

    async with opened(database_url, Unusable(price=1)) as runtime:
        result = await runtime.run(Agent(), SAID[0], thread="t")
        spent = await spending_of_tree(runtime.store_of(), result.run_id)
    # The provider reported no usage, so all that was reserved may have been billed.
    assert result.ok and spent.spending.unsettled.tokens > 0


async def test_deleting_a_thread_ends_its_embedding(database_url: str) -> None:
    asked, go = anyio.Event(), anyio.Event()
    plain = ScriptedEmbedder()

    async def slowly(texts: Sequence[str]) -> Sequence[Vector]:
        asked.set()
        await go.wait()
        return (await plain.embed(texts)).vectors

    async with opened(
        database_url, ScriptedEmbedder(slowly), semantic_recall_timeout=0.05
    ) as runtime:
        store = runtime.store.of("local")
        await converse(runtime, SAID[:1])
        with anyio.fail_after(60):
            await asked.wait()
        await store.upkeep.delete_thread("t")
        go.set()
        await converse(runtime, SAID[:2], "other")
        await embedded(store, "other")
        assert {thread.id for thread in await store.threads.list()} == {"other"}


async def test_recalled_messages_are_not_embedded(database_url: str) -> None:
    async with opened(database_url, ScriptedEmbedder(), last_messages=2) as runtime:
        store = runtime.store.of("local")
        await converse(runtime)
        await embedded(store)
        head = (await store.threads.get("t")).head or 0
        nodes = [
            (node.seq, decode_message(node.body)) for node in await store.log.branch("t", head)
        ]
        notes = [
            seq
            for seq, message in nodes
            if isinstance(message, Note) and message.source == "recall"
        ]
        assert notes and not await store.vectors.embedded_ids("t", NAME, "message", notes)
        assert not [hit for hit in await store.search.find("bear") if hit.node_id in notes]


@pytest.mark.slow
async def test_embedding_through_litellm_and_http(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "FIRST_WAIT", 0.0)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-0123456789abcdef")
    async with OpenAIServer(lambda request, n: Reply()) as server:
        server.embed = lambda request, n: server_error() if n == 1 else Reply()
        name = "openai/text-embedding-3-small"
        async with opened(
            database_url,
            None,
            embedder_model=name,
            embedder_base_url=server.base_url,
            last_messages=2,
        ) as runtime:
            store = runtime.store.of("local")
            events = await converse(runtime, ["The Bergen bridge costs 40,000 kroner.", *SAID])
            await embedded(store, "t", name)
            events += await converse(runtime, ["How many kroner for the Bergen bridge?"])
            total = (await store.spending.usage_by_purpose(thread_id="t"))["embed"]
        reported = [n for n in range(len(server.embeddings)) if n != 1]
        assert total.calls >= len(reported) - 1 > 2
        assert total.cost == 20 * total.prompt_tokens
        recalled = [event for event in events if event.kind == "recall"]
        assert recalled[-1].data["found"][0]["node"] == 1 and not recalled[-1].data["why"]
