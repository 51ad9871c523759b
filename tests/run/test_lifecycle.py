"""A run ends with a valid log and can be resumed, whatever stops it and whenever."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncGenerator
from typing import Any

import anyio
import pytest

from agent_runtime import Agent, Event, Runtime, ScriptedModel, Settings, tool
from agent_runtime.errors import Conflict, RunCancelled, StoreUnavailable
from agent_runtime.log import lease_keeper
from agent_runtime.log.branches import edit, fork
from agent_runtime.models.scripted import Scripted, call, say
from agent_runtime.run.loop import AgentLoop
from agent_runtime.run.process import listener
from agent_runtime_storage import Commit, InboxItem, Lease, LeaseOwner, UserStore
from agent_runtime_storage.log.leases import SqlLeases
from agent_runtime_storage.queries.owner import OwnerScope


@pytest.fixture
def settings(database_url: str) -> Settings:
    """Settings with the test's own database."""
    return Settings(database_url=database_url, observational_memory=False)


@pytest.fixture
async def runtime(settings: Settings) -> AsyncGenerator[Runtime]:
    """A runtime with these settings."""
    async with Runtime.open(settings) as runtime:
        yield runtime


@tool
async def work(n: int = 0) -> str:
    """Return the number."""
    return f"did {n}"


def agent(*script: Scripted, **options: Any) -> Agent:
    """Return an agent whose model plays the script."""
    return Agent(ScriptedModel(script), tools=[work], **options)


async def check_valid(store: UserStore, thread_id: str) -> None:
    """Check that the thread is free, its branch closed, and its event ids without a gap."""
    thread = await store.threads.get(thread_id)
    assert thread.active_run is None
    assert thread.head is not None
    for node in await store.log.branch(thread_id, thread.head):
        assert node.status == "closed"
        assert all(call.status == "done" for call in node.calls)
    events = await store.events.list(thread_id)
    assert [event.id for event in events] == list(range(1, len(events) + 1))
    assert all(run.status not in ("running", "queued") for run in await store.runs.list())


