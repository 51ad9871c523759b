"""Helpers for structured concurrency."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar, cast

import anyio
from anyio.abc import Process

from agent_runtime.errors import LeaseLost, StoreError

T = TypeVar("T")


async def run_shielded(
    operation: Coroutine[Any, Any, T],
) -> tuple[T, asyncio.CancelledError | None]:
    """Await an operation to its end despite cancellation; return its result.

    The second value is a cancellation that asyncio delivered meanwhile (by `Task.cancel` or a
    timeout), which no anyio scope can shield from.  The caller raises it once its own state
    reflects the operation.  A cancelled anyio scope raises at the next await.

    A failed operation is taken to have changed nothing: the cancellation is raised from its error.
    """
    # A task of its own: what cancels the caller does not reach it.
    task = asyncio.ensure_future(operation)
    interrupted: asyncio.CancelledError | None = None
    with anyio.CancelScope(shield=True):
        # `wait` leaves the task alone when it is cancelled, which may happen more than once.
        while not task.done():
            try:
                await asyncio.wait([task])
            except asyncio.CancelledError as error:
                interrupted = error
    # The cancellation comes first, as the caller's scope expects it; the failure is its cause.
    if interrupted is not None and (failure := task.exception()) is not None:
        raise interrupted from failure
    return task.result(), interrupted


async def finished(operation: Coroutine[Any, Any, T]) -> T:
    """Await an operation to its end, then raise the cancellation that came meanwhile, if any."""
    result, interrupted = await run_shielded(operation)
    if interrupted is not None:
        raise interrupted
    return result


async def open_process(command: Sequence[str], **options: Any) -> Process:
    """Start a program as `anyio.open_process` does, but never lose one that has started.

    A start that is cancelled half-way leaves the program's pipes open, and nobody awaits its end.

    Cancellation: by an anyio scope, the program is returned, and the next await raises; by asyncio,
    the program is killed.
    """
    process, interrupted = await run_shielded(anyio.open_process(command, **options))
    if interrupted is not None:
        with suppress(ProcessLookupError):
            process.kill()
        with anyio.CancelScope(shield=True):
            await process.aclose()
        raise interrupted
    return process


class DetachedTasks:
    """Tasks that outlive the code that started them, until the owner calls `close`."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task, which must not raise."""
        task = asyncio.ensure_future(work)
        # The event loop holds tasks only weakly: without this one could vanish.
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def wait(self) -> None:
        """Wait until all tasks have ended, including those that start meanwhile."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def close(self) -> None:
        """Cancel all tasks, and wait until they have ended."""
        for task in self._tasks:
            task.cancel()
        while self._tasks:
            await asyncio.wait(self._tasks)


async def cancel(task: asyncio.Task[Any]) -> None:
    """Cancel a task and wait until it has ended."""
    task.cancel()
    await finished(asyncio.wait([task]))


async def run_in_daemon_thread(function: Callable[[], T], limiter: anyio.CapacityLimiter) -> T:
    """Call a function in a thread that does not hold up the program's exit; return its value.

    anyio's worker threads are joined at exit, so one that hangs would keep the program for ever.

    Cancellation: the thread is abandoned, as nothing can stop it.
    """
    loop = asyncio.get_running_loop()
    context = contextvars.copy_context()

    def settle(future: asyncio.Future[T], outcome: T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(cast("T", outcome))

    def work(future: asyncio.Future[T]) -> None:
        outcome: T | None = None
        failure: BaseException | None = None
        try:
            outcome = context.run(function)
        except BaseException as error:
            # Raised where the function is awaited.
            failure = error
        # A closed loop has nobody left who waits.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, future, outcome, failure)

    async with limiter:
        future: asyncio.Future[T] = loop.create_future()
        threading.Thread(target=work, args=(future,), name="agent-tool", daemon=True).start()
        return await future


class SelfCancelled(Exception):
    """The awaited function was cancelled from inside; its caller was not cancelled."""


class CarriedError(Exception):
    """Carries a `BaseException` that is not an `Exception` out of a task.

    asyncio lets `KeyboardInterrupt` and `SystemExit` in a task end the whole event loop, before
    any run can close its log.
    """

    def __init__(self, error: BaseException) -> None:
        super().__init__(type(error).__name__)
        self.error = error


async def carried(function: Callable[..., Awaitable[None]], *args: Any) -> None:
    """Await a function as a task of a group; `single_error` around the group unpacks its error.

    Raises:
        Carrier: it raised a `BaseException` that is not an `Exception`.
    """
    try:
        await function(*args)
    except (asyncio.CancelledError, Exception):
        raise
    except BaseException as error:
        raise CarriedError(error) from error


async def contained(function: Callable[[], Awaitable[T]]) -> T:
    """Await a function in a separate task; return its value or raise its error.

    A function that cancels its own task does not cancel the caller.

    Raises:
        SelfCancelled: its task, or what it awaited, was cancelled, and the caller was not.
    """
    results: list[T] = []
    raised: list[BaseException] = []

    async def work() -> None:
        try:
            results.append(await function())
        except asyncio.CancelledError:
            # That is the deadline of a cancelled scope: the caller is being cancelled, too.
            if anyio.current_effective_deadline() == float("-inf"):
                raise
        except BaseException as error:
            # Raised below instead, so that the group does not wrap it.
            raised.append(error)

    try:
        async with anyio.create_task_group() as group:
            group.start_soon(work)
    except asyncio.CancelledError:
        # A cancellation just after the end must not lose the result; the next await raises it.
        if not results:
            raise
    if raised:
        raise raised[0]
    if not results:
        raise SelfCancelled
    return results[0]


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(cast("BaseExceptionGroup[BaseException]", error))
        else:
            yield error


def _weight(error: BaseException) -> int:
    # Whoever lost the lease must not write; whatever else failed may follow from that.
    order = (LeaseLost, StoreError)
    return next((i for i, kind in enumerate(order) if isinstance(error, kind)), len(order))


@asynccontextmanager
async def single_error() -> AsyncGenerator[None]:
    """Raise the most important error of a task group instead of its exception group.

    A lost lease comes first, then other errors of the store, then the first that was raised.  The
    group becomes the error's cause, unless it has one.  A `CarriedError` is unpacked.
    """
    try:
        yield
    except BaseExceptionGroup as group:
        # Of equal ones the first, in the order in which they were raised.
        error = min(_leaves(group), key=_weight)
        if isinstance(error, CarriedError):
            raise error.error from error.error.__cause__ or group
        raise error from error.__cause__ or group
