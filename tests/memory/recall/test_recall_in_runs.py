"""Semantic recall in whole runs: what a turn recalls, what it leaves out, and failures."""

from __future__ import annotations

import itertools
import re
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest

from agent_runtime import Agent, Event, RunResult, Runtime, ScriptedModel, Settings, tool
from agent_runtime.errors import ModelAuthError
from agent_runtime.log import branches
from agent_runtime.memory.recall import indexer as embedding
from agent_runtime.memory.recall.retriever import newest_user_message
from agent_runtime.messages import Note, PromptMessage, decode_message
from agent_runtime.models.base import ModelRequest
from agent_runtime.models.embedding import ScriptedEmbedder, Vector
from agent_runtime.models.scripted import Scripted, call, say
from agent_runtime.prompt.build import view_of
from agent_runtime.prompt.view import ActivationContent, Entry, PromptPrefix
from agent_runtime.run.guard.repeats import GO_ON
from agent_runtime.tools.context import ToolContext
from agent_runtime_storage import UserStore
from tests.support.rerank_server import KEY, RerankServer

NAME = "scripted-embedder"
FACTS = [
    "The budget of the Bergen bridge is 40,000 kroner.",
    "My dog Otto has eaten a shoe.",
    "Trains to Voss were late again.",
    "The coffee machine needs new filters.",
    "Kari plays the cello on Thursdays.",
    "We painted the kitchen yellow.",
    "It rained for eleven days.",
    "The library closes at seven.",
]
QUESTION = "How large was the budget of the Bergen bridge?"


@dataclass
class World:
    """A runtime with recall, its model's requests, and its events."""

    runtime: Runtime
    model: ScriptedModel
    embedder: ScriptedEmbedder
    events: list[Event] = field(default_factory=list[Event])

    @property
    def store(self) -> UserStore:
        """The store as the runs' owner sees it."""
        return self.runtime.store_of()

    async def say(self, text: str, thread: str = "t", **options: Any) -> RunResult:
        """Send a message to the agent in a run of its own."""
        agent = options.pop("agent", Agent())
        options = {"on_event": self.events.append} | options
        return await self.runtime.run(agent, text, thread=thread, **options)

    async def converse(
        self, texts: Sequence[str] = FACTS, thread: str = "t", user: str | None = None
    ) -> None:
        """Send messages one by one while recall is off: the first is node 1, the next node 3."""
        settings = self.runtime.settings
        plain = Runtime(settings, self.runtime.store, ScriptedModel(lambda request: say("Noted.")))
        for text in texts:
            await plain.run(Agent(), text, thread=thread, user=user)

    async def embed(self, thread: str = "t", user: str | None = None) -> None:
        """Embed a thread by a run on it."""
        await self.say("Hm.", thread, user=user)
        await embedded(self.runtime.store.of(user or self.runtime.settings.user), thread)

    async def prepare(
        self, texts: Sequence[str] = FACTS, thread: str = "t", user: str | None = None
    ) -> None:
        """Send messages and embed them."""
        await self.converse(texts, thread, user)
        await self.embed(thread, user)

    @property
    def recalled(self) -> list[Event]:
        """The events of recall."""
        return [event for event in self.events if event.kind == "recall"]

    def found(self) -> list[tuple[str, int]]:
        """Return the matches of the last recall, best first."""
        return [(one["thread"], one["node"]) for one in self.recalled[-1].data["found"]]

    def note(self) -> str:
        """Return the recall note in the last prompt; empty if there is none."""
        return "".join(
            message.text for message in self.model.requests[-1].messages if is_recall(message)
        )


def is_recall(message: PromptMessage) -> bool:
    """Return whether a message of a prompt is the recall note."""
    return "Earlier messages that may bear" in message.text


def nodes(note: str) -> list[str]:
    """Return the nodes that a note shows, in its order."""
    return re.findall(r"^\[\w+ \| node (\S+) \|", note, re.MULTILINE)


async def embedded(store: UserStore, thread: str, model: str = NAME) -> None:
    """Wait until every message of a thread's branch has a vector."""
    head = (await store.threads.get(thread)).head
    assert head is not None
    nodes = await store.log.branch(thread, head)
    seqs = [node.seq for node in nodes if not isinstance(decode_message(node.body), Note)]
    with anyio.fail_after(60):
        while await store.vectors.embedded_ids(thread, model, "message", seqs) != seqs:  # noqa: ASYNC110
            # No event reports it: it matters only to a search.
            await anyio.sleep(0.01)


Open = Callable[..., Any]


