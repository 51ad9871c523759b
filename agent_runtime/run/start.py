"""Begin a run on a thread, or take one over from a dead process; both return the run's log."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import anyio.to_thread

from agent_runtime.concurrency import run_shielded
from agent_runtime.errors import ConfigError, Conflict, LeaseLost, RunCancelled, ThreadBusy
from agent_runtime.events import Event
from agent_runtime.files.attach import MAX_BYTES, Attachable, attach
from agent_runtime.files.long_texts import MESSAGE_CHARS, keep_long_text
from agent_runtime.human.gate import calls_that_asked
from agent_runtime.human.interruptions import Rerun, Resolution, resolved_result
from agent_runtime.log import leases
from agent_runtime.log.branch import activation_event, activation_row, load_view, node_row
from agent_runtime.log.exchange import Exchange
from agent_runtime.log.run_log import RunLog
from agent_runtime.log.run_spec import COMMAND, WORKSPACE, RunSpec
from agent_runtime.messages import (
    AssistantMessage,
    LoggedMessage,
    Note,
    ToolResult,
    UserMessage,
    encodable,
    encodable_files,
)
from agent_runtime.models.tokens import count_text
from agent_runtime.prompt.build import entry_of
from agent_runtime.prompt.calendar import Today
from agent_runtime.prompt.day import date_notes
from agent_runtime.prompt.fences import new_nonce
from agent_runtime.prompt.view import Entry, View
from agent_runtime.prompt.window import plan_activation
from agent_runtime.run.guard.repeats import Resumed
from agent_runtime.run.resolve import RunSetup
from agent_runtime.run.results import with_used
from agent_runtime.run.takeover import (
    check_resumable,
    end_children,
    end_dead,
    end_if_dead,
    finish_on_error,
    name_left_commands,
    take_log,
)
from agent_runtime.run.tool_calls import reopen
from agent_runtime.tools.workspace.reading.seen_files import SeenFiles
from agent_runtime_storage.contract.records.log import (
    ACTIVE,
    Budget,
    Lease,
    NewEvent,
    NewNode,
    NewRun,
    Run,
    Thread,
)
from agent_runtime_storage.contract.records.spending import Limits
from agent_runtime_storage.contract.store import UserStore

UNANSWERED = "(The run before this one stopped without an answer.)"


@dataclass(frozen=True, slots=True)
class RunRequest:
    """A run to begin.

    Attributes:
        task: None answers the user message at the thread's head again.
        parent: the log of the run that starts this one as its child.
        before: messages on the thread before the task.
        left_out: how many turns of a node's memory did not fit before it.
        lease: that of a queued run, which a worker has picked.
        files: further files of the task; they are stored with the thread.
    """

    run_id: str
    thread_id: str
    agent: str
    task: UserMessage | None
    budget: Budget
    on_event: Callable[[Event], None]
    spec: RunSpec = field(default_factory=RunSpec)
    parent: RunLog | None = None
    before: tuple[LoggedMessage, ...] = ()
    left_out: int = 0
    lease: Lease | None = None
    files: tuple[Attachable, ...] = ()
    max_file_bytes: int = MAX_BYTES
    max_message_chars: int = MESSAGE_CHARS


@dataclass(slots=True)
class TakenOverRun:
    """A run that was taken over.

    Attributes:
        unverified: results of its open exchange for calls that must not run again.
        seen: the files that it has seen.
        paused: whether it was paused; then the model has not seen its newest entries.
    """

    log: RunLog
    step_limit: int
    resumed: Resumed
    task: Entry | None = None
    unverified: dict[int, ToolResult] = field(default_factory=dict[int, ToolResult])
    seen: SeenFiles | None = None
    paused: bool = False


async def begin_new_run(
    store: UserStore, setup: RunSetup, request: RunRequest
) -> tuple[RunLog, Entry]:
    """Begin a run: its task, its first activation and its lease, in one transaction.

    Returns its log and the entry of its task.

    Raises:
        ThreadBusy: another run is active on the thread.
        InvalidFile: a file cannot be stored.
    """
    task = request.task
    title = title_of(task) if task else ""
    metadata = thread_metadata(request.spec)
    thread = await store.threads.ensure(request.thread_id, title=title, metadata=metadata)
    # It adds no node, so `thread` stays as it was read.
    await end_upkeep(store, thread)
    task = await _with_files(store, thread, request)
    task, shown = await _fitting(store, thread, task, setup, request)
    view = old = await load_view(store, thread.id, thread.head)
    if not old.activation_id:
        # Other branches of the thread may have activations; ids count through all of them.
        view = replace(first_view(old, setup), activation_id=thread.last_activation + 1)
    notes = await setup.context.changed(view) if task is not None else []
    messages = [*request.before, *opening(old, task, setup.timezone, notes)]
    rows = _rows(messages, thread, view)
    parent = request.parent.lease if request.parent else None
    root = parent or request.lease
    start = run_start_event(request.agent, setup, setup.max_steps)
    more = {"turns_left_out": request.left_out or None, "task_chars": shown}
    more = {name: number for name, number in more.items() if number is not None}
    start = replace(start, data={**start.data, **more})
    events = [child_start_event(start, await _parent_of(store, request), request.spec)]
    if view is not old:
        events.append(activation_event(old, view, "start"))
    run = NewRun(
        id=request.run_id,
        thread_id=thread.id,
        agent=request.agent,
        max_steps=setup.max_steps,
        spec=dict(request.spec.caller),
        internal=request.spec.internal(),
        owner=leases.this_process_owner(),
        lease_seconds=leases.LEASE_SECONDS,
        # Nothing begins if anyone wrote to the thread since it was read.
        expect_head=thread.head,
        expect_seq=thread.last_seq,
        nodes=tuple(rows),
        task_id=rows[-1].seq if rows else thread.head,
        activation=None if view is old else activation_row(view, "start"),
        parent_run_id=parent.run_id if parent else None,
        root_run_id=root.root_run_id if root else None,
        budget=request.budget,
        events=tuple(events),
        epoch=request.lease.epoch if request.lease else None,
    )
    log = await begin_log(
        store, thread, view, run, messages=messages, emit=request.on_event, limits=setup.limits
    )
    return log, log.view.entries[-1]


async def _parent_of(store: UserStore, request: RunRequest) -> str | None:
    """Return the id of the run above a run that begins."""
    if request.lease is not None and request.lease.is_child:
        return (await store.runs.get(request.run_id)).parent_run_id
    return request.parent.lease.run_id if request.parent else None


async def begin_log(
    store: UserStore,
    thread: Thread,
    view: View,
    run: NewRun,
    *,
    messages: Sequence[LoggedMessage] = (),
    emit: Callable[[Event], None],
    limits: Limits,
) -> RunLog:
    """Begin a run in the store and return its log.

    Call `announce` next: it emits the run's first events and raises a cancellation that came
    meanwhile.

    Args:
        thread: as it was read for this run.
        messages: those of the run's nodes.
    """
    # Every read comes before the run begins: if one failed later, the run would stay `running`.
    newest = await store.log.last_observation_id(thread.id)
    # Shielded: a run that began must not be lost to a cancellation, for somebody has to end it.
    (lease, last_event), interrupted = await run_shielded(store.runs.begin(run))
    log = RunLog.of(store, lease, thread, view, last_observation=newest, emit=emit, limits=limits)
    log.interrupted = interrupted
    log.begun(messages, run.nodes, run.events, last_event)
    return log


async def _fitting(
    store: UserStore,
    thread: Thread,
    task: UserMessage | None,
    setup: RunSetup,
    request: RunRequest,
) -> tuple[UserMessage | None, int | None]:
    """Return the task, with only the part of its text that prompts have room for, and a reference.

    Also returns how many characters that part has; None if it is the whole.
    """
    if task is None:
        return None, None
    most, text = request.max_message_chars, task.text
    # A task stays in every prompt, so half of them is for the others.
    room = int(setup.room.limit / setup.calibration.safe_ratio) // 2
    part = text[:most]
    # A token has at least one byte, so a part of fewer bytes need not be counted.
    while len(part.encode("utf-8", "surrogatepass")) > room and await _count(part) > room:
        # By quarters: counting a long text is slow, and how much of it is shown need not be
        # exact.
        part = part[: len(part) * 3 // 4]
    if len(part) == len(text):
        return task, None
    kept = await keep_long_text(
        store, thread.id, text, len(part), request.max_file_bytes, name="task"
    )
    return replace(task, text=kept), len(part)


async def _count(text: str) -> int:
    # In a thread: a million characters take a second.
    return await anyio.to_thread.run_sync(count_text, text)


def thread_metadata(spec: RunSpec) -> dict[str, Any] | None:
    """Return the metadata of a thread that a run with this spec creates."""
    workspace = spec.caller.get(WORKSPACE) if spec.program == COMMAND else None
    return {WORKSPACE: workspace} if isinstance(workspace, str) else None


def title_of(task: UserMessage) -> str:
    """Return a thread's title from its first task."""
    # A title holds no zero byte, but a task may.
    return encodable(task.text.strip().partition("\n")[0][:80].replace("\0", ""))


