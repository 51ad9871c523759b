"""Suspended runs: killed while they wait, paused, and resumed by another process."""

from __future__ import annotations

from typing import Any

import pytest

from agent_runtime import Agent
from agent_runtime.errors import Conflict, NotFound, QuestionsOpen, ThreadBusy
from agent_runtime.models.base import ModelAnswer, ModelRequest
from agent_runtime.models.scripted import call, calls, raw_call, say
from agent_runtime.tools.context import ToolContext
from agent_runtime.tools.function import tool
from tests.human.elsewhere import agent, started
from tests.services.backends import FILE_FIRST
from tests.support.worlds import Play, World, double

ASK = raw_call("ask_user", question="Sure?", kind="text")


@FILE_FIRST
async def test_open_questions_survive_a_kill_and_other_processes_answer_them(play: Play) -> None:
    async with play([say("Thanks.")]) as world:
        async with started(world.database_url, "ask", "t") as other:
            run_id = str((await other.until("run-suspend"))["run_id"])
            await other.until("asked")
            await other.kill()
        own = agent(world.model)
        row = await world.store.runs.get(run_id)
        assert (row.status, row.stop_reason) == ("suspended", "awaiting_user")
        first, second = await world.runtime.questions(run_id=run_id)

        async with started(world.database_url, "answer", first.id) as other:
            assert (await other.until("answered"))["ready"] is False
        with pytest.raises(QuestionsOpen):
            await world.runtime.resume(run_id, own)
        assert await world.runtime.answer(second.id, "Because.")
        result = await world.runtime.resume(run_id, own)

        assert result.ok and result.output == "Thanks."
        assert await world.results("t") == [("ok", "blue"), ("ok", "Because.")]
        events = await world.store.events.list("t")
        assert [event.kind for event in events].count("run-finish") == 1


async def test_a_run_pauses_at_its_next_step_and_resumes(play: Play) -> None:
    async with play() as world:
        steps = Pausing(world, pause_at=2)
        worker = Agent(steps.model, tools=[double])
        paused = await world.run(worker, thread="t")

        assert (paused.status, paused.stop_reason) == ("suspended", "paused")
        assert paused.questions == () and paused.steps == 2
        row = await world.row()
        assert row.owner is None and row.open_node is None
        assert len(await world.results("t")) == 2
        await world.runtime.pause(world.run_id)
        with pytest.raises(ThreadBusy, match="paused"):
            await world.run(worker, thread="t")

        result = await world.resume(worker)

        assert result.ok and result.steps == 4
        # The pause request is not a message, and does not pause a second time.
        assert "pause" not in str(steps.model.requests[-1].messages)
        assert await world.store.inbox.pending("t") == []


@pytest.mark.backends("file")
async def test_a_late_pause_does_not_reach_the_next_run(play: Play) -> None:
    async with play([say("First."), call("double", number=1), say("Second.")]) as world:
        worker = Agent(tools=[double])
        first = await world.run(worker, thread="t")
        await world.store.inbox.post("t", "pause", b"1", run_id=first.run_id)

        assert (await world.run(worker, thread="t")).output == "Second."
        assert await world.store.inbox.pending("t") == []


@pytest.mark.backends("file")
async def test_a_pause_before_the_first_step_is_honoured(play: Play) -> None:
    async with play([calls(ASK), say("Done.")]) as world:
        asks = Agent(asking=True)
        [question] = (await world.run(asks, thread="t")).questions
        await world.runtime.answer(question.id, "Yes.")
        await world.store.inbox.post("t", "steer", b"Hello.")
        # Addressed to its second execution, which starts at the resume.
        await world.store.inbox.post("t", "pause", b"2", run_id=question.run_id)

        paused = await world.resume(asks)
        result = await world.resume(asks)

        assert (paused.stop_reason, paused.steps) == ("paused", 1)
        assert result.ok
        model: Any = world.model
        assert "Hello." in str(model.requests[-1].messages)


@pytest.mark.backends("file")
async def test_a_pause_does_not_delay_a_final_answer(play: Play) -> None:
    async with play() as world:
        steps = Pausing(world, pause_at=4)

        assert (await world.run(Agent(steps.model, tools=[double]))).ok


@pytest.mark.backends("file")
async def test_a_paused_run_can_be_cancelled_and_an_ended_run_cannot_be_paused(
    play: Play,
) -> None:
    async with play() as world:
        steps = Pausing(world, pause_at=1)
        await world.run(Agent(steps.model, tools=[double]), thread="t")

        with pytest.raises(NotFound):
            await world.runtime.pause(world.run_id, user="mallory")
        assert await world.runtime.cancel(world.run_id) == [world.run_id]

        assert (await world.row()).status == "cancelled"
        with pytest.raises(Conflict, match="is over: cancelled"):
            await world.runtime.pause(world.run_id)


