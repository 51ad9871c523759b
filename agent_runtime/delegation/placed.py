"""Sub-agents that other workers run: what a record keeps, so that any of them can build one.

Such a run is enqueued instead of begun, under the lease of the run that delegates.  That run is
then suspended, and its call is made again when its sub-agents have ended.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from agent_runtime.delegation.attempts import attempts, rendered
from agent_runtime.delegation.request import DelegationRequest
from agent_runtime.errors import ConfigError
from agent_runtime.log.run_spec import RunSpec, delegation_record
from agent_runtime.tools.context import ToolContext
from agent_runtime_storage.contract.records.log import Run
from agent_runtime_storage.contract.store import UserStore


@dataclass(frozen=True, slots=True)
class ChildQueue:
    """Enqueues sub-agents' runs below a run of the queue; other runs have none.

    Attributes:
        enqueue: takes the agent's name, its task and its spec; returns the new run's id.
    """

    enqueue: Callable[[str, str, RunSpec], Awaitable[str]]


def required_queue(context: ToolContext) -> ChildQueue:
    """Return what enqueues sub-agents' runs.  Raises `ConfigError` in a run that has none."""
    if (queue := context.service(ChildQueue)) is None:
        raise ConfigError("This run is none of the queue's.", cure="Enqueue the root of its tree.")
    return queue


@dataclass(frozen=True, slots=True)
class PlacedRun:
    """What a sub-agent is built from: what the call placed, and the thread of that call."""

    placed: Mapping[str, Any]
    thread_id: str


def is_placed(run: Run) -> bool:
    """Return whether a sub-agent's run is one of the queue."""
    record = delegation_record(run)
    return record is not None and record.placed is not None


async def place(context: ToolContext, queue: ChildQueue, request: DelegationRequest) -> Run:
    """Enqueue the run of a task, and return it.

    Raises:
        LeaseLost, RunCancelled: the run that delegates may not begin it.
    """
    record, assignment = request.record, request.assignment
    entries = await attempts(
        context.store, request.before, diagnosis=record.diagnosis, fix_applied=record.fix_applied
    )
    task = assignment.message(rendered(entries))
    run_id = await queue.enqueue(assignment.name, task, RunSpec(delegation=record))
    return await context.store.runs.get(run_id)


async def wake_if_paused(store: UserStore, run: Run) -> None:
    """Let a queued run go on that was paused with the run above it."""
    if run.status == "suspended" and run.stop_reason == "paused":
        await store.queue.wake(run.id, "The run above it goes on.")


async def path_to(store: UserStore, run: Run) -> tuple[Run, list[PlacedRun]]:
    """Return the root above a queued sub-agent, and what was placed from there down to it.

    Raises:
        ConfigError: a run between them is none of the queue's.
    """
    path: list[PlacedRun] = []
    while run.parent_run_id is not None:
        record = delegation_record(run)
        if record is None or record.placed is None:
            raise ConfigError(
                f"Run {run.id} cannot be built again: it was not begun by the tool `delegate`.",
                cure="Resume the root of its tree.",
            )
        run = await store.runs.get(run.parent_run_id)
        # By now `run` is the one above, whose thread made the call.
        path.append(PlacedRun(record.placed, run.thread_id))
    return run, path[::-1]