async def _with_files(store: UserStore, thread: Thread, request: RunRequest) -> UserMessage | None:
    """Return the task with its files stored. Raises `InvalidFile`."""
    task = request.task
    if task is None or not (task.files or request.files):
        return task
    files = (*task.files, *request.files)
    return replace(task, files=await attach(store, thread.id, files, request.max_file_bytes))


def _rows(messages: Sequence[LoggedMessage], thread: Thread, view: View) -> list[NewNode]:
    """Return the messages as nodes of the thread, each the child of the one before."""
    return [
        node_row(
            message,
            seq=thread.last_seq + 1 + i,
            parent_id=thread.last_seq + i if i else thread.head,
            activation_id=view.activation_id,
        )
        for i, message in enumerate(messages)
    ]


async def end_upkeep(store: UserStore, thread: Thread) -> None:
    """End a maintenance run of the thread's memory whose process died; its work is saved."""
    if thread.active_run is None:
        return
    run = await store.runs.get(thread.active_run)
    # It still holds the thread, so a new run would be refused.
    if RunSpec.of(run).upkeep:
        await end_if_dead(store, run)


def first_view(old: View, setup: RunSetup) -> View:
    """Return the view after a thread's first activation."""
    return plan_activation(
        old,
        setup.room,
        cause="start",
        estimate=setup.calibration.estimate,
        nonce=old.start.nonce or new_nonce(),
        task=None,
        model=setup.choice.model.name,
        prefix=setup.prefix,
        repeat_system=setup.repeat_system,
        remembers=setup.memory is not None,
        today=Today.first(setup.timezone),
    )


