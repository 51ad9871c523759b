"""The crash sweep: runs whose process is gone are suspended and can be resumed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from agent_runtime import Agent, Runtime, ScriptedModel, Settings, ToolContext, tool
from agent_runtime.errors import LeaseLost
from agent_runtime.log.run_spec import RunSpec
from agent_runtime.models.scripted import call, calls, raw_call, say
from agent_runtime.run.sweep import Sweep, continuation_of
from agent_runtime.run.tool_calls import INTERRUPTED
from agent_runtime_storage import Amount, Commit, UserStore
from tests.delegation.elsewhere import Worker
from tests.delegation.elsewhere import elsewhere as delegating
from tests.human.elsewhere import AT_ONCE
from tests.services.backends import FILE_FIRST, FILE_THEN_POSTGRES
from tests.storage.helpers import OTHER, begin
from tests.support.elsewhere import agent, elsewhere
from tests.support.worlds import Play, World
from tests.workflow.elsewhere import EFFECTS, Effects, flow
from tests.workflow.elsewhere import elsewhere as flowing

NOTHING = Sweep((), (), ())
ASK = calls(raw_call("ask_user", question="Sure?", kind="text"))
FILE = pytest.mark.backends("file")


async def kinds(store: UserStore, thread: str) -> list[str]:
    """Return the kinds of a thread's events."""
    return [event.kind for event in await store.events.list(thread)]


@FILE_FIRST
async def test_a_killed_run_is_suspended_once_and_its_call_is_interrupted(
    play: Play,
) -> None:
    async with play() as world:
        async with elsewhere(world.database_url) as other:
            run_id = str((await other.until("tool-start"))["run_id"])
            assert await world.runtime.sweep() == NOTHING
            await other.kill()

        swept = await world.runtime.sweep()

        [run] = swept.interrupted
        assert (run.id, run.status, run.stop_reason) == (run_id, "suspended", "interrupted")
        assert "is gone" in run.detail and "with an unverified effect: wait." in run.detail
        assert run.owner is None and swept.resumable == (run,)
        assert await world.runtime.sweep() == Sweep((), (), (run,))
        assert (await kinds(world.store, "t")).count("run-suspend") == 1

        model = ScriptedModel([say("done")])
        result = await world.runtime.resume(run_id, Agent(model, tools=agent("wait").tools))

        assert result.ok and INTERRUPTED in model.requests[0].messages[-1].text
        assert (await kinds(world.store, "t")).count("run-finish") == 1
        assert await world.runtime.sweep() == NOTHING


@FILE
async def test_a_working_run_is_left_alone(play: Play) -> None:
    sweeps: list[Sweep] = []

    @tool
    async def look(context: ToolContext) -> str:
        """Sweep from this runtime and from another one."""
        async with Runtime.open(Settings(database_url=str(context.deps))) as second:
            sweeps.extend([await second.sweep(), await world.runtime.sweep()])
        return "seen"

    @tool
    async def sweep_below(context: ToolContext) -> str:
        """Sweep inside a sub-agent's run."""
        child = Agent(ScriptedModel([call("look"), say("ok")]), tools=[look])
        return str((await context.run_agent(child, "Look.")).output)

    async with play([call("sweep_below"), say("Done.")]) as world:
        result = await world.run(Agent(tools=[sweep_below]), deps=world.database_url)

        assert result.ok and sweeps == [NOTHING, NOTHING]


async def test_concurrent_sweeps_suspend_each_run_once(play: Play, tmp_path: Path) -> None:
    async with play() as world:
        async with delegating(world.database_url, tmp_path / "asked", "two", "three") as other:
            await other.until("run-finish", "waiting", "waiting")
            await other.kill()
        sweeps: list[Sweep] = []

        async def look() -> None:
            async with Runtime.open(Settings(database_url=world.database_url)) as runtime:
                sweeps.append(await runtime.sweep())

        async with anyio.create_task_group() as group:
            for _ in range(4):
                group.start_soon(look)

        swept = [run.id for sweep in sweeps for run in sweep.interrupted]
        runs = await world.store.runs.list(status=["suspended"])
        assert len(runs) == 3 and sorted(swept) == sorted(run.id for run in runs)
        for run in runs:
            assert (await kinds(world.store, run.thread_id)).count("run-suspend") == 1


