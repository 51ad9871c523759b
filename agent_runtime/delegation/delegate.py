"""Delegate a task to a sub-agent: begin or resume its run, wait, and return what was observed."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from agent_runtime.delegation.assignment import Assignment
from agent_runtime.delegation.attempts import earlier_runs
from agent_runtime.delegation.background import begin_background_task
from agent_runtime.delegation.outcome import (
    Outcome,
    by_reference,
    failed_outcome,
    outcome_of_run,
    refused_outcome,
    summary_of,
    waiting_result,
)
from agent_runtime.delegation.placed import ChildQueue, place, required_queue, wake_if_paused
from agent_runtime.delegation.request import (
    DelegationRequest,
    DelegationServices,
    is_interrupted,
    is_own,
    own_run,
    record_delegation,
    run_delegated,
    sub_agent_for,
)
from agent_runtime.errors import (
    AgentRuntimeError,
    ConfigError,
    CorruptThread,
    QuestionsOpen,
    ToolError,
)
from agent_runtime.human import waiting
from agent_runtime.human.call_waits import CallWaits
from agent_runtime.human.pause import is_pausing
from agent_runtime.log.run_spec import delegation_record
from agent_runtime.messages import ItemStatus as PlanStatus
from agent_runtime.plan.planner import Planner
from agent_runtime.tools.context import ToolContext
from agent_runtime_storage.contract.records.log import ACTIVE, Run
from agent_runtime_storage.contract.store import UserStore

_log = logging.getLogger(__name__)
_PLAN_STATUS: Mapping[str, PlanStatus] = {
    "succeeded": "completed",
    "failed": "failed",
    "cancelled": "pending",
}


async def delegate(
    context: ToolContext,
    assignment: Assignment,
    *,
    background: bool = False,
    waits: bool = False,
    placed: Mapping[str, Any] | None = None,
    queued: bool = False,
) -> Outcome:
    """Have a sub-agent do a task in its own run and thread; return how it ended.

    The sub-agent sees the assignment, a fixed protocol and the log of earlier attempts under the
    same key, nothing else.  Inside an idempotent tool, a call that a crash interrupted continues:
    a sub-agent that had finished is not run again, one that died is resumed.

    Failures are not raised; they become an outcome.  Cancelling the call cancels the run.

    Args:
        background: return once the run has begun, with the status `running`.
        waits: whether the caller makes the call again.  Where the call would be stopped, the
            outcome's status is `waiting` then.
        placed: what another process builds the sub-agent from; if the run is one of the queue, so
            is the sub-agent's then, and the outcome's status is `waiting` until that has ended.
        queued: whether it is one of the queue in that case.
    """
    calling = None if waits or background else context.service(CallWaits)

    async def delegated() -> Outcome:
        services, request = await _request(
            context,
            assignment,
            background=background,
            waits=waits or calling is not None,
            placed=placed,
            queued=queued,
        )
        return await _delegate(context, services, request)

    # The tool's own timeout does not count the sub-agent's work, which has limits of its own.
    with context.timer.paused():
        with nullcontext() if calling is None else calling.working():
            outcome = await _caught(delegated, assignment.key)
        if calling is not None and outcome.status == "waiting":
            await calling.wait(waiting_result(outcome))
    return outcome


async def _caught(delegated: Callable[[], Awaitable[Outcome]], key: str) -> Outcome:
    """Return the outcome of a task; a failure becomes one, too."""
    try:
        return await delegated()
    except (ToolError, ConfigError) as error:
        return refused_outcome(str(error), key)
    except AgentRuntimeError as error:
        return failed_outcome(error, key)
    except Exception as error:
        # A bug of ours or of a tool's author: its text may hold anything, so it is only logged.
        _log.warning("A sub-agent could not be run.", exc_info=error)
        return failed_outcome(error, key)


async def _delegate(
    context: ToolContext, services: DelegationServices, request: DelegationRequest
) -> Outcome:
    assignment = request.assignment
    if request.record.background:
        return await begin_background_task(context, services, request)
    # Otherwise the run has ended, and its plan item must not be in progress again.
    if request.own is None or is_interrupted(request.own):
        await _mark(context, request, "in_progress")
    if request.record.placed is not None:
        return await _placed(context, services, request)
    failure: Exception | None = None
    order = services.order[False]
    await order.turn(context.call_id)
    async with services.slots:
        order.leave(context.call_id)
        try:
            # Checked inside: calls may have waited for a slot since the pause was requested.
            if request.record.waits and await is_pausing(context.store, context.run_id):
                return _waiting(context, services, request, request.own, "paused")
            if request.own is None:
                await run_delegated(context, services, request)
            elif is_interrupted(request.own):
                agent = sub_agent_for(assignment, context, services.max_steps)
                await services.resume(request.own, agent)
        except Exception as error:
            failure = error
    # Read back: the row says how the run ended, whatever was raised here.
    run = await own_run(context, request.record)
    if run is None:
        raise failure or ConfigError("The sub-agent's run is missing from the store.")
    # Resuming a run whose questions are still open raises; then it still waits.
    suspended = failure is None or isinstance(failure, QuestionsOpen)
    if request.record.waits and suspended and waiting.is_suspended_below(run):
        return _waiting(context, services, request, run, run.stop_reason or "")
    return await _observed(context, request, run, failure)


async def _placed(
    context: ToolContext, services: DelegationServices, request: DelegationRequest
) -> Outcome:
    """Return how a run of the queue ended, or that the call has to wait for it."""
    run, store, order = request.own, context.store, services.order[False]
    await order.turn(context.call_id)
    if run is None:
        if await is_pausing(store, context.run_id):
            return _waiting(context, services, request, run, "paused")
        run = await place(context, required_queue(context), request)
    order.leave(context.call_id)
    if run.status in ACTIVE:
        await wake_if_paused(store, run)
        return _waiting(context, services, request, run, waiting.AWAITING_CHILDREN)
    return await _observed(context, request, run)


async def _observed(
    context: ToolContext, request: DelegationRequest, run: Run, failure: Exception | None = None
) -> Outcome:
    """Return how a run ended; a long result is stored as a file."""
    outcome = await outcome_of_run(
        context.store, run, key=request.record.key, attempt=request.attempt, failure=failure
    )
    await _mark(context, request, _PLAN_STATUS[outcome.status], outcome)
    return await by_reference(outcome, context.store, context.thread_id, context.max_file_bytes)


async def _request(
    context: ToolContext,
    assignment: Assignment,
    *,
    background: bool,
    waits: bool,
    placed: Mapping[str, Any] | None,
    queued: bool,
) -> tuple[DelegationServices, DelegationRequest]:
    """Return the services of the run, and the request for a task.

    Raises:
        ToolError, ConfigError: it may not be delegated.
    """
    services = context.service(DelegationServices)
    if services is None:
        raise ConfigError("Nothing can be delegated here.", cure="Delegate in a tool of a run.")
    if not assignment.role.strip() or not assignment.instructions.strip():
        raise ToolError("Role and instructions must not be empty.")
    key, store = assignment.key, context.store
    # A tool may delegate equal tasks several times in one call; by their order a repeated call
    # finds the run of each.
    index = services.next_index(context, key)
    above, depth = await _above(store, context.run_id)
    depth += 1
    if depth > services.depth:
        raise ToolError(
            "A sub-agent cannot delegate here.",
            cure="AGENT_RUNTIME_DELEGATION_DEPTH says how deep it may.",
        )
    waits = waits and (background or await waiting.may_wait(store, context.run_id))
    if context.service(ChildQueue) is None or not (waits or background):
        # Only a run of the queue that can be suspended is woken by runs below it.
        queued = False
    record = record_delegation(
        assignment,
        context.call_id,
        index,
        depth,
        background=background,
        waits=waits,
        placed=placed if queued else None,
        built=placed if background and not queued else None,
        apart=background or above,
    )
    runs = await earlier_runs(store, context.thread_id, key)
    own = next((one for one in runs if is_own(*one, context, record)), None)
    if own is not None:
        # It goes on where it began, whatever the agent says of placement now.
        record = replace(record, placed=own[1].placed, built=own[1].built)
    # A run of this same call, before a crash, is not an earlier attempt.
    before = [one for one in runs if own is None or one[0].id != own[0].id]
    return services, DelegationRequest(assignment, record, before, own and own[0])


def _waiting(
    context: ToolContext,
    services: DelegationServices,
    request: DelegationRequest,
    run: Run | None,
    stop_reason: str,
) -> Outcome:
    """Return the outcome of a call that waits with its sub-agent, or until that may begin."""
    # The call will be made again, and then has to count as the same one.
    services.undo_index(context, request.record.key)
    return Outcome(
        "waiting",
        stop_reason=stop_reason,
        task_key=request.record.key,
        attempt=request.attempt,
        run_id=run.id if run is not None else "",
    )


async def _mark(
    context: ToolContext,
    request: DelegationRequest,
    status: PlanStatus,
    outcome: Outcome | None = None,
) -> None:
    """Set the status of the plan item that the task carries out, if its key names one."""
    planner = context.service(Planner)
    if planner is None or not request.assignment.task_key.strip():
        return
    text = ""
    if outcome is not None:
        text = "; ".join(outcome.blockers) or summary_of(outcome.result)
    try:
        await planner.mark(request.record.key, status, text)
    except (ConfigError, CorruptThread) as error:
        _log.warning("The plan item of task %s is not updated: %s", request.record.key, error)


async def _above(store: UserStore, run_id: str | None) -> tuple[bool, int]:
    """Return whether a run is in the background, and the sub-agents from the root down to it."""
    apart, depth = False, 0
    while run_id is not None:
        run = await store.runs.get(run_id)
        record, run_id = delegation_record(run), run.parent_run_id
        apart, depth = apart or (record is not None and record.apart), depth + (record is not None)
    return apart, depth
