"""Rows of the queue: runs that wait for a worker, or work at one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from agent_runtime_storage.contract.records.log import JsonObject, Lease, RunStatus
from agent_runtime_storage.contract.records.spending import UNLIMITED, Budget

QueueState = Literal["delayed", "waiting", "behind", "working", "parked", "dead"]


@dataclass(frozen=True, slots=True)
class NewQueuedRun:
    """A run to enqueue.

    Attributes:
        title, metadata: of the thread, if there is none yet.
        program, agent, version: what a worker must have to take it.
        model: the model's name, for limits; empty if it is not known.
        task: the user's message, encoded; None answers the message at the thread's head.
        share: runs of one share follow one another; the shares take turns.
        step: how far the run moves its share's turn on; half of it is twice the share.
        due_at: when it may begin, in seconds since the epoch; None for now.
        parent: the lease of the run that it is below; it then joins that run's tree, gets its place
            in the queue, and `program`, `agent`, `version`, `share`, `step`, `due_at` and `budget`
            do not apply.
    """

    id: str
    thread_id: str
    agent: str
    program: str
    task: str | None
    spec: JsonObject
    share: str
    title: str = ""
    metadata: JsonObject = field(default_factory=dict[str, Any])
    internal: JsonObject = field(default_factory=dict[str, Any])
    version: str = ""
    model: str = ""
    step: float = 1.0
    due_at: float | None = None
    budget: Budget = UNLIMITED
    parent: Lease | None = None


@dataclass(frozen=True, slots=True)
class QueueRow:
    """A run in the queue.

    Attributes:
        state: `delayed` until `due_at`; `waiting` for a worker; `behind` another run of its thread;
            `working`; `parked`, suspended until an answer, a retry or `due_at`; `dead`, failed,
            until it is retried.
        takeovers: how often a worker's lease has expired since the run's last step.
        cause: why it is in this state, in a sentence; empty for a run as it was enqueued.
        status: of the run.
        busy_with: another run that is active on its thread.
        host: of the worker.
    """

    user_id: str
    run_id: str
    thread_id: str
    program: str
    agent: str
    version: str
    model: str
    state: QueueState
    share: str
    tag: float
    due_at: float | None
    enqueued_at: float
    takeovers: int
    cause: str
    status: RunStatus
    busy_with: str | None
    host: str | None


@dataclass(frozen=True, slots=True)
class PickedRun:
    """A run whose lease a worker has picked.

    Attributes:
        takeovers: how often a worker's lease has expired since the run's last step.
        task: the user's message, for a run that has not begun.
        blame: the sum of its shares in these losses.  The runs of a lost worker that were blamed
            most before share the loss equally; a run that was alone has a share of 1.
        others_lost: how many workers were lost since the first of these takeovers and did not have
            the run: its workers may have been lost without its fault, as they were.
    """

    user_id: str
    lease: Lease
    takeovers: int
    task: str | None
    blame: float = 0.0
    others_lost: int = 0


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """How many runs may work at once, of the queue of all processes; None for any number."""

    per_user: int | None = None
    per_agent: int | None = None
    per_model: int | None = None
