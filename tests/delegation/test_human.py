"""Sub-agents whose calls need approval: they wait, and so does the root run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from agent_runtime import (
    Agent,
    Decision,
    Question,
    ToolError,
    tool,
)
from agent_runtime.errors import NotFound, QuestionClosed, QuestionsOpen
from agent_runtime.human.gate import Gate, GateResult
from agent_runtime.human.waiting import AwaitingHuman
from agent_runtime.log import lease_keeper
from agent_runtime.log.run_spec import DelegationRecord, delegation_record
from agent_runtime.models.base import ModelRequest
from agent_runtime.models.scripted import Scripted, call, calls, raw_call, say
from agent_runtime_storage import Commit, Finish, Lease
from agent_runtime_storage.contract.leases import HeldLease
from agent_runtime_storage.contract.records.log import Run
from agent_runtime_storage.log.leases import SqlLeases
from agent_runtime_storage.log.runs import SqlRuns
from tests.delegation.asking_elsewhere import Asker, asking
from tests.delegation.erasing import erase, erased
from tests.delegation.erasing import nothing_erased as nothing_erased
from tests.delegation.helpers import is_child, outcomes, step
from tests.human.elsewhere import AT_ONCE
from tests.services.backends import FILE_THEN_POSTGRES
from tests.support.worlds import Play, World, double

FILE = pytest.mark.backends("file")


def part(request: ModelRequest) -> str:
    """Return a sub-agent's task, from its briefing."""
    return request.messages[1].text.split("\n")[1]


def order(path: str, **more: Any) -> Any:
    """Return the call that has a sub-agent erase a file, or double a number."""
    return raw_call(
        "delegate", role="cleaner", instructions="Clean.", briefing=path, task_key=path, **more
    )


def cleaning(*paths: str, **more: Any) -> Any:
    """Return a script: sub-agents clean all these at once, then the agent is done."""

    def respond(request: ModelRequest) -> Scripted:
        if not is_child(request):
            starting = request.messages[-1].role == "user"
            return calls(*(order(p, **more) for p in paths)) if starting else say("Done.")
        if step(request):
            return say(request.messages[-1].text)
        what = part(request)
        return call("double", number=int(what)) if what.isdigit() else call("erase", path=what)

    return respond


AGENT = Agent(tools=[erase, double], delegation=True, name="boss")


async def open_question(world: World) -> Question:
    """Wait until a question is open."""
    for _ in range(3000):
        if questions := await world.runtime.questions():
            return questions[0]
        await anyio.sleep(0.01)
    raise ToolError("Nothing was asked.")


async def children(world: World, root: str) -> dict[str, str]:
    """Return the status of each sub-agent of a run, by its task."""
    runs = await world.store.runs.list(parent_run_id=root)
    return {str(_record(run).key): run.status for run in runs}


async def ends(world: World, root: str) -> list[int]:
    """Return the number of end events of each run of a tree."""
    runs = await world.store.runs.list(root_run_id=root)
    texts = [await world.store.events.list(run.thread_id) for run in runs]
    return [sum(event.kind == "run-finish" for event in events) for events in texts]


async def test_a_sub_agents_call_waits_for_approval_and_suspends_the_root(play: Play) -> None:
    async with play(cleaning("/a", "7")) as world:
        waits = await world.run(AGENT, thread="t")

        assert (waits.status, waits.stop_reason) == ("suspended", "awaiting_user")
        assert "a sub-agent that asks" in waits.detail
        # The sub-agent without a question has finished and is recorded.
        assert await children(world, waits.run_id) == {"/a": "suspended", "7": "succeeded"}
        [question] = waits.questions
        assert (question.role, question.task_key, question.tool) == ("cleaner", "/a", "erase")
        assert question.thread_id != "t" and erased == []
        assert await world.runtime.questions(thread="t") == [question]
        with pytest.raises(QuestionsOpen, match=question.id):
            await world.runtime.resume(waits.run_id, AGENT)

        assert await world.runtime.answer(question.id, True)
        result = await world.runtime.resume(waits.run_id, AGENT)

        assert result.output == "Done." and erased == ["/a"]
        assert [outcome["result"] for outcome in await outcomes(world, result)] == [
            "erased /a",
            "14",
        ]
        assert await ends(world, waits.run_id) == [1, 1, 1]
        assert await world.runtime.questions(thread="t") == []
        assert [one.id for one in await world.runtime.questions(thread="t", status=None)] == [
            question.id
        ]


