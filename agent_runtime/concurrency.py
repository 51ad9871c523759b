"""Small helpers of structured concurrency."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Iterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar, cast

import anyio

from .errors import LeaseLost, StoreError

T = TypeVar("T")


async def outlast(
    operation: Coroutine[Any, Any, T],
) -> tuple[T, asyncio.CancelledError | None]:
    """Await an operation to its end, whatever is cancelled meanwhile, and return its result.

    Beside it comes the cancellation that asyncio itself delivered meanwhile (a task's `cancel`,
    a timeout), for the caller to raise once its own state agrees with what was done; no scope of
    anyio can hold that one off.  A cancelled scope of anyio raises at the next await after it.

    An operation that fails changed nothing: then that cancellation is raised, from its error.
    """
    task = asyncio.ensure_future(operation)
    interrupted: asyncio.CancelledError | None = None
    with anyio.CancelScope(shield=True):
        while not task.done():
            try:
                await asyncio.wait([task])
            except asyncio.CancelledError as error:
                interrupted = error
    if interrupted is not None and (failure := task.exception()) is not None:
        raise interrupted from failure
    return task.result(), interrupted


class Background:
    """Tasks that outlive what started them; whoever owns this ends them with `close`."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Begin a task, which must raise nothing."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def wait(self) -> None:
        """Wait until all tasks have ended, those that begin meanwhile too."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def close(self) -> None:
        """Cancel all tasks, and wait until they have ended."""
        for task in self._tasks:
            task.cancel()
        while self._tasks:
            await asyncio.wait(self._tasks)


async def cancel(task: asyncio.Task[None]) -> None:
    """Cancel a task and wait until it has ended."""
    task.cancel()
    with anyio.CancelScope(shield=True):
        await asyncio.wait([task])


def is_cancelled() -> bool:
    """Return whether the running task is being cancelled, by asyncio or by a scope of anyio."""
    task = asyncio.current_task()
    native = task is not None and task.cancelling() > 0
    return native or anyio.current_effective_deadline() == float("-inf")


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(cast("BaseExceptionGroup[BaseException]", error))
        else:
            yield error


def _weight(error: BaseException) -> int:
    order = (LeaseLost, StoreError)
    return next((i for i, kind in enumerate(order) if isinstance(error, kind)), len(order))


@asynccontextmanager
async def single_error() -> AsyncGenerator[None]:
    """Raise the one error that counts instead of a task group's bundle of them.

    A lost lease comes first, then other errors of the store, then the first that was raised; the
    bundle stays as its cause, unless it has one of its own.
    """
    try:
        yield
    except BaseExceptionGroup as group:
        error = min(_leaves(group), key=_weight)
        raise error from error.__cause__ or group
