"""Agents with memory mode `node`: a run starts from its node's history and adds its turn."""

from __future__ import annotations

import base64
import logging
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from agent_runtime import (
    Agent,
    FileRef,
    MemoryMode,
    NodeMemory,
    Runtime,
    ScriptedModel,
    Settings,
    ToolContext,
    UserMessage,
    tool,
)
from agent_runtime.agent import MemoryWindow
from agent_runtime.errors import ConfigError, CorruptDocument, ModelRejected, ObjectsUnavailable
from agent_runtime.log import branches
from agent_runtime.memory.node.memory import latest
from agent_runtime.messages import AssistantMessage, decode_message
from agent_runtime.models.base import ModelRequest
from agent_runtime.models.scripted import Scripted, call, say
from agent_runtime.run.node_memory import NodeRun
from agent_runtime.tools.output import FINAL
from agent_runtime_storage.objects.documents import ObjectDocuments
from tests.files.test_image_sizes import png
from tests.memory.node.parts import echo, seen, texts, without, writer
from tests.support.command import clean_environ
from tests.support.worlds import Play, World, double, play

__all__ = ["play"]

on_the_file = pytest.mark.backends("file")


def memory(world: World, talk: str = "talk", node: str = "writer") -> NodeMemory:
    """Return the memory of the node."""
    return NodeMemory(world.store, "default", talk, node)


def objects(tmp_path: Path) -> dict[str, Any]:
    """Return the settings of an object store, which a database on a server needs."""
    return {"object_store_url": str(tmp_path / "objects")}


# One conversation


async def test_a_run_starts_from_its_nodes_history(play: Play, tmp_path: Path) -> None:
    agent = writer()
    async with play(settings=objects(tmp_path)) as world:
        results = [await world.run(agent, text, thread="talk") for text in ("one", "two", "three")]
        assert seen(agent) == ["one", "Re: one", "two", "Re: two", "three"]
        assert texts(await memory(world).history(latest)) == [*seen(agent), "Re: three"]
        assert len({"talk", *(result.thread_id for result in results)}) == 4
        # The log alone records what the model saw.
        nodes = await world.store.log.branch(results[2].thread_id, 6)
        assert len(nodes) == 6


@on_the_file
async def test_two_agents_of_a_conversation_have_separate_memories(play: Play) -> None:
    one, two = writer(name="one"), writer(name="two")
    async with play() as world:
        await world.run(one, "for one", thread="talk")
        await world.run(two, "for two", thread="talk")
        assert seen(two) == ["for two"]
        await world.run(one, "again", thread="talk")
        assert seen(one) == ["for one", "Re: for one", "again"]
        await world.run(one, "elsewhere", thread="another")
        assert seen(one) == ["elsewhere"]


@on_the_file
async def test_by_default_the_thread_is_the_memory_and_no_document_is_written(play: Play) -> None:
    agent = Agent(ScriptedModel(echo), name="writer")
    async with play() as world:
        for text in ("one", "two"):
            await world.run(agent, text, thread="talk")
        assert seen(agent) == ["one", "Re: one", "two"]
        assert await memory(world).messages() == []


@on_the_file
async def test_the_configured_limits_apply(play: Play) -> None:
    agent = writer(window=MemoryWindow(size=2))
    tight = writer(max_token_limit=5)
    async with play() as world:
        for text in ("one", "two", "three"):
            await world.run(agent, text, thread="talk")
        assert seen(agent) == ["two", "Re: two", "three"]
        await world.run(tight, "four", thread="talk")
        assert seen(tight) == ["four"]


@on_the_file
async def test_a_structured_output_is_stored_as_json(play: Play) -> None:
    model = ScriptedModel([call(FINAL, value=[1, 2])])
    agent = Agent(model, name="writer", output_type=list[int], memory=MemoryMode.NODE)
    async with play() as world:
        result = await world.run(agent, "Count.", thread="talk")
        assert result.output == [1, 2]
        assert texts(await memory(world).history(latest)) == ["Count.", '{"value":[1,2]}']


