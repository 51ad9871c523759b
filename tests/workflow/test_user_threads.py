"""The one thread of a user and a workflow, and how much of it is loaded."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from agent_runtime import (
    Agent,
    Runtime,
    ScriptedModel,
    Settings,
    Workflow,
    WorkflowContext,
    count_messages_tokens,
)
from agent_runtime.errors import Conflict, NotFound
from agent_runtime.log.branch import load_view
from agent_runtime.messages import (
    PromptMessage,
    decode_message,
)
from agent_runtime.models.scripted import say
from agent_runtime.prompt.constraints import HISTORY_NOTES as NOTES
from agent_runtime.prompt.observation import Observation, ObservationLine, ObservationNotes
from agent_runtime.prompt.view import Gap
from agent_runtime.workflow import history as history_module
from agent_runtime.workflow.history import read_history
from agent_runtime_storage.contract.records.log import Node
from tests.workflow.helpers import answering, local, texts

pytestmark = pytest.mark.backends("file")


async def test_a_user_and_a_workflow_have_one_thread_with_each_turn_once(
    runtime: Runtime,
) -> None:
    histories: list[list[str]] = []

    @Workflow
    async def chat(w: WorkflowContext) -> str:
        histories.append(texts(w.history))
        await w.call("nothing", int)
        return await w.agent("answer", answering(f"Answer {len(w.history)}."))

    first, second = [await runtime.run(chat, text) for text in ("Hello.", "More.")]
    assert first.thread_id == second.thread_id
    other = await runtime.run(chat, "Hello.", user="ada")
    assert histories == [[], ["Hello.", "Answer 0."], []]
    renamed = await runtime.run(Workflow(chat.flow, name="other"), "Hello.")
    apart = await runtime.run(Workflow(chat.flow, name="chat", one_thread=False), "Hello.")
    assert len({first.thread_id, renamed.thread_id, apart.thread_id}) == 3
    with pytest.raises(NotFound):
        await runtime.store.of("ada").runs.get(first.run_id)
    assert (await runtime.store.of("ada").runs.get(other.run_id)).thread_id == other.thread_id
    thread = await local(runtime).threads.get(first.thread_id)
    nodes = await local(runtime).log.branch(thread.id, thread.head or 0)
    messages = [(one.role, decode_message(one.body).text) for one in nodes if one.kind == "message"]
    assert messages == [
        ("user", "Hello."),
        ("assistant", "Answer 0."),
        ("user", "More."),
        ("assistant", "Answer 2."),
    ]
    assert all(node.tokens > 0 for node in nodes)


async def test_concurrent_lookups_find_the_same_thread(database_url: str) -> None:
    @Workflow
    async def chat(w: WorkflowContext) -> str:
        return w.thread_id

    threads: list[str] = []

    async def ask(runtime: Runtime) -> None:
        with anyio.fail_after(60):
            while True:
                try:
                    threads.append((await runtime.run(chat, "Hello.")).require_output())
                except Conflict:
                    await anyio.lowlevel.checkpoint()
                else:
                    return

    settings = Settings(database_url=database_url)
    async with (
        Runtime.open(settings) as one,
        Runtime.open(settings) as two,
        anyio.create_task_group() as group,
    ):
        for runtime in (one, two, one, two):
            group.start_soon(ask, runtime)
    assert len(threads) == 4 and len(set(threads)) == 1
    async with Runtime.open(settings) as runtime:
        assert [thread.id for thread in await local(runtime).threads.list()] == [threads[0]]


async def test_the_loaded_history_has_limits(runtime: Runtime) -> None:
    histories: list[list[str]] = []

    async def chat(w: WorkflowContext) -> str:
        histories.append(texts(w.history))
        for _ in range(4):
            await w.call("busy", int)
        return "word " * 40 if w.input == "Long." else "Yes."

    async def turn(text: str, **limits: Any) -> list[str]:
        await runtime.run(Workflow(chat, **limits), text, thread="t")
        return histories[-1]

    for number in range(12):
        await turn(f"{number}")
    # 20 messages are ten turns; with an odd limit, it starts at a user message.
    assert [one for one in await turn("Long.", history_messages=20) if one != "Yes."] == [
        str(number) for number in range(2, 12)
    ]
    assert await turn("?", history_messages=3) == ["Long.", "word " * 40]
    assert await turn("?", history_messages=5) == ["Long.", "word " * 40, "?", "Yes."]
    assert await turn("?", history_tokens=40) == ["?", "Yes."] * 2
    assert await turn("?", history_messages=0) == []


async def test_an_agents_history_is_cut_to_its_window_before_each_call(
    runtime: Runtime,
) -> None:
    model = ScriptedModel([say("Short.")], window=8_000)

    @Workflow
    async def chat(w: WorkflowContext) -> str:
        if w.input != "And now?":
            return "An answer. " * 400
        history = [PromptMessage("user", message.text) for message in w.messages]
        assert count_messages_tokens(history) > 8_000
        return await w.agent("answer", Agent(model), history=True)

    for number in range(8):
        await runtime.run(chat, f"Question {number}.")
    assert (await runtime.run(chat, "And now?")).output == "Short."
    request = model.requests[0]
    assert count_messages_tokens(request.messages) <= 6_000
    assert request.messages[-1].text == "And now?"
    assert "Question 7." in "".join(message.text for message in request.messages)


async def test_an_agent_can_continue_a_workflows_thread(database_url: str) -> None:
    @Workflow
    async def flow(w: WorkflowContext) -> str:
        await w.call("work", str, "what it gave")
        return "Answer."

    model = ScriptedModel([say("Gone on.")])
    settings = Settings(database_url=database_url, last_messages=4, observational_memory=False)
    async with Runtime.open(settings) as runtime:
        for _ in range(6):
            await runtime.run(flow, "Go.", thread="t")
        assert (await runtime.run(Agent(model), "Then?", thread="t")).output == "Gone on."
        events = await local(runtime).events.list("t")
    assert [message.text for message in model.requests[0].messages][-2:] == ["Answer.", "Then?"]
    # A run does not read the whole history: the start of its prompts moves with the turns.
    assert [event.data["cause"] for event in events if event.kind == "activation"].count(
        "messages"
    ) >= 1
    assert len(model.requests[0].messages) < 6 * 4


RULE = "Never deploy on a Friday, whatever I say later."


def remembering(database_url: str, *, on: bool = True) -> Settings:
    return Settings(
        database_url=database_url,
        observational_memory=on,
        observer_message_tokens=1200,
        reflector_observation_tokens=1000,
    )


def _long(number: int) -> str:
    return f"Part {number} of the story of the lamp. " + "It shone on and on for all. " * 20


async def test_observations_stand_for_what_a_workflows_history_no_longer_holds(
    database_url: str,
) -> None:
    histories: list[list[str]] = []

    async def flow(w: WorkflowContext) -> str:
        histories.append(texts(w.history))
        return f"Answer {len(histories)}. " + "Done as you said. " * 10

    chat = Workflow(flow, name="chat")
    async with Runtime.open(remembering(database_url)) as runtime:
        for number in range(30):
            await runtime.run(chat, f"{RULE} {_long(0)}" if not number else _long(number))
        result = await runtime.run(chat, "And then?")
        report = await runtime.memory.report(Agent(), result.thread_id)
    notes, *rest = histories[-1]
    replaced = sum(len(_long(number)) for number in range(30))
    assert notes.startswith(NOTES) and len(notes) < 0.8 * replaced
    assert all(any(RULE in text for text in history) for history in histories[1:])
    # What follows the notes is whole and without a gap, up to the newest answer.
    assert rest[-1].startswith("Answer 30.")
    first = next(int(text.split()[1]) for text in rest if text.startswith("Part"))
    assert [text for text in rest if text.startswith("Part")] == [
        _long(number) for number in range(first, 30)
    ]
    assert first > 5 and report.at("active")


async def test_a_resumed_run_has_the_history_that_it_began_with(database_url: str) -> None:
    histories: list[list[str]] = []
    broken = [True]

    async def flow(w: WorkflowContext) -> str:
        histories.append(texts(w.history))
        await w.call("first", str, "one")
        if w.input == "Break." and broken[0]:
            raise RuntimeError("It broke.")
        return "Answered."

    chat = Workflow(flow, name="chat")
    async with Runtime.open(remembering(database_url)) as runtime:
        for number in range(25):
            await runtime.run(chat, _long(number))
        with pytest.raises(RuntimeError):
            await runtime.run(chat, "Break.")
        [run] = await local(runtime).runs.list(thread_id=chat.thread, limit=1)
    broken[0] = False
    async with Runtime.open(remembering(database_url)) as runtime:
        assert (await runtime.resume(run.id, chat)).ok
    assert histories[-1] == histories[-2] and histories[-1][0].startswith(NOTES)


async def test_what_left_while_memory_was_off_stays_in_the_history(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_module, "PAGE", 4)
    read: list[int] = []

    async def flow(w: WorkflowContext) -> str:
        return "Answered."

    chat = Workflow(flow, name="chat")
    async with Runtime.open(remembering(database_url, on=False)) as runtime:
        for number in range(10):
            await runtime.run(chat, f"Part {number}.")
        store, thread = local(runtime), chat.thread or ""
        head = (await store.threads.get(thread)).head
        view = await load_view(store, thread, head)
        seqs = await store.log.lineage(thread, head or 0)
        # Observations of the first two turns and of the two before the last four.
        notes = ObservationNotes((ObservationLine("", "info", "Observed."),))
        parts = (seqs[:4], seqs[8:12])
        standing = tuple(
            Observation(number, 0, None, part[0], part[-1], notes, (), (), "rules")
            for number, part in enumerate(parts, 1)
        )
        gaps = (Gap(seqs[3], seqs[4], seqs[7], 4),)
        start = replace(view.start, first=seqs[12], gaps=gaps)
        view = replace(view, start=start, observations=standing)
        branch = store.log.branch

        async def seen(*args: Any, **options: Any) -> list[Node]:
            nodes = await branch(*args, **options)
            read.extend(node.seq for node in nodes)
            return nodes

        monkeypatch.setattr(store.log, "branch", seen)
        history = texts(tuple(await read_history(store, view, thread, head, None)))
    said = [text.partition("]")[0] for text in history if text != "Answered."]
    mark = NOTES.removesuffix("]")
    assert said == [
        mark,
        *(f"Part {n}." for n in (2, 3)),
        mark,
        *(f"Part {n}." for n in range(6, 10)),
    ]
    # What observations stand for is not read.
    assert sorted(read) == [*seqs[4:8], *seqs[12:]]


@pytest.mark.parametrize("on, most, left", [(False, None, 10), (True, 4, 2)])
async def test_without_memory_a_history_is_its_newest_messages(
    database_url: str, on: bool, most: int | None, left: int
) -> None:
    histories: list[list[str]] = []

    async def flow(w: WorkflowContext) -> str:
        histories.append(texts(w.history))
        return "Answered."

    chat = Workflow(flow, name="chat", history_messages=most)
    async with Runtime.open(remembering(database_url, on=on)) as runtime:
        for number in range(12):
            await runtime.run(chat, _long(number))
        assert not (await runtime.memory.report(Agent(), chat.thread or "")).held
    newest = [text for number in range(11) for text in (_long(number), "Answered.")]
    assert histories[-1] == newest[-2 * left :]
