"""Work on a queue in this process, and wait for its runs."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio

from agent_runtime import App, Runtime
from agent_runtime_storage.contract.records.log import Run


@asynccontextmanager
async def working(runtime: Runtime, app: App, **more: Any) -> AsyncGenerator[None]:
    """Let a runtime work on the queue meanwhile."""
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: runtime.work(app, **more))
        yield
        group.cancel_scope.cancel()


async def until(runtime: Runtime, run_id: str, is_so: Callable[[Run], bool]) -> Run:
    """Wait until a run is as wanted; return it."""
    with anyio.fail_after(30):
        # Another process may write it, so there is no event to wait for.
        while not is_so(run := await runtime.store_of().runs.get(run_id)):  # noqa: ASYNC110
            await anyio.sleep(0.01)
    return run


def over(run: Run) -> bool:
    """Return whether a run has ended."""
    return run.finished_at is not None
