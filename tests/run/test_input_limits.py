"""What comes in too large is kept as a file and referred to; it never ends a thread."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from agent_runtime import Agent, Decision, ScriptedModel, tool
from agent_runtime.errors import InboxFull, InvalidFile, StoreError
from agent_runtime.models.base import ModelRequest
from agent_runtime.models.scripted import Scripted, call, say
from tests.storage.families import stream
from tests.support.worlds import Play, World

# What is tested here does not differ by database.
pytestmark = pytest.mark.backends("file")

SMALL = {"max_message_chars": 1000, "context_window": 20_000}
OPENS = re.compile(r'recall\("(upload:[0-9a-f-]{36})"\) opens the whole text')


def shown(request: ModelRequest) -> str:
    return "\n".join(message.text for message in request.messages)


def sent(world: World, place: int) -> str:
    assert isinstance(world.model, ScriptedModel)
    return shown(world.model.requests[place])


@tool
def work() -> str:
    """Work."""
    return "worked"


@pytest.mark.parametrize("settings", [SMALL, {"context_window": 20_000}])
async def test_a_long_task_is_kept_as_a_file_that_recall_opens(
    play: Play, settings: dict[str, int]
) -> None:
    task = "Count the words.\n" + "word " * 30_000 + "the last one"

    def respond(request: ModelRequest) -> Scripted:
        [reference] = OPENS.findall(shown(request))[:1]
        if len(request.messages) < 4:
            return call("recall", handle=reference, offset=len(task) - 12)
        return say(request.messages[-1].text)

    async with play(respond, settings=settings) as world:
        result = await world.runtime.run(Agent(tools=[work]), task, thread="t")
        assert result.ok
        assert "the last one" in result.require_output()
        [file] = await world.runtime.files.of("t")
        assert (await world.runtime.files.read(file)).decode() == task
        # A further turn works as well.
        again = await world.runtime.run(Agent(tools=[work]), task, thread="t")
        assert again.ok


async def test_a_task_that_fits_is_not_changed(play: Play) -> None:
    async with play([say("Done.")], settings=SMALL) as world:
        await world.runtime.run(Agent(), "x" * 1000, thread="t")
        assert "x" * 1000 in sent(world, 0)
        assert not await world.runtime.files.of("t")


async def test_messages_to_a_run_cannot_fill_its_prompt(play: Play) -> None:
    """130,000 words ended the run, its resumes, and every new turn."""
    run_id = ""

    @tool
    async def listen() -> str:
        """Work while the user writes."""
        for number in range(5):
            await world.runtime.steer(run_id, f"note {number} " + "words " * 130_000)
        with pytest.raises(InboxFull):
            await world.runtime.steer(run_id, "one more")
        return "listened"

    settings = {"context_window": 20_000, "max_inbox_messages": 5}
    async with play([call("listen"), say("Done."), say("Again.")], settings=settings) as world:
        async with world.runtime.stream(Agent(tools=[listen]), "Go.", thread="t") as stream:
            async for event in stream:
                run_id = event.run_id
        assert stream.result.ok
        text = sent(world, 1)
        assert all(f"note {number} words" in text for number in range(5))
        assert len(OPENS.findall(text)) == len(await world.runtime.files.of("t")) == 5
        assert (await world.runtime.run(Agent(tools=[listen]), "And?", thread="t")).ok


async def test_a_refused_long_message_leaves_no_file_behind(play: Play) -> None:
    """The limit of all threads of a user is checked with the message, after the thread's own."""
    run_id = ""

    @tool
    async def listen() -> str:
        """Work while the user writes."""
        # Incompressible, so that each is an object.
        await world.runtime.steer(run_id, os.urandom(300_000).hex())
        with pytest.raises(InboxFull):
            await world.runtime.steer(run_id, os.urandom(300_000).hex())
        return "listened"

    settings = {"max_user_inbox_messages": 1}
    async with play([call("listen"), say("Done.")], settings=settings) as world:
        async with world.runtime.stream(Agent(tools=[listen]), "Go.", thread="t") as stream:
            async for event in stream:
                run_id = event.run_id
        assert len(await world.runtime.files.of("t")) == 1
        folder = Path(world.database_url.removeprefix("file:")).with_suffix(".objects")
        assert len([path for path in folder.rglob("*") if path.is_file()]) == 1


