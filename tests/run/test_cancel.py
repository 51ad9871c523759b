"""Cancelling runs: from inside, from the same process, from another one, and dead runs."""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator, Awaitable, Callable

import anyio
import anyio.to_thread
import orjson
import pytest

from agent_runtime import (
    Agent,
    Event,
    RunResult,
    Runtime,
    ScriptedModel,
    Settings,
    ToolContext,
    tool,
)
from agent_runtime.log.leases import this_process_owner
from agent_runtime.messages import decode_result
from agent_runtime.models.scripted import call, calls, raw_call, say
from agent_runtime.run.queue import control as queue_control
from agent_runtime.run.takeover import end_if_dead
from agent_runtime.run.tool_calls import INTERRUPTED, STILL_RUNNING
from agent_runtime_storage import LeaseOwner, NewRun, Run, UserStore
from tests.services.backends import FILE_FIRST
from tests.support.elsewhere import elsewhere


@pytest.fixture
async def runtime(database_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Runtime]:
    """A runtime on the test's own database that checks for cancels often."""
    monkeypatch.setattr("agent_runtime.log.lease_keeper.POLL_SECONDS", 0.02)
    async with Runtime.open(Settings(database_url=database_url)) as runtime:
        yield runtime


class Hanging:
    """Agents whose tool hangs until it is cancelled, directly or in a child run."""

    def __init__(self) -> None:
        self.under_way = anyio.Event()
        self.run_ids: list[str] = []
        self.stopped = False

        @tool
        async def hang(context: ToolContext) -> str:
            """Hang."""
            self.run_ids.append(context.run_id)
            self.under_way.set()
            try:
                await anyio.sleep_forever()
            finally:
                self.stopped = True
            return "never"

        @tool
        async def delegate(context: ToolContext) -> str:
            """Have a child run hang."""
            self.run_ids.append(context.run_id)
            child = Agent(ScriptedModel([call("hang")]), tools=[hang], name="child")
            return str((await context.run_agent(child, "Hang.")).output)

        self.parent = Agent(ScriptedModel([call("delegate"), say("done")]), tools=[delegate])
        self.agent = Agent(ScriptedModel([call("hang")]), tools=[hang])


async def cancelled_while(
    hanging: Hanging, run: Callable[[], Awaitable[RunResult]], cancel: Callable[[], Awaitable[None]]
) -> RunResult:
    """Run until the tool hangs, then cancel; return the result of the run."""
    results: list[RunResult] = []

    async def start() -> None:
        results.append(await run())

    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            group.start_soon(start)
            await hanging.under_way.wait()
            await cancel()
    return results[0]


async def assert_ended(runtime: Runtime, run_id: str) -> None:
    """Check that a run is cancelled, its thread free and its exchange closed."""
    store = runtime.store.of("local")
    run = await store.runs.get(run_id)
    assert (run.status, run.stop_reason, run.open_node) == ("cancelled", "cancelled", None)
    assert run.owner is None
    thread = await store.threads.get(run.thread_id)
    assert thread.active_run is None and thread.head is not None
    node = await store.log.node(thread.id, thread.head)
    assert node.status == "closed"
    assert all(call.status == "done" for call in node.calls)
    events = await store.events.list(thread.id)
    assert [event.kind for event in events].count("run-finish") == 1
    assert events[-1].kind == "run-finish"


async def test_a_cancel_reaches_a_run_and_stops_its_tool(runtime: Runtime) -> None:
    hanging = Hanging()

    async def cancel() -> None:
        assert await runtime.cancel(hanging.run_ids[0]) == hanging.run_ids

    result = await cancelled_while(hanging, lambda: runtime.run(hanging.agent, "Go."), cancel)

    assert (result.status, result.stop_reason, result.ok) == ("cancelled", "cancelled", False)
    assert hanging.stopped
    await assert_ended(runtime, result.run_id)


async def test_a_cancel_reaches_the_children(runtime: Runtime) -> None:
    hanging = Hanging()

    async def cancel() -> None:
        assert sorted(await runtime.cancel(hanging.run_ids[0])) == sorted(hanging.run_ids)

    result = await cancelled_while(hanging, lambda: runtime.run(hanging.parent, "Go."), cancel)

    parent, child = hanging.run_ids
    assert result.run_id == parent and result.status == "cancelled"
    await assert_ended(runtime, parent)
    await assert_ended(runtime, child)


async def test_cancelling_a_child_leaves_its_parent_running(runtime: Runtime) -> None:
    hanging = Hanging()

    async def cancel() -> None:
        assert await runtime.cancel(hanging.run_ids[1]) == hanging.run_ids[1:]

    result = await cancelled_while(hanging, lambda: runtime.run(hanging.parent, "Go."), cancel)

    assert (result.run_id, result.output) == (hanging.run_ids[0], "done")
    await assert_ended(runtime, hanging.run_ids[1])