def opening(
    view: View,
    task: UserMessage | None,
    timezone: str | None = None,
    context: Sequence[Note] = (),
) -> list[LoggedMessage]:
    """Return the messages with which a run begins: before its task what has changed around it.

    Args:
        timezone: the user's; None to say nothing of the day.

    Raises:
        ConfigError: there is nothing to do.
    """
    last = view.entries[-1] if view.entries else None
    if task is not None:
        task = replace(task, text=encodable(task.text), files=encodable_files(task.files))
    if task is None:
        if last is None or last.message.type != "user":
            raise ConfigError("There is no task.", cure="Give the run a task.")
        return []
    if not task.text.strip() and not task.files:
        raise ConfigError("The task is empty.", cure="Give the run a task.")
    # A new thread's first activation names the day.
    date = date_notes(view, timezone) if timezone and view.activation_id else ()
    notes = (*date, *context)
    if last is not None and (last.results or not last.prompt):
        # Several providers refuse a user message right after a tool result.
        return [AssistantMessage(UNANSWERED), *notes, task]
    return [*notes, task]


async def take_over(
    store: UserStore,
    run: Run,
    setup: RunSetup,
    agent: str,
    on_event: Callable[[Event], None],
    *,
    decided: Mapping[str, Resolution] = MappingProxyType({}),
    kept: Collection[str] = (),
) -> TakenOverRun:
    """Take over a run that `check_free` accepts, with decisions about interrupted calls by id.

    Args:
        kept: child runs that it resumes as they are, whatever call made them.

    Raises:
        ThreadBusy: another process took it over first, or another run is active on its thread.
        RunCancelled: its cancellation was requested while nobody worked on it; it is ended now.
        Conflict: it has succeeded, or its thread has continued without it.
    """
    check_resumable(run)
    ended = run.status not in ACTIVE
    if ended:
        await _check_head(store, run, (await store.threads.get(run.thread_id)).head)
    try:
        if not ended and run.cancel_requested:
            await end_dead(store, run)
            raise RunCancelled(
                f"Run {run.id} was cancelled while nobody worked on it.",
                cure="Resume it once more to continue all the same.",
            )
        owner, paused = run.owner, run.stop_reason == "paused"  # From now on it is this process.
        log, run = await take_log(store, run, on_event)
    except LeaseLost as error:
        raise ThreadBusy(
            f"Run {run.id} has just been taken over or ended by another process.",
            run_id=run.id,
            cure="Check it again (`agent-runtime runs`); resume it when nobody works on it.",
        ) from error
    async with finish_on_error(store, log.lease):
        if ended:
            # The head may have moved until the lease was taken.
            await _check_head(store, run, log.head)
        log.limits = setup.limits
        resumed = Resumed(ended, max(run.max_steps, run.steps), setup.max_steps)
        taken = TakenOverRun(log, step_limit(run, setup), resumed, paused=paused)
        if run.open_node is not None:
            node = await store.log.node(run.thread_id, run.open_node)
            log.exchange, taken.unverified = reopen(node, setup.tools)
            log.exchange.asked = await calls_that_asked(store, run.id, node.seq)
            await name_left_commands(run, owner, log.exchange, taken.unverified)
            _apply(decided, log.exchange, taken.unverified)
        taken.seen = await SeenFiles.of_resumed(log)
        await end_children(store, run, _unknown_calls(log.exchange, taken.unverified), kept)
        if run.task_id is not None:
            taken.task = entry_of(await store.log.node(run.thread_id, run.task_id))
        start = run_start_event(agent, setup, taken.step_limit, made=run.steps, decided=decided)
        start = await with_used(store, run, start)
        await log.tell_of(child_start_event(start, run.parent_run_id, RunSpec.of(run)))
    return taken


