"""Records of the log, its runs and jobs: plain values, with bodies that the store never interprets.

A node's id is its `seq`: an integer that counts up within its thread, without gaps, in commit
order.  `parent_id` is the seq of the node before it on its branch, always smaller than its own.
Money is in integer nanodollars, time in seconds since the epoch by the database's clock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from agent_runtime_storage.contract.records.observations import NewObservation
from agent_runtime_storage.contract.records.plans import NewPlan
from agent_runtime_storage.contract.records.questions import NewQuestion
from agent_runtime_storage.contract.records.spending import (
    NO_LIMITS,
    UNLIMITED,
    Amount,
    Budget,
    Limits,
)
from agent_runtime_storage.contract.records.usage import Usage

JsonObject = Mapping[str, Any]

NodeKind = Literal["message", "exchange"]
NodeStatus = Literal["open", "closed"]
CallStatus = Literal["pending", "started", "done"]
CallOutcome = Literal["ok", "error", "refused", "interrupted", "cancelled"]
RunStatus = Literal["queued", "running", "suspended", "succeeded", "failed", "cancelled"]
StopReason = Literal[
    "completed",
    "max_steps",
    "budget",
    "timeout",
    "cancelled",
    "error",
    "awaiting_user",
    "awaiting_children",
    "paused",
    "no_progress",
    "interrupted",
    "unavailable",
    "unsupported",
    "refusal",
    "content_filter",
    "length",
    "imported",
    "dead_letter",
]
ACTIVE: tuple[RunStatus, ...] = ("queued", "running", "suspended")


@dataclass(frozen=True, slots=True)
class Thread:
    """A conversation: an append-only tree of nodes with an explicit head."""

    id: str
    title: str
    metadata: JsonObject
    head: int | None
    last_seq: int
    last_activation: int
    last_event: int
    active_run: str | None
    created_at: float
    updated_at: float


@dataclass(frozen=True, slots=True)
class ThreadPlace:
    """How far the events of a thread go, and when it was created.

    A thread that was created at another time is another thread, also of the same id.
    """

    last_event: int
    created_at: float


@dataclass(frozen=True, slots=True)
class CallRow:
    """A tool call of an exchange; its name and arguments are in the exchange's body."""

    node_id: int
    index: int
    tool: str
    status: CallStatus
    outcome: CallOutcome | None
    body: bytes
    """The result, encoded by the engine; empty until it is done."""
    shown: int | None
    """The number of characters of the result that prompts show; None for all."""
    tokens: int
    """The tokens of the result as shown."""


@dataclass(frozen=True, slots=True)
class Node:
    """A message, or an exchange: an assistant message with all its calls and their results."""

    seq: int
    parent_id: int | None
    kind: NodeKind
    status: NodeStatus
    role: str
    run_id: str | None
    activation_id: int
    """The activation that applied when the node was appended; 0 for none."""
    body: bytes
    tokens: int
    created_at: float
    calls: tuple[CallRow, ...] = ()


class Outline(NamedTuple):
    """A node without its content; `tokens` counts its message alone.

    A tuple, because a search reads thousands.
    """

    thread_id: str
    seq: int
    parent_id: int | None
    role: str
    tokens: int
    created_at: float


@dataclass(frozen=True, slots=True)
class Activation:
    """How prompts begin from here on: anchored at the node that was the head when it was made."""

    id: int
    anchor: int | None
    run_id: str | None
    cause: str
    body: bytes
    prefix: bytes
    """The system prompt and tool schemas, stored once for each distinct content."""
    created_at: float


