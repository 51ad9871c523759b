"""A delegated task before its run begins: the request, and how its sub-agent is built and run.

`delegate` waits for such a run; `background` does not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import anyio

from agent_runtime.agent import Agent
from agent_runtime.concurrency import DetachedTasks
from agent_runtime.delegation.artifact_tool import open_artifact_tool
from agent_runtime.delegation.assignment import Assignment
from agent_runtime.delegation.attempts import attempts, rendered
from agent_runtime.events import Event
from agent_runtime.human.call_waits import CallWaits
from agent_runtime.log.run_spec import DelegationRecord, RunSpec, delegation_record
from agent_runtime.prompt.text import one_line, shorten
from agent_runtime.tools.base import Tool
from agent_runtime.tools.context import ToolContext
from agent_runtime.tools.context_sources.base import ContextSources
from agent_runtime.tools.hooks import NO_HOOKS, ToolHook, ToolHooks
from agent_runtime.tools.mcp.server import McpServer
from agent_runtime_config import Settings
from agent_runtime_storage.contract.records.log import ACTIVE, Run

RECORD_CHARS = 1000
"""How much a record keeps of each text that the log of attempts repeats."""


class ResumeSubAgent(Protocol):
    """Resumes a sub-agent's run that stopped; `on_event` gets its events as well."""

    def __call__(
        self, run: Run, child: Agent[Any], /, *, on_event: Callable[[Event], None] | None = None
    ) -> Awaitable[object]: ...


class CallOrder:
    """Lets the calls of an answer pass one after the other, in the order in which they began."""

    def __init__(self) -> None:
        self._waiting: dict[str, anyio.Event] = {}

    @contextmanager
    def place(self, call_id: str) -> Generator[None]:
        """Take the place behind those that have one, until the context ends or `leave`."""
        self._waiting[call_id] = anyio.Event()
        self._let_first_pass()
        try:
            yield
        finally:
            self.leave(call_id)

    async def turn(self, call_id: str) -> None:
        """Wait until the call is the first; at once if it has no place."""
        if (event := self._waiting.get(call_id)) is not None:
            await event.wait()

    def leave(self, call_id: str) -> None:
        """Let the next call pass."""
        if self._waiting.pop(call_id, None) is not None:
            self._let_first_pass()

    def _let_first_pass(self) -> None:
        for event in self._waiting.values():
            event.set()
            return


@dataclass(slots=True)
class DelegationServices:
    """State and limits that all calls of a run share for delegating.

    Attributes:
        resume: resumes a child run that stopped, as a part of the call.  `on_event` gets its
            events too, and is the only listener once the calling run is over.
        background: holds the runs that no call waits for.
        cancel: cancels a run and all below it.
        slots: limits how many sub-agents work at once; the others wait.
        depth: the most levels of sub-agents.
        max_steps: the most steps of one sub-agent.
        order: by whether they are in the background, the calls that have no slot yet.
        starting: held while a background task begins, so that running tasks can be counted.
        asked: how often each key was delegated in each call that has no `CallWaits`.
    """

    resume: ResumeSubAgent
    background: DetachedTasks
    cancel: Callable[[str], Awaitable[object]]
    slots: anyio.Semaphore
    depth: int
    max_steps: int
    order: tuple[CallOrder, CallOrder] = field(default_factory=lambda: (CallOrder(), CallOrder()))
    starting: anyio.Lock = field(default_factory=anyio.Lock)
    asked: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])

    @classmethod
    def of(
        cls,
        settings: Settings,
        resume: ResumeSubAgent,
        background: DetachedTasks,
        cancel: Callable[[str], Awaitable[object]],
    ) -> DelegationServices:
        """Return the services of a run under these settings."""
        slots = anyio.Semaphore(settings.delegation_parallel)
        steps = settings.sub_agent_max_steps
        return cls(resume, background, cancel, slots, settings.delegation_depth, steps)

    def next_index(self, context: ToolContext, key: str) -> int:
        """Return how often a call has delegated a key before, and count this time."""
        calling = context.service(CallWaits)
        if calling is not None:
            calling.asked[key] += 1
            return calling.asked[key] - 1
        self.asked[context.call_id, key] += 1
        return self.asked[context.call_id, key] - 1

    def undo_index(self, context: ToolContext, key: str) -> None:
        """Forget the last time that a call delegated a key, because the call is made again."""
        # A `CallWaits` is new each time that the call is made.
        if context.service(CallWaits) is None:
            self.asked[context.call_id, key] -= 1