async def test_cancelling_the_caller_closes_the_open_exchange(runtime: Runtime) -> None:
    under_way = anyio.Event()
    finished = anyio.Event()

    @tool
    async def hang() -> str:
        """Hang once the other call is recorded."""
        await finished.wait()
        under_way.set()
        await anyio.sleep_forever()
        return "never"

    @tool
    async def quick() -> str:
        """Return at once."""
        return "quick"

    def watch(event: Event) -> None:
        if event.kind == "tool-finish":
            finished.set()

    both = calls(raw_call("quick"), raw_call("hang"))
    agent = Agent(ScriptedModel([both]), tools=[hang, quick])
    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:

            async def start() -> None:
                await runtime.run(agent, "Go.", thread="t", on_event=watch)

            group.start_soon(start)
            await under_way.wait()
            group.cancel_scope.cancel()

    store = runtime.store.of("local")
    [run] = await store.runs.list(thread_id="t")
    await assert_ended(runtime, run.id)
    results = [decode_result(row.body) for row in (await store.log.node("t", 2)).calls]
    assert [(agent.outcome, agent.text) for agent in results] == [
        ("ok", "quick"),
        ("interrupted", INTERRUPTED),
    ]


async def test_a_cancel_names_the_tools_that_cannot_be_stopped(runtime: Runtime) -> None:
    under_way, release = threading.Event(), threading.Event()

    @tool
    def press() -> str:
        """Press a button for as long as it takes."""
        under_way.set()
        release.wait(30)
        return "pressed"

    agent = Agent(ScriptedModel([call("press")]), tools=[press])
    results: list[RunResult] = []

    async def start() -> None:
        results.append(await runtime.run(agent, "Go.", thread="t"))

    try:
        async with anyio.create_task_group() as group:
            group.start_soon(start)
            await anyio.to_thread.run_sync(under_way.wait)
            [run] = await runtime.store.of("local").runs.list(thread_id="t")
            await runtime.cancel(run.id)
    finally:
        release.set()

    [result] = results
    assert result.status == "cancelled"
    assert "press may still be running" in result.detail
    [row] = (await runtime.store.of("local").log.node("t", 2)).calls
    result_of_call = decode_result(row.body)
    assert (result_of_call.outcome, result_of_call.text) == (
        "interrupted",
        f"{INTERRUPTED} {STILL_RUNNING}",
    )


