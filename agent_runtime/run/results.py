"""How a run ended, and the stream of its events."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from inspect import Signature, signature
from typing import Any, Concatenate, Generic, ParamSpec, cast

import anyio
import orjson
from anyio.streams.memory import MemoryObjectReceiveStream
from typing_extensions import TypeVar

from agent_runtime.concurrency import cancel
from agent_runtime.errors import NoOutput
from agent_runtime.events import AnyEvent
from agent_runtime.human.gate import waits_for
from agent_runtime.human.questions import Question
from agent_runtime.models.cost import NANO
from agent_runtime.tools.output import OutputType
from agent_runtime_storage.contract.records.log import (
    Finish,
    Lease,
    NewEvent,
    Run,
    RunStatus,
    StopReason,
)
from agent_runtime_storage.contract.records.usage import UsageTotal
from agent_runtime_storage.contract.store import UserStore

S = TypeVar("S")
P = ParamSpec("P")
Output = TypeVar("Output", default=Any, covariant=True)


@dataclass(frozen=True, slots=True)
class RunResult(Generic[Output]):
    """How a run ended.

    Attributes:
        output: the answer's text, or a value of the agent's `output_type`; of a workflow, what it
            returned, as JSON.  None if there is none; see `require_output`.
        detail: why it stopped, in a sentence; empty where the stop reason says all.
        steps: model calls so far, including those before a resume.
        usage: sums over the run and its children, including what their memory used.
        usage_by_purpose: the same by purpose: `step`, and of memory `observe` and `reflect`.
        questions: what a `suspended` run waits for; see `Runtime.answer`.
    """

    run_id: str
    thread_id: str
    status: RunStatus
    stop_reason: StopReason
    detail: str
    output: Output | None
    steps: int
    usage: UsageTotal
    usage_by_purpose: Mapping[str, UsageTotal] = field(default_factory=dict[str, UsageTotal])
    questions: tuple[Question, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the task was completed."""
        return self.status == "succeeded"

    def require_output(self) -> Output:
        """Return the output of a completed task.

        Raises:
            NoOutput: the task was not completed.
        """
        if not self.ok:
            raise NoOutput(
                f"Run {self.run_id} is {self.status} ({self.stop_reason}) and has no output. "
                f"{self.detail}".rstrip(),
                cure="Read its `status` and `questions`; `Runtime.resume` continues it.",
            )
        # None, too, is a value of some types.
        return cast("Output", self.output)

    @property
    def cost_usd(self) -> float | None:
        """Dollars spent as providers reported it; None if a price is unknown."""
        return None if self.usage.unpriced_calls else self.usage.cost / NANO


async def result_of(
    store: UserStore, lease: Lease, finish: Finish, steps: int, wanted: OutputType | None
) -> RunResult[Any]:
    """Return the result of a run that has ended.

    Args:
        wanted: what an output is validated by.
    """
    # A root's result includes its child runs.
    ids = {"root_run_id" if not lease.is_child else "run_id": lease.run_id}
    usage = await store.spending.usage_by_purpose(**ids)
    output = orjson.loads(finish.output) if finish.output else None
    if output is not None and wanted is not None:
        output = wanted.validate(output)
    return RunResult(
        run_id=lease.run_id,
        thread_id=lease.thread_id,
        status=finish.status,
        stop_reason=finish.stop_reason,
        detail=finish.detail,
        output=output,
        questions=await waits_for(store, lease) if finish.status == "suspended" else (),
        steps=steps,
        usage=UsageTotal.of(usage.values()),
        usage_by_purpose=usage,
    )


async def with_used(store: UserStore, run: Run, start: NewEvent) -> NewEvent:
    """Return the event of a resumed run's start with what the run used, unless it has a parent."""
    if run.parent_run_id is not None:
        return start
    by_purpose = await store.spending.usage_by_purpose(root_run_id=run.id)
    total = UsageTotal.of(by_purpose.values())
    used = {
        "prompt_tokens": total.prompt_tokens,
        "cached_tokens": total.cached_tokens,
        "completion_tokens": total.completion_tokens,
        "cost": None if total.unpriced_calls else total.cost,
    }
    return replace(start, data={**start.data, "used": used})