@dataclass(frozen=True, slots=True)
class LeaseOwner:
    """The process that holds a lease; on the same machine this shows whether it is still alive.

    Attributes:
        host: the machine's name, for people.
        boot: the id of the kernel's boot, and of the namespace of process ids.
        pid: the process id.
        started: the start time of the process, by the kernel's clock.
        machine: the machine's id; empty if it has none.
        instance: a random id of the process; empty in rows of older versions.
    """

    host: str
    boot: str
    pid: int
    started: str
    machine: str = ""
    instance: str = ""


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to write on behalf of a run; `epoch` fences every write.

    Attributes:
        queued: whether the run may be in the queue, which its end then concerns as well.
    """

    run_id: str
    thread_id: str
    root_run_id: str
    epoch: int
    queued: bool = False

    @property
    def is_child(self) -> bool:
        """Whether the run is below the root of its tree."""
        return self.run_id != self.root_run_id


@dataclass(frozen=True, slots=True)
class Run:
    """One execution of an agent on a thread."""

    id: str
    thread_id: str
    parent_run_id: str | None
    root_run_id: str
    agent: str
    status: RunStatus
    stop_reason: StopReason | None
    detail: str
    """Why it stopped, in a sentence; empty while it is active."""
    task_id: int | None
    """The seq of the node that holds the run's task."""
    open_node: int | None
    """The seq of the exchange whose calls are not all done; None between exchanges."""
    steps: int
    max_steps: int
    cancel_requested: bool
    spec: JsonObject
    """The caller's data of the run; no secrets."""
    internal: JsonObject | None
    """The engine's data of the run; None in rows of earlier versions, which have it in `spec`."""
    output: bytes
    epoch: int
    owner: LeaseOwner | None
    lease_live: bool
    """Whether the lease had not expired, by the database's clock, when the row was read."""
    budget: Budget
    reserved: Amount
    """Of the whole tree (on the root): reserved for calls in progress."""
    settled: Amount
    """Of the whole tree (on the root): reported by providers."""
    unsettled: Amount
    """Of the whole tree (on the root): upper bounds of calls that were never reported."""
    kept: Amount
    """On the root: the amount that the runs below it have to leave for its own next calls."""
    created_at: float
    updated_at: float
    finished_at: float | None


@dataclass(frozen=True, slots=True)
class EventRow:
    """An event of a thread; it refers to nodes and does not repeat their content."""

    id: int
    run_id: str | None
    kind: str
    node_id: int | None
    data: JsonObject
    created_at: float


@dataclass(frozen=True, slots=True)
class InboxItem:
    """An item posted to a thread from outside; the holder of the lease drains it."""

    id: int
    run_id: str | None
    kind: str
    body: bytes
    created_at: float


@dataclass(frozen=True, slots=True)
class Job:
    """A durable unit of background work, unique by (thread, kind, key)."""

    id: str
    thread_id: str
    kind: str
    key: str
    payload: bytes
    attempts: int
    token: str
    """The claim's fencing token."""


@dataclass(frozen=True, slots=True)
class StandingClaim:
    """A claim on a job: its key, who said to hold it, and its token."""

    key: str
    holder: str
    token: str


@dataclass(frozen=True, slots=True)
class NewNode:
    """A node to append; `seq` must be the thread's next one."""

    seq: int
    parent_id: int | None
    kind: NodeKind
    role: str
    body: bytes
    tokens: int
    activation_id: int
    status: NodeStatus = "closed"
    tools: tuple[str, ...] = ()
    """For an exchange, the tool of each call in order; each begins as `pending`."""
    text: str = ""
    """The text for full-text search; only its index is stored, up to 100,000 characters."""
    started: bool = False
    """Whether the calls begin as `started` instead."""


@dataclass(frozen=True, slots=True)
class NewActivation:
    """An activation to append; `id` must be the thread's next one.

    `parts` counts the tokens of each part of what prompts begin with, for those who look into it.
    """

    id: int
    anchor: int | None
    cause: str
    body: bytes
    prefix: bytes
    parts: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True, slots=True)
class CallDone:
    """A call's result."""

    node_id: int
    index: int
    outcome: CallOutcome
    body: bytes
    tokens: int
    shown: int | None = None
    text: str = ""
    """The text for full-text search, as for `NewNode`."""