@FILE_THEN_POSTGRES
async def test_sub_agents_continue_when_their_root_is_resumed(play: Play, tmp_path: Path) -> None:
    path = tmp_path / "asked"
    async with play() as world:
        async with delegating(world.database_url, path, "two", "three") as other:
            await other.until("run-finish", "waiting", "waiting")
            await other.kill()

        swept = await world.runtime.sweep()

        store = world.store
        [parent] = await store.runs.list(thread_id="t")
        assert swept.resumable == (parent,) and len(swept.interrupted) == 3
        ways = {run.id: await continuation_of(store, run) for run in swept.interrupted}
        assert ways.pop(parent.id) == "resume" and set(ways.values()) == {"root"}

        result = await world.runtime.resume(parent.id, Worker(path).agent())

        assert result.output == "Done."
        runs = await store.runs.list(parent_run_id=parent.id)
        assert {run.status for run in runs} == {"succeeded"} and len(runs) == 3
        for run in runs:
            assert (await kinds(store, run.thread_id)).count("run-finish") == 1
    # Each looked once; of the killed ones only the interrupted step was requested again.
    requested = path.read_text().splitlines()
    assert sorted(requested) == sorted(
        ["one 0", "one 1", "two 0", "two 1", "two 1", "three 0", "three 1", "three 1"]
    )


@FILE
async def test_background_tasks_continue_when_their_parent_is_resumed(
    play: Play, tmp_path: Path
) -> None:
    path = tmp_path / "asked"
    async with play() as world:
        waits = ("parent", "two", "three")
        async with delegating(world.database_url, path, *waits, background=True) as other:
            await other.until("run-finish", "waiting", "waiting", "waiting")
            await other.kill()

        swept = await world.runtime.sweep()

        [parent] = await world.store.runs.list(thread_id="t")
        assert swept.resumable == (parent,)
        ways = [await continuation_of(world.store, run) for run in swept.interrupted]
        assert sorted(map(str, ways)) == ["resume", "task", "task"]
        result = await world.runtime.resume(parent.id, Worker(path, background=True).agent())
        assert result.output == "Done."
        runs = await world.store.runs.list(parent_thread_id="t")
        assert [run.status for run in runs] == ["succeeded"] * 3


@FILE
async def test_a_killed_workflow_continues_where_it_was(play: Play, tmp_path: Path) -> None:
    effects = Effects(tmp_path / "effects")
    async with play() as world:
        async with flowing(world.database_url, effects.path, "agent2") as other:
            await other.until("effect agent2", "tool-finish once")
            await other.kill()
        EFFECTS[str(effects.path)] = effects

        swept = await world.runtime.sweep()
        assert [run.id for run in swept.resumable] == [other.run_id]
        assert len(swept.interrupted) == 2
        result = await world.runtime.resume(other.run_id, flow, deps=effects)

        assert result.ok and effects.done().count("agent2") == 1
        runs = await world.store.runs.list(root_run_id=other.run_id)
        assert {run.status for run in runs} == {"succeeded"}


@FILE
async def test_a_run_that_waits_for_a_person_is_offered_after_the_answer(
    play: Play,
) -> None:
    async with play([ASK, say("Thanks.")]) as world:
        asks = Agent(asking=True)
        [question] = (await world.run(asks, thread="t")).questions
        before = await world.row()

        assert await world.runtime.sweep() == NOTHING
        assert await world.row() == before
        await world.runtime.answer(question.id, "Yes.")

        assert await world.runtime.sweep() == Sweep((), (), (before,))
        assert (await world.resume(asks)).ok


@FILE
async def test_a_run_whose_questions_have_expired_can_be_resumed(play: Play) -> None:
    settings = {"answer_timeout": AT_ONCE}
    async with play([ASK, say("I assumed it.")], settings=settings) as world:
        asks = Agent(asking=True)
        waits = await world.run(asks, thread="t")

        [run] = (await world.runtime.sweep()).resumable

        assert run.id == waits.run_id
        assert (await world.runtime.resume(run.id, asks)).output == "I assumed it."