def at_commit(runtime: Runtime, place: int, then: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Call `then` during the n-th commit."""
    kind = type(runtime.store.of("local").runs)
    real, count = kind.commit, 0

    async def commit(self: Any, lease: Lease, commit: Commit) -> int:
        nonlocal count
        count += 1
        if count == place:
            then()
        return await real(self, lease, commit)

    monkeypatch.setattr(kind, "commit", commit)


async def test_a_poll_of_the_lease_just_after_the_end_is_no_error(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = type(runtime.store.of("local").runs)
    commit, poll = kind.commit, SqlLeases.poll
    ended, polled = anyio.Event(), anyio.Event()

    async def slow_commit(self: Any, lease: Lease, commit_of_run: Commit) -> int:
        last = await commit(self, lease, commit_of_run)
        if commit_of_run.finish is not None:
            ended.set()
            await polled.wait()
            # The watcher asks again by itself before it believes the poll.
            await anyio.sleep(0.05)
        return last

    async def late_poll(self: Any, held: Any) -> Any:
        await ended.wait()
        found = await poll(self, held)
        assert not found
        polled.set()
        return found

    monkeypatch.setattr(lease_keeper, "POLL_SECONDS", 0.0)
    monkeypatch.setattr(kind, "commit", slow_commit)
    monkeypatch.setattr(SqlLeases, "poll", late_poll)
    result = await runtime.run(Agent(ScriptedModel([say("done")])), "Do it.")
    assert result.ok


@pytest.mark.parametrize("place", range(1, 8))
@pytest.mark.parametrize("native", [True, False], ids=["asyncio", "anyio"])
async def test_a_cancel_during_any_commit_leaves_a_valid_log(
    runtime: Runtime, place: int, native: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    scope = anyio.CancelScope()
    working = agent(call("work", n=1), call("work", n=2), say("done"))

    async def run() -> None:
        with scope:
            await runtime.run(working, "Go.", thread="t")

    task = asyncio.ensure_future(run())
    at_commit(runtime, place, task.cancel if native else scope.cancel, monkeypatch)
    await asyncio.wait([task])

    store = runtime.store.of("local")
    await check_valid(store, "t")
    last = (await store.runs.list(thread_id="t"))[0]
    assert last.status in ("cancelled", "succeeded")
    assert task.cancelled() == native
    if last.status == "cancelled":
        remaining = [call("work", n=1), call("work", n=2)][last.steps :]
        assert (await runtime.resume(last.id, agent(*remaining, say("done")))).ok


@pytest.mark.parametrize("idempotent", [True, False])
async def test_a_step_is_two_or_three_commits_and_reads_nothing(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch, idempotent: bool
) -> None:
    """Only idempotent calls start with their answer: after a crash those run again anyway."""

    @tool(idempotent=idempotent)
    async def look(n: int) -> str:
        """Look at something."""
        return f"seen {n}"

    kind, done = OwnerScope, list[str]()
    read, batch = kind.read, kind.batch

    async def noted_read(self: Any, name: str, **params: Any) -> Any:
        done.append(name)
        return await read(self, name, **params)

    async def noted_batch(self: Any, *args: Any, **options: Any) -> Any:
        done.append("batch")
        return await batch(self, *args, **options)

    monkeypatch.setattr(lease_keeper, "POLL_SECONDS", 60.0)
    monkeypatch.setattr(kind, "read", noted_read)
    monkeypatch.setattr(kind, "batch", noted_batch)
    script = [*(call("look", n=n) for n in range(4)), say("done")]
    watched = Agent(ScriptedModel(script), tools=[look])
    places: list[int] = []

    def on_event(event: Event) -> None:
        if event.kind == "answer":
            places.append(len(done))

    assert (await runtime.run(watched, "Go.", on_event=on_event)).ok
    # Not before the first answer, nor with the last one: a run's beginning and end read more.
    assert done[places[0] : places[3]] == ["batch"] * (6 if idempotent else 9)


async def test_what_comes_while_a_tool_runs_is_read_with_its_result(runtime: Runtime) -> None:
    ids: list[str] = []

    @tool
    async def wait(n: int) -> str:
        """Wait for the user."""
        await runtime.steer(ids[0], f"Number {n}.")
        return "waited"

    model = ScriptedModel([call("wait", n=1), call("wait", n=2), say("done")])

    def begun(event: Event) -> None:
        ids.append(event.run_id)

    assert (await runtime.run(Agent(model, tools=[wait]), "Go.", on_event=begun)).ok
    prompts = [request.messages[-1].text for request in model.requests]
    assert ["Number 1." in prompt for prompt in prompts] == [False, True, False]
    assert ["Number 2." in prompt for prompt in prompts] == [False, False, True]


async def test_a_call_that_did_not_begin_is_not_said_to_have_run(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    @tool(idempotent=True)
    async def look(n: int) -> str:
        """Look at something."""
        return f"seen {n}"

    async def broken(loop: AgentLoop) -> None:
        raise RuntimeError("broken before the calls")

    # The call is marked as started with the answer.
    monkeypatch.setattr(AgentLoop, "run_tools", broken)
    watched = Agent(ScriptedModel([call("look", n=1), say("done")]), tools=[look])
    with pytest.raises(RuntimeError, match="broken"):
        await runtime.run(watched, "Go.", thread="t")
    store = runtime.store.of("local")
    [(outcome, body)] = [
        (one.outcome, one.body)
        for node in await store.log.branch("t", (await store.threads.get("t")).head or 0)
        for one in node.calls
    ]
    assert outcome == "cancelled"
    assert b"It did not run" in body


@pytest.mark.parametrize("method", ["begin", "take_lease"])
async def test_a_cancel_during_a_begin_or_a_takeover_ends_the_run(
    runtime: Runtime, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = runtime.store.of("local")
    first = await runtime.run(agent(call("work"), max_steps=1), "Go.", thread="t")
    kind, scope = type(store.runs), anyio.CancelScope()
    real = getattr(kind, method)

    async def cancelled(self: Any, *args: Any, **options: Any) -> Any:
        scope.cancel()
        return await real(self, *args, **options)

    with monkeypatch.context() as patch, scope:
        patch.setattr(kind, method, cancelled)
        if method == "begin":
            await runtime.run(agent(say("done")), "More.", thread="t")
        else:
            await runtime.resume(first.run_id, agent(say("done")))
    assert scope.cancelled_caught
    await check_valid(store, "t")
    assert (await runtime.run(agent(say("done")), "More.", thread="t")).ok


@pytest.mark.parametrize(
    "kind", ["run-start", "activation", "answer", "tool-start", "tool-finish", "run-finish"]
)
async def test_a_listener_that_fails_changes_nothing(
    runtime: Runtime, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    def listen(event: Event) -> None:
        if event.kind == kind:
            raise ValueError(kind)

    result = await runtime.run(agent(call("work"), say("done")), "Go.", thread="t", on_event=listen)

    assert result.ok
    assert f"at the event {kind}" in caplog.text
    await check_valid(runtime.store.of("local"), "t")


async def test_an_async_listener_that_hangs_is_cancelled_when_its_run_ends(
    runtime: Runtime, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "FLUSH_SECONDS", 0.05)
    seen: list[str] = []

    async def listen(event: Event) -> None:
        seen.append(event.kind)
        if event.kind == "activation":
            await anyio.sleep_forever()

    result = await runtime.run(agent(say("done")), "Go.", on_event=listen)
    # An unseen event whose coroutine is neither awaited nor closed warns, which fails the test.
    gc.collect()

    assert result.ok
    assert seen[-1] == "activation"
    assert "does not see the last" in caplog.text


async def test_a_tool_that_awaits_a_cancelled_task_fails_alone(runtime: Runtime) -> None:
    @tool
    async def broken() -> str:
        """Await a cancelled task."""
        job = asyncio.ensure_future(asyncio.sleep(10))
        job.cancel()
        await job
        return ""

    model = ScriptedModel([call("broken"), say("done")])
    result = await runtime.run(Agent(model, tools=[broken]), "Go.")
    assert result.ok
    assert "cancelled from inside" in model.requests[-1].messages[-1].text


async def test_an_activation_after_a_fork_has_a_new_id(runtime: Runtime) -> None:
    def long(count: int) -> Agent:
        return agent(*(call("work", n=n) for n in range(count)), say("done"), last_messages=4)

    store = runtime.store.of("local")
    await runtime.run(long(9), "Go.", thread="t")
    assert (await store.threads.get("t")).last_activation > 1
    await fork(store, "t", 2)
    assert (await runtime.run(long(9), "Again.", thread="t")).ok
    await edit(store, "t", 1)
    assert (await runtime.run(long(9), "From the beginning.", thread="t")).ok
    await check_valid(store, "t")


async def test_a_message_during_the_last_answer_is_answered(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = runtime.store.of("local")
    kind, real, runs = type(store.inbox), type(store.inbox).pending, list[str]()

    async def inbox(self: Any, thread_id: str) -> list[InboxItem]:
        items = await real(self, thread_id)
        if len(runs) == 1:
            # The message arrives after the inbox was read and before the answer is written.
            runs.append("steered")
            await runtime.steer(runs[0], "Also do this.")
        return items

    def listen(event: Event) -> None:
        if event.kind == "text-delta" and not runs:
            runs.append(event.run_id)

    monkeypatch.setattr(kind, "pending", inbox)
    model = ScriptedModel([say("first"), say("second")])
    result = await runtime.run(Agent(model), "Go.", on_event=listen)
    assert result.output == "second"
    assert "Also do this." in model.requests[-1].messages[-1].text


async def test_a_run_whose_task_was_edited_away_is_not_resumed(runtime: Runtime) -> None:
    first = await runtime.run(agent(call("work"), max_steps=1), "Go.", thread="t")
    await edit(runtime.store.of("local"), "t", 1)
    with pytest.raises(Conflict, match="has continued since"):
        await runtime.resume(first.run_id, agent(say("done")))


async def test_a_cancel_of_an_abandoned_run_takes_effect_on_resume(runtime: Runtime) -> None:
    store = runtime.store.of("local")
    first = await runtime.run(agent(call("work"), max_steps=1), "Go.", thread="t")
    silent = LeaseOwner("another host", "boot", 1, "1")
    await store.runs.take_lease(first.run_id, silent, seconds=0.0, replaces=1)
    await store.runs.cancel(first.run_id)

    with pytest.raises(RunCancelled):
        await runtime.resume(first.run_id, agent(say("done")))
    assert (await store.runs.get(first.run_id)).status == "cancelled"
    assert (await runtime.resume(first.run_id, agent(say("done")))).ok


async def test_a_run_whose_store_was_closed_resumes_in_the_same_process(
    settings: Settings,
) -> None:
    stop = anyio.Event()

    @tool
    async def close() -> str:
        """Wait until the store is closed."""
        stop.set()
        await anyio.sleep(0.05)
        return "closed"

    async with Runtime.open(settings) as runtime, anyio.create_task_group() as group:

        async def run() -> None:
            with pytest.raises(StoreUnavailable):
                await runtime.run(Agent(ScriptedModel([call("close")]), tools=[close]), "Go.")

        group.start_soon(run)
        await stop.wait()
        await runtime.store.close()
    async with Runtime.open(settings) as runtime:
        run_left = (await runtime.store.of("local").runs.list())[0]
        assert run_left.status == "running"
        assert (await runtime.resume(run_left.id, Agent(ScriptedModel([say("done")])))).ok


async def test_a_run_that_works_in_this_process_is_not_taken_over(runtime: Runtime) -> None:
    first = await runtime.run(agent(call("work"), max_steps=1), "Go.", thread="t")
    results = await asyncio.gather(
        *(runtime.resume(first.run_id, agent(say("done"))) for _ in range(5)),
        return_exceptions=True,
    )
    assert sum(not isinstance(result, BaseException) for result in results) == 1