@on_the_file
async def test_files_of_the_task_and_the_answer_are_stored_as_references(play: Play) -> None:
    image = FileRef("image", "https://example.org/a.png", "image/png", "a.png")
    data = base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()
    drawn = replace(say("Drawn."), files=(f"data:image/png;base64,{data}",))
    agent = writer(ScriptedModel([drawn, say("Again.")]), max_token_limit=10_000)
    async with play() as world:
        await world.runtime.run(agent, UserMessage("Draw this.", (image,)), thread="talk")
        user, assistant = await memory(world).messages()
        assert [one["belongs_to"] for one in (*user.files, *assistant.files)] == [
            "user",
            "assistant",
        ]
        result = await world.run(agent, "Again.", thread="talk")
        first, second, _ = await world.store.log.branch(result.thread_id, 3)
        task, answered = decode_message(first.body), decode_message(second.body)
    assert isinstance(task, UserMessage) and task.files == (image,)
    assert isinstance(answered, AssistantMessage) and answered.text == "Drawn."
    assert [(file.kind, file.media_type, file.size) for file in answered.files] == [
        ("image", "image/png", 8)
    ]


# Nodes of a tree of runs


def delegating(child: Agent, times: int = 1) -> Agent:
    """Return an agent whose one tool runs the child with a task, `times` times in a loop."""

    @tool
    async def delegate(context: ToolContext, task: str) -> str:
        """Pass a task to the child."""
        results = [await context.run_agent(child, f"{task} {n}") for n in range(times)]
        return str(results[-1].output)

    def script(request: ModelRequest) -> Scripted:
        last = request.messages[-1]
        return say("Done.") if last.role == "tool" else call("delegate", task=last.text)

    return Agent(ScriptedModel(script), name="parent", tools=[delegate])


@on_the_file
async def test_a_node_in_a_loop_accumulates_over_its_iterations(play: Play) -> None:
    child = writer()
    async with play() as world:
        await world.run(delegating(child, times=3), "draft", thread="talk")
        assert seen(child) == ["draft 0", "Re: draft 0", "draft 1", "Re: draft 1", "draft 2"]
        # The next turn of the conversation continues from there.
        await world.run(delegating(child), "more", thread="talk")
        assert seen(child)[-3:] == ["draft 2", "Re: draft 2", "more 0"]


@on_the_file
async def test_a_tool_can_use_node_memory(play: Play) -> None:
    @tool
    async def count(context: ToolContext) -> str:
        """Return how often this tool was called in the conversation."""
        memory = NodeMemory(context.store, "default", "talk", "count")
        number = len(await memory.history(latest)) // 2 + 1
        await memory.add_messages(
            context.call_id + context.run_id,
            latest,
            user_content="Count.",
            assistant_content=str(number),
        )
        await memory.flush()
        return str(number)

    async with play([call("count"), say("One."), call("count"), say("Two.")]) as world:
        for _ in range(2):
            await world.run(Agent(tools=[count]), "Count.", thread="talk")
        assert [text for _, text in await world.results("talk")] == ["1", "2"]


@on_the_file
async def test_a_nodes_history_follows_its_conversations_branch(play: Play) -> None:
    child = writer()
    parent = delegating(child)
    async with play() as world:
        await world.run(parent, "first", thread="talk")
        await world.run(parent, "second", thread="talk")
        await world.runtime.regenerate(parent, "talk")
        # The replaced answer is not part of the node's history on this branch.
        assert seen(child) == ["first 0", "Re: first 0", "second 0"]
        await world.run(parent, "third", thread="talk")
        assert seen(child) == ["first 0", "Re: first 0", "second 0", "Re: second 0", "third 0"]
        thread = await world.store.threads.get("talk")
        nodes = await world.store.log.branch("talk", thread.head or 0)
        await branches.fork(world.store, "talk", nodes[2].seq)
        await world.run(parent, "instead", thread="talk")
        assert seen(child) == ["first 0", "Re: first 0", "instead 0"]
        turns = [
            message for message in await memory(world).messages() if message.role == "assistant"
        ]
        assert len(turns) == 5


# Errors


@on_the_file
async def test_node_memory_without_a_conversation_is_refused(play: Play) -> None:
    async with play() as world:
        with pytest.raises(ConfigError, match=r"'writer' has the memory mode `node`.*no convers"):
            await world.run(writer(), "Write.")
        assert await world.store.runs.list() == []
        agent = writer(conversation_id="talk")
        await world.run(agent, "one")
        await world.run(agent, "two")
        assert seen(agent) == ["one", "Re: one", "two"]


@on_the_file
async def test_an_unsafe_id_and_an_unknown_mode_are_refused_by_name(play: Play) -> None:
    mode: Any = "all"
    unknown = Agent(ScriptedModel(echo), name="writer", memory=mode)
    async with play() as world:
        with pytest.raises(ConfigError, match=r"conversation_id '\.\./talk'"):
            await world.run(writer(), "Write.", thread="../talk")
        with pytest.raises(ConfigError, match="node_id 'a writer'"):
            await world.run(writer(name="a writer"), "Write.", thread="talk")
        with pytest.raises(ConfigError, match="unknown memory mode") as caught:
            await world.run(unknown, "Write.", thread="talk")
        assert "`conversation`, `node`" in caught.value.cure
        assert await world.store.runs.list() == []