@pytest.fixture
def world(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Open:
    """Return a function that opens a runtime with recall, whose prompts have few raw messages."""
    monkeypatch.setattr(embedding, "CLOSE_SECONDS", 0.2)

    @asynccontextmanager
    async def opened(
        script: Callable[[ModelRequest], Scripted] = lambda request: say("Noted."),
        embedder: ScriptedEmbedder | None = None,
        **settings: Any,
    ) -> AsyncGenerator[World]:
        configured: dict[str, Any] = {
            "observational_memory": False,
            "last_messages": 2,
            "semantic_recall_top_k": 1,
        }
        embedder = embedder or ScriptedEmbedder()
        model = ScriptedModel(script)
        chosen = Settings(database_url=database_url, **(configured | settings))
        async with Runtime.open(chosen, model=model, embedder=embedder) as runtime:
            yield World(runtime, model, embedder)

    return opened


async def test_the_best_match_is_shown_with_two_messages_before_and_one_after(world: Open) -> None:
    async with world() as one:
        await one.prepare([*FACTS[1:4], FACTS[0], *FACTS[4:]])
        await one.say(QUESTION)
        # The bridge was the fourth message: node 7, after 5 and 6, before 8.
        assert one.found() == [("t", 7)]
        assert nodes(one.note()) == ["5", "6", "7", "8"]
        assert "40,000 kroner" in one.note() and "| user]" in one.note() and " UTC |" in one.note()
        event = one.recalled[-1]
        row = await one.store.log.node("t", event.node_id or 0)
        note = decode_message(row.body)
        assert isinstance(note, Note) and note.source == "recall"
        assert event.data["query"] == row.parent_id and not event.data["why"]
        assert "kroner" not in str(event.data)


@pytest.mark.backends("file")
async def test_recall_notes_stay_in_the_log_and_prompts_only_grow(world: Open) -> None:
    @tool
    def look() -> str:
        """Look."""
        return "nothing"

    def script(request: ModelRequest) -> Scripted:
        if not any(message.text == QUESTION for message in request.messages):
            return say("Noted.")
        results = sum(message.role == "tool" for message in request.messages)
        return call("look") if results < 3 else say("Done.")

    async with world(script, last_messages=6) as one:
        await one.prepare()
        before = len(one.model.requests)
        await one.say(QUESTION, agent=Agent(tools=[look]))
        prompts = [request.messages for request in one.model.requests[before:]]
        assert is_recall(prompts[0][-1]) and prompts[0][-2].text == QUESTION
        assert len(prompts) == 4
        kinds = [event.kind for event in one.events if event.run_id == one.recalled[-1].run_id]
        answers = [place for place, kind in enumerate(kinds) if kind == "answer"]
        grown = 0
        for number, (start, end) in enumerate(itertools.pairwise(answers)):
            if "activation" not in kinds[start:end]:
                shorter, longer = prompts[number : number + 2]
                assert longer[: len(shorter)] == shorter
                grown += 1
        assert grown >= 2


@pytest.mark.backends("file")
async def test_nothing_is_embedded_or_recalled_while_recall_is_off(database_url: str) -> None:
    """Recall is off while no embedder is set."""
    model = ScriptedModel(lambda request: say("Noted."))
    settings = Settings(database_url=database_url, observational_memory=False, last_messages=2)
    events: list[Event] = []
    async with Runtime.open(settings, model=model) as runtime:
        for text in [*FACTS, QUESTION]:
            await runtime.run(Agent(), text, thread="t", on_event=events.append)
        store = runtime.store.of("local")
        assert not await store.vectors.models()
        assert list(await store.spending.usage_by_purpose(thread_id="t")) == ["step"]
        assert await store.jobs.claim("embed", seconds=1) is None
    assert not [event for event in events if event.kind == "recall"]
    assert not any(is_recall(message) for request in model.requests for message in request.messages)


@pytest.mark.backends("file")
async def test_settings_say_how_many_messages_surround_a_match(world: Open) -> None:
    async with world(semantic_recall_before=0, semantic_recall_after=0) as one:
        await one.prepare()
        await one.say(QUESTION)
        assert nodes(one.note()) == ["1"]


@pytest.mark.backends("file")
async def test_overlaps_are_merged(world: Open) -> None:
    async with world(semantic_recall_top_k=3) as one:
        await one.prepare([FACTS[1], FACTS[0], "The Bergen bridge is closed.", *FACTS[2:]])
        await one.say(QUESTION)
        assert {("t", 3), ("t", 5)} <= set(one.found())
        assert len(nodes(one.note())) == len(set(nodes(one.note())))
        assert nodes(one.note())[:6] == ["1", "2", "3", "4", "5", "6"]


@pytest.mark.backends("file")
async def test_messages_in_the_prompt_are_not_recalled(world: Open) -> None:
    async with world(last_messages=50, semantic_recall_top_k=5) as one:
        await one.prepare()
        await one.say(QUESTION)
        assert not one.recalled and not one.note()


@pytest.mark.backends("file")
async def test_messages_in_a_recall_note_are_not_recalled_again(world: Open) -> None:
    async with world(last_messages=4, semantic_recall_before=0, semantic_recall_after=0) as one:
        await one.prepare()
        await one.say(QUESTION)
        first = one.found()
        assert first == [("t", 1)] and is_recall(one.model.requests[-1].messages[-1])
        await one.say(f"Once more: {QUESTION}")
        assert any("40,000" in message.text for message in one.model.requests[-1].messages)
        assert first[0] not in one.found()


@pytest.mark.backends("file")
async def test_recall_stays_within_its_tokens(world: Open) -> None:
    long = [f"{fact} " + "And then there were some more words about it. " * 8 for fact in FACTS]
    async with world(semantic_recall_top_k=5, semantic_recall_tokens=300) as one:
        await one.prepare(long)
        await one.say(QUESTION)
        assert 0 < one.recalled[-1].data["tokens"] <= 300 + 60
        assert "1" in nodes(one.note())
        assert len(one.found()) < 5


async def test_other_threads_are_recalled_only_with_scope_user(world: Open) -> None:
    async with world() as one:
        await one.prepare(FACTS[:3], thread="earlier")
        await one.prepare(FACTS[4:], thread="now")
        await one.say("What did the bridge cost?", thread="now")
        assert ("earlier", 1) not in one.found()
    opened: list[str] = []

    def script(request: ModelRequest) -> Scripted:
        results = [message.text for message in request.messages if message.role == "tool"]
        if not any(message.text == QUESTION for message in request.messages):
            return say("Noted.")
        if not results:
            return call("recall", handle="1@earlier")
        opened.extend(results)
        return say("It was 40,000.")

    async with world(script, semantic_recall_scope="user") as one:
        await one.say(QUESTION, thread="later", agent=Agent(tools=[nothing]))
        assert one.found() == [("earlier", 1)]
        assert nodes(one.note())[0] == "1@earlier"
        assert "40,000 kroner" in opened[0]


@tool
def nothing() -> str:
    """Do nothing."""
    return ""


@pytest.mark.backends("file", "postgres")
async def test_another_owners_messages_are_never_recalled(world: Open) -> None:
    async with world(semantic_recall_scope="user", semantic_recall_top_k=5) as one:
        await one.prepare(FACTS[:2], thread="theirs", user="ada")
        await one.prepare(FACTS[2:4], thread="mine")
        await one.say(QUESTION, thread="mine-too")
        assert {thread for thread, _ in one.found()} == {"mine"}
        assert "kroner" not in one.note()
        theirs = one.runtime.store.of("ada")
        assert [model.vectors for model in await theirs.vectors.models()] == [6]


@pytest.mark.backends("file")
async def test_the_tool_opens_other_threads_only_with_scope_user(world: Open) -> None:
    opened: list[str] = []

    def script(request: ModelRequest) -> Scripted:
        results = [message.text for message in request.messages if message.role == "tool"]
        opened.extend(results)
        return say("Done.") if results else call("recall", handle="1@earlier")

    async with world() as one:
        await one.prepare(FACTS[:1], thread="earlier")
    async with world(script) as one:
        await one.say("Open it.", thread="now", agent=Agent(tools=[nothing]))
    assert "only what is in your own thread" in opened[0] and "kroner" not in opened[0]


@pytest.mark.backends("file", "postgres")
async def test_recall_follows_the_branch(world: Open) -> None:
    async with world() as one:
        await one.prepare([FACTS[1], FACTS[0]])
        # On another branch the bridge was never mentioned.
        await branches.fork(one.store, "t", 2)
        await one.prepare(FACTS[2:])
        await one.say(QUESTION)
        assert ("t", 3) not in one.found() and "kroner" not in one.note()


@pytest.mark.backends("file")
async def test_a_steer_triggers_recall(world: Open) -> None:
    asked = anyio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        asked.set()
        await steered.wait()
        return "waited"

    steered = anyio.Event()

    def script(request: ModelRequest) -> Scripted:
        if not any("Work on something" in message.text for message in request.messages):
            return say("Noted.")
        return say("Ok.") if any(m.role == "tool" for m in request.messages) else call("wait")

    async with world(script) as one:
        await one.prepare()
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: one.say("Work on something.", agent=Agent(tools=[wait])))
            await asked.wait()
            run = next(e for e in reversed(one.events) if e.kind == "run-start").run_id
            await one.runtime.steer(run, QUESTION)
            steered.set()
        assert one.found() == [("t", 1)]
        assert "40,000 kroner" in one.note()