@FILE
@pytest.mark.parametrize("how", ["no", "late"])
async def test_a_refusal_reaches_the_sub_agent_and_the_task_continues(play: Play, how: str) -> None:
    settings = {"answer_timeout": 3600 if how == "no" else AT_ONCE}
    async with play(cleaning("/a"), settings=settings) as world:
        result = await world.run(AGENT, thread="t")
        if how == "no":
            [question] = result.questions
            await world.runtime.answer(question.id, Decision(False, "Keep it."))
            result = await world.runtime.resume(result.run_id, AGENT)

        assert result.ok and erased == []
        [outcome] = await outcomes(world, result)
        reason = "Keep it." if how == "no" else "Nobody allowed this call in time"
        assert reason in outcome["result"]


@FILE
async def test_two_simultaneous_questions_are_listed_and_answered_separately(play: Play) -> None:
    async with play(cleaning("/a", "/b", "7")) as world:
        waits = await world.run(AGENT, thread="t")
        first, second = waits.questions
        assert {first.task_key, second.task_key} == {"/a", "/b"}

        assert not await world.runtime.answer(first.id, True)
        with pytest.raises(QuestionsOpen, match=second.id):
            await world.runtime.resume(waits.run_id, AGENT)
        with pytest.raises(QuestionClosed):
            await world.runtime.answer(first.id, False)
        with pytest.raises(NotFound):
            await world.runtime.answer(second.id, True, user="mallory")
        assert await world.runtime.answer(second.id, False)
        result = await world.runtime.resume(waits.run_id, AGENT)

        assert result.ok and erased == [first.arguments["path"]]
        assert await ends(world, waits.run_id) == [1] * 4


@FILE
async def test_a_callback_learns_which_sub_agent_asks(play: Play) -> None:
    questions: list[str] = []

    async def allow(question: Question) -> bool:
        questions.append(f"{question.role} {question.task_key}")
        return True

    async with play(cleaning("/a", "/b")) as world:
        result = await world.run(AGENT, on_question=allow)

        assert result.ok and sorted(erased) == ["/a", "/b"]
        assert sorted(questions) == ["cleaner /a", "cleaner /b"]


async def test_a_standing_approval_covers_the_roots_thread(play: Play) -> None:
    async with play(cleaning("/a")) as world:
        waits = await world.run(AGENT, thread="t")
        [question] = waits.questions
        await world.runtime.answer(question.id, Decision(True, remember=True))
        [allowed] = await world.runtime.approvals("t")
        assert (allowed.tool, allowed.thread_id) == ("erase", "t")
        assert (await world.runtime.resume(waits.run_id, AGENT)).ok

        # Another sub-agent in the same role does not ask again.
        assert (await world.run(AGENT, "Again.", thread="t")).ok
        assert erased == ["/a", "/a"]


@FILE
async def test_cancelling_the_root_withdraws_a_sub_agents_question(play: Play) -> None:
    async with play(cleaning("/a")) as world:
        waits = await world.run(AGENT, thread="t")
        [question] = waits.questions

        assert len(await world.runtime.cancel(waits.run_id)) == 2

        with pytest.raises(QuestionClosed, match="withdrawn"):
            await world.runtime.answer(question.id, True)
        assert await children(world, waits.run_id) == {"/a": "cancelled"}
        assert await ends(world, waits.run_id) == [1, 1]
        assert (await world.store.threads.get("t")).active_run is None