class RunStream(Generic[Output]):
    """A run in progress: iterate over its events, then read its `result`."""

    def __init__(self, events: MemoryObjectReceiveStream[AnyEvent]) -> None:
        self._events = events
        self._result: RunResult[Any] | None = None
        self._error: Exception | None = None
        self.run_id = ""
        self.thread_id = ""

    async def __aiter__(self) -> AsyncIterator[AnyEvent]:
        async for event in self._events:
            if not self.run_id:
                # The first event is the run's own; later ones may be those of child runs.
                self.run_id, self.thread_id = event.run_id, event.thread_id
            yield event
        if self._error is not None:
            raise self._error

    def settle(self, outcome: RunResult[Any] | Exception) -> None:
        """Set how the run ended; the engine calls it once."""
        if isinstance(outcome, Exception):
            self._error = outcome
        else:
            self._result = outcome

    @property
    def result(self) -> RunResult[Output]:
        """How the run ended; raises what the run raised.

        Raises:
            RuntimeError: the run is not over yet.
        """
        if self._error is not None:
            raise self._error
        if self._result is None:
            raise RuntimeError("the run is not over: iterate over its events first")
        return self._result


def streaming(
    name: str, run: Callable[Concatenate[S, P], Awaitable[RunResult[Output]]]
) -> Callable[Concatenate[S, P], AbstractAsyncContextManager[RunStream[Output]]]:
    """Make the streaming counterpart of `Runtime.run` or `Runtime.resume`.

    Its context gives the run's events as they happen; leaving the context cancels the run.

    Args:
        name: the name that the counterpart has in its class.
    """
    parameters = signature(run)

    @asynccontextmanager
    async def open_stream(
        self: S, *args: P.args, **kwargs: P.kwargs
    ) -> AsyncGenerator[RunStream[Output]]:
        parameters.bind(self, *args, **kwargs)  # What does not fit raises at once, not to a reader.
        # By name, so that a subclass that overrides the method need not override both.
        method: Callable[P, Awaitable[RunResult[Output]]] = getattr(self, run.__name__)
        # Unbounded: the run emits events from code that cannot wait for a reader.
        send, receive = anyio.create_memory_object_stream[AnyEvent](math.inf)
        stream = RunStream[Output](receive)
        on_event = cast("Callable[[AnyEvent], Any] | None", kwargs.get("on_event"))

        def listen(event: AnyEvent) -> Any:
            with suppress(anyio.ClosedResourceError):  # A job of the memory may end after the run.
                send.send_nowait(event)
            # The run awaits what an async listener returns.
            return None if on_event is None else on_event(event)

        async def feed() -> None:
            kwargs["on_event"] = listen
            with send:
                try:
                    stream.settle(await method(*args, **kwargs))
                except Exception as error:
                    # It is raised to whoever iterates, not in the middle of the context.
                    stream.settle(error)
                except asyncio.CancelledError:
                    raise
                except BaseException as error:
                    ended.append(error)

        ended: list[BaseException] = []
        # Not a task group: a stream that is dropped is closed by the garbage collector, in another
        # task, and a group would then cancel the one that opened it.
        task = asyncio.create_task(feed())
        try:
            yield stream
        finally:
            await cancel(task)
            # Not earlier: the run emits events until it has ended.
            receive.close()
            # A `KeyboardInterrupt` or the like counts more than what it led to.
            if ended:
                raise ended[0]

    for attribute, value in _described(name, run, parameters).items():
        setattr(open_stream, attribute, value)
    return open_stream


def _described(name: str, run: Callable[..., Any], parameters: Signature) -> dict[str, Any]:
    """Return how the streaming counterpart of a method shows itself in `help`."""
    return {
        "__name__": name,
        "__qualname__": f"{run.__qualname__.rpartition('.')[0]}.{name}",
        "__module__": run.__module__,
        "__doc__": f"Like `{run.__name__}`, in a context that gives the events; "
        "leaving it cancels the run.",
        "__signature__": parameters.replace(
            return_annotation=f"AbstractAsyncContextManager[{RunStream.__name__}]"
        ),
    }