@on_the_file
async def test_a_corrupt_memory_fails_the_run_before_its_first_call(play: Play) -> None:
    async with play() as world:
        documents = world.store.documents
        key = "node_memory/default/talk/writer.json"
        assert await documents.write(key, b"{", replaces=None)
        with pytest.raises(CorruptDocument):
            await world.run(writer(), "Write.", thread="talk")
        assert await world.store.runs.list() == []


@on_the_file
async def test_a_run_deletes_memories_unused_for_the_configured_days(
    play: Play, tmp_path: Path
) -> None:
    async with play(settings=objects(tmp_path)) as world:
        await world.run(writer(name="old"), "one", thread="talk")
        [path] = await anyio.to_thread.run_sync(lambda: list(tmp_path.rglob("old.json")))
        os.utime(path, (1_000_000, 1_000_000))
        await world.run(writer(), "two", thread="talk")
        assert path.exists()
    async with play(settings=objects(tmp_path) | {"node_memory_keep_days": 30}) as world:
        await world.run(writer(), "three", thread="talk")
        with anyio.fail_after(30):
            while path.exists():  # noqa: ASYNC110
                await anyio.sleep(0.01)
        assert len(await memory(world).messages()) == 4


@pytest.mark.backends("postgres")
async def test_a_database_on_a_server_needs_an_object_store(play: Play) -> None:
    async with play() as world:
        with pytest.raises(ConfigError) as caught:
            await world.run(writer(), "Write.", thread="talk")
        assert "AGENT_RUNTIME_OBJECT_STORE_URL" in caught.value.cure


# Failures and crashes


@on_the_file
async def test_a_failed_run_adds_nothing_and_its_resume_adds_one_turn(play: Play) -> None:
    model = ScriptedModel([ModelRejected("No."), say("Written.")])
    async with play() as world:
        with pytest.raises(ModelRejected):
            await world.run(writer(model), "Write.", thread="talk")
        assert await memory(world).messages() == []
        await world.resume(writer(model))
        assert texts(await memory(world).history(latest)) == ["Write.", "Written."]
        agent = writer()
        await world.run(agent, "More.", thread="talk")
        assert seen(agent) == ["Write.", "Written.", "More."]


@on_the_file
async def test_the_next_run_does_not_see_a_failed_turn(play: Play) -> None:
    agent = writer()
    async with play() as world:
        with pytest.raises(ModelRejected):
            await world.run(writer(ScriptedModel([ModelRejected("No.")])), "Fail.", thread="talk")
        endless = replace(writer(ScriptedModel([call("double", number=1)])), max_steps=1)
        stopped = await world.run(replace(endless, tools=[double]), "Stop.", thread="talk")
        assert stopped.stop_reason == "max_steps" and await memory(world).messages() == []
        await world.run(agent, "Write.", thread="talk")
        assert seen(agent) == ["Write."]
        assert len(await memory(world).messages()) == 2


