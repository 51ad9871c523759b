"""Shielded operations: a cancellation loses neither itself nor the operation's outcome."""

from __future__ import annotations

import asyncio
import gc

import anyio
import anyio.lowlevel
import pytest

from agent_runtime.concurrency import DetachedTasks, cancel, open_process, run_shielded
from agent_runtime.errors import StoreUnavailable


async def _cancelled_meanwhile(fails: bool) -> tuple[asyncio.Task[object], anyio.Event]:
    """Cancel a task that awaits a shielded operation.

    Returns the task, and the event that ends the operation.
    """
    begun, release = anyio.Event(), anyio.Event()

    async def operate() -> str:
        begun.set()
        await release.wait()
        if fails:
            raise StoreUnavailable("It is gone.")
        return "done"

    async def wait() -> object:
        return await run_shielded(operate())

    task: asyncio.Task[object] = asyncio.ensure_future(wait())
    await begun.wait()
    task.cancel()
    return task, release


async def test_a_cancelled_wait_returns_the_operations_result_and_the_cancellation() -> None:
    task, release = await _cancelled_meanwhile(fails=False)
    release.set()

    result = await task

    assert isinstance(result, tuple)
    assert result[0] == "done"
    assert isinstance(result[1], asyncio.CancelledError)


async def test_a_cancelled_wait_raises_the_cancellation_from_the_operations_error() -> None:
    task, release = await _cancelled_meanwhile(fails=True)
    release.set()

    with pytest.raises(asyncio.CancelledError) as caught:
        await task

    assert isinstance(caught.value.__cause__, StoreUnavailable)


@pytest.mark.parametrize("natively", [False, True])
async def test_a_program_whose_start_is_cancelled_is_not_lost(natively: bool) -> None:
    """Cancelled at each turn of the loop that the start takes; pipes and a zombie would warn."""
    ended: list[int | None] = []

    async def start(scope: anyio.CancelScope) -> None:
        with scope:
            process = await open_process(["/bin/cat"])
            async with process:
                try:
                    await anyio.lowlevel.checkpoint()
                finally:
                    process.kill()
            ended.append(process.returncode)

    for turns in range(12):
        scope = anyio.CancelScope()
        task = asyncio.ensure_future(start(scope))
        for _ in range(turns):
            await anyio.lowlevel.cancel_shielded_checkpoint()
        _ = task.cancel() if natively else scope.cancel()
        await asyncio.wait([task])
        # What a lost program leaves warns when it is collected, and warnings are errors here.
        gc.collect()
    assert all(code is not None for code in ended)


async def test_closing_detached_tasks_cancels_one_that_retries_for_ever() -> None:
    tried = anyio.Event()

    async def operate() -> None:
        tried.set()
        await anyio.lowlevel.checkpoint()
        raise StoreUnavailable("It is gone.")

    async def work() -> None:
        while True:
            try:
                await run_shielded(operate())
            except StoreUnavailable:
                await asyncio.sleep(0)

    background = DetachedTasks()
    task = background.start(work())
    await tried.wait()

    with anyio.fail_after(30):
        await background.close()

    assert task.cancelled()


async def test_a_task_is_awaited_to_its_end_even_if_the_wait_is_cancelled_twice() -> None:
    release = anyio.Event()

    async def work() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await release.wait()

    task = asyncio.ensure_future(work())
    await anyio.lowlevel.checkpoint()
    waiting = asyncio.ensure_future(cancel(task))
    for _ in range(2):
        await anyio.lowlevel.checkpoint()
        waiting.cancel()
    for _ in range(5):
        await anyio.lowlevel.checkpoint()
    assert not waiting.done()
    release.set()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert task.done()
