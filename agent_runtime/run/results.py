"""How a run ended, and a run as it happens."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream

from agent_runtime.concurrency import carried, single_error
from agent_runtime.events import Event
from agent_runtime.human.questions import Question
from agent_runtime.models.cost import NANO
from agent_runtime_storage.contract.records import RunStatus, StopReason, UsageTotal


@dataclass(frozen=True, slots=True)
class RunResult:
    """How a run ended.

    Attributes:
        output: the answer's text, or a value of the agent's `output_type`; None if there is none.
        detail: why it stopped, in a sentence, where that needs one.
        steps: model calls so far, those before a resume included.
        usage: sums over the run and its children, what its memory used included.
        usage_by_purpose: the same apart: `step`, and of memory `observe` and `reflect`.
        questions: what a `suspended` run waits for; see `Runtime.answer`.
    """

    run_id: str
    thread_id: str
    status: RunStatus
    stop_reason: StopReason
    detail: str
    output: Any
    steps: int
    usage: UsageTotal
    usage_by_purpose: Mapping[str, UsageTotal] = field(default_factory=dict[str, UsageTotal])
    questions: tuple[Question, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the task was completed."""
        return self.status == "succeeded"

    @property
    def cost_usd(self) -> float | None:
        """Dollars spent by the providers' reports; None where a price is unknown."""
        return None if self.usage.unpriced_calls else self.usage.cost / NANO


class RunStream:
    """A run as it happens: iterate over its events, then read its `result`."""

    def __init__(self, events: MemoryObjectReceiveStream[Event]) -> None:
        self._events = events
        self._result: RunResult | None = None
        self._error: Exception | None = None
        self.run_id = ""
        self.thread_id = ""

    async def __aiter__(self) -> AsyncIterator[Event]:
        async for event in self._events:
            if not self.run_id:
                # Events of child runs follow; the first one is the run's own.
                self.run_id, self.thread_id = event.run_id, event.thread_id
            yield event
        if self._error is not None:
            raise self._error

    def settle(self, outcome: RunResult | Exception) -> None:
        """Keep how the run ended; the engine calls it once."""
        if isinstance(outcome, Exception):
            self._error = outcome
        else:
            self._result = outcome

    @property
    def result(self) -> RunResult:
        """How the run ended. Raises what the run raised, or if the run is not over yet."""
        if self._error is not None:
            raise self._error
        if self._result is None:
            raise RuntimeError("the run is not over: iterate over its events first")
        return self._result


@asynccontextmanager
async def streaming(
    start: Callable[[Callable[[Event], None]], Any],
) -> AsyncGenerator[RunStream]:
    """Give the events of what `start` runs as they happen; leaving the context cancels it."""
    send, receive = anyio.create_memory_object_stream[Event](math.inf)
    stream = RunStream(receive)

    async def feed() -> None:
        with send:
            try:
                stream.settle(await start(send.send_nowait))
            except Exception as error:
                # It is raised to whoever iterates, not from the middle of the context.
                stream.settle(error)

    with receive:
        async with single_error(), anyio.create_task_group() as group:
            group.start_soon(carried, feed)
            yield stream
            group.cancel_scope.cancel()