@pytest.mark.backends("file", "postgres")
async def test_the_next_run_adds_a_turn_that_a_crash_prevented(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = writer()
    async with play(settings=objects(tmp_path)) as world:
        with monkeypatch.context() as patched:
            patched.setattr(NodeRun, "keep", without("keep"))
            await world.run(agent, "one", thread="talk")
        assert await memory(world).messages() == []
        await world.run(agent, "two", thread="talk")
        assert seen(agent) == ["one", "Re: one", "two"]
        await world.run(agent, "three", thread="talk")
        assert seen(agent) == ["one", "Re: one", "two", "Re: two", "three"]


@on_the_file
async def test_an_unavailable_object_store_at_the_end_fails_no_run(
    play: Play, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def away(*_: Any, **__: Any) -> bool:
        raise ObjectsUnavailable("The store is away.")

    agent = writer()
    async with play() as world:
        with monkeypatch.context() as patched, caplog.at_level(logging.WARNING):
            patched.setattr(ObjectDocuments, "write", away)
            result = await world.run(agent, "one", thread="talk")
        assert result.output == "Re: one" and "The store is away." in caplog.text
        # The job has to be claimed again; it was never claimed, so that works at once.
        await world.run(agent, "two", thread="talk")
        assert seen(agent) == ["one", "Re: one", "two"]


@on_the_file
async def test_concurrent_runs_lose_no_turn(play: Play) -> None:
    async with play() as world:

        async def run(number: int) -> None:
            await world.run(writer(), f"task {number}", thread="talk")

        async with anyio.create_task_group() as group:
            for number in range(4):
                group.start_soon(run, number)
        history = texts(await memory(world).history(latest))
    assert sorted(history[::2]) == [f"task {n}" for n in range(4)]
    assert sorted(history[1::2]) == [f"Re: task {n}" for n in range(4)]


KILLED = """
import os, sys, anyio
from agent_runtime import Agent, MemoryMode, Runtime, ScriptedModel, Settings, tool
from agent_runtime.run.node_memory import NodeRun
from agent_runtime.models.scripted import call, say

@tool
def stop() -> str:
    '''Kill the process in the middle of the run.'''
    if sys.argv[2] == "step":
        os.kill(os.getpid(), 9)
    return "stopped"

async def keep(self, store, lease):
    # The run's end is written.
    os.kill(os.getpid(), 9)

async def main():
    if sys.argv[2] == "end":
        NodeRun.keep = keep
    model = ScriptedModel([call("stop"), say("Written.")])
    agent = Agent(model, name="writer", tools=[stop], memory=MemoryMode.NODE)
    async with Runtime.open(Settings(database_url=sys.argv[1])) as runtime:
        await runtime.run(agent, "Write.", thread="talk")

anyio.run(main)
"""


@on_the_file
@pytest.mark.parametrize("where", ["step", "end"])
async def test_after_a_kill_the_turn_is_stored_once(database_url: str, where: str) -> None:
    command = [sys.executable, "-c", KILLED, database_url, where]
    done = await anyio.run_process(
        command, check=False, env=clean_environ(), stderr=subprocess.STDOUT
    )
    assert done.returncode == -9, done.stdout.decode()
    async with Runtime.open(Settings(database_url=database_url)) as runtime:
        store = runtime.store.of("local")
        [run] = await store.runs.list()
        if where == "step":
            agent = writer(ScriptedModel([say("Written.")]))
            await runtime.resume(run.id, agent)
        agent = writer()
        await runtime.run(agent, "More.", thread="talk")
        assert seen(agent) == ["Write.", "Written.", "More."]
        messages = await NodeMemory(store, "default", "talk", "writer").messages()
        assert [message.content for message in messages] == [
            "Write.",
            "Written.",
            "More.",
            "Re: More.",
        ]


@on_the_file
async def test_two_small_images_do_not_displace_the_history(play: Play, tmp_path: Path) -> None:
    small = tmp_path / "small.png"
    small.write_bytes(png(8, 8))
    agent = writer(max_token_limit=2_000)
    async with play() as world:
        await world.run(agent, "My name is Ada.", thread="talk")
        await world.run(agent, "Look at these.", thread="talk", files=[small, small])
        result = await world.run(agent, "Who am I?", thread="talk")
        head = (await world.store.threads.get(result.thread_id)).head
        assert head is not None
        branch = await world.store.log.branch(result.thread_id, head)
        logged = [getattr(decode_message(node.body), "text", "") for node in branch]
    assert logged[0] == "My name is Ada."
    starts = [event for event in world.events if event.kind == "run-start"]
    assert not any("turns_left_out" in start.data for start in starts)


@on_the_file
async def test_an_image_counts_only_for_models_that_take_images(play: Play) -> None:
    images = [FileRef("image", f"https://example.org/{n}.png", "image/png") for n in range(2)]
    async with play() as world:
        stored = memory(world)
        await stored.add_messages(
            "m1", None, user_content="My name is Ada.", assistant_content="Hi."
        )
        await stored.add_messages(
            "m2", "m1", user_content="Look.", assistant_content="I see.", user_files=images
        )
        await stored.flush()
        # A model that takes images is charged for two of unknown size; they do not fit.
        shown = await stored.history("m2", max_token_limit=2_000, takes=["image"])
        assert (texts(shown), shown.left_out) == ([], 2)
        shown = await stored.history("m2", max_token_limit=2_000, takes=[])
        assert (texts(shown)[0], shown.left_out) == ("My name is Ada.", 0)
        assert shown[2].files == tuple(images)

        agent = writer(max_token_limit=2_000)
        await world.run(agent, "Who am I?", thread="talk")


@on_the_file
async def test_a_turn_that_does_not_fit_is_reported(play: Play) -> None:
    agent = writer(max_token_limit=60)
    async with play() as world:
        for text in ("One. " * 30, "Two.", "Three."):
            await world.run(agent, text, thread="talk")
        starts = [event.data for event in world.events if event.kind == "run-start"]
    assert [start.get("turns_left_out", 0) for start in starts] == [0, 1, 1]
