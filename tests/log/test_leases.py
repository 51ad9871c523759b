"""Leases: one run per thread, one process per run, and what a process without a lease can do."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import replace

import anyio
import pytest

from agent_runtime import Agent, Runtime, ScriptedModel, Settings, tool
from agent_runtime.errors import LeaseLost, NotFound, ThreadBusy
from agent_runtime.log.leases import at_work, is_dead, this_process_owner
from agent_runtime.models.scripted import call, say
from agent_runtime_storage import Lease, LeaseOwner, NewRun, Run
from tests.services.backends import FILE_FIRST
from tests.support.elsewhere import agent, elsewhere

OTHER = LeaseOwner(host="another-host", boot="b", pid=1, started="1")


@pytest.fixture
async def runtime(database_url: str) -> AsyncGenerator[Runtime]:
    """A runtime on the test's own database."""
    async with Runtime.open(Settings(database_url=database_url)) as runtime:
        yield runtime


async def test_a_second_run_on_a_busy_thread_is_refused(runtime: Runtime) -> None:
    refused: list[ThreadBusy] = []

    @tool
    async def start_another() -> str:
        """Start another run on the same thread."""
        with pytest.raises(ThreadBusy) as caught:
            await runtime.run(Agent(ScriptedModel([])), "Me too.", thread="t")
        refused.append(caught.value)
        return "refused"

    agent_that_starts = Agent(
        ScriptedModel([call("start_another"), say("done")]), tools=[start_another]
    )
    result = await runtime.run(agent_that_starts, "Go.", thread="t")

    assert result.output == "done"
    assert [error.run_id for error in refused] == [result.run_id]
    nodes = await runtime.store.of("local").log.branch("t", 3)
    assert [node.role for node in nodes] == ["user", "assistant", "assistant"]


@FILE_FIRST
async def test_a_run_on_a_thread_that_another_process_works_on_is_refused(
    runtime: Runtime, database_url: str
) -> None:
    async with elsewhere(database_url) as other:
        started = await other.until("tool-start")

        with pytest.raises(ThreadBusy) as caught:
            await runtime.run(Agent(ScriptedModel([])), "Me too.", thread="t")
        assert caught.value.run_id == started["run_id"]

        await other.release()
        await other.until("run-finish", status="succeeded")


@FILE_FIRST
async def test_a_run_of_another_process_cannot_be_resumed_while_it_lives(
    runtime: Runtime, database_url: str
) -> None:
    async with elsewhere(database_url) as other:
        started = await other.until("tool-start")

        with pytest.raises(ThreadBusy):
            await runtime.resume(started["run_id"], agent("wait"))

        await other.release()
        await other.until("run-finish", status="succeeded")


async def test_a_run_whose_process_was_killed_is_taken_over_at_once(
    runtime: Runtime, database_url: str
) -> None:
    async with elsewhere(database_url) as other:
        run_id = (await other.until("tool-start"))["run_id"]
        await other.kill()

    store = runtime.store.of("local")
    # Its lease has not expired, but its process is known to be gone.
    assert (await store.runs.get(run_id)).lease_live
    result = await runtime.resume(run_id, Agent(ScriptedModel([say("done")]), tools=[]))

    assert result.ok
    assert (await store.runs.get(run_id)).epoch == 2


async def test_a_process_that_lost_its_lease_writes_nothing(runtime: Runtime) -> None:
    store = runtime.store.of("local")
    before: list[object] = []

    async def state(run_id: str) -> list[object]:
        thread = await store.threads.get("t")
        return [await store.runs.get(run_id), thread, await store.log.node("t", 2)]

    @tool
    async def lose() -> str:
        """Let another process take the run over."""
        # The heartbeat may notice the loss at once, and cancel the call.
        with anyio.CancelScope(shield=True):
            [run] = await store.runs.list(thread_id="t")
            await store.runs.take_lease(run.id, OTHER, seconds=30, replaces=run.epoch)
            before.extend(await state(run.id))
        return "lost"

    losing = Agent(ScriptedModel([call("lose"), say("never")]), tools=[lose])
    with pytest.raises(LeaseLost):
        await runtime.run(losing, "Go.", thread="t")

    [run] = await store.runs.list(thread_id="t")
    assert await state(run.id) == before
    assert (run.status, run.owner) == ("running", OTHER)
    assert [item.status for item in (await store.log.node("t", 2)).calls] == ["started"]