@dataclass(frozen=True, slots=True)
class DelegationRequest:
    """A task to delegate, and its runs so far.

    Attributes:
        before: the earlier runs of this task on the branch, oldest first, without `own`.
        own: the run that this same call began before a crash.
    """

    assignment: Assignment
    record: DelegationRecord
    before: Sequence[tuple[Run, DelegationRecord]]
    own: Run | None

    @property
    def attempt(self) -> int:
        """The number of this attempt at the task, from 1."""
        return len(self.before) + 1


def record_delegation(
    assignment: Assignment,
    call: str,
    place: int,
    depth: int,
    *,
    background: bool = False,
    waits: bool = False,
    placed: Mapping[str, Any] | None = None,
    built: Mapping[str, Any] | None = None,
    apart: bool = False,
) -> DelegationRecord:
    """Return the record of a call that begins a sub-agent's run."""
    action = f"{assignment.role.strip()}: {assignment.instructions.strip()}"
    return DelegationRecord(
        key=assignment.key,
        call=call,
        place=place,
        depth=depth,
        action=_short(action),
        diagnosis=_short(assignment.diagnosis),
        fix_applied=_short(assignment.fix_applied),
        background=background,
        waits=waits,
        placed=placed,
        built=built,
        apart=apart,
    )


def _short(text: str) -> str:
    return shorten(one_line(text), RECORD_CHARS)


async def run_delegated(
    context: ToolContext,
    services: DelegationServices,
    request: DelegationRequest,
    on_event: Callable[[Event], None] | None = None,
) -> None:
    """Run a task in a new child run until it ends or is suspended.  Raises what the run raises."""
    record, assignment = request.record, request.assignment
    entries = await attempts(
        context.store, request.before, diagnosis=record.diagnosis, fix_applied=record.fix_applied
    )
    agent = sub_agent_for(assignment, context, services.max_steps)
    task = assignment.message(rendered(entries))
    await context.run_agent(agent, task, spec=RunSpec(delegation=record), on_event=on_event)


def sub_agent_for(assignment: Assignment, context: ToolContext, max_steps: int) -> Agent[Any]:
    """Return the sub-agent that an assignment describes."""
    sources = context.service(ContextSources) or ContextSources()
    hooks = context.service(ToolHooks) or NO_HOOKS
    return sub_agent(assignment, context.thread_id, sources, hooks.each, max_steps)


def sub_agent(
    assignment: Assignment,
    thread_id: str,
    sources: ContextSources,
    hooks: Sequence[ToolHook],
    max_steps: int,
) -> Agent[Any]:
    """Return the sub-agent that an assignment of a thread's run describes.

    Args:
        sources, hooks: of the agent that delegates.
    """
    tools: list[Tool | Callable[..., object] | McpServer] = list(assignment.tools)
    if opened := assignment.opened():
        tools.append(open_artifact_tool(thread_id, opened))
    return Agent(
        assignment.model,
        tools=tools,
        instructions=assignment.system(),
        name=assignment.name,
        output_type=assignment.output_type,
        context=sources.for_tools(tools),
        hooks=hooks,
        # The model chooses within the setting, not beyond it.
        max_steps=min(assignment.max_steps or max_steps, max_steps),
        asking=assignment.asking,
    )


def is_own(
    run: Run, known: DelegationRecord, context: ToolContext, record: DelegationRecord
) -> bool:
    """Return whether this same call began a run, before a crash or now."""
    same = (known.call, known.place) == (record.call, record.place)
    return same and run.parent_run_id == context.run_id


async def own_run(context: ToolContext, record: DelegationRecord) -> Run | None:
    """Return the run of this call as it is now; None if it has not begun."""
    runs = await context.store.runs.list(
        parent_thread_id=context.thread_id, task_key=record.key, limit=1000
    )
    for run in runs:
        known = delegation_record(run)
        if known is not None and is_own(run, known, context, record):
            return run
    return None


def is_interrupted(run: Run) -> bool:
    """Return whether a run stopped because its process did, not by itself or for a user."""
    return run.status in ACTIVE or (run.status == "cancelled" and not run.cancel_requested)