@dataclass(frozen=True, slots=True)
class CallShown:
    """How much of a call's result prompts show, decided when its exchange is closed."""

    node_id: int
    index: int
    shown: int
    tokens: int


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event to append; its id is allocated by the commit."""

    kind: str
    node_id: int | None = None
    data: JsonObject = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Finish:
    """The end of a run, or its suspension."""

    status: RunStatus
    stop_reason: StopReason
    detail: str = ""
    output: bytes = b""


@dataclass(frozen=True, slots=True)
class Commit:
    """Everything that one transaction does for a run; each part is optional.

    The parts apply in the order of the fields.  A commit misses, and writes nothing, if the lease
    is lost, if a seq or activation id is not the next one, if a call is not in the expected status,
    or if the reservation does not fit the budget.
    """

    start: tuple[tuple[int, int], ...] = ()
    """Calls (node, index) from `pending` to `started`."""
    wait: tuple[tuple[int, int], ...] = ()
    """Calls from `started` to `pending`: they wait for a person, and are made again."""
    done: tuple[CallDone, ...] = ()
    """Calls from `pending` or `started` to `done`."""
    shown: tuple[CallShown, ...] = ()
    """For done calls (those in `done` included), how much of the result prompts show."""
    close: tuple[int, ...] = ()
    """Exchanges to close: all their calls must be done (those in `done` included)."""
    nodes: tuple[NewNode, ...] = ()
    head: int | None = None
    """The new head, which must be closed; None leaves it where it is."""
    activation: NewActivation | None = None
    observation: NewObservation | None = None
    plan: NewPlan | None = None
    job: Job | None = None
    """A claimed job that this commit ends; it misses if another claimed the job meanwhile."""
    drained: tuple[int, ...] = ()
    """Inbox items that these nodes stand for."""
    usage: tuple[Usage, ...] = ()
    release: Amount | None = None
    """The amount to subtract from the tree's reservation (and from this run's own)."""
    settle: Amount | None = None
    unsettle: Amount | None = None
    reserve: Amount | None = None
    """The amount to reserve on the root for the next model call."""
    limits: Limits = NO_LIMITS
    """The limits that the reservation has to fit, in addition to the tree's budget."""
    unplanned: bool = False
    """Whether the reservation was planned without a budget; it misses if the tree has one."""
    keep: Amount | None = None
    """Of a root: the amount that runs below have to leave for its next calls from now on."""
    steps: int | None = None
    """The run's number of steps from now on."""
    finish: Finish | None = None
    questions: tuple[NewQuestion, ...] = ()
    quiet_inbox: bool = False
    """Whether the commit misses if other items wait in the inbox."""
    undisturbed: bool = False
    """Whether it misses if other items wait in the inbox, or a cancel of the run is requested."""
    events: tuple[NewEvent, ...] = ()


@dataclass(frozen=True, slots=True)
class LateObservation:
    """An observation that was not ready before its run ended, with the end of its claimed job."""

    observation: NewObservation
    job: Job
    usage: tuple[Usage, ...] = ()
    events: tuple[NewEvent, ...] = ()


@dataclass(frozen=True, slots=True)
class NewRun:
    """A run to begin, at once with a lease.

    `nodes` (with the task) are appended under the thread's head, which must be `expect_head`.
    A child names its parent, which must be running and not cancelled.
    """

    id: str
    thread_id: str
    agent: str
    max_steps: int
    spec: JsonObject
    owner: LeaseOwner
    lease_seconds: float
    expect_head: int | None
    expect_seq: int
    nodes: tuple[NewNode, ...] = ()
    task_id: int | None = None
    activation: NewActivation | None = None
    parent_run_id: str | None = None
    root_run_id: str | None = None
    budget: Budget = UNLIMITED
    reserve: Amount | None = None
    events: tuple[NewEvent, ...] = ()
    internal: JsonObject = field(default_factory=dict[str, Any])
    """The engine's data of the run, apart from the caller's `spec`."""
    epoch: int | None = None
    """Of the lease that a worker has picked, for a run of the queue; its budget is set already."""


Vet = Callable[[Literal["node", "call", "observation", "plan", "document"], bytes], tuple[str, int]]
"""Reads a body as the engine writes it; raises `ValueError` if it is another.

For a node it returns the role and the number of calls; for others the result is ignored.
"""
TextOf = Callable[[Literal["node", "call"], bytes], str]
"""Returns the text for full-text search from the body of a node or of a call's result."""
