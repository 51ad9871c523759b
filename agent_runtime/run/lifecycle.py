"""The life of a run around its loop: watch its lease and its time, and always record its end."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Protocol

import anyio

from agent_runtime.concurrency import DetachedTasks, cancel, finished, single_error
from agent_runtime.errors import AgentRuntimeError, LeaseLost, StoreUnavailable, UnsupportedTask
from agent_runtime.human.waiting import waiting_below
from agent_runtime.log.lease_keeper import HeldRun, LeaseKeeper, writing_for
from agent_runtime.log.run_log import CLOSED, RunLog, cancelled_finish, finish_event
from agent_runtime.log.run_spec import DelegationRecord, delegation_record
from agent_runtime.messages import encodable
from agent_runtime.run.budget import TimeLimit, time_limit
from agent_runtime.run.guard.idle import IdleTimer
from agent_runtime.run.node_memory import NodeRun
from agent_runtime.run.process.tracing import traced_end
from agent_runtime.run.state import RunState
from agent_runtime.run.takeover import END_SECONDS, end_if_dead, give_up
from agent_runtime.tools.mcp.pool import holding
from agent_runtime.tools.workspace.shell_session import BASH
from agent_runtime_config import Settings
from agent_runtime_storage.contract.records.log import ACTIVE, Commit, Finish


class RunDriver(Protocol):
    """The loop of an agent, or that of a workflow."""

    state: RunState
    log: RunLog

    async def drive(self) -> Finish:
        """Run to the end and return how the run ended, which is recorded by then."""
        ...

    async def finish(self, finish: Finish) -> Finish:
        """End the run; close an open exchange with what is known of each call."""
        ...


async def execute_run(
    driver: RunDriver,
    *,
    settings: Settings,
    keeper: LeaseKeeper,
    background: DetachedTasks,
    node: NodeRun | None = None,
) -> Finish:
    """Drive a run to its end, and record that end whatever it is.

    Args:
        keeper: renews its lease, and tells it to stop.
        background: where an observation in progress continues when the run ends.
        node: the node memory that gets the run's turn, if any.

    Raises:
        AgentRuntimeError: the run failed; the log says so as well.
        LeaseLost: another process took the run over; nothing was written.

    Cancellation: open calls are closed and the run is ended as cancelled, under a shield, before
    the cancellation is raised.
    """
    log = driver.log
    at_tools = partial(_at_tools, log)
    suspended = False
    with (
        keeper.holding(log.store.user_id, log.lease, at_tools) as held,
        holding(driver.state.setup.tools.every()),
    ):
        log.kept = held
        try:
            finish = await _executed(driver, held, keeper, settings, background, node)
            suspended = finish.status == "suspended"
            return traced_end(finish, log.steps)
        except LeaseLost:
            keeper.lost += 1
            raise
        finally:
            # Before the lease is let go: the run's commands must not outlive it.
            await finished(driver.state.context.shell.leave(suspended=suspended))


def _at_tools(log: RunLog) -> bool:
    return log.exchange is not None


async def _executed(
    driver: RunDriver,
    held: HeldRun,
    keeper: LeaseKeeper,
    settings: Settings,
    background: DetachedTasks,
    node: NodeRun | None,
) -> Finish:
    log = driver.log
    try:
        # It raises a cancellation that came while the run began, which has to end the run as well.
        log.announce()
        if driver.state.setup.tools.get(BASH) is not None:
            await driver.state.context.shell.report_lost()
        if node is not None:
            # Before the first step: if the process dies after a success, the job is there already.
            await node.promise(log.store, log.lease)
        record = await _delegation(log)
        detached = record is not None and record.background
        if record is not None and (record.background or record.waits):
            keeper.may_suspend(held, alone=record.background)
        limit = await time_limit(log.store, log.lease, settings, background=detached)
        seconds = settings.background_idle_timeout if detached else 0.0
        idle = IdleTimer(log, seconds) if seconds else None
        return await _watched(driver, held, limit, idle, background)
    except (LeaseLost, StoreUnavailable):
        # Another process records the end, or nobody can now and the lease expires.
        raise
    except UnsupportedTask as error:
        await _end(driver, Finish("failed", "unsupported", error.message))
        raise
    except AgentRuntimeError as error:
        await _end(driver, Finish("failed", "error", str(error)))
        raise
    except anyio.get_cancelled_exc_class():
        if held.stopped:
            await _leave(driver)
        else:
            await _end(driver, cancelled_finish())
        raise
    except GeneratorExit:
        # The event loop has ended: nothing can be awaited any more.
        raise
    except BaseException as error:
        # A bug of ours, or of the author of a model or tool, or a `KeyboardInterrupt`.
        detail = f"Unexpected {type(error).__name__}"
        await _end(driver, Finish("failed", "error", detail))
        raise


async def _watched(
    driver: RunDriver,
    held: HeldRun,
    limit: TimeLimit | None,
    idle: IdleTimer | None,
    background: DetachedTasks,
) -> Finish:
    state = driver.state
    state.wrap_up.start(limit, state.log.view.entries)
    finish: Finish | None = None
    timed_out = False
    async with single_error(), anyio.create_task_group() as group:
        group.start_soon(watch_run, state.log, held, group.cancel_scope)
        async with _memory_at_work(state, background):
            with anyio.move_on_after(limit.seconds if limit else None) as timer:
                if idle is not None:
                    group.start_soon(idle.watch, timer)
                finish = await driver.drive()
        timed_out = timer.cancelled_caught
        group.cancel_scope.cancel()
    # Outside of the group, whose scope is cancelled by now.
    if finish is not None:
        return finish
    if timed_out and idle is not None and idle.expired:
        return await _end(driver, Finish("failed", "timeout", idle.detail))
    if timed_out and limit is not None:
        return await _end(driver, Finish("failed", "timeout", limit.detail))
    # `watch_run` cancelled the scope.  A cancellation of the caller is raised instead.
    if held.cancel:
        return await _end(driver, cancelled_finish())
    return await _leave(driver)


@asynccontextmanager
async def _memory_at_work(state: RunState, background: DetachedTasks) -> AsyncGenerator[None]:
    """Run the memory's worker in parallel to the loop.

    A job in progress when the run ends continues in the background, because a conversation of
    short runs would never be observed otherwise.  An error or a cancellation ends it.
    """
    if state.memory is None or state.worker is None:
        yield
        return
    await state.memory.load()
    task = background.start(state.worker.work())
    try:
        yield
    finally:
        if state.log.ended:
            state.worker.retire()
        else:
            await cancel(task)


async def _end(driver: RunDriver, finish: Finish) -> Finish:
    if driver.log.ended:
        # It was stopped just after its own last commit, which holds.
        return finish
    # Whoever cancels a task may do so twice, and no scope shields from the second time.
    return await finished(_record_end(driver, finish))


async def _record_end(driver: RunDriver, finish: Finish) -> Finish:
    log = driver.log
    # The detail may quote a provider or a tool, and the store takes only valid UTF-8.
    finish = replace(finish, detail=encodable(finish.detail))
    # Limited, because nothing can interrupt a shield: if the store hangs, the lease expires.
    with anyio.move_on_after(END_SECONDS, shield=True):
        try:
            if log.exchange is not None:
                await _end_waiting(log)
            if finish.status == "cancelled":
                await _end_cancelled(log)
            return await driver.finish(finish)
        except (LeaseLost, StoreUnavailable):
            raise
        except AgentRuntimeError:
            # Memory and log disagree, so the exchange cannot be closed: end the run all the same.
            with writing_for(log.kept, ends=True):
                await give_up(log.store, log.lease, finish)
    return finish


async def _delegation(log: RunLog) -> DelegationRecord | None:
    """Return the call that began a sub-agent's run; None for other runs."""
    if not log.lease.is_child:
        return None
    return delegation_record(await log.store.runs.get(log.lease.run_id))