@pytest.mark.parametrize(
    ("note", "words"),
    [
        ("The user says, while you work: Use port 8443: it is free.", "Use port 8443: it is free."),
        (f"{GO_ON['plan']} Ask Ada.", " Ask Ada."),
        (GO_ON["repeats"], None),
    ],
)
def test_only_the_users_own_words_in_a_steer_are_searched_for(note: str, words: str | None) -> None:
    entry = Entry(seq=3, parent_id=2, message=Note(note, source="steer"))
    view = view_of(0, None, ActivationContent(nonce="abc"), PromptPrefix(""), None, [entry])
    assert newest_user_message(view) == (words and (3, words))


@pytest.mark.backends("file")
async def test_a_sub_agent_has_only_its_briefing(world: Open) -> None:
    prompts: list[str] = []
    child = Agent(ScriptedModel(lambda request: seen(request)), name="child")

    def seen(request: ModelRequest) -> Scripted:
        prompts.extend(message.text for message in request.messages)
        return say("I do not know.")

    @tool
    async def delegate(context: ToolContext) -> str:
        """Ask a sub-agent."""
        return (await context.run_agent(child, QUESTION)).output

    def script(request: ModelRequest) -> Scripted:
        if not any(message.text == "Delegate it." for message in request.messages):
            return say("Noted.")
        return say("Ok.") if any(m.role == "tool" for m in request.messages) else call("delegate")

    async with world(script, semantic_recall_scope="user") as one:
        await one.prepare(FACTS[:3])
        await one.say("Delegate it.", agent=Agent(tools=[delegate]))
    assert QUESTION in prompts and not any("kroner" in text for text in prompts)


