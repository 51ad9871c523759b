"""Delegating: a sub-agent's run begun, gone on with after a crash, and its outcome observed."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import anyio

from agent_runtime.agent import Agent
from agent_runtime.concurrency import DetachedTasks
from agent_runtime.delegation.assignment import Assignment
from agent_runtime.delegation.attempts import attempts, earlier_runs, rendered
from agent_runtime.delegation.outcome import (
    Outcome,
    by_reference,
    failed_outcome,
    outcome_of_run,
    refused_outcome,
)
from agent_runtime.delegation.record import record_delegation
from agent_runtime.errors import (
    AgentRuntimeError,
    ConfigError,
    CorruptThread,
    QuestionsOpen,
    ToolError,
)
from agent_runtime.events import Event
from agent_runtime.human import waiting
from agent_runtime.human.pause import is_pausing
from agent_runtime.log.run_spec import DelegationRecord, RunSpec, delegation_record
from agent_runtime.plan.model import ItemStatus as PlanStatus
from agent_runtime.plan.planner import Planner
from agent_runtime_config import Settings
from agent_runtime_storage.contract.records import ACTIVE, Run

if TYPE_CHECKING:
    from agent_runtime.tools.base import Tool, ToolContext
    from agent_runtime_storage.contract.store import UserStore

_log = logging.getLogger(__name__)
_MARKS: Mapping[str, PlanStatus] = {
    "succeeded": "completed",
    "failed": "failed",
    "cancelled": "pending",
}


class ResumeSubAgent(Protocol):
    """Resumes a sub-agent's run that stopped; `on_event` gets its events as well."""

    def __call__(
        self, run: Run, child: Agent, /, *, on_event: Callable[[Event], None] | None = None
    ) -> Awaitable[object]: ...


@dataclass(slots=True)
class DelegationServices:
    """What the calls of a run share for delegating.

    Attributes:
        resume: goes on with a child run that stopped, as a part of the call; `on_event` hears of it
            too, and alone once the run that calls is over.
        background: where runs are at work for which no call waits.
        slots: how many sub-agents work at once; the others wait.
        depth: how many sub-agents may be above each other.
        max_steps: the most steps of one.
        starting: held while a task begins in the background, so that they can be counted.
        asked: how often each key was delegated in each call.
    """

    resume: ResumeSubAgent
    background: DetachedTasks
    slots: anyio.Semaphore
    depth: int
    max_steps: int
    starting: anyio.Lock = field(default_factory=anyio.Lock)
    asked: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])

    @classmethod
    def of(
        cls, settings: Settings, resume: ResumeSubAgent, background: DetachedTasks
    ) -> DelegationServices:
        """Return what a run's calls share under these settings."""
        slots = anyio.Semaphore(settings.delegation_parallel)
        steps = settings.sub_agent_max_steps
        return cls(resume, background, slots, settings.delegation_depth, steps)


@dataclass(frozen=True, slots=True)
class DelegationRequest:
    """A task on its way: what is asked, and what is known of it from before.

    Attributes:
        before: the runs of this task on the branch, the oldest first, the own one left out.
        own: the run that this very call began before a crash.
    """

    assignment: Assignment
    record: DelegationRecord
    before: Sequence[tuple[Run, DelegationRecord]]
    own: Run | None

    @property
    def attempt(self) -> int:
        """Which attempt at the task it is, from 1."""
        return len(self.before) + 1


async def delegate(
    context: ToolContext,
    assignment: Assignment,
    *,
    background: bool = False,
    waits: bool = False,
) -> Outcome:
    """Have a sub-agent do a task, in a run and a thread of its own, and return how it ended.

    It is told what the assignment says, beside a fixed protocol and the log of earlier attempts
    under the same key, and nothing else.  As a part of a tool that is idempotent, a call that a
    crash interrupted goes on where it was: a sub-agent that had finished is not run again, one
    that died is resumed.

    Nothing that goes wrong is raised; it becomes an outcome.  Cancelling it cancels the run.

    Args:
        background: return when the run has begun, with the status `running`; see `background`.
        waits: whether the call can wait for a person, as that of the tool `delegate` does: then
            the outcome has the status `waiting` where the sub-agent asks for an approval, and the
            same call has to be made again.  Else what needs one is refused to the sub-agent.
    """
    try:
        with context.timer.paused():
            return await _delegate(context, assignment, background=background, waits=waits)
    except (ToolError, ConfigError) as error:
        return refused_outcome(str(error), assignment.key)
    except AgentRuntimeError as error:
        return failed_outcome(error, assignment.key)
    except Exception as error:
        # A bug of ours, or of a tool's author: what it says could name anything.
        _log.warning("A sub-agent could not be run.", exc_info=error)
        return failed_outcome(error, assignment.key)


