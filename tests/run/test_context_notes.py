"""Notes of the context: written once, kept in all prompts, replaced when they change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import anyio
import pytest

from agent_runtime import (
    Agent,
    ContextNote,
    ContextRequest,
    ContextSource,
    Event,
    Runtime,
    ScriptedModel,
)
from agent_runtime.log.branch import load_view
from agent_runtime.models.base import ModelRequest
from agent_runtime.models.scripted import Scripted, call, say
from agent_runtime.prompt.build import build_prompt
from agent_runtime.prompt.context_notes import standing_notes
from agent_runtime.run.context import notes as context_notes
from agent_runtime.tools.function import tool

RULE = "Never push to main."


@dataclass
class Place(ContextSource):
    """Says what a test gives it."""

    said: dict[str, str] = field(default_factory=dict[str, str])
    fail: Callable[[], None] = lambda: None

    async def notes(self, request: ContextRequest) -> Sequence[ContextNote]:
        """Return its notes."""
        await anyio.lowlevel.checkpoint()
        self.fail()
        return [ContextNote(topic, text) for topic, text in self.said.items()]


class Script:
    """Calls the tool `look` for some steps of each run, and records the requests."""

    def __init__(self, steps: int = 0) -> None:
        self.left = self.steps = steps
        self.requests: list[ModelRequest] = []

    def __call__(self, request: ModelRequest) -> Scripted:
        """Answer."""
        self.requests.append(request)
        self.left -= 1
        if self.left >= 0:
            return call("look", number=self.left)
        self.left = self.steps
        return say("Done.")

    def texts(self, index: int) -> list[str]:
        """Return the texts of a request's messages after the system prompt."""
        return [one.text for one in self.requests[index].messages[1:]]


@tool
def look(number: int) -> str:
    """Look."""
    return f"part {number}\n" + "what was seen there, in a few words\n" * 20


def agent_of(script: Script, *sources: ContextSource) -> Agent:
    """Return an agent with these sources."""
    return Agent(ScriptedModel(script), tools=[look], last_messages=6, context=sources)


async def standing(runtime: Runtime, thread: str = "t") -> dict[str | None, str]:
    """Return the notes that hold on a thread, read from the store."""
    store = runtime.store.of("local")
    view = await load_view(store, thread, (await store.threads.get(thread)).head)
    return {topic: note.text for topic, note in standing_notes(view).items()}


async def test_the_first_prompt_has_the_notes_before_the_task(runtime: Runtime) -> None:
    script = Script()
    source = Place({"the place": "You are in Bergen.", "the rules": RULE})
    await runtime.run(agent_of(script, source), "Look.", thread="t")
    place, rules, task = script.texts(0)
    assert "You are in Bergen." in place and place.startswith("<runtime-note ")
    assert RULE in rules
    assert task == "Look."


async def test_the_notes_stay_when_their_nodes_leave_and_are_no_constraints(
    runtime: Runtime,
) -> None:
    script, events = Script(40), list[Event]()
    agent = agent_of(script, Place({"the rules": RULE}))
    await runtime.run(agent, "Look.", thread="t", on_event=events.append)
    activations = [one for one in events if one.kind == "activation"]
    assert len(activations) > 2
    for index in range(len(script.requests)):
        assert sum(RULE in text for text in script.texts(index)) == 1
    store = runtime.store.of("local")
    view = await load_view(store, "t", (await store.threads.get("t")).head)
    assert [one.seq for one in view.context] == [1] and view.start.first is not None
    # The store gives the prompt that was sent.
    sent = script.requests[-1].messages
    assert build_prompt(view).messages[: len(sent)] == sent
    # Only the user's words bind as the user's.
    assert not view.start.constraints.items
    # The same bytes in the same place throughout, for the provider's cache.
    assert len({one.messages[1] for one in script.requests}) == 1


async def test_the_next_task_is_told_what_changed_and_nothing_else(runtime: Runtime) -> None:
    script = Script()
    source = Place({"the place": "Bergen", "the weather": "rain", "the rules": RULE})
    await runtime.run(agent_of(script, source), "Look.", thread="t")
    source.said["the weather"] = "snow"
    del source.said["the rules"]
    await runtime.run(agent_of(script, source), "Look again.", thread="t")
    new = script.texts(1)[len(script.texts(0)) :]
    assert [text for text in new if "Bergen" in text] == []
    assert sum("snow" in text for text in new) == 1
    assert sum("the rules said holds no longer" in text for text in new) == 1
    assert await standing(runtime) == {"the place": "Bergen", "the weather": "snow"}
    before, after = (one.messages for one in script.requests)
    assert after[: len(before)] == before


async def test_a_replaced_note_leaves_the_front(runtime: Runtime) -> None:
    script = Script(20)
    source = Place({"the weather": "rain in Bergen"})
    await runtime.run(agent_of(script, source), "Look.", thread="t")
    source.said["the weather"] = "snow in Bergen"
    await runtime.run(agent_of(script, source), "Look.", thread="t")
    last = "\n".join(script.texts(-1))
    assert "snow in Bergen" in last and "rain in Bergen" not in last


async def test_what_a_failing_source_said_stands(
    runtime: Runtime, caplog: pytest.LogCaptureFixture
) -> None:
    script = Script()
    source = Place({"the place": "Bergen"})
    await runtime.run(agent_of(script, source), "Look.", thread="t")

    def fail() -> None:
        raise OSError("secret")

    source.fail = fail
    assert (await runtime.run(agent_of(script, source), "Look.", thread="t")).ok
    assert await standing(runtime) == {"the place": "Bergen"}
    assert "Place failed: OSError" in caplog.text and "secret" not in caplog.text


async def test_a_slow_source_does_not_hold_up_a_run(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Slow(Place):
        async def notes(self, request: ContextRequest) -> Sequence[ContextNote]:
            await anyio.sleep_forever()
            return ()

    monkeypatch.setattr(context_notes, "SECONDS", 0.01)
    assert (await runtime.run(agent_of(Script(), Slow()), "Look.", thread="t")).ok
    assert "took longer" in caplog.text


async def test_an_agent_without_sources_ends_what_others_said(runtime: Runtime) -> None:
    script = Script()
    await runtime.run(agent_of(script, Place({"the place": "Bergen"})), "Look.", thread="t")
    await runtime.run(agent_of(script), "Look.", thread="t")
    assert await standing(runtime) == {}
    assert "the place said holds no longer" in "\n".join(script.texts(1))


async def test_a_resumed_run_is_told_what_changed(runtime: Runtime) -> None:
    source = Place({"the place": "Bergen"})
    script = Script(1)

    def steps(request: ModelRequest) -> Scripted:
        answer = script(request)
        if len(script.requests) == 2:
            raise KeyboardInterrupt
        return answer

    agent = Agent(ScriptedModel(steps), tools=[look], context=[source])
    with pytest.raises(KeyboardInterrupt):
        await runtime.run(agent, "Look.", thread="t")
    source.said["the place"] = "Oslo"
    run = (await runtime.store.of("local").runs.list(thread_id="t"))[0]
    assert (await runtime.resume(run.id, agent)).ok
    assert "Oslo" in "\n".join(script.texts(-1))
    assert await standing(runtime) == {"the place": "Oslo"}