@FILE
async def test_a_paused_run_is_not_offered(play: Play) -> None:
    async with play() as world:
        async with elsewhere(world.database_url) as other:
            run_id = str((await other.until("tool-start"))["run_id"])
            await other.kill()
        await world.runtime.pause(run_id)

        assert await world.runtime.sweep() == NOTHING
        run = await world.store.runs.get(run_id)
        assert (run.stop_reason, await continuation_of(world.store, run)) == ("paused", "resume")


@FILE_FIRST
async def test_a_killed_run_with_a_requested_cancel_is_ended(play: Play) -> None:
    async with play() as world:
        async with elsewhere(world.database_url) as other:
            run_id = str((await other.until("tool-start"))["run_id"])
            await other.kill()
        await world.store.runs.cancel(run_id)

        swept = await world.runtime.sweep()

        assert swept.interrupted == () and swept.resumable == ()
        [run] = swept.ended
        assert (run.id, run.status) == (run_id, "cancelled")
        assert (await world.store.threads.get("t")).active_run is None


async def test_an_expired_owner_loses_the_lease_and_its_reservation_is_unsettled(
    play: Play,
) -> None:
    """An owner on another host counts as dead when its lease has expired, not before."""
    async with play() as world:
        store = world.store
        await begin(store, "lives", "t1", owner=OTHER)
        lease = await begin(
            store, "slow", "t2", owner=OTHER, lease_seconds=0.0, reserve=Amount(700, 30)
        )

        [run] = (await world.runtime.sweep()).interrupted

        assert (run.id, run.reserved, run.unsettled) == ("slow", Amount(), Amount(700, 30))
        assert run.settled == Amount()
        with pytest.raises(LeaseLost):
            await store.runs.commit(lease, Commit(steps=1))
        with pytest.raises(LeaseLost):
            await store.runs.renew_lease(lease, seconds=30)
        assert (await store.runs.get("lives")).status == "running"


@FILE
async def test_an_upkeep_run_is_ended_and_frees_its_thread(play: Play) -> None:
    async with play([say("Hello.")]) as world:
        await world.run(Agent(), thread="t")
        thread = await world.store.threads.get("t")
        place: dict[str, Any] = {"expect_head": thread.head, "expect_seq": thread.last_seq}
        place |= {"nodes": (), "task_id": None, "spec": {}}
        place["internal"] = RunSpec(upkeep="observe").internal()
        await begin(world.store, "upkeep", "t", owner=OTHER, lease_seconds=0.0, **place)

        swept = await world.runtime.sweep()

        assert [run.id for run in swept.ended] == ["upkeep"] and swept.resumable == ()
        assert (await world.store.threads.get("t")).active_run is None


async def test_runs_of_other_owners_are_left_alone(play: Play) -> None:
    async with play() as world:
        mine = world.runtime.store.of("mallory")
        await begin(world.store, "r1", "t1", owner=OTHER, lease_seconds=0.0)
        await begin(mine, "r2", "t1", owner=OTHER, lease_seconds=0.0)

        swept = await world.runtime.sweep(user="mallory")

        assert [run.id for run in swept.interrupted] == ["r2"]
        assert (await world.store.runs.get("r1")).status == "running"


@FILE
async def test_the_next_sweep_completes_one_that_was_killed(world_of_dead: World) -> None:
    """The process took the lease, and died before it recorded the interruption."""
    world = world_of_dead
    run = await world.store.runs.get("r1")
    await world.store.runs.take_lease("r1", OTHER, seconds=0.0, replaces=run.epoch)

    [swept] = (await world.runtime.sweep()).interrupted

    assert (swept.id, swept.epoch) == ("r1", 3)
    assert (await kinds(world.store, "t1")).count("run-suspend") == 1


@pytest.fixture
async def world_of_dead(play: Play) -> Any:
    """A world with a run whose process is gone."""
    async with play() as world:
        await begin(world.store, "r1", "t1", owner=OTHER, lease_seconds=0.0)
        yield world