@pytest.mark.parametrize(("text", "times"), [("\U00013000" * 20_000, 3), ("no " * 40, 100)])
async def test_messages_are_shown_as_far_as_the_window_has_room(
    play: Play, text: str, times: int
) -> None:
    """20,000 hieroglyphs are 60,000 tokens, and a hundred short messages fill a small window."""
    run_id = ""

    @tool
    async def listen() -> str:
        """Work while the user writes."""
        for number in range(times):
            await world.runtime.steer(run_id, f"{number} {text}")
        return "listened"

    settings = {"context_window": 8_000}
    async with play([call("listen"), say("Done."), say("Again.")], settings=settings) as world:
        async with world.runtime.stream(Agent(tools=[listen]), "Go.", thread="t") as stream:
            async for event in stream:
                run_id = event.run_id
        assert stream.result.ok
        references = OPENS.findall(sent(world, 1))
        kept = [await world.runtime.files.read(one) for one in await world.runtime.files.of("t")]
        assert references and any(f"{times - 1} {text}".encode() in one for one in kept)
        assert (await world.runtime.run(Agent(tools=[listen]), "And?", thread="t")).ok


async def test_the_reason_of_an_approval_cannot_fill_a_prompt(play: Play) -> None:
    deploy = tool(work.function, name="deploy", needs_approval=True)
    reason = "Only today. " * 8000
    script = [call("deploy"), say("Done."), say("Again.")]
    async with play(script, settings={"context_window": 20_000}) as world:
        [question] = (await world.run(Agent(tools=[deploy]), thread="t")).questions
        await world.runtime.answer(question.id, Decision(True, reason))
        assert (await world.resume(Agent(tools=[deploy]))).ok
        assert "says: Only today." in sent(world, 1)
        [file] = await world.runtime.files.of("t")
        assert reason.strip().encode() in await world.runtime.files.read(file)
        assert (await world.run(Agent(tools=[deploy]), thread="t")).ok


async def test_a_text_larger_than_a_file_may_be_is_refused_and_changes_nothing(play: Play) -> None:
    settings = SMALL | {"max_file_bytes": 2000}
    async with play([say("Done.")], settings=settings) as world:
        with pytest.raises(InvalidFile, match=r"task.txt' has 3,000 bytes; the limit is 2,000"):
            await world.runtime.run(Agent(), "x" * 3000, thread="t")
        assert (await world.runtime.run(Agent(), "x", thread="t")).ok


async def test_recall_opens_no_file_of_another_thread(play: Play) -> None:
    def respond(request: ModelRequest) -> Scripted:
        first = len(request.messages) < 4
        return call("recall", handle=reference) if first else say("Done.")

    async with play(respond, settings=SMALL) as world:
        reference = (await world.runtime.files.upload("other", b"secret", name="a.txt")).uri
        await world.runtime.run(Agent(tools=[work]), "Open it.", thread="t")
        text = sent(world, -1)
        assert "secret" not in text
        assert f"This thread has no file '{reference}'" in text


async def test_a_setting_limits_titles(play: Play) -> None:
    async with play([say("done")], settings={"max_title_chars": 2000}) as world:
        await world.run(Agent(), thread="t")
        threads, store = world.runtime.threads, world.runtime.store.of("local")
        assert (await threads.rename("t", "x" * 2000)).title == "x" * 2000
        with pytest.raises(StoreError, match=r"title has 2,001 characters, and 2,000 are the most"):
            await threads.rename("t", "x" * 2001)
        export = [dict(record) async for record in store.upkeep.export_thread("t")]
    # Where less is allowed, a copy's title is cut.
    async with play([], settings={"max_title_chars": 80}) as world:
        await world.runtime.threads.delete("t")
        store = world.runtime.store.of("local")
        await store.upkeep.import_thread(stream(export))
        assert (await world.runtime.threads.get("t")).title == "x" * 80


@pytest.mark.backends("file", "libsql-http", "postgres")
async def test_a_task_may_begin_with_a_zero_byte(play: Play) -> None:
    async with play([say("done")]) as world:
        result = await world.runtime.run(Agent(), "a\0b", thread="t")

        assert result.ok
        assert (await world.runtime.threads.get("t")).title == "ab"
