"""Resuming a run with an open exchange after its thread has moved to another branch."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from agent_runtime import Agent
from agent_runtime.errors import Conflict, StoreUnavailable
from agent_runtime.log import branches
from agent_runtime.messages import decode_message, decode_result
from agent_runtime.models.scripted import call, say
from agent_runtime.run.takeover import give_up, take_log
from agent_runtime_storage import Finish, open_store
from agent_runtime_storage.contract.runs import RunStore
from tests.support.worlds import Play, World, double

SCRIPT = [*(call("double", number=n) for n in range(1, 4)), say("Done.")]


async def _leave_open(world: World, monkeypatch: pytest.MonkeyPatch) -> int:
    """End a run with its third exchange open; return the thread's head."""
    from agent_runtime.run import tool_calls as execution

    class Died(StoreUnavailable):
        """An error that leaves the run as it is: its end cannot be written."""

    started = 0
    real_run_calls = execution.run_calls

    async def die(*args: Any, **more: Any) -> None:
        nonlocal started
        started += 1
        if started == 3:
            raise Died("The store is gone.")
        await real_run_calls(*args, **more)

    monkeypatch.setattr("agent_runtime.run.loop.run_calls", die)
    with pytest.raises(Died):
        await world.run(Agent(tools=[double]), thread="t")
    monkeypatch.undo()
    log, _ = await take_log(world.store, await world.row(), lambda event: None)
    await give_up(world.store, log.lease, Finish("failed", "error", "It could not go on."))
    assert (await world.row()).open_node is not None
    head = (await world.store.threads.get("t")).head
    assert head is not None
    return head


async def test_an_open_exchange_is_not_closed_on_another_branch(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with play(SCRIPT) as world:
        head = await _leave_open(world, monkeypatch)
        await branches.fork(world.store, "t", head - 1)

        with pytest.raises(Conflict, match="has continued since"):
            await world.resume(Agent(tools=[double]))

        await branches.fork(world.store, "t", head)
        assert (await world.resume(Agent(tools=[double]))).ok


async def test_the_check_reports_an_open_exchange_of_a_finished_run(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with play(SCRIPT) as world:
        await _leave_open(world, monkeypatch)
        run = await world.row()
        notice = f"exchange {run.open_node} is open, and its run {run.id} is over (failed)"
        store = await open_store(world.database_url, migrate=False)
        try:
            assert ("notice", notice) in [
                (finding.level, finding.detail) for finding in await store.maintenance.check()
            ]
            assert (await world.resume(Agent(tools=[double]))).ok
            assert [
                finding for finding in await store.maintenance.check() if finding.thread_id == "t"
            ] == []
        finally:
            await store.close()


async def test_a_head_that_moves_just_before_the_lease_is_noticed(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with play(SCRIPT) as world:
        head = await _leave_open(world, monkeypatch)
        kind = type(world.store.runs)
        take = kind.take_lease

        async def slow(self: RunStore, *args: Any, **more: Any) -> object:
            await branches.fork(world.store, "t", head - 1)
            return await take(self, *args, **more)

        monkeypatch.setattr(kind, "take_lease", slow)
        with pytest.raises(Conflict, match="has continued since"):
            await world.resume(Agent(tools=[double]))
        monkeypatch.undo()

        thread = await world.store.threads.get("t")
        assert (thread.head, thread.active_run) == (head - 1, None)
        branch = await world.store.log.branch("t", head - 1)
        assert [decode_message(node.body).type for node in branch] == ["user", "assistant"]


@pytest.mark.parametrize("elsewhere", [False, True], ids=["its branch", "another branch"])
async def test_a_cancelled_takeover_closes_the_exchange_of_its_branch(
    play: Play, monkeypatch: pytest.MonkeyPatch, elsewhere: bool
) -> None:
    async with play(SCRIPT) as world:
        head = await _leave_open(world, monkeypatch)
        kind = type(world.store.runs)
        take = kind.take_lease

        async def cancelled(self: RunStore, *args: Any, **more: Any) -> object:
            if elsewhere:
                await branches.fork(world.store, "t", head - 1)
            scope.cancel()
            return await take(self, *args, **more)

        monkeypatch.setattr(kind, "take_lease", cancelled)
        with anyio.CancelScope() as scope:
            await world.resume(Agent(tools=[double]))
        monkeypatch.undo()

        run, thread = await world.row(), await world.store.threads.get("t")
        assert (run.status, thread.active_run) == ("cancelled", None)
        assert (run.open_node is None) is not elsewhere
        branch = await world.store.log.branch("t", thread.head or 0)
        if elsewhere:
            assert thread.head == head - 1
            return
        assert [call.status for call in branch[-1].calls] == ["done"]
        assert decode_result(branch[-1].calls[0].body).outcome == "cancelled"
        assert (await world.resume(Agent(tools=[double]))).ok