def _unknown_calls(exchange: Exchange | None, unverified: Mapping[int, ToolResult]) -> set[str]:
    """Return the ids of the calls that run again, and resume the sub-agents that they began."""
    if exchange is None:
        return set()
    known = exchange.results.keys() | unverified.keys()
    return {call.id for index, call in enumerate(exchange.message.calls) if index not in known}


def _apply(
    decided: Mapping[str, Resolution], exchange: Exchange, unverified: dict[int, ToolResult]
) -> None:
    """Replace the results of interrupted calls by what a person decided about them."""
    for index, call in enumerate(exchange.message.calls):
        resolution = decided.get(call.id)
        if isinstance(resolution, Rerun):
            # A call that has no result by now runs.
            unverified.pop(index, None)
        elif resolution is not None:
            unverified[index] = resolved_result(resolution)


def step_limit(run: Run, setup: RunSetup) -> int:
    """Return a resumed run's step limit; one that has used up its steps gets as many again."""
    # A resume may raise the limit; a lower setting does not take away steps that were granted.
    limit = max(run.max_steps, setup.max_steps)
    return limit if run.steps < limit else run.steps + setup.max_steps


def run_start_event(
    agent: str,
    setup: RunSetup,
    limit: int,
    *,
    made: int | None = None,
    decided: Mapping[str, Resolution] = MappingProxyType({}),
) -> NewEvent:
    """Return the event of a run's beginning.

    Args:
        made: the steps that a resumed run has made; None for a new one.
        decided: what is to become of interrupted calls, by their ids.
    """
    data: dict[str, Any] = {
        "agent": agent,
        "model": setup.model.name,
        "window": setup.room.window,
        "max_steps": limit,
        "resumed": made is not None,
        "steps": made or 0,
    }
    if (memory := setup.memory) is not None:
        data |= {"observe_at": memory.thresholds.observe, "reflect_at": memory.thresholds.reflect}
        if memory.warnings:
            data["warnings"] = list(memory.warnings)
    if decided:
        data["decided"] = {call: type(one).__name__.lower() for call, one in decided.items()}
    return NewEvent("run-start", data=data)


def child_start_event(event: NewEvent, parent: str | None, spec: RunSpec) -> NewEvent:
    """Return the event with the parent and the task of a child run, if it is one."""
    if parent is None:
        return event
    key = spec.delegation.key if spec.delegation else ""
    return replace(event, data={**event.data, "parent": parent, "task_key": key})


async def _check_head(store: UserStore, run: Run, head: int | None) -> None:
    """Refuse to resume an ended run if its thread continued without it or on another branch."""
    node = None if head is None else await store.log.node(run.thread_id, head)
    # The head is the run's newest node, or its task if it has none yet; an open exchange, which
    # the head has not reached, must come right after it.
    own = node is not None and (node.run_id == run.id or node.seq == run.task_id)
    if own and run.open_node is not None:
        own = (await store.log.node(run.thread_id, run.open_node)).parent_id == head
    if not own:
        raise Conflict(
            f"Thread {run.thread_id} has continued since run {run.id} stopped.",
            cure="Start a new run on the thread instead.",
        )
