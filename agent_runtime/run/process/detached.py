"""Start a run that outlives the call that starts it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from inspect import signature
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, cast

from agent_runtime.concurrency import DetachedTasks, cancel
from agent_runtime.errors import AgentRuntimeError, RuntimeClosed
from agent_runtime.events import AnyEvent
from agent_runtime.run.process.host import RunHost
from agent_runtime.run.process.listener import OnEvent
from agent_runtime.run.results import RunResult

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StartedRun:
    """A run that is recorded and at work.

    Attributes:
        task: ends when the run's work in this process does, and raises nothing; cancelling it
            cancels the run.
    """

    run_id: str
    thread_id: str
    task: asyncio.Task[None]


class Hosting(Protocol):
    """What has a host, whose tasks outlive the calls that start them."""

    host: RunHost


S = TypeVar("S", bound=Hosting)
P = ParamSpec("P")


def starting(
    name: str, run: Callable[Concatenate[S, P], Awaitable[RunResult]]
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, StartedRun]]:
    """Make the counterpart of `Runtime.run` or `Runtime.resume` that does not wait for the end.

    It returns once the run's beginning is recorded, and raises what `run` raises until then; later
    errors are in the run's row.  Where `AGENT_RUNTIME_MAX_RUNS` are at work it waits for a place.

    Cancellation: a run that is not recorded yet does not begin; one that is goes on.

    Args:
        name: the name that the counterpart has in its class.
    """

    async def start(self: S, *args: P.args, **kwargs: P.kwargs) -> StartedRun:
        # By name, so that a subclass that overrides the method need not override both.
        method: Callable[P, Awaitable[RunResult]] = getattr(self, run.__name__)
        on_event = cast("OnEvent | None", kwargs.pop("on_event", None))

        def work(listen: OnEvent) -> Awaitable[RunResult]:
            kwargs["on_event"] = listen
            return method(*args, **kwargs)

        return await begun(self.host.background, work, on_event)

    start.__name__, start.__doc__ = name, f"Like `{run.__name__}`, without waiting for its end."
    start.__qualname__ = f"{run.__qualname__.rpartition('.')[0]}.{name}"
    start.__module__ = run.__module__
    described = signature(run).replace(return_annotation=StartedRun.__name__)
    cast("Any", start).__signature__ = described
    return start


async def begun(
    tasks: DetachedTasks,
    work: Callable[[OnEvent], Awaitable[RunResult]],
    on_event: OnEvent | None = None,
) -> StartedRun:
    """Do a run's work in a task of its own; return once the run's beginning is recorded.

    Raises:
        RuntimeClosed: the runtime closed before.
    """
    started: asyncio.Future[StartedRun] = asyncio.get_running_loop().create_future()

    def listen(event: AnyEvent) -> Any:
        # The first one is the run's own; a child run begins later.
        if event.kind == "run-start" and not started.done():
            started.set_result(StartedRun(event.run_id, event.thread_id, task))
        return on_event(event) if on_event is not None else None

    async def run() -> None:
        try:
            result = await work(listen)
            if not started.done():
                # It had nothing to do, and sent no event.
                started.set_result(StartedRun(result.run_id, result.thread_id, task))
        except asyncio.CancelledError:
            # Not raised: whoever waits here was not cancelled.
            if not started.done():
                started.set_exception(_closed())
        except Exception as error:
            if not started.done():
                started.set_exception(error)
            elif not started.cancelled():
                # The text of a known one is in the run's row, and may quote a provider.
                unforeseen = None if isinstance(error, AgentRuntimeError) else error
                name, run_id = type(error).__name__, started.result().run_id
                _log.warning("Run %s failed: %s", run_id, name, exc_info=unforeseen)

    task = tasks.start(run())
    try:
        # Cancelling the caller must not cancel the future itself: `listen` may set it at the same
        # moment.
        return await asyncio.shield(started)
    except asyncio.CancelledError:
        if not started.done():
            started.cancel()
            await cancel(task)
        raise


def _closed() -> RuntimeClosed:
    return RuntimeClosed(
        "The runtime closed before the run began.", cure="Start it in another runtime."
    )
