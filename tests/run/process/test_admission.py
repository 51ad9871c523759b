"""The limit of runs at once, sweeps of an open runtime, health, and listeners of events."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from agent_runtime import Agent, Event, Health, Runtime, ScriptedModel, Settings, tool
from agent_runtime.errors import RuntimeClosed
from agent_runtime.human.questions import Question
from agent_runtime.models.scripted import call, say
from agent_runtime.run.process.admission import Admission
from agent_runtime_storage import LeaseOwner
from agent_runtime_storage.contract.records.log import Run
from agent_runtime_storage.drivers.turns import MOST
from tests.support.command import clean_environ

# Nothing of it depends on the database.
pytestmark = pytest.mark.backends("file")
GONE = LeaseOwner(host="gone", boot="b", pid=1, started="1")


async def test_runs_beyond_the_limit_wait_in_order(database_url: str) -> None:
    gate, seen = anyio.Event(), list[tuple[int, str, object]]()

    @tool
    async def work() -> str:
        """Work until all wait."""
        await gate.wait()
        return "done"

    settings = Settings(database_url=database_url, max_runs=1)
    async with Runtime.open(settings) as runtime:

        async def run(number: int) -> None:
            agent = Agent(ScriptedModel([call("work"), say("done")]), tools=[work])

            def listen(event: Event) -> None:
                if event.kind in ("run-queue", "run-start"):
                    seen.append((number, event.kind, event.data.get("ahead")))

            assert (await runtime.run(agent, "Go.", on_event=listen)).ok

        async with anyio.create_task_group() as group:
            for number in range(4):
                group.start_soon(run, number)
            while runtime.health().running < 1 or runtime.health().waiting < 3:  # noqa: ASYNC110
                await anyio.sleep(0.001)
            leaving = asyncio.ensure_future(run(4))
            while runtime.health().waiting < 4:  # noqa: ASYNC110
                await anyio.sleep(0.001)
            leaving.cancel()
            gate.set()
        assert runtime.health().waiting == runtime.health().running == 0

    queued = [(number, ahead) for number, kind, ahead in seen if kind == "run-queue"]
    assert queued == [(1, 0), (2, 1), (3, 2), (4, 3)]
    assert [number for number, kind, _ in seen if kind == "run-start"] == [0, 1, 2, 3]


async def test_of_runs_that_come_at_once_a_few_begin_in_each_turn() -> None:
    admission, begun = Admission(), list[int]()

    async def run(number: int) -> None:
        async with admission.admitted():
            begun.append(number)

    runs = [asyncio.ensure_future(run(number)) for number in range(100)]
    runs[5].cancel()
    most = 0
    while not all(one.done() for one in runs):
        before = len(begun)
        await asyncio.sleep(0)
        most = max(most, len(begun) - before)
    assert begun == [number for number in range(100) if number != 5]
    assert most <= 2 * MOST
    assert admission.working == 0


async def test_a_run_that_a_tool_begins_does_not_wait_for_the_place_of_its_caller(
    database_url: str,
) -> None:
    inner_ended, outer_ends = anyio.Event(), anyio.Event()
    async with Runtime.open(Settings(database_url=database_url, max_runs=1)) as runtime:

        @tool
        async def ask() -> str:
            """Ask another agent."""
            answer = (await runtime.run(Agent(ScriptedModel([say("inner")])), "Go.")).output
            inner_ended.set()
            await outer_ends.wait()
            return str(answer)

        model = ScriptedModel([call("ask"), say("outer")])
        with anyio.fail_after(30):
            async with anyio.create_task_group() as group:
                group.start_soon(runtime.run, Agent(model, tools=[ask]), "Go.")
                while not runtime.health().running:  # noqa: ASYNC110
                    await anyio.sleep(0.001)
                group.start_soon(runtime.run, Agent(ScriptedModel([say("next")])), "Go.")
                await inner_ended.wait()
                # The end of the inner run leaves its caller's place taken.
                assert runtime.health().waiting == 1
                outer_ends.set()
        assert model.requests[-1].messages[-1].text == "inner"
        assert runtime.health().waiting == runtime.host.admission.working == 0


async def test_a_run_that_waits_for_a_place_is_refused_on_close(database_url: str) -> None:
    begun = anyio.Event()

    @tool
    async def work() -> str:
        """Work without end."""
        begun.set()
        await anyio.sleep_forever()
        return ""

    async with Runtime.open(Settings(database_url=database_url, max_runs=1)) as runtime:
        agent = Agent(ScriptedModel([call("work")]), tools=[work])
        first = asyncio.ensure_future(runtime.run(agent, "Go."))
        await begun.wait()
        second = asyncio.ensure_future(runtime.run(agent, "Go."))
        while not runtime.health().waiting:
            await anyio.lowlevel.checkpoint()
        await runtime.close(pause=0)
        assert (await first).stop_reason == "interrupted"
        with pytest.raises(RuntimeClosed, match="before this run began"):
            await second


async def test_an_open_runtime_sweeps_and_continues_dead_runs_of_all_owners(
    database_url: str,
) -> None:
    dead: list[str] = []
    async with Runtime.open(Settings(database_url=database_url)) as runtime:
        for user in ("ann", "bob", "aaa"):
            agent = Agent(ScriptedModel([call("none")]), max_steps=1, name=user)
            run_id = (await runtime.run(agent, "Go.", user=user)).run_id
            await runtime.store.of(user).runs.take_lease(run_id, GONE, seconds=0, replaces=1)
            dead.append(run_id)

    def agent_for(run: Run) -> Agent | None:
        if run.agent == "aaa":
            raise KeyError("This owner must not keep the others waiting.")
        # Bob's agent is not known here.
        return Agent(ScriptedModel([say("went on")])) if run.agent == "ann" else None

    swept = Settings(database_url=database_url, sweep=0.01)
    async with Runtime.open(swept, agents=agent_for) as runtime:
        ann, bob = runtime.store.of("ann").runs, runtime.store.of("bob").runs
        with anyio.fail_after(30):
            while (await ann.get(dead[0])).status != "succeeded":  # noqa: ASYNC110
                await anyio.sleep(0.01)
            while (await bob.get(dead[1])).status != "suspended":  # noqa: ASYNC110
                await anyio.sleep(0.01)


async def test_a_sweep_leaves_a_run_to_the_caller_that_asks_and_resumes_it(
    database_url: str,
) -> None:
    continued: list[str] = []

    def agent_for(run: Run) -> Agent:
        continued.append(run.agent)
        return Agent(ScriptedModel([say("went on")]))

    async def ask(question: Question) -> str:
        await runtime.answer(question.id, "yes")
        # A run that a later sweep continues, or the same one after the run that asks.
        left = Agent(ScriptedModel([call("none")]), max_steps=1, name="left")
        run_id = (await runtime.run(left, "Go.")).run_id
        runs = runtime.store_of().runs
        await runs.take_lease(run_id, GONE, seconds=0, replaces=1)
        with anyio.fail_after(30):
            while (await runs.get(run_id)).status != "succeeded":  # noqa: ASYNC110
                await anyio.sleep(0.01)
        return "yes"

    settings = Settings(database_url=database_url, sweep=0.01)
    async with Runtime.open(settings, agents=agent_for) as runtime:
        script = [call("ask_user", question="Go on?"), say("done")]
        agent = Agent(ScriptedModel(script), name="asking", asking=True)
        result = await runtime.run(agent, "Go.", on_question=ask)
    assert result.output == "done"
    assert continued == ["left"]


async def test_health_tells_of_late_leases_and_open_exchanges(database_url: str) -> None:
    async with Runtime.open(Settings(database_url=database_url)) as runtime:
        health: list[Health] = []

        @tool
        async def look() -> str:
            """Look at the health while the tool runs."""
            health.append(runtime.health())
            runtime.host.keeper.runs.copy().popitem()[1].renewed_at -= 100
            health.append(runtime.health())
            return "seen"

        agent = Agent(ScriptedModel([call("look"), say("done")]), tools=[look])
        assert (await runtime.run(agent, "Go.")).ok

        assert (health[0].running, health[0].open_exchanges, health[0].ok) == (1, 1, True)
        assert "was not renewed for 100 s" in health[1].problems[0]
        assert runtime.health().ok and not runtime.health().running


async def test_an_async_listener_sees_all_events_in_order_before_the_result(
    database_url: str,
) -> None:
    seen: list[str] = []

    async def listen(event: Event) -> None:
        await anyio.lowlevel.checkpoint()
        seen.append(event.kind)
        if event.kind == "activation":
            raise ValueError("This changes nothing.")
        if event.kind == "answer":
            # The run's end is in the queue already.
            raise asyncio.CancelledError

    async with Runtime.open(Settings(database_url=database_url)) as runtime:
        agent = Agent(ScriptedModel([say("done")]))
        assert (await runtime.run(agent, "Go.", on_event=listen)).ok
        assert (seen[0], seen[-1]) == ("run-start", "run-finish")
        before = len(seen)
        async with runtime.stream(agent=Agent(ScriptedModel([say("b")])), task="Go.",
                                  on_event=listen) as stream:  # fmt: skip
            events = [event.kind async for event in stream]
        assert seen[before:] == events


async def test_a_stream_that_is_dropped_cancels_its_run_and_nobody_else(database_url: str) -> None:
    begun = anyio.Event()

    @tool
    async def work() -> str:
        """Work without end."""
        begun.set()
        await anyio.sleep_forever()
        return ""

    async with Runtime.open(Settings(database_url=database_url)) as runtime:
        agent = Agent(ScriptedModel([call("work")]), tools=[work])
        context = runtime.stream(agent, "Go.")
        stream = await context.__aenter__()
        await begun.wait()
        del stream, context
        gc.collect()
        [run] = await runtime.store.of("local").runs.list()
        with anyio.fail_after(30):
            while (await runtime.store.of("local").runs.get(run.id)).status != "cancelled":  # noqa: ASYNC110
                await anyio.sleep(0.01)


def test_a_stuck_sync_tool_does_not_hold_up_the_exit(tmp_path: Path) -> None:
    code = """
import anyio, sys, time
from agent_runtime import Agent, Runtime, ScriptedModel, Settings, tool
from agent_runtime.models.scripted import call, say

@tool(timeout=0.05)
def stuck() -> str:
    "Never return."
    time.sleep(3600)

async def main():
    async with Runtime.open(Settings(database_url="file:stuck.db")) as runtime:
        agent = Agent(ScriptedModel([call("stuck"), say("left")]), tools=[stuck])
        print((await runtime.run(agent, "Go.")).output)

anyio.run(main)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=clean_environ(), timeout=120,
        capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "left\n"), done.stderr