async def _delegate(
    context: ToolContext, assignment: Assignment, *, background: bool, waits: bool
) -> Outcome:
    sharing = context.service(DelegationServices)
    if sharing is None:
        raise ConfigError("Nothing can be delegated here.", cure="Delegate in a tool of a run.")
    if not assignment.role.strip() or not assignment.instructions.strip():
        raise ToolError("Role and instructions must say something.")
    order = await _order(context, sharing, assignment, background=background, waits=waits)
    if background:
        from agent_runtime.delegation.background import begin_background_task

        return await begin_background_task(context, sharing, order)
    if order.own is None or is_interrupted(order.own):
        await _mark(context, order, "in_progress")
    failure: Exception | None = None
    async with sharing.slots:
        try:
            if order.record.waits and await is_pausing(context.store, context.run_id):
                return _waiting(context, sharing, order, order.own, paused=True)
            if order.own is None:
                await run_delegated(context, sharing, order)
            elif is_interrupted(order.own):
                agent = sub_agent_for(assignment, context, sharing.max_steps)
                await sharing.resume(order.own, agent)
        except Exception as error:
            failure = error
    run = await own_run(context, order.record)
    if run is None:
        raise failure or ConfigError("The sub-agent's run is gone.")
    held = failure is None or isinstance(failure, QuestionsOpen)
    if order.record.waits and held and waiting.is_waiting(run):
        return _waiting(context, sharing, order, run, paused=run.stop_reason == "paused")
    outcome = await outcome_of_run(
        context.store, run, key=assignment.key, attempt=order.attempt, failure=failure
    )
    await _mark(context, order, _MARKS[outcome.status], outcome)
    return await by_reference(outcome, context.store, context.thread_id, context.max_file_bytes)


def _waiting(
    context: ToolContext,
    sharing: DelegationServices,
    order: DelegationRequest,
    run: Run | None,
    *,
    paused: bool,
) -> Outcome:
    """Return the outcome of a call that waits with its sub-agent, or until that may begin."""
    # Made again, the call is the same one.
    sharing.asked[context.call_id, order.record.key] -= 1
    return Outcome(
        "waiting",
        stop_reason="paused" if paused else "awaiting_user",
        task_key=order.record.key,
        attempt=order.attempt,
        run_id=run.id if run is not None else "",
    )


async def _order(
    context: ToolContext,
    sharing: DelegationServices,
    assignment: Assignment,
    *,
    background: bool,
    waits: bool,
) -> DelegationRequest:
    """Return what is known of a task. Raises `ToolError` if it may not be delegated."""
    key, store = assignment.key, context.store
    place = sharing.asked[context.call_id, key]
    sharing.asked[context.call_id, key] += 1
    depth = 1 + await _depth(store, context.run_id)
    if depth > sharing.depth:
        raise ToolError(
            "A sub-agent cannot delegate here.",
            cure="AGENT_RUNTIME_DELEGATION_DEPTH says how deep it may.",
        )
    waits = waits and not background and await waiting.may_wait(store, context.run_id)
    record = record_delegation(
        assignment, context.call_id, place, depth, background=background, waits=waits
    )
    runs = await earlier_runs(store, context.thread_id, key)
    own = next((run for run, known in runs if _same(run, known, context, record)), None)
    before = [one for one in runs if own is None or one[0].id != own.id]
    return DelegationRequest(assignment, record, before, own)


async def run_delegated(
    context: ToolContext,
    sharing: DelegationServices,
    order: DelegationRequest,
    on_event: Callable[[Event], None] | None = None,
) -> None:
    """Run a task in a run of its own, to its end. Raises what the run raises."""
    record, assignment = order.record, order.assignment
    entries = await attempts(
        context.store, order.before, diagnosis=record.diagnosis, fix_applied=record.fix_applied
    )
    agent = sub_agent_for(assignment, context, sharing.max_steps)
    task = assignment.message(rendered(entries))
    await context.run_agent(agent, task, spec=RunSpec(delegation=record), on_event=on_event)


async def _mark(
    context: ToolContext,
    order: DelegationRequest,
    status: PlanStatus,
    outcome: Outcome | None = None,
) -> None:
    """Set the status of the plan's item that the task carries out, if its key names one."""
    planner = context.service(Planner)
    if planner is None or not order.assignment.task_key.strip():
        return
    said = ""
    if outcome is not None:
        said = "; ".join(outcome.blockers) or str(outcome.result)
    try:
        await planner.mark(order.record.key, status, said)
    except (ConfigError, CorruptThread) as error:
        _log.warning("The plan does not say how %s went: %s", order.record.key, error.message)


def sub_agent_for(assignment: Assignment, context: ToolContext, max_steps: int) -> Agent:
    """Return the sub-agent that an assignment describes."""
    from agent_runtime.delegation.artifact_tool import open_artifact_tool

    tools: list[Tool | Callable[..., object]] = list(assignment.tools)
    if opened := assignment.opened():
        tools.append(open_artifact_tool(context.thread_id, opened))
    steps = min(assignment.max_steps or max_steps, max_steps)
    return Agent(
        assignment.model,
        tools=tools,
        instructions=assignment.system(),
        name=" ".join(assignment.role.split())[:60],
        output_type=assignment.output_type,
        max_steps=steps,
    )


async def _depth(store: UserStore, run_id: str | None) -> int:
    """Return how deep in sub-agents a run is."""
    depth = 0
    while run_id is not None:
        run = await store.run(run_id)
        depth, run_id = depth + (delegation_record(run) is not None), run.parent_run_id
    return depth


def _same(
    run: Run, known: DelegationRecord, context: ToolContext, record: DelegationRecord
) -> bool:
    """Return whether a run is what this very call began, before a crash."""
    same = (known.call, known.place) == (record.call, record.place)
    return same and run.parent_run_id == context.run_id


def is_interrupted(run: Run) -> bool:
    """Return whether a run stopped because its process did, and not by itself or for a user."""
    return run.status in ACTIVE or (run.status == "cancelled" and not run.cancel_requested)


async def own_run(context: ToolContext, record: DelegationRecord) -> Run | None:
    """Return the run of this call as it is now."""
    found = await context.store.runs(
        parent_thread_id=context.thread_id, task_key=record.key, limit=1000
    )
    for run in found:
        known = delegation_record(run)
        if known is not None and _same(run, known, context, record):
            return run
    return None
