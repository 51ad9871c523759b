"""Branches through the runtime: edit, regenerate and fork, and the prompts afterwards."""

from __future__ import annotations

import anyio
import pytest

from agent_runtime import Agent, ScriptedModel, tool
from agent_runtime.errors import Conflict, NotFound, ThreadBusy
from agent_runtime.log import branches
from agent_runtime.messages import UserMessage, decode_message
from agent_runtime.models.scripted import call, say
from tests.support.worlds import Play, World, double

AGENT = Agent(tools=[double])


async def texts(world: World, thread: str) -> list[str]:
    """Return the texts of the thread's branch, from the log."""
    head = (await world.store.threads.get(thread)).head
    nodes = [] if head is None else await world.store.log.branch(thread, head)
    return [decode_message(node.body).text for node in nodes]


def sent(world: World) -> list[str]:
    """Return the texts of the last prompt, without the system prompt."""
    assert isinstance(world.model, ScriptedModel)
    return [message.text for message in world.model.requests[-1].messages[1:]]


async def talk(world: World, *messages: str) -> str:
    """Send messages in turn on one thread; return its id."""
    for text in messages:
        await world.run(AGENT, text, thread="t")
    return "t"


async def test_regenerating_answers_again_and_keeps_the_first_answer(play: Play) -> None:
    script = [say("One."), call("double", number=4), say("Two."), say("Two, again.")]
    async with play(script) as world:
        thread = await talk(world, "First.", "Second.")
        question = (await world.store.log.branch(thread, (await world.row()).task_id or 0))[-1]
        result = await world.runtime.regenerate(AGENT, thread)
        assert result.output == "Two, again."
        assert sent(world) == ["First.", "One.", "Second."]
        assert await texts(world, thread) == ["First.", "One.", "Second.", "Two, again."]
        siblings = await world.store.log.children(thread, question.seq)
        assert [decode_message(node.body).text for node in siblings] == ["", "Two, again."]


async def test_an_edited_message_replaces_the_old_one(play: Play) -> None:
    script = [say("One."), say("Two."), say("Three."), say("Two, edited.")]
    async with play(script) as world:
        thread = await talk(world, "First.", "Second.", "Third.")
        nodes = await world.store.log.branch(
            thread, (await world.store.threads.get(thread)).head or 0
        )
        second = next(node for node in nodes if decode_message(node.body) == UserMessage("Second."))
        await branches.edit(world.store, thread, second.seq)
        await world.run(AGENT, "Second, edited.", thread=thread)
        assert sent(world) == ["First.", "One.", "Second, edited."]
        assert await texts(world, thread) == ["First.", "One.", "Second, edited.", "Two, edited."]
        # The old branch is whole, and a fork returns to it.
        await branches.fork(world.store, thread, nodes[-1].seq)
        assert await texts(world, thread) == [
            "First.",
            "One.",
            "Second.",
            "Two.",
            "Third.",
            "Three.",
        ]


async def test_a_fork_continues_from_any_node(play: Play) -> None:
    script = [say("One."), say("Two."), say("Other."), say("Back."), say("Fresh.")]
    async with play(script) as world:
        thread = await talk(world, "First.", "Second.")
        head = (await world.store.threads.get(thread)).head
        nodes = await world.store.log.branch(thread, head or 0)
        await branches.fork(world.store, thread, nodes[1].seq)
        await world.run(AGENT, "Another way.", thread=thread)
        assert sent(world) == ["First.", "One.", "Another way."]
        await branches.fork(world.store, thread, head)
        await world.run(AGENT, "Go on.", thread=thread)
        assert sent(world) == ["First.", "One.", "Second.", "Two.", "Go on."]
        await branches.fork(world.store, thread, None)
        await world.run(AGENT, "From scratch.", thread=thread)
        assert sent(world) == ["From scratch."]


async def test_each_branch_has_its_own_activations(play: Play) -> None:
    script = [call("double", number=1)] * 12 + [say("Long."), say("Short.")]
    settings = {"last_messages": 4, "observational_memory": False}
    async with play(script, settings=settings) as world:
        thread = await talk(world, "Begin.")
        causes = [event.data["cause"] for event in world.events if event.kind == "activation"]
        assert causes.count("messages") >= 2
        first = (await world.store.log.branch(thread, (await world.row()).task_id or 0))[0]
        await branches.fork(world.store, thread, first.seq)
        await world.run(AGENT, "Briefly.", thread=thread)
        assert sent(world)[0] == "Begin."
        assert sent(world)[-1] == "Briefly."
        assert not any("not shown" in text for text in sent(world))


async def test_only_messages_of_the_user_can_be_edited(play: Play) -> None:
    async with play([say("One.")]) as world:
        thread = await talk(world, "First.")
        head = (await world.store.threads.get(thread)).head or 0
        with pytest.raises(Conflict, match="not a message of the user") as raised:
            await branches.edit(world.store, thread, head)
        assert raised.value.cure
        with pytest.raises(NotFound):
            await branches.fork(world.store, thread, 99)


async def test_regenerating_on_an_empty_thread_is_not_found(play: Play) -> None:
    async with play() as world:
        await world.store.threads.ensure("t")
        with pytest.raises(NotFound) as raised:
            await world.runtime.regenerate(AGENT, "t")
    assert raised.value.cure


async def test_the_head_of_a_busy_thread_is_not_moved(play: Play) -> None:
    began, release = anyio.Event(), anyio.Event()

    @tool
    async def wait() -> str:
        """Wait for the test."""
        began.set()
        await release.wait()
        return "waited"

    async def first(world: World) -> None:
        await world.run(Agent(tools=[wait]), thread="t")

    async with play([call("wait"), say("Done.")]) as world, anyio.create_task_group() as group:
        group.start_soon(first, world)
        await began.wait()
        with pytest.raises(ThreadBusy):
            await branches.fork(world.store, "t", None)
        with pytest.raises(ThreadBusy):
            await world.runtime.regenerate(AGENT, "t")
        release.set()
