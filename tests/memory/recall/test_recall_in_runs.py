"""Semantic recall in whole runs: what comes before a turn, what does not, and what may fail."""

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
from agent_runtime.messages import Note, PromptMessage, decode_message
from agent_runtime.models.base import ModelRequest
from agent_runtime.models.embedding import ScriptedEmbedder, Vector
from agent_runtime.models.scripted import Scripted, call, say
from agent_runtime.tools.context import ToolContext
from agent_runtime_storage import UserStore

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
    """A runtime with recall, what its model was sent and what happened."""

    runtime: Runtime
    model: ScriptedModel
    embedder: ScriptedEmbedder
    events: list[Event] = field(default_factory=list[Event])

    @property
    def store(self) -> UserStore:
        """The store as the runs' owner sees it."""
        return self.runtime.store.of(self.runtime.settings.user)

    async def say(self, text: str, thread: str = "t", **options: Any) -> RunResult:
        """Say something to the agent in a run of its own."""
        agent = options.pop("agent", Agent())
        options = {"on_event": self.events.append} | options
        return await self.runtime.run(agent, text, thread=thread, **options)

    async def tell(
        self, texts: Sequence[str] = FACTS, thread: str = "t", user: str | None = None
    ) -> None:
        """Say texts one after another while recall is off: the first is node 1, the next node 3."""
        settings = self.runtime.settings
        plain = Runtime(settings, self.runtime.store, ScriptedModel(lambda request: say("Noted.")))
        for text in texts:
            await plain.run(Agent(), text, thread=thread, user=user)

    async def embed(self, thread: str = "t", user: str | None = None) -> None:
        """Have a thread embedded, by a run on it."""
        await self.say("Hm.", thread, user=user)
        await embedded(self.runtime.store.of(user or self.runtime.settings.user), thread)

    async def prepare(
        self, texts: Sequence[str] = FACTS, thread: str = "t", user: str | None = None
    ) -> None:
        """Say texts, and have them embedded."""
        await self.tell(texts, thread, user)
        await self.embed(thread, user)

    @property
    def recalled(self) -> list[Event]:
        """The events of recall."""
        return [event for event in self.events if event.kind == "recall"]

    def found(self) -> list[tuple[str, int]]:
        """Return the matches of the last recall, the best first."""
        return [(one["thread"], one["node"]) for one in self.recalled[-1].data["found"]]

    def note(self) -> str:
        """Return the recall note in the last prompt; empty if there is none."""
        return "".join(one.text for one in self.model.requests[-1].messages if is_recall(one))


def is_recall(message: PromptMessage) -> bool:
    """Return whether a message of a prompt is what was recalled."""
    return "Earlier messages that may bear" in message.text


def nodes(note: str) -> list[str]:
    """Return the nodes that a note shows, in its order."""
    return re.findall(r"^\[\w+ \| node (\S+) \|", note, re.MULTILINE)


async def embedded(store: UserStore, thread: str, model: str = NAME) -> None:
    """Wait until every message of a thread's branch has a vector."""
    head = (await store.threads.get(thread)).head
    assert head is not None
    kept = await store.log.branch(thread, head)
    said = [node.seq for node in kept if not isinstance(decode_message(node.body), Note)]
    with anyio.fail_after(60):
        while await store.vectors.embedded_ids(thread, model, "message", said) != said:  # noqa: ASYNC110
            # Nobody tells of it: it is of no use to anybody but a search.
            await anyio.sleep(0.01)


Open = Callable[..., Any]