async def test_a_run_that_lost_its_lease_stops_its_tools(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent_runtime.log.lease_keeper.POLL_SECONDS", 0.01)
    store = runtime.store.of("local")
    stopped = False

    @tool
    async def work() -> str:
        """Lose the lease, then work without end."""
        nonlocal stopped
        [run] = await store.runs.list(thread_id="t")
        await store.runs.take_lease(run.id, OTHER, seconds=30, replaces=run.epoch)
        try:
            await anyio.sleep_forever()
        finally:
            stopped = True
        return "never"

    with pytest.raises(LeaseLost), anyio.fail_after(30):
        await runtime.run(Agent(ScriptedModel([call("work")]), tools=[work]), "Go.", thread="t")

    assert stopped
    assert runtime.health().leases_lost == 1


async def test_a_running_run_keeps_renewing_its_lease(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent_runtime.log.lease_keeper.POLL_SECONDS", 0.01)
    monkeypatch.setattr("agent_runtime.log.leases.LEASE_SECONDS", 0.3)
    store = runtime.store.of("local")

    @tool
    async def work() -> str:
        """Work until the lease, which is set to have expired, has been renewed."""
        [run] = await store.runs.list()
        lease = Lease(run.id, run.thread_id, run.root_run_id, run.epoch)
        with anyio.fail_after(30):
            for _ in range(2):
                await store.runs.renew_lease(lease, seconds=-3600)
                while not (await store.runs.get(run.id)).lease_live:  # noqa: ASYNC110
                    await anyio.sleep(0.01)
        return "renewed"

    working = Agent(ScriptedModel([call("work"), say("done")]), tools=[work])
    assert (await runtime.run(working, "Go.", thread="t")).ok


async def test_the_runs_of_other_owners_are_not_found(runtime: Runtime) -> None:
    result = await runtime.run(Agent(ScriptedModel([say("mine")])), "Go.", user="ann")

    with pytest.raises(NotFound):
        await runtime.resume(result.run_id, Agent(ScriptedModel([])), user="bob")
    with pytest.raises(NotFound):
        await runtime.cancel(result.run_id, user="bob")
    with pytest.raises(NotFound):
        await runtime.steer(result.run_id, "hello", user="bob")


async def _active_run(runtime: Runtime) -> Run:
    store = runtime.store.of("local")
    await store.threads.ensure("t")
    await store.runs.begin(
        NewRun("r", "t", "agent", 1, {}, this_process_owner(), 30, expect_head=None, expect_seq=0)
    )
    return await store.runs.get("r")


async def test_an_owner_on_this_host_is_known_to_be_alive_or_dead(runtime: Runtime) -> None:
    run = await _active_run(runtime)
    here = this_process_owner()

    with at_work("r"):
        assert not is_dead(run)
        with at_work("r"):
            # Another task of this process tries to take the run over, and fails.
            pass
        assert not is_dead(run)
    # This process lives, but no longer works on the run.
    assert is_dead(run)
    # The same pid, but of a process that started at another time.
    assert is_dead(replace(run, owner=replace(here, started="1")))
    assert is_dead(replace(run, owner=None))


async def test_an_owner_on_another_host_counts_as_dead_once_its_lease_expired(
    runtime: Runtime,
) -> None:
    run = replace(await _active_run(runtime), owner=OTHER)

    assert not is_dead(replace(run, lease_live=True))
    assert is_dead(replace(run, lease_live=False))


async def test_an_owner_in_another_container_of_this_host_counts_as_dead_once_its_lease_expired(
    runtime: Runtime,
) -> None:
    here = this_process_owner()
    boot, _, namespace = here.boot.partition(":")
    assert boot and namespace.isdigit()
    # No process has this pid here; in its own namespace any process may have it.
    there = replace(here, boot=f"{boot}:1", pid=2**22 + 1, started="1")
    run = replace(await _active_run(runtime), owner=there)

    assert not is_dead(replace(run, lease_live=True))
    assert is_dead(replace(run, lease_live=False))
