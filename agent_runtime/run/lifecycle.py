"""A run's life around the loop: watched, limited in time, and always ended in a valid log."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Protocol

import anyio

from agent_runtime.concurrency import DetachedTasks, cancel, single_error
from agent_runtime.errors import AgentRuntimeError, LeaseLost, StoreUnavailable, UnsupportedTask
from agent_runtime.human.waiting import waiting_below
from agent_runtime.log import leases
from agent_runtime.log.run_log import RunLog, cancelled_finish
from agent_runtime.messages import encodable
from agent_runtime.run.budget import TimeLimit, time_limit
from agent_runtime.run.state import RunState
from agent_runtime.run.takeover import END_SECONDS, end_if_dead, give_up
from agent_runtime_config import Settings
from agent_runtime_storage.contract.records import ACTIVE, Finish

POLL_SECONDS = 0.4
"""How often a run looks whether another process asked for its cancel."""


class RunDriver(Protocol):
    """What brings a run forward: the loop of an agent, or that of a workflow."""

    state: RunState
    log: RunLog

    async def drive(self) -> Finish:
        """Run to the end and return how it ended, written already."""
        ...

    async def finish(self, finish: Finish) -> Finish:
        """End the run; an exchange under way is closed, with what is known of each call."""
        ...


async def execute_run(
    driver: RunDriver, *, settings: Settings, background: DetachedTasks
) -> Finish:
    """Drive a run to its end, and write that end whatever it is.

    Args:
        background: where an observation that is under way then goes on.
        settings: say how long this execution may take.

    Raises:
        AgentRuntimeError: the run failed for good; the log says so as well.
        LeaseLost: another process took the run over; nothing was written.

    Cancellation: open calls are closed and the run is ended as cancelled, under a shield, before
    the cancellation goes on.
    """
    try:
        driver.log.announce()
        limit = await time_limit(driver.log.store, driver.log.lease, settings)
        return await _watched(driver, limit, background)
    except (LeaseLost, StoreUnavailable):
        # Another process has to write the end, or nobody can now: the lease tells.
        raise
    except UnsupportedTask as error:
        await _end(driver, Finish("failed", "unsupported", error.message))
        raise
    except AgentRuntimeError as error:
        await _end(driver, Finish("failed", "error", str(error)))
        raise
    except anyio.get_cancelled_exc_class():
        await _end(driver, cancelled_finish())
        raise
    except GeneratorExit:
        # Nothing can be awaited any more: the event loop is gone.
        raise
    except BaseException as error:
        # A bug of ours, or of a model's or tool's author, or a `KeyboardInterrupt`: the run is
        # ended, the error goes on.
        detail = f"Unexpected {type(error).__name__}"
        await _end(driver, Finish("failed", "error", detail))
        raise


async def _watched(driver: RunDriver, limit: TimeLimit | None, background: DetachedTasks) -> Finish:
    state = driver.state
    state.wrap_up.start(limit, state.log.view.entries)
    finish: Finish | None = None
    timed_out = False
    async with single_error(), anyio.create_task_group() as group:
        group.start_soon(watch_lease, state.log, group.cancel_scope)
        async with _remembering(state, background):
            with anyio.move_on_after(limit.seconds if limit else None) as timer:
                finish = await driver.drive()
        timed_out = timer.cancelled_caught
        group.cancel_scope.cancel()
    if finish is not None:
        return finish
    if timed_out and limit is not None:
        finish = Finish("failed", "timeout", limit.detail)
    else:
        finish = cancelled_finish()
    return await _end(driver, finish)


@asynccontextmanager
async def _remembering(state: RunState, background: DetachedTasks) -> AsyncGenerator[None]:
    """Have the memory work beside the loop.

    What it is at when the run comes to its end goes on, though the run is over: in a conversation
    of short runs nothing would ever be observed else.  An error or a cancellation ends it.
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
        # What stopped it came just after the run's own last commit, which stands.
        return finish
    log = driver.log
    finish = replace(finish, detail=encodable(finish.detail))
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
            # What memory holds does not agree with the log; the lease alone still ends the run.
            await give_up(log.store, log.lease, finish)
    return finish


async def _end_waiting(log: RunLog) -> None:
    """End the sub-agents that wait for a person: the call that would go on with them is closed."""
    for run in await waiting_below(log.store, log.lease.run_id):
        await end_if_dead(log.store, run)


async def _end_cancelled(log: RunLog) -> None:
    """End the sub-agents that a cancel reached while they were taken over, and left to nobody."""
    tree = await log.store.runs(root_run_id=log.lease.root_run_id, status=ACTIVE, limit=10_000)
    for run in tree:
        if run.cancel_requested and run.id not in (log.lease.run_id, run.root_run_id):
            await end_if_dead(log.store, run)


async def watch_lease(log: RunLog, scope: anyio.CancelScope) -> None:
    """Keep the lease alive, and cancel the run when some process asks for it."""
    renew_at = anyio.current_time() + leases.LEASE_SECONDS / 3
    while True:
        await anyio.sleep(POLL_SECONDS)
        try:
            if anyio.current_time() >= renew_at:
                stop = await log.store.renew_lease(log.lease, seconds=leases.LEASE_SECONDS)
                renew_at = anyio.current_time() + leases.LEASE_SECONDS / 3
            else:
                stop, _ = await log.store.poll(log.lease)
        except StoreUnavailable:
            # The next write of the run itself decides whether it can go on.
            continue
        except LeaseLost:
            # The run's own end gives the lease back: it may have been written just before.
            if await log.has_ended():
                return
            raise
        if stop:
            scope.cancel()