@pytest.fixture
def world(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Open:
    """Return what opens a runtime with recall, whose prompts have few raw messages."""
    monkeypatch.setattr(embedding, "CLOSE_SECONDS", 0.2)

    @asynccontextmanager
    async def opened(
        script: Callable[[ModelRequest], Scripted] = lambda request: say("Noted."),
        embedder: ScriptedEmbedder | None = None,
        **settings: Any,
    ) -> AsyncGenerator[World]:
        given: dict[str, Any] = {
            "observational_memory": False,
            "last_messages": 2,
            "semantic_recall_top_k": 1,
        }
        embedder = embedder or ScriptedEmbedder()
        model = ScriptedModel(script)
        chosen = Settings(database_url=database_url, **(given | settings))
        async with Runtime.open(chosen, model=model, embedder=embedder) as runtime:
            yield World(runtime, model, embedder)

    return opened


async def test_the_best_match_comes_with_two_messages_before_and_one_after(world: Open) -> None:
    async with world() as one:
        await one.prepare([*FACTS[1:4], FACTS[0], *FACTS[4:]])
        await one.say(QUESTION)
        # The bridge was the fourth thing said: node 7, after 5 and 6, before 8.
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
async def test_recall_stays_in_the_log_so_that_prompts_only_grow(world: Open) -> None:
    @tool
    def look() -> str:
        """Look."""
        return "nothing"

    def script(request: ModelRequest) -> Scripted:
        if not any(message.text == QUESTION for message in request.messages):
            return say("Noted.")
        asked = sum(message.role == "tool" for message in request.messages)
        return call("look") if asked < 3 else say("Done.")

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
async def test_nothing_is_embedded_or_recalled_while_it_is_off(database_url: str) -> None:
    """That is: while the embedder is empty."""
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
    assert not any(is_recall(one) for request in model.requests for one in request.messages)


@pytest.mark.backends("file")
async def test_how_many_come_before_and_after_is_a_setting(world: Open) -> None:
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
async def test_what_the_prompt_shows_already_is_left_out(world: Open) -> None:
    async with world(last_messages=50, semantic_recall_top_k=5) as one:
        await one.prepare()
        await one.say(QUESTION)
        assert not one.recalled and not one.note()


@pytest.mark.backends("file")
async def test_what_a_recall_note_shows_is_not_recalled_again(world: Open) -> None:
    async with world(last_messages=4, semantic_recall_before=0, semantic_recall_after=0) as one:
        await one.prepare()
        await one.say(QUESTION)
        first = one.found()
        assert first == [("t", 1)] and is_recall(one.model.requests[-1].messages[-1])
        await one.say(f"Once more: {QUESTION}")
        assert any("40,000" in message.text for message in one.model.requests[-1].messages)
        assert first[0] not in one.found()


@pytest.mark.backends("file")
async def test_recall_keeps_to_its_tokens(world: Open) -> None:
    long = [f"{fact} " + "And then there were some more words about it. " * 8 for fact in FACTS]
    async with world(semantic_recall_top_k=5, semantic_recall_tokens=300) as one:
        await one.prepare(long)
        await one.say(QUESTION)
        assert 0 < one.recalled[0].data["tokens"] <= 300 + 60
        assert "1" in nodes(one.note())
        assert len(one.found()) < 5


async def test_another_threads_messages_come_by_the_scope_user_only(world: Open) -> None:
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
async def test_the_tool_opens_other_threads_by_the_scope_user_only(world: Open) -> None:
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
        # Another branch: as if the bridge had never been spoken of.
        await branches.fork(one.store, "t", 2)
        await one.prepare(FACTS[2:])
        await one.say(QUESTION)
        assert ("t", 3) not in one.found() and "kroner" not in one.note()


@pytest.mark.backends("file")
async def test_a_steer_is_recalled_for_too(world: Open) -> None:
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
async def test_the_plain_forms_can_be_chosen(world: Open, mode: str) -> None:
    async with world(semantic_recall_mode=mode) as one:
        await one.tell()
        await (one.say("Hm.") if mode == "text" else one.embed())
        await one.say(QUESTION)
        assert one.found() == [("t", 1)]
        assert bool(one.embedder.requests) == (mode == "vectors")


# What may fail


def broken(kind: str) -> Any:
    """Return what an embedder does that embeds passages well and fails on the question."""
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
        assert len([one for one in caplog.records if "Semantic recall" in one.message]) == 1
        # It is not called for a while, and the failure is not logged again.
        await one.say(QUESTION.replace("large", "big"))
        assert len([one for one in caplog.records if "Semantic recall" in one.message]) == 1


@pytest.mark.backends("file")
async def test_an_embedder_that_is_down_fails_no_turn(
    world: Open, caplog: pytest.LogCaptureFixture
) -> None:
    async def down(texts: Sequence[str]) -> Sequence[Vector]:
        raise OSError("no network")

    async with world(embedder=ScriptedEmbedder(down)) as one:
        await one.tell()
        assert (await one.say("Hm.")).ok
        assert (await one.say(QUESTION)).ok
        assert one.found() == [("t", 1)]
        assert len(one.embedder.requests) == 1
        assert len([one for one in caplog.records if "Semantic recall" in one.message]) == 1
        assert len([event for event in one.recalled if event.data["why"]]) == 1


class Unusable(ScriptedEmbedder):
    """An embedder whose check fails."""

    async def check(self) -> None:
        raise ModelAuthError("The key is missing.")


@pytest.mark.backends("file")
async def test_an_embedder_of_any_class_is_checked_before_its_first_call(world: Open) -> None:
    embedder = Unusable()
    async with world(embedder=embedder) as one:
        await one.tell()
        assert (await one.say(QUESTION)).ok
        assert one.found() == [("t", 1)]
        assert one.recalled[-1].data["why"] == "The key is missing."
        assert embedder.requests == []


@pytest.mark.backends("file")
async def test_by_vectors_alone_nothing_stands_in(world: Open) -> None:
    embedder = ScriptedEmbedder(broken("raises"))
    async with world(embedder=embedder, semantic_recall_mode="vectors") as one:
        await one.prepare()
        assert (await one.say(QUESTION)).ok
        assert one.recalled[-1].data == one.recalled[-1].data | {"found": [], "mode": "vectors"}
        assert "RuntimeError" in one.recalled[-1].data["why"]


# What it costs


@pytest.mark.backends("file", "postgres")
async def test_embedding_is_booked_and_counts_in_the_budget(world: Open) -> None:
    embedder = ScriptedEmbedder(price=5)
    async with world(embedder=embedder, budget_usd=1.0) as one:
        await one.prepare(FACTS[:3])
        result = await one.say(QUESTION)
        spent = result.usage_by_purpose["embed"]
        assert spent.calls >= 1 and spent.cost == 5 * spent.prompt_tokens > 0
        run = await one.store.runs.get(result.run_id)
        # Booked in the run is what the question cost; what follows it is booked late.
        assert run.settled.cost >= 5 * len(QUESTION.split())
        await embedded(one.store, "t")
        total = await one.store.spending.usage_by_purpose(thread_id="t")
        asked = [text for texts in embedder.requests for text in texts]
        assert len(set(asked)) == len(asked)
        assert total["embed"].calls == len(embedder.requests)


@pytest.mark.backends("file")
async def test_a_spent_budget_stops_embedding_and_not_the_run(world: Open) -> None:
    async with world(embedder=ScriptedEmbedder(price=10**12), budget_usd=1.0) as one:
        await one.tell()
        assert (await one.say(QUESTION)).ok
        assert "budget" in one.recalled[-1].data["why"]
        assert one.found() == [("t", 1)]


@pytest.mark.backends("file")
async def test_an_embedder_without_a_price_is_not_asked_under_a_budget_in_dollars(
    world: Open, caplog: pytest.LogCaptureFixture
) -> None:
    async with world(embedder=ScriptedEmbedder(price=None), budget_usd=1.0) as one:
        await one.tell()
        await one.say(QUESTION)
        assert one.found() == [("t", 1)] and not one.embedder.requests
    assert "price of scripted-embedder is unknown" in caplog.text