@pytest.mark.backends("file")
async def test_a_pause_reaches_a_run_in_another_process(play: Play, tmp_path: object) -> None:
    async with play([say("Done.")]) as world:
        async with started(world.database_url, "work", f"{tmp_path}/effect") as other:
            run_id = str((await other.until("run-start"))["run_id"])
            await other.until("effect")
            await world.runtime.pause(run_id)
            await other.until("run-suspend")

        assert (await world.store.runs.get(run_id)).stop_reason == "paused"


@pytest.mark.backends("file")
async def test_a_run_of_a_dead_process_is_paused_at_once_and_a_resume_wins(play: Play) -> None:
    async with play([say("Done.")]) as world:
        async with started(world.database_url, "work", "/dev/null/nowhere") as other:
            run_id = str((await other.until("answer"))["run_id"])
            await other.kill()
        # A request to the process that died: the resume is later, and wins.
        await world.store.inbox.post("t", "pause", b"1", run_id=run_id)

        await world.runtime.pause(run_id)

        assert (await world.store.runs.get(run_id)).status == "suspended"
        assert (await world.runtime.resume(run_id, Agent(world.model, tools=[double]))).ok


@tool
async def child(context: ToolContext) -> str:
    """Run a sub-agent that tries to pause itself."""
    ran = await context.run_agent(Agent(tools=[pause_me], name="child"), "Pause.")
    return f"{ran.status} {ran.thread_id}"


@tool
async def pause_me(context: ToolContext) -> str:
    """Pause the tool's own run."""
    from agent_runtime import Runtime, Settings

    assert isinstance(context.deps, str)
    async with Runtime.open(Settings(database_url=context.deps)) as runtime:
        await runtime.pause(context.run_id)
    return "paused"


@pytest.mark.backends("file")
async def test_a_sub_agent_is_paused_only_with_its_root(play: Play) -> None:
    script = [call("child"), call("pause_me"), say("Could not."), say("Done.")]
    async with play(script) as world:
        result = await world.run(Agent(tools=[child]), deps=world.database_url)

        assert result.ok
        status, thread = (await world.results(result.thread_id))[0][1].split()
        assert status == "succeeded"
        [(outcome, text)] = await world.results(thread)
        assert (outcome == "error" and "Pause the run" in text) or "sub-agent" in text


@pytest.mark.backends("file")
async def test_a_question_is_deleted_with_its_thread_and_closed_by_an_import(play: Play) -> None:
    async with play([calls(ASK), say("Done.")]) as world:
        asks = Agent(world.model, asking=True)
        [question] = (await world.run(asks, thread="t")).questions

        await world.store.upkeep.import_thread(world.store.upkeep.export_thread("t"), rename="copy")
        assert await world.runtime.questions(thread="copy") == []
        [copied] = await world.store.runs.list(thread_id="copy")
        with pytest.raises(Conflict, match="was imported"):
            await world.runtime.resume(copied.id, asks)
        assert [outcome for outcome, _ in await world.results("copy")] == ["refused"]
        await world.store.upkeep.delete_thread("t")

        with pytest.raises(NotFound):
            await world.runtime.answer(question.id, "Yes.")
        assert (await world.run(asks, thread="copy")).output == "Done."


async def test_suspending_releases_reservations(play: Play) -> None:
    settings = {"budget_tokens": 50_000}
    async with play([calls(ASK), say("Done.")], settings=settings) as world:
        asks = Agent(world.model, asking=True)
        [question] = (await world.run(asks)).questions
        row = await world.row()
        assert (row.reserved.tokens, row.unsettled.tokens) == (0, 0)
        await world.runtime.answer(question.id, "Yes.")

        assert (await world.resume(asks)).ok
        assert (await world.row()).unsettled.tokens == 0


class Pausing:
    """A model that doubles numbers and requests a pause of its run while it answers."""

    def __init__(self, world: World, *, pause_at: int) -> None:
        from agent_runtime import ScriptedModel

        self.world = world
        self.pause_at = pause_at
        self.step = 0
        self.model = ScriptedModel(self._answer)

    async def _answer(self, request: ModelRequest) -> ModelAnswer:
        del request
        self.step += 1
        if self.step == self.pause_at:
            await self.world.runtime.pause(self.world.run_id)
        return call("double", number=self.step) if self.step < 4 else say("Done.")
