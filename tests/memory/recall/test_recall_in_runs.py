"""Semantic recall in whole runs: what a turn recalls, and what it leaves out."""

from __future__ import annotations

import itertools

import anyio
import pytest

from agent_runtime import Agent, Event, Runtime, ScriptedModel, Settings, tool
from agent_runtime.log import branches
from agent_runtime.memory.recall.retriever import newest_user_message
from agent_runtime.messages import Note, decode_message
from agent_runtime.models.base import ModelRequest
from agent_runtime.models.scripted import Scripted, call, say
from agent_runtime.prompt.build import view_of
from agent_runtime.prompt.view import ActivationContent, Entry, PromptPrefix
from agent_runtime.run.guard.repeats import GO_ON
from agent_runtime.tools.context import ToolContext
from tests.memory.recall.recalling import (
    FACTS,
    QUESTION,
    Open,
    embedded,
    is_recall,
    nodes,
    world,
)

__all__ = ["world"]


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
async def test_recall_notes_date_messages_in_the_zone_of_prompts(world: Open) -> None:
    async with world(timezone="Asia/Kathmandu") as one:
        await one.prepare(FACTS)
        await one.say(QUESTION)
        assert " Asia/Kathmandu |" in one.note() and " UTC |" not in one.note()


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


@pytest.mark.backends("file")
async def test_what_sub_agents_saw_is_not_recalled_in_other_threads(world: Open) -> None:
    @tool
    def look() -> str:
        """Look."""
        return FACTS[0]

    def work(request: ModelRequest) -> Scripted:
        return say("Done.") if any(m.role == "tool" for m in request.messages) else call("look")

    child = Agent(ScriptedModel(work), name="child", tools=[look])

    @tool
    async def delegate(context: ToolContext) -> str:
        """Ask a sub-agent."""
        return (await context.run_agent(child, "Look.")).output

    def script(request: ModelRequest) -> Scripted:
        if not any(message.text == "Delegate it." for message in request.messages):
            return say("Noted.")
        return say("Ok.") if any(m.role == "tool" for m in request.messages) else call("delegate")

    settings = {"semantic_recall_scope": "user", "semantic_recall_mode": "text"}
    async with world(script, semantic_recall_top_k=5, **settings) as one:
        await one.say("Delegate it.", agent=Agent(tools=[delegate]))
        await one.say("The Bergen bridge is blue, and its budget is public.", thread="own")
        await one.say(QUESTION, thread="other")
        assert {thread for thread, _ in one.found()} == {"own"}
        assert "kroner" not in one.note()


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