@FILE_FIRST
async def test_a_cancel_reaches_a_dead_run_during_its_takeover(
    runtime: Runtime, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with elsewhere(database_url) as other:
        run_id = (await other.until("tool-start"))["run_id"]
        await other.kill()
    store = runtime.store.of("local")
    alive = LeaseOwner(host="another-host", boot="b", pid=1, started="1")

    async def quicker(store: UserStore, run: Run) -> bool:
        # It read the run before the cancel was requested.
        await store.runs.take_lease(run.id, alive, seconds=30, replaces=run.epoch)
        return await end_if_dead(store, run)

    monkeypatch.setattr(queue_control, "end_if_dead", quicker)
    assert await runtime.cancel(run_id) == [run_id]

    run = await store.runs.get(run_id)
    assert (run.status, run.owner, run.cancel_requested) == ("running", alive, True)


async def test_a_cancelled_run_ends_children_whose_takeover_did_not_continue(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging = Hanging()
    store = runtime.store.of("local")

    async def too_late(store: UserStore, run: Run) -> bool:
        # Another process takes the run over now, and is cancelled before it continues.
        del store, run
        return False

    async def cancel() -> None:
        [root_id] = hanging.run_ids
        await store.threads.ensure("below")
        await store.runs.begin(
            NewRun(
                "below", "below", "child", 1, {}, this_process_owner(), 30, expect_head=None,
                expect_seq=0, parent_run_id=root_id, root_run_id=root_id,
            )
        )  # fmt: skip
        assert set(await runtime.cancel(root_id)) == {root_id, "below"}

    monkeypatch.setattr(queue_control, "end_if_dead", too_late)
    await cancelled_while(hanging, lambda: runtime.run(hanging.agent, "Go."), cancel)

    assert (await store.runs.get("below")).status == "cancelled"


async def test_a_stale_row_does_not_end_a_run_again(runtime: Runtime) -> None:
    hanging = Hanging()
    store = runtime.store.of("local")

    async def cancel() -> None:
        [run_id] = hanging.run_ids
        seen.append(await store.runs.get(run_id))
        await runtime.cancel(run_id)

    seen: list[Run] = []
    await cancelled_while(hanging, lambda: runtime.run(hanging.agent, "Go."), cancel)

    # Neither with the row that it saw, nor with the row as it is now.
    assert not await end_if_dead(store, seen[0])
    assert not await end_if_dead(store, await store.runs.get(seen[0].id))
    events = await store.events.list(seen[0].thread_id)
    assert [event.kind for event in events].count("run-finish") == 1


async def test_leaving_a_stream_cancels_its_run(runtime: Runtime) -> None:
    hanging = Hanging()

    with anyio.fail_after(30):
        async with runtime.stream(hanging.agent, "Go.") as stream:
            async for event in stream:
                if event.kind == "tool-start":
                    break

    await assert_ended(runtime, stream.run_id)


async def test_a_cancel_at_the_last_commit_changes_nothing(runtime: Runtime) -> None:
    with anyio.CancelScope() as scope:

        def watch(event: Event) -> None:
            if event.kind == "run-finish":
                scope.cancel()

        await runtime.run(Agent(ScriptedModel([say("done")])), "Go.", thread="t", on_event=watch)

    store = runtime.store.of("local")
    [run] = await store.runs.list(thread_id="t")
    assert (run.status, orjson.loads(run.output)) == ("succeeded", "done")
    assert [event.kind for event in await store.events.list("t")].count("run-finish") == 1


async def test_cancelling_twice_is_harmless(runtime: Runtime) -> None:
    hanging = Hanging()

    async def cancel() -> None:
        assert await runtime.cancel(hanging.run_ids[0]) == hanging.run_ids
        await runtime.cancel(hanging.run_ids[0])

    result = await cancelled_while(hanging, lambda: runtime.run(hanging.agent, "Go."), cancel)

    assert await runtime.cancel(result.run_id) == []
    await assert_ended(runtime, result.run_id)


async def test_a_cancel_does_not_change_a_finished_run(runtime: Runtime) -> None:
    result = await runtime.run(Agent(ScriptedModel([say("done")])), "Go.")
    before = await runtime.store.of("local").runs.get(result.run_id)

    assert await runtime.cancel(result.run_id) == []

    assert await runtime.store.of("local").runs.get(result.run_id) == before


async def test_a_cancel_reaches_a_run_in_another_process_and_its_children(
    runtime: Runtime, database_url: str
) -> None:
    async with elsewhere(database_url, tool="delegate") as other:
        parent = (await other.until("tool-start", tool="delegate"))["run_id"]
        child = (await other.until("tool-start", tool="wait"))["run_id"]

        assert sorted(await runtime.cancel(parent)) == sorted([parent, child])

        ended = {
            (await other.until("run-finish", status="cancelled"))["run_id"],
            (await other.until("run-finish", status="cancelled"))["run_id"],
        }
        assert ended == {parent, child}
        # The thread that reads stdin cannot be stopped, and a process waits for its threads.
        await other.release()
        assert await other.process.wait() == 0
    await assert_ended(runtime, parent)
    await assert_ended(runtime, child)


@FILE_FIRST
async def test_a_cancel_ends_runs_of_a_dead_process(runtime: Runtime, database_url: str) -> None:
    async with elsewhere(database_url, tool="delegate") as other:
        parent = (await other.until("tool-start", tool="delegate"))["run_id"]
        child = (await other.until("tool-start", tool="wait"))["run_id"]
        await other.kill()

    assert sorted(await runtime.cancel(parent)) == sorted([parent, child])

    await assert_ended(runtime, parent)
    await assert_ended(runtime, child)
    # Its thread is free, and its history is valid for a model.
    result = await runtime.run(Agent(ScriptedModel([say("next")])), "Go on.", thread="t")
    assert result.output == "next"


async def test_a_cancelled_run_begins_no_children(runtime: Runtime) -> None:
    hanging = Hanging()
    began: list[str] = []

    @tool
    async def spawn_late(context: ToolContext) -> str:
        """Have this run cancelled, then begin a child nevertheless."""
        await runtime.store.of("local").runs.cancel(context.run_id)
        with anyio.CancelScope(shield=True):
            try:
                await context.run_agent(hanging.agent, "Hang.")
            finally:
                children = await context.store.runs.list(parent_run_id=context.run_id)
                began.extend(agent.id for agent in children)
        return "began"

    agent = Agent(ScriptedModel([call("spawn_late"), say("done")]), tools=[spawn_late])
    with anyio.fail_after(30):
        result = await runtime.run(agent, "Go.")

    assert result.status == "cancelled"
    assert began == []
