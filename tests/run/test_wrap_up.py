"""A run near its limits asks its model once to wrap up, while there is room for a last answer."""

from __future__ import annotations

import pytest

from agent_runtime import Agent, ScriptedModel
from agent_runtime.messages import Note
from agent_runtime.models.base import ModelRequest
from agent_runtime.models.scripted import Scripted, call, say
from agent_runtime.run.budget import TimeLimit
from agent_runtime.run.wrap_up import SHARE, WrapUp
from agent_runtime_storage.contract.records.log import Amount
from tests.support.worlds import Play, World, double, play

__all__ = ["play"]

pytestmark = pytest.mark.backends("file")
NEARLY_USED_UP = "This run has nearly used up what it may"


def works_until_warned(request: ModelRequest) -> Scripted:
    """Call a tool until a note asks to wrap up."""
    notes = [message.text for message in request.messages if NEARLY_USED_UP in message.text]
    return say("Wrapped up.") if notes else call("double", number=len(request.messages))


async def notes(world: World, thread: str) -> list[str]:
    """Return the log's notes about limits."""
    head = (await world.store.threads.get(thread)).head or 0
    nodes = await world.store.log.branch(thread, head)
    return [node.body.decode() for node in nodes if b'"limits' in node.body]


async def test_the_last_of_ten_steps_is_left_for_the_answer(play: Play) -> None:
    agent = Agent(ScriptedModel(works_until_warned), tools=[double], max_steps=10)
    async with play() as world:
        result = await world.run(agent)
        assert (result.output, result.steps) == ("Wrapped up.", 10)
        [note] = await notes(world, result.thread_id)
        assert "9 of its 10 steps" in note


async def test_a_run_that_ignores_the_note_gets_it_once_and_is_stopped(play: Play) -> None:
    agent = Agent(ScriptedModel([call("double", number=n) for n in range(20)]), tools=[double])
    async with play(settings={"max_steps": 20}) as world:
        result = await world.run(agent)
        assert (result.stop_reason, result.steps) == ("max_steps", 20)
        assert len(await notes(world, result.thread_id)) == 1


async def test_a_budget_leaves_room_for_the_last_answer(play: Play) -> None:
    agent = Agent(ScriptedModel(works_until_warned), tools=[double])
    async with play(settings={"budget_tokens": 60_000}) as world:
        result = await world.run(agent)
        root = await world.store.runs.get(result.run_id)
        [note] = await notes(world, result.thread_id)
    assert result.output == "Wrapped up."
    assert "of its tokens" in note
    assert root.settled.tokens <= 60_000


async def test_a_run_without_limits_gets_no_note(play: Play) -> None:
    script = [*(call("double", number=n) for n in range(12)), say("done")]
    async with play(script) as world:
        result = await world.run(Agent(tools=[double]))
        assert result.ok and await notes(world, result.thread_id) == []


def test_elapsed_time_counts_from_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    wrap_up = WrapUp()
    wrap_up.start(TimeLimit(60.0, 60.0, "Over."))

    def next_notes() -> list[Note]:
        return wrap_up.notes(steps=[(1, 500)], budgets=(), call=Amount())

    now += SHARE * 60 - 1
    assert next_notes() == []
    now += 1
    [note] = next_notes()
    assert "54 of its 60 seconds" in note.text and note.source == "limits"
    assert next_notes() == []
