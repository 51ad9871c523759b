"""Enqueue a run: it waits until a worker picks it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Protocol

from agent_runtime.agent import Agent, MemoryMode, Runnable
from agent_runtime.errors import ConfigError
from agent_runtime.files.attach import Attachable, attach
from agent_runtime.log.run_spec import RunSpec
from agent_runtime.messages import UserMessage, encodable, encodable_files, encode_message
from agent_runtime.run.budget import tree_budget
from agent_runtime.run.node_memory import config_of
from agent_runtime.run.start import thread_metadata, title_of
from agent_runtime_config import Settings
from agent_runtime_storage import UserStore
from agent_runtime_storage.contract.ids import new_id
from agent_runtime_storage.contract.names import name_problem
from agent_runtime_storage.contract.records.log import Run
from agent_runtime_storage.contract.records.queue import NewQueuedRun, QueueLimits

MOST_PRIORITY = 1000.0


class Agents(Protocol):
    """What a worker can run, by name and version; an `App` is one."""

    @property
    def program(self) -> str:
        """Stored with the runs that begin here, so that only this program continues them."""
        ...

    @property
    def names(self) -> Sequence[str]:
        """The names of what can be run."""
        ...

    @property
    def versions(self) -> Sequence[str]:
        """The versions whose runs it works on; the first is that of the runs enqueued here."""
        ...

    def of_run(self, run: Run) -> Runnable[Any] | None:
        """Return what continues a run; None for a run of another program."""
        ...


@dataclass(frozen=True, slots=True)
class QueuedRun:
    """A run that waits for a worker."""

    run_id: str
    thread_id: str


@dataclass(frozen=True, slots=True)
class QueueRequest:
    """A run to enqueue.

    Attributes:
        program, version: what a worker must have with the agent.
        at: when it may begin; None for now.
        priority: how many turns it is worth, compared with others of the queue.
        share: runs of one share take turns with those of others; None for one share a user.
    """

    agent: Runnable[Any]
    task: str | UserMessage | None
    program: str
    version: str = ""
    thread: str | None = None
    files: Sequence[Attachable] = ()
    at: datetime | None = None
    priority: float = 1.0
    share: str | None = None
    spec: Mapping[str, Any] = field(default_factory=dict[str, Any])
    user_context: Mapping[str, Any] | None = None
    run_id: str | None = None


async def enqueue_run(
    store: UserStore, settings: Settings, request: QueueRequest, connection: Any = None
) -> QueuedRun:
    """Enqueue a run in one transaction, which may be a caller's own.

    Raises:
        ConfigError: the request cannot be worked on.
        Conflict: a run has this id already.
        InvalidFile: a file cannot be stored.
        StoreError: the connection cannot be joined.
    """
    queued = await new_queued_run(store, settings, request)
    await store.queue.enqueue(queued, connection=connection)
    return QueuedRun(queued.id, queued.thread_id)


async def new_queued_run(
    store: UserStore, settings: Settings, request: QueueRequest
) -> NewQueuedRun:
    """Return what enqueues a run, checked and with its files stored; raises as `enqueue_run`."""
    _check(request)
    thread, run_id = request.thread or new_id(), request.run_id or new_id()
    task = await _task(store, settings, request, thread)
    workflow = not isinstance(request.agent, Agent)
    spec = RunSpec(caller=request.spec, program=request.program, workflow=workflow)
    spec = spec.with_context(request.user_context)
    return NewQueuedRun(
        id=run_id,
        thread_id=thread,
        agent=encodable(request.agent.name),
        program=request.program,
        task=None if task is None else encode_message(task).decode(),
        spec=dict(request.spec),
        internal=spec.internal(),
        title=title_of(task) if task else "",
        metadata=thread_metadata(spec) or {},
        version=request.version,
        model=_model(request.agent, settings),
        share=store.user_id if request.share is None else request.share,
        # The tag of a share advances by this with each of its runs; small steps come up more
        # often.
        step=1 / request.priority,
        due_at=None if request.at is None else request.at.timestamp(),
        budget=tree_budget(settings),
    )


def limits_of(settings: Settings) -> QueueLimits:
    """Return how many runs of the queue may work at once."""
    return QueueLimits(
        settings.queue_runs_per_user,
        settings.queue_runs_per_agent,
        settings.queue_runs_per_model,
    )


def _check(request: QueueRequest) -> None:
    if not 1 / MOST_PRIORITY <= request.priority <= MOST_PRIORITY:
        # A comparison with NaN is false, so it is refused, too.
        raise ConfigError(
            f"The priority {request.priority:g} is out of range.",
            cure=f"Give one between {1 / MOST_PRIORITY:g} and {MOST_PRIORITY:g}; 1 is usual.",
        )
    if request.at is not None and (
        request.at.tzinfo is None or not math.isfinite(request.at.timestamp())
    ):
        raise ConfigError(
            "The time at which the run may begin has no time zone.",
            cure="Give an aware `datetime`, such as `datetime.now(UTC) + timedelta(hours=1)`.",
        )
    if request.share is not None and (problem := name_problem(request.share)):
        raise ConfigError(
            f"The name of the share {problem}.", cure="Give a short text, such as a customer's id."
        )
    agent, task = request.agent, request.task
    if isinstance(agent, Agent) and config_of(agent).mode is MemoryMode.NODE:
        raise ConfigError(
            f"The agent {agent.name!r} has the memory mode `node`, whose runs choose their thread "
            "when they begin.",
            cure="Enqueue a workflow that has it as a node, or run it directly.",
        )
    text = task.text if isinstance(task, UserMessage) else task
    if text is None and request.thread is None:
        raise ConfigError("There is no task.", cure="Give the run a task.")
    has_files = bool(request.files) or (isinstance(task, UserMessage) and bool(task.files))
    if text is not None and not text.strip() and not has_files:
        raise ConfigError("The task is empty.", cure="Give the run a task.")


async def _task(
    store: UserStore, settings: Settings, request: QueueRequest, thread: str
) -> UserMessage | None:
    """Return the task with its files stored, which is why its thread may have to exist before."""
    if request.task is None:
        return None
    task = UserMessage(request.task) if isinstance(request.task, str) else request.task
    files = task.files
    if files or request.files:
        await store.threads.ensure(thread, title=title_of(task))
        given = (*files, *request.files)
        files = await attach(store, thread, given, settings.max_file_bytes)
    return replace(task, text=encodable(task.text), files=encodable_files(files))


def _model(agent: Runnable[Any], settings: Settings) -> str:
    """Return the name of the agent's model, by which runs are limited."""
    model = agent.model if isinstance(agent, Agent) else None
    named = settings.model if model is None else model
    return named if isinstance(named, str) else named.name
