"""Run the calls of an exchange: check what is recorded, run the rest, record the results.

A call is marked as started just before it runs, and as done together with its result.  After a
crash at any instant `done` stays and `pending` runs; the effect of `started` is unverified, so such
a call runs again only if its tool is idempotent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Protocol, cast

import anyio

from agent_runtime.concurrency import SelfCancelled, carried, contained, single_error
from agent_runtime.errors import InvariantError
from agent_runtime.human.call_waits import CallWaits
from agent_runtime.human.gate import Gate, GateResult, ReadyCall
from agent_runtime.human.waiting import AwaitingHuman, may_wait, questions_of
from agent_runtime.log.exchange import Exchange
from agent_runtime.log.run_log import RunLog
from agent_runtime.messages import (
    AssistantMessage,
    ToolResult,
    decode_message,
    decode_result,
)
from agent_runtime.models.telemetry.tool_calls import execute_tool
from agent_runtime.tools.base import Tool
from agent_runtime.tools.base import error_result as raised_result
from agent_runtime.tools.context import ToolContext
from agent_runtime.tools.hooks import ToolHooks
from agent_runtime.tools.questions import AwaitingAnswers
from agent_runtime.tools.toolset import Toolset
from agent_runtime_storage.contract.records.log import Finish, Node

INTERRUPTED = (
    "The runtime was stopped while this call ran, and nobody saw it end: its effect is "
    "unverified. Check what it did before you repeat it."
)
STILL_RUNNING = "It works in a thread, which nothing can stop: it may still be running."
SELF_CANCELLED = (
    "The tool failed: it was cancelled from inside, or what it waited for was. Its effect is "
    "unverified. Check what it did before you repeat it."
)
ASKED = (
    "The call ran until it asked a person, and was stopped there: its effect up to then is "
    "unverified. Check what it did before you repeat it."
)
CANCELLED = "The run was cancelled before this call was started. It did not run."


class CallGate(Protocol):
    """Decides which calls of an exchange wait for a person: `Gate`, or that of a workflow."""

    async def sort(
        self,
        exchange: Exchange,
        sorted_calls: GateResult,
        context: Callable[[str], ToolContext],
    ) -> GateResult:
        """Return which calls may run, by the answers so far."""
        ...

    async def ask_for(
        self, exchange: Exchange, one: ReadyCall, asked: AwaitingAnswers, gated: GateResult
    ) -> None:
        """Add the questions of a call that ran."""
        ...

    async def suspend(self, gated: GateResult, below: Sequence[AwaitingHuman] = ()) -> Finish:
        """Suspend the run and ask its new questions, in one commit."""
        ...


def _interrupted() -> ToolResult:
    return ToolResult(INTERRUPTED, outcome="interrupted")


def _self_cancelled() -> ToolResult:
    return ToolResult(SELF_CANCELLED, outcome="interrupted")


def _is_unverified(result: ToolResult) -> bool:
    return result.outcome == "interrupted"


def reopen(node: Node, tools: Toolset) -> tuple[Exchange, dict[int, ToolResult]]:
    """Return an exchange that a dead process left open, and results for its unverified calls."""
    message = decode_message(node.body)
    if not isinstance(message, AssistantMessage):
        raise InvariantError(f"The open node {node.seq} is not an exchange.")
    exchange = Exchange(node.seq, message, node.created_at)
    uncertain: dict[int, ToolResult] = {}
    for row in node.calls:
        if row.status == "done":
            exchange.results[row.index] = decode_result(row.body)
        elif row.status == "started":
            tool = tools.get(message.calls[row.index].name)
            exchange.marked.add(row.index)
            exchange.started.add(row.index)
            if tool is None or not tool.idempotent:
                uncertain[row.index] = _interrupted()
    return exchange, uncertain


def partition_calls(
    exchange: Exchange, tools: Toolset
) -> tuple[list[ReadyCall], dict[int, ToolResult]]:
    """Return the waiting calls that can run, and results for those that cannot."""
    ready: list[ReadyCall] = []
    done: dict[int, ToolResult] = {}
    for index, call in enumerate(exchange.message.calls):
        if index in exchange.results:
            continue
        tool = tools.get(call.name)
        if tool is None:
            known = ", ".join(spec.name for spec in tools.specs) or "none"
            done[index] = ToolResult(
                f"There is no tool {call.name!r}. The tools are: {known}.", outcome="error"
            )
        # Before `raw`: arguments that were cut off are rarely valid JSON, and the limit is the
        # cause that the model can act on.
        elif call.cut is not None:
            done[index] = ToolResult(call.cut, outcome="error")
        elif call.raw is not None:
            done[index] = ToolResult(
                "The arguments are not a JSON object, so the call was not made. You wrote: "
                f"{call.raw[:500]}",
                outcome="error",
            )
        elif (target := tool.target(call.arguments)) is not None:
            # Rules, approvals and the crash that follows are about the tool behind it.
            inner, arguments = target
            ready.append(
                ReadyCall(index, replace(call, name=inner.name, arguments=arguments), inner)
            )
        else:
            ready.append(ReadyCall(index, call, tool))
    return ready, done


def may_start(message: AssistantMessage, tools: Toolset, gate: Gate) -> bool:
    """Return whether an answer's calls may be marked as started before they begin.

    All must run at once, without asking anybody, and be idempotent: after a crash a call that is
    marked runs again only then, whether it had begun or not.
    """
    ready, done = partition_calls(Exchange(0, message, 0.0), tools)
    return not done and all(
        one.tool.idempotent and not gate.may_ask_about(one.tool) for one in ready
    )


async def run_calls(
    log: RunLog,
    tools: Toolset,
    context: Callable[[str], ToolContext],
    close: Callable[[dict[int, ToolResult]], Awaitable[None]],
    settled: Mapping[int, ToolResult] = MappingProxyType({}),
    gate: CallGate | None = None,
) -> Finish | None:
    """Run the waiting calls of the open exchange in parallel, record each result, close it.

    Calls that need a person wait, as does a call whose sub-agent waits for one.  The others run;
    then the run is suspended with the exchange open.  Returns that suspension, else None.

    Args:
        context: returns a tool's context, given the call's id.
        close: closes the exchange with the results that are not recorded yet.
        settled: results that a resume already knows.
        gate: decides which calls need a person; None if none do.

    Cancellation: running tools are cancelled.  Results that were ready are recorded, the rest is
    left for `abandoned_results`.  If a tool raises anything but an `Exception` or `SystemExit`, it
    is raised here, and its call is recorded as failed; `SystemExit` gives an error result.
    """
    exchange = log.open_exchange()
    ready, done = partition_calls(exchange, tools)
    done |= settled
    gated = GateResult(
        [one for one in ready if one.index not in done],
        done,
        [one for one in ready if one.index in settled and _is_unverified(settled[one.index])],
    )
    if gate is not None:
        gated = await gate.sort(exchange, gated, context)
    if not gated.ready and not gated.waiting:
        await close(done)
        return None
    # Marked already are calls that `RunLog.open` started, and an idempotent one that runs again.
    fresh = [one.index for one in gated.ready if one.index not in exchange.marked]
    if fresh or done:
        await log.start(fresh, done)
    parallel = _ParallelCalls(log, context, close, asks=gate is not None)
    waiting = await parallel.run(gated.ready)
    if gate is None:
        return None
    for one in gated.ready:
        if (asked := parallel.asking.get(one.index)) is not None:
            await gate.ask_for(exchange, one, asked, gated)
    if not (gated.waiting or waiting):
        return None
    return await gate.suspend(gated, waiting)


class _ParallelCalls:
    """Calls of one exchange that run at the same time."""

    def __init__(
        self,
        log: RunLog,
        context: Callable[[str], ToolContext],
        close: Callable[[dict[int, ToolResult]], Awaitable[None]],
        *,
        asks: bool,
    ) -> None:
        self.log, self.exchange = log, log.open_exchange()
        self.context, self.close = context, close
        self.waiting: dict[int, AwaitingHuman] = {}
        self.asking: dict[int, AwaitingAnswers] = {}
        self._asks = asks
        # A lock that nobody holds is taken without a turn of the event loop, which each result
        # would cost.
        self._recording = anyio.Lock(fast_acquire=True)

    async def run(self, calls: Sequence[ReadyCall]) -> list[AwaitingHuman]:
        """Run the calls and record their results; return what those without a result wait for."""
        pending = calls
        while pending:
            async with single_error(), anyio.create_task_group() as group:
                for call in pending:
                    # It is being tried again; `_run` puts it back if its sub-agent still waits.
                    self.waiting.pop(call.index, None)
                    group.start_soon(carried, self._run, call)
            for call in pending:
                # A tool found the task of its own call in the event loop and cancelled it.
                known = {*self.waiting, *self.asking, *self.exchange.results}
                if call.index not in known:
                    # The last result closed the exchange; closing leaves `results` as it was.
                    if self.log.exchange is not self.exchange:
                        break
                    await self._record(call.index, _self_cancelled())
            if any(one.stop_reason != "awaiting_user" for one in self.waiting.values()):
                # Trying again would resume a sub-agent that was suspended on purpose.
                break
            # A sub-agent's question may have been answered while the other calls ran.
            pending = [
                call
                for call in calls
                if call.index in self.waiting
                and not await questions_of(self.log.store, self.waiting[call.index].run_id)
            ]
        return list(self.waiting.values())

    async def _run(self, call: ReadyCall) -> None:
        self.exchange.started.add(call.index)
        try:
            result = await _result_of(call, self.context)
        # A cancelled call gets its result from `abandoned_results`; an error here is one of the
        # runtime.
        except (asyncio.CancelledError, Exception):
            raise
        except BaseException as error:
            # `KeyboardInterrupt` ends the run, whose end closes the exchange with this result.
            self.exchange.failed[call.index] = raised_result(error)
            raise
        if isinstance(result, AwaitingHuman):
            self.waiting[call.index] = result
        elif not isinstance(result, AwaitingAnswers):
            await self._record(call.index, result)
        # A run that may not wait for a person gets a refusal, so that the model can go another
        # way.
        elif self._asks and await may_wait(self.log.store, self.log.lease.run_id):
            self.asking[call.index] = result
        else:
            await self._record(call.index, ToolResult(result.text, outcome="refused"))

    async def _record(self, index: int, result: ToolResult) -> None:
        # Shielded: the tool has done its work, so its result is recorded even if the run is being
        # cancelled.  One at a time, because whichever comes last closes the exchange.
        with anyio.CancelScope(shield=True):
            async with self._recording:
                if self.exchange.waiting == 1:
                    await self.close({index: result})
                else:
                    await self.log.finish_call(index, result)


async def _result_of(one: ReadyCall, context: Callable[[str], ToolContext]) -> ToolResult:
    """Call a tool and return its result, even if it cancels its own task or exits."""
    work = partial(_call, one, context)
    try:
        # A subclass of a program without type checks may return anything.
        result = cast(
            "object",
            await execute_tool(one.call, partial(contained, work)),
        )
        return result if isinstance(result, ToolResult) else _not_a_result(one.tool, result)
    except SelfCancelled:
        return _self_cancelled()
    except (SystemExit, GeneratorExit) as error:
        # `sys.exit()` in a tool, as in many libraries for command lines, must not end the program.
        return raised_result(error)
    except BaseExceptionGroup as group:
        # The tool's own task group may wrap these; one with a `KeyboardInterrupt` is raised.
        held = (Exception, SystemExit, GeneratorExit, asyncio.CancelledError)
        if isinstance(group, ExceptionGroup) or group.split(held)[1] is not None:
            raise
        return raised_result(group)


async def _call(one: ReadyCall, context: Callable[[str], ToolContext]) -> ToolResult:
    made = context(one.call.id)
    if one.answers:
        made = replace(made, answers=one.answers)
    run = partial(one.tool.call, one.call.arguments, made)
    if one.tool.idempotent:
        waits = CallWaits()
        made = replace(made, services={**made.services, CallWaits: waits})
        run = partial(_until_it_waits, one, made, waits)
    hooks = made.service(ToolHooks)
    return await run() if hooks is None else await hooks.around(one.call, made, run, _waits)


async def _until_it_waits(one: ReadyCall, context: ToolContext, waits: CallWaits) -> ToolResult:
    """Call a tool; return what it waits for if what it delegates has to wait."""
    try:
        result = await one.tool.call(one.call.arguments, context)
    except BaseException as error:
        if not waits.ends(error):
            raise
        return waits.result()
    # Also if the tool has gone on in spite of it: the call will be made again.
    return waits.result() if waits.waiting else result


def _waits(result: ToolResult) -> bool:
    return isinstance(result, AwaitingHuman | AwaitingAnswers)


def _not_a_result(tool: Tool, value: object) -> ToolResult:
    return ToolResult(
        f"The tool {tool.name} ran, but its method `call` returned {type(value).__name__} instead "
        "of ToolResult, so what it returned is lost.",
        outcome="error",
    )


def abandoned_results(exchange: Exchange, tools: Toolset | None = None) -> dict[int, ToolResult]:
    """Return results for the calls that a cancellation left without one.

    Args:
        tools: the tools of a run that this process stops; those in threads may still be running.
    """
    done: dict[int, ToolResult] = {}
    for index, call in enumerate(exchange.message.calls):
        if index in exchange.results:
            continue
        tool = tools.get(call.name) if tools else None
        if (failed := exchange.failed.get(index)) is not None:
            done[index] = failed
        elif index not in exchange.started and index in exchange.asked:
            done[index] = ToolResult(ASKED, outcome="interrupted")
        elif index not in exchange.started:
            done[index] = ToolResult(CANCELLED, outcome="cancelled")
        elif tool is not None and tool.in_thread:
            done[index] = ToolResult(f"{INTERRUPTED} {STILL_RUNNING}", outcome="interrupted")
        else:
            done[index] = _interrupted()
    return done


def still_running(exchange: Exchange, tools: Toolset) -> list[str]:
    """Return the names of the running tools that nothing can stop, since they run in threads."""
    return [
        call.name
        for index, call in enumerate(exchange.message.calls)
        if index in exchange.started and index not in exchange.results
        if (tool := tools.get(call.name)) is not None and tool.in_thread
    ]