@pytest.mark.backends("file")
@pytest.mark.parametrize("mode", ["text", "vectors"])
async def test_each_search_mode_can_be_chosen(world: Open, mode: str) -> None:
    async with world(semantic_recall_mode=mode) as one:
        await one.converse()
        await (one.say("Hm.") if mode == "text" else one.embed())
        await one.say(QUESTION)
        assert one.found() == [("t", 1)]
        assert bool(one.embedder.requests) == (mode == "vectors")


@pytest.mark.backends("file")
async def test_an_old_thread_is_searched_by_text_until_it_has_vectors(world: Open) -> None:
    async with world(semantic_recall_mode="vectors") as one:
        await one.converse()
        await one.say(QUESTION)
        assert one.found() == [("t", 1)]
        why = one.recalled[-1].data["why"]
        assert "have no vectors yet; full text was searched" in why
        await embedded(one.store, "t")
        await one.say("Who plays the cello?")
        assert ("t", 9) in one.found()
        assert one.recalled[-1].data["why"] == ""


# Failures


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
    async with world(embedder=ScriptedEmbedder(broken(kind)), semantic_recall_timeout=0.3) as one:
        await one.prepare()
        result = await one.say(QUESTION)
        assert result.ok and one.found() == [("t", 1)]
        assert one.recalled[-1].data["why"]
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


@pytest.mark.backends("file")
@pytest.mark.parametrize("mode", ["hybrid", "vectors", "text"])
async def test_small_talk_recalls_nothing_and_an_event_says_so(world: Open, mode: str) -> None:
    async with world(semantic_recall_top_k=5, semantic_recall_mode=mode) as one:
        await one.converse([*FACTS, "Good morning! Thank you!", "Danke!", "Well, so be it.", "Hm."])
        for text in ("Thanks!", "ok", "Good morning", "Vielen Dank!", "谢谢"):
            await one.say(text)
            assert not one.found() and not one.note()
            assert one.recalled[-1].data["why"] == "Nothing fits."
        await one.say(QUESTION)
        assert one.found()[0] == ("t", 1)


@pytest.mark.backends("file")
async def test_a_message_about_something_else_recalls_nothing(world: Open) -> None:
    async with world(semantic_recall_mode="text") as one:
        await one.converse()
        await one.say("Please convert the machine-readable list of tensor shapes into YAML files.")
        assert not one.found() and one.recalled[-1].data["why"] == "Nothing fits."
        await one.say("Does the coffee machine need anything?")
        assert one.found() == [("t", 7)]


@pytest.mark.backends("file")
async def test_a_thread_without_earlier_messages_has_no_event_of_recall(world: Open) -> None:
    async with world() as one:
        await one.say("Thanks!")
        await one.say(QUESTION, thread="other")
        assert not one.recalled


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
