"""Running the calls of an exchange: check what is recorded, run, record.

A call is marked as started just before it runs and done with its result, so that after a crash
at any instant `done` stays, `pending` runs, and `started` is known to be uncertain: it runs again
only if its tool says that this does no harm.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import anyio

from agent_runtime.concurrency import SelfCancelled, carried, contained, single_error
from agent_runtime.errors import InvariantError
from agent_runtime.human.gate import Gate, GateResult, ReadyCall
from agent_runtime.human.waiting import AwaitingHuman, questions_of
from agent_runtime.log.run_log import Exchange, RunLog
from agent_runtime.messages import (
    AssistantMessage,
    ToolResult,
    decode_message,
    decode_result,
)
from agent_runtime.tools.base import ToolContext, Toolset
from agent_runtime.tools.base import error_result as raised_result
from agent_runtime_storage.contract.records import Finish, Node

INTERRUPTED = (
    "The runtime was stopped while this call ran, and nobody saw it end: its effect is "
    "unverified. Check what it did before you repeat it."
)
STILL_RUNNING = "It works in a thread, which nothing can stop: it may still be running."
SELF_CANCELLED = (
    "The tool failed: it was cancelled from inside, or what it waited for was. Its effect is "
    "unverified. Check what it did before you repeat it."
)
CANCELLED = "The run was cancelled before this call was started. It did not run."


def interrupted_result() -> ToolResult:
    """Return the result of a call that was started and whose end nobody saw."""
    return ToolResult(INTERRUPTED, outcome="interrupted")


def reopen(node: Node, tools: Toolset) -> tuple[Exchange, dict[int, ToolResult]]:
    """Return an exchange that a dead process left open, and results for what is uncertain."""
    message = decode_message(node.body)
    if not isinstance(message, AssistantMessage):
        raise InvariantError(f"the open node {node.seq} is no exchange")
    exchange = Exchange(node.seq, message, node.created_at)
    uncertain: dict[int, ToolResult] = {}
    for row in node.calls:
        if row.status == "done":
            exchange.results[row.index] = decode_result(row.body)
        elif row.status == "started":
            tool = tools.get(message.calls[row.index].name)
            exchange.started.add(row.index)
            if tool is None or not tool.idempotent:
                uncertain[row.index] = interrupted_result()
    return exchange, uncertain


def partition_calls(
    exchange: Exchange, tools: Toolset
) -> tuple[list[ReadyCall], dict[int, ToolResult]]:
    """Return which waiting calls can run, and the results of those that cannot."""
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
        elif call.cut is not None:
            done[index] = ToolResult(call.cut, outcome="error")
        elif call.raw is not None:
            done[index] = ToolResult(
                "The arguments are no JSON object, so the call was not made. You wrote: "
                f"{call.raw[:500]}",
                outcome="error",
            )
        else:
            ready.append(ReadyCall(index, call, tool))
    return ready, done


async def run_calls(
    log: RunLog,
    tools: Toolset,
    context: Callable[[str], ToolContext],
    close: Callable[[dict[int, ToolResult]], Awaitable[None]],
    settled: dict[int, ToolResult] | None = None,
    gate: Gate | None = None,
) -> Finish | None:
    """Run what waits in the open exchange, in parallel; record each result; close the exchange.

    What has to wait for a person does, also a call whose sub-agent waits for one; the rest runs,
    and then the run is suspended with the exchange open.  Returns that suspension, else None.

    Args:
        context: gives a tool its context, by the call's id.
        close: closes the exchange with the results that are not recorded yet.
        settled: results that a resume already knows.
        gate: says what has to wait for a person; None if nothing does.

    Cancellation: running tools are cancelled; what finished is recorded, the rest is left for
    `abandoned_results`.  The same holds where a tool raises what is no `Exception`: it is raised
    here, with its call recorded as failed.  `SystemExit` is an error result like any other.
    """
    exchange = log.open_exchange()
    ready, done = partition_calls(exchange, tools)
    done |= settled or {}
    gated = GateResult([one for one in ready if one.index not in done], done)
    if gate is not None:
        gated = await gate.sort(exchange, gated)
    if not gated.ready and not gated.waiting:
        await close(done)
        return None
    fresh = [one.index for one in gated.ready if one.index not in exchange.started]
    if fresh or done:
        await log.start(fresh, done)
    waiting = await _run_all(log, gated.ready, context, close)
    if gate is None or not (gated.waiting or waiting):
        return None
    return await gate.suspend(gated, waiting)


async def _run_all(
    log: RunLog,
    ready: Sequence[ReadyCall],
    context: Callable[[str], ToolContext],
    close: Callable[[dict[int, ToolResult]], Awaitable[None]],
) -> list[AwaitingHuman]:
    """Run calls in parallel and record each result; return what those wait for that have none."""
    exchange, turn = log.open_exchange(), anyio.Lock()
    waiting: dict[int, AwaitingHuman] = {}

    async def record(index: int, result: ToolResult) -> None:
        with anyio.CancelScope(shield=True):
            async with turn:
                if exchange.waiting == 1:
                    await close({index: result})
                else:
                    await log.finish_call(index, result)

    async def run(one: ReadyCall) -> None:
        try:
            result = await _result_of(one, context)
        except (asyncio.CancelledError, Exception):
            raise
        except BaseException as error:
            exchange.failed[one.index] = raised_result(error)
            raise
        if isinstance(result, AwaitingHuman):
            waiting[one.index] = result
            return
        await record(one.index, result)

    going = ready
    while going:
        async with single_error(), anyio.create_task_group() as group:
            for one in going:
                waiting.pop(one.index, None)
                group.start_soon(carried, run, one)
        for one in going:
            # The task of the call itself was cancelled, by somebody who found it in the loop.
            if one.index not in waiting and one.index not in exchange.results:
                if log.exchange is not exchange:
                    break
                await record(one.index, ToolResult(SELF_CANCELLED, outcome="interrupted"))
        held = [one for one in ready if one.index in waiting]
        if any(one.paused for one in waiting.values()):
            break
        # What was answered while the other calls ran goes on at once.
        going = [
            one for one in held if not await questions_of(log.store, waiting[one.index].run_id)
        ]
    return list(waiting.values())


async def _result_of(one: ReadyCall, context: Callable[[str], ToolContext]) -> ToolResult:
    """Call a tool and return its result.

    A tool that cancels its own task, or that would end the process, gives a result as well.
    """
    try:
        return await contained(lambda: one.tool.call(one.call.arguments, context(one.call.id)))
    except SelfCancelled:
        return ToolResult(SELF_CANCELLED, outcome="interrupted")
    except (SystemExit, GeneratorExit) as error:
        return raised_result(error)
    except BaseExceptionGroup as group:
        held = (Exception, SystemExit, GeneratorExit, asyncio.CancelledError)
        if isinstance(group, ExceptionGroup) or group.split(held)[1] is not None:
            raise
        return raised_result(group)


def abandoned_results(exchange: Exchange, tools: Toolset | None = None) -> dict[int, ToolResult]:
    """Return results for the calls that a cancellation left without one.

    Args:
        tools: of a run that this process stops: those that work in threads go on after it.
    """
    done: dict[int, ToolResult] = {}
    for index, call in enumerate(exchange.message.calls):
        if index in exchange.results:
            continue
        tool = tools.get(call.name) if tools else None
        if (failed := exchange.failed.get(index)) is not None:
            done[index] = failed
        elif index not in exchange.started:
            done[index] = ToolResult(CANCELLED, outcome="cancelled")
        elif tool is not None and tool.in_thread:
            done[index] = ToolResult(f"{INTERRUPTED} {STILL_RUNNING}", outcome="interrupted")
        else:
            done[index] = interrupted_result()
    return done


def still_running(exchange: Exchange, tools: Toolset) -> list[str]:
    """Return the names of the tools under way that nothing can stop."""
    return [
        call.name
        for index, call in enumerate(exchange.message.calls)
        if index in exchange.started and index not in exchange.results
        if (tool := tools.get(call.name)) is not None and tool.in_thread
    ]