@FILE
async def test_stopping_a_root_with_working_sub_agents_leaves_none_waiting(play: Play) -> None:
    """One sub-agent waits for a person and another one works when the root is cancelled."""
    scope = anyio.CancelScope()

    @tool
    async def stall() -> str:
        """Wait until the first sub-agent asks, then forever."""
        await open_question(world)
        scope.cancel()
        await anyio.sleep_forever()
        return "never"

    def respond(request: ModelRequest) -> Scripted:
        if is_child(request) and part(request) == "stall":
            return call("stall")
        return cleaning("/a", "stall")(request)

    async with play(respond) as world:
        with scope:
            await world.run(Agent(tools=[erase, stall], delegation=True), thread="t")

        [root] = await world.store.runs.list(thread_id="t")
        assert root.status == "cancelled"
        assert set((await children(world, root.id)).values()) == {"cancelled"}
        [question] = await world.runtime.questions(thread="t", status=None)
        assert question.status == "withdrawn"
        assert await ends(world, root.id) == [1, 1, 1]


@FILE
async def test_a_sub_agent_that_ends_does_not_keep_another_from_being_cancelled(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A poll finds the lease of the first gone before the answer to its last commit is there."""
    commit, poll = SqlRuns.commit, SqlLeases.poll
    ended, polled, scope = anyio.Event(), anyio.Event(), anyio.CancelScope()

    async def slow_commit(self: SqlRuns, lease: Lease, one: Commit) -> int:
        last = await commit(self, lease, one)
        if one.finish is not None and not ended.is_set():
            ended.set()
            await polled.wait()
        return last

    async def late_poll(self: SqlLeases, held: Iterable[HeldLease]) -> Mapping[HeldLease, bool]:
        known = list(held)
        found = await poll(self, known)
        if len(found) < len(known):
            polled.set()
        return found

    @tool
    async def stall() -> str:
        """Wait until the first sub-agent has ended, then forever."""
        await polled.wait()
        scope.cancel()
        await anyio.sleep_forever()
        return "never"

    def respond(request: ModelRequest) -> Scripted:
        if is_child(request) and part(request) == "stall":
            return call("stall")
        return cleaning("1", "stall")(request)

    monkeypatch.setattr(lease_keeper, "POLL_SECONDS", 0.0)
    monkeypatch.setattr(SqlRuns, "commit", slow_commit)
    monkeypatch.setattr(SqlLeases, "poll", late_poll)
    async with play(respond) as world:
        with scope:
            await world.run(Agent(tools=[double, stall], delegation=True), thread="t")
        [root] = await world.store.runs.list(thread_id="t")
        assert root.status == "cancelled"
        assert await children(world, root.id) == {"1": "succeeded", "stall": "cancelled"}


@FILE
async def test_an_answer_while_others_work_needs_no_resume(play: Play) -> None:
    @tool
    async def allow() -> str:
        """Allow the other sub-agent's call."""
        assert not await world.runtime.answer((await open_question(world)).id, True)
        return "allowed"

    def respond(request: ModelRequest) -> Scripted:
        if is_child(request) and part(request) == "allow":
            return say("Said so.") if step(request) else call("allow")
        return cleaning("/a", "allow")(request)

    async with play(respond) as world:
        agent = Agent(tools=[erase, allow], delegation=True)
        result = await world.run(agent, thread="t")

        assert result.ok and erased == ["/a"]
        assert len(await children(world, result.run_id)) == 2
        assert "run-suspend" not in [event.kind for event in await world.store.events.list("t")]


@FILE
async def test_a_question_closed_just_before_the_suspension_does_not_block(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    true = Gate.suspend

    async def late(self: Gate, gated: GateResult, below: Sequence[AwaitingHuman] = ()) -> Finish:
        if below:
            [question] = await world.runtime.questions()
            assert not await world.runtime.answer(question.id, True)
        return await true(self, gated, below)

    monkeypatch.setattr(Gate, "suspend", late)
    async with play(cleaning("/a")) as world:
        result = await world.run(AGENT, thread="t")

        assert result.ok and erased == ["/a"]


@FILE
async def test_a_nested_sub_agents_question_is_waited_for_by_all_above(play: Play) -> None:
    def respond(request: ModelRequest) -> Scripted:
        if is_child(request) and part(request) == "deeper":
            return say("Passed on.") if step(request) else calls(order("/a"))
        return cleaning("deeper")(request) if not is_child(request) else cleaning()(request)

    async with play(respond, settings={"delegation_depth": 2}) as world:
        waits = await world.run(AGENT, thread="t")
        assert [question.task_key for question in waits.questions] == ["/a"]
        assert await world.runtime.questions(thread="t") == list(waits.questions)
        runs = await world.store.runs.list(root_run_id=waits.run_id)
        assert [run.status for run in runs] == ["suspended"] * 3
        await world.runtime.answer(waits.questions[0].id, True)

        result = await world.runtime.resume(waits.run_id, AGENT)

        assert result.ok and erased == ["/a"]
        assert await ends(world, waits.run_id) == [1] * 3


@FILE_THEN_POSTGRES
async def test_after_a_kill_before_the_suspension_the_question_is_answered_and_the_run_resumes(
    play: Play, tmp_path: Path
) -> None:
    """One sub-agent asks and another one works when the process is killed."""
    async with play() as world:
        async with asking(world.database_url, tmp_path / "asked") as other:
            await other.until("run-suspend", "waiting")
            await other.kill()
        [root] = await world.store.runs.list(thread_id="t")
        assert root.status == "running"
        [question] = await world.runtime.questions(thread="t")
        again = Asker(tmp_path / "asked").agent()

        # Resumed before the answer, it waits as it would have without the kill.
        waits = await world.runtime.resume(root.id, again)
        assert (waits.stop_reason, waits.questions) == ("awaiting_user", (question,))
        assert (await world.runtime.sweep()).resumable == ()
        assert await world.runtime.answer(question.id, True)
        assert [run.id for run in (await world.runtime.sweep()).resumable] == [root.id]
        result = await world.runtime.resume(root.id, again)

        assert result.ok
        assert await ends(world, root.id) == [1, 1, 1]
        assert (tmp_path / "asked").read_text().splitlines().count("effect") == 1


async def test_pausing_the_root_pauses_its_sub_agents_and_starts_none(play: Play) -> None:
    """Two work at a time, the third has not started; each stops at its own next step."""
    seen: list[str] = []
    both = anyio.Event()

    @tool
    async def work(name: str) -> str:
        """Work, and pause the root once two are working."""
        seen.append(name)
        if len(seen) == 2:
            await world.runtime.pause(world.events[0].run_id)
            both.set()
        await both.wait()
        return f"{name} worked"

    def respond(request: ModelRequest) -> Scripted:
        if not is_child(request):
            return cleaning("one", "two", "three")(request)
        return say("Done.") if step(request) else call("work", name=part(request))

    async with play(respond, settings={"delegation_parallel": 2}) as world:
        agent = Agent(tools=[work], delegation=True)
        with anyio.fail_after(60):
            paused = await world.run(agent, thread="t")

        assert (paused.status, paused.stop_reason) == ("suspended", "paused")
        begun = await children(world, paused.run_id)
        assert set(begun) == set(seen) and list(begun.values()) == ["suspended"] * 2
        assert (await world.runtime.sweep()).resumable == ()
        result = await world.runtime.resume(paused.run_id, agent)

        assert result.ok and sorted(seen) == ["one", "three", "two"]
        assert await ends(world, paused.run_id) == [1] * 4
        assert await world.store.inbox.pending("t") == []


@FILE
async def test_a_paused_root_still_waits_for_a_sub_agents_question(play: Play) -> None:
    @tool
    async def halt() -> str:
        """Pause the root once the other sub-agent asks."""
        await open_question(world)
        await world.runtime.pause(world.events[0].run_id)
        return "paused"

    def respond(request: ModelRequest) -> Scripted:
        if is_child(request) and part(request) == "halt":
            return say("Halted.") if step(request) else call("halt")
        return cleaning("/a", "halt")(request)

    async with play(respond) as world:
        agent = Agent(tools=[erase, halt], delegation=True)
        paused = await world.run(agent, thread="t")

        assert paused.stop_reason == "paused"
        [question] = paused.questions
        with pytest.raises(QuestionsOpen):
            await world.runtime.resume(paused.run_id, agent)
        await world.runtime.answer(question.id, True)

        assert (await world.runtime.resume(paused.run_id, agent)).ok and erased == ["/a"]


def _record(run: Run) -> DelegationRecord:
    """Return the call that started a sub-agent, as its run stores it."""
    record = delegation_record(run)
    assert record is not None
    return record