async def _leave(driver: RunDriver) -> Finish:
    """Suspend a run that is stopped because its runtime closes; an open exchange stays open.

    A resume treats it like a run whose process died: idempotent calls run again, and sub-agents
    continue.
    """
    return CLOSED if driver.log.ended else await finished(_record_leave(driver))


async def _record_leave(driver: RunDriver) -> Finish:
    log = driver.log
    with anyio.move_on_after(END_SECONDS, shield=True):
        if log.exchange is None:
            return await driver.finish(CLOSED)
        await log.write(Commit(finish=CLOSED, events=(finish_event(CLOSED),)))
    return CLOSED


async def _end_waiting(log: RunLog) -> None:
    """End the sub-agents that wait for a person: the call that could resume them gets closed."""
    for run in await waiting_below(log.store, log.lease.run_id):
        await end_if_dead(log.store, run)


async def _end_cancelled(log: RunLog) -> None:
    """End the sub-agents that were cancelled while this run took them over: nobody else will."""
    tree = await log.store.runs.list(root_run_id=log.lease.root_run_id, status=ACTIVE, limit=10_000)
    for run in tree:
        if run.cancel_requested and run.id not in (log.lease.run_id, run.root_run_id):
            await end_if_dead(log.store, run)


async def watch_run(log: RunLog, held: HeldRun, scope: anyio.CancelScope) -> None:
    """Cancel the scope when the run has to stop.

    Raises:
        LeaseLost: another process took the run over.
    """
    while not held.has_to_stop:
        await held.changed.wait()
        held.changed = anyio.Event()
        if not held.lost:
            continue
        held.lost = False
        try:
            await log.asked()
        except StoreUnavailable:
            # The run's next write decides whether it can continue.
            continue
        except LeaseLost:
            # The run's own end releases the lease and may have been recorded just before.
            if await log.has_ended():
                return
            raise
    scope.cancel()
