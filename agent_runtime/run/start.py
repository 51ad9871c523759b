"""How a run comes to its log: begun on a thread, or taken over from a process that is gone."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import anyio.to_thread

from agent_runtime.concurrency import run_shielded
from agent_runtime.errors import ConfigError, Conflict, LeaseLost, RunCancelled, ThreadBusy
from agent_runtime.events import Event
from agent_runtime.files.attach import MAX_BYTES, Attachable, attach
from agent_runtime.log import leases
from agent_runtime.log.branch import activation_event, activation_row, load_view, node_row
from agent_runtime.log.run_log import Exchange, RunLog
from agent_runtime.log.run_spec import COMMAND, RunSpec, delegation_record
from agent_runtime.messages import (
    AssistantMessage,
    LoggedMessage,
    ToolResult,
    UserMessage,
    encodable,
    encodable_files,
)
from agent_runtime.prompt.build import entry_of
from agent_runtime.prompt.fences import new_nonce
from agent_runtime.prompt.view import Entry, View
from agent_runtime.prompt.window import plan_activation
from agent_runtime.run.resolve import RunSetup
from agent_runtime.run.takeover import end_dead, end_if_dead, finish_on_error, take_log
from agent_runtime.run.tool_calls import reopen
from agent_runtime.tools.workspace import command_records as commands
from agent_runtime_storage.contract.records import (
    ACTIVE,
    Budget,
    LeaseOwner,
    NewEvent,
    NewNode,
    NewRun,
    Run,
    Thread,
)
from agent_runtime_storage.contract.store import UserStore

UNANSWERED = "(The run before this one stopped without an answer.)"
COMMAND_TOOL = "run_command"

WORKSPACE = "workspace"
"""What the command line's spec of a run, and the metadata of a thread, call the folder it is in."""


@dataclass(frozen=True, slots=True)
class RunRequest:
    """A run to begin.

    Attributes:
        task: None answers the user message at the thread's head again.
        parent: the log of the run that starts this one as its child.
        before: what is said on the thread before the task.
        left_out: how many turns of a node's memory did not fit before it.
        files: belong to the task beside its own; they are kept with the thread.
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
    files: tuple[Attachable, ...] = ()
    max_file_bytes: int = MAX_BYTES


@dataclass(slots=True)
class TakenOverRun:
    """A run that was taken over.

    Attributes:
        limit: up to how many steps it may go.
        uncertain: results of its open exchange for calls that must not run again.
    """

    log: RunLog
    limit: int
    task: Entry | None = None
    uncertain: dict[int, ToolResult] = field(default_factory=dict[int, ToolResult])


async def begin_new_run(
    store: UserStore, resolved: RunSetup, order: RunRequest
) -> tuple[RunLog, Entry]:
    """Begin a run: its task, its first activation and its lease, in one transaction.

    Raises:
        ThreadBusy: another run is active on the thread.
        InvalidFile: a file cannot be kept.
    """
    title = encodable(order.task.text.strip().partition("\n")[0][:80]) if order.task else ""
    own = order.spec.program == COMMAND
    workspace = order.spec.caller.get(WORKSPACE) if own else None
    metadata = {WORKSPACE: workspace} if isinstance(workspace, str) else None
    thread = await store.ensure_thread(order.thread_id, title=title, metadata=metadata)
    await end_upkeep(store, thread)
    task = await _with_files(store, thread, order)
    old = await load_view(store, thread.id, thread.head)
    view = old
    if not old.activation_id:
        view = replace(first_view(old, resolved), activation_id=thread.last_activation + 1)
    messages = [*order.before, *opening(old, task)]
    rows = _rows(messages, thread, view)
    parent = order.parent.lease if order.parent else None
    begun = run_start_event(order.agent, resolved, resolved.max_steps)
    if order.left_out:
        begun = replace(begun, data={**begun.data, "turns_left_out": order.left_out})
    events = [child_start_event(begun, parent.run_id if parent else None, order.spec)]
    if view is not old:
        events.append(activation_event(old, view, "start"))
    newest = await store.last_observation(thread.id)
    run = NewRun(
        id=order.run_id,
        thread_id=thread.id,
        agent=order.agent,
        max_steps=resolved.max_steps,
        spec=dict(order.spec.caller),
        internal=order.spec.internal(),
        owner=leases.this_process_owner(),
        lease_seconds=leases.LEASE_SECONDS,
        expect_head=thread.head,
        expect_seq=thread.last_seq,
        nodes=tuple(rows),
        task_id=rows[-1].seq if rows else thread.head,
        activation=None if view is old else activation_row(view, "start"),
        parent_run_id=parent.run_id if parent else None,
        root_run_id=parent.root_run_id if parent else None,
        budget=order.budget,
        events=tuple(events),
    )
    (lease, last_event), interrupted = await run_shielded(store.begin_run(run))
    log = RunLog(
        store=store,
        lease=lease,
        view=view,
        head=thread.head,
        last_seq=thread.last_seq,
        last_activation=max(thread.last_activation, view.activation_id),
        last_observation=newest,
        steps=0,
        emit=order.on_event,
        limits=resolved.limits,
        interrupted=interrupted,
    )
    log.begun(messages, rows, events, last_event)
    return log, log.view.entries[-1]


async def _with_files(store: UserStore, thread: Thread, order: RunRequest) -> UserMessage | None:
    """Return the task with its files kept. Raises `InvalidFile`."""
    task = order.task
    if task is None or not (task.files or order.files):
        return task
    given = (*task.files, *order.files)
    return replace(task, files=await attach(store, thread.id, given, order.max_file_bytes))


def _rows(messages: Sequence[LoggedMessage], thread: Thread, view: View) -> list[NewNode]:
    """Return the messages as nodes of the thread, each below the one before."""
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
    """End a run that looked after the thread's memory when its process died: nothing is lost."""
    if thread.active_run is None:
        return
    run = await store.run(thread.active_run)
    if RunSpec.of(run).upkeep:
        await end_if_dead(store, run)


def first_view(old: View, resolved: RunSetup) -> View:
    """Return the view under a thread's first activation."""
    return plan_activation(
        old,
        resolved.room,
        cause="start",
        estimate=resolved.calibration.estimate,
        nonce=old.start.nonce or new_nonce(),
        task=None,
        model=resolved.model.name,
        prefix=resolved.prefix,
        repeat_system=resolved.repeat_system,
        remembers=resolved.remembering is not None,
    )


def opening(view: View, task: UserMessage | None) -> list[LoggedMessage]:
    """Return the messages with which a run begins.

    Raises:
        ConfigError: there is nothing to do.
    """
    last = view.entries[-1] if view.entries else None
    if task is not None:
        task = replace(task, text=encodable(task.text), files=encodable_files(task.files))
    if task is None:
        if last is None or last.message.type != "user":
            raise ConfigError("There is no task.", cure="Say what is to be done.")
        return []
    if not task.text.strip() and not task.files:
        raise ConfigError("The task is empty.", cure="Say what is to be done.")
    if last is not None and (last.results or not last.prompt):
        # Several providers refuse a user message right after a tool result.
        return [AssistantMessage(UNANSWERED), task]
    return [task]


async def take_over(
    store: UserStore,
    run: Run,
    resolved: RunSetup,
    agent: str,
    on_event: Callable[[Event], None],
) -> TakenOverRun:
    """Take a run over that is free, as `check_free` tells.

    Raises:
        ThreadBusy: somebody else was quicker, or another run is active on its thread.
        RunCancelled: its cancel was asked for while nobody worked on it; it is ended now.
        Conflict: it has succeeded, or its thread went on without it.
    """
    check_own(run)
    if RunSpec.of(run).upkeep:
        raise Conflict(
            f"Run {run.id} looked after the memory of its thread; it has no task to go on with.",
            cure="Start a new run on the thread.",
        )
    over = run.status not in ACTIVE
    if over:
        await _check_head(store, run, (await store.thread(run.thread_id)).head)
    try:
        if not over and run.cancel_requested:
            await end_dead(store, run)
            raise RunCancelled(
                f"Run {run.id} was cancelled while nobody worked on it.",
                cure="Resume it once more to go on with it all the same.",
            )
        owner = run.owner
        log, run = await take_log(store, run, on_event)
    except LeaseLost as error:
        raise ThreadBusy(
            f"Run {run.id} has just been taken over, or ended, by somebody else.",
            run_id=run.id,
            cure="Look at it again (`agent-runtime runs`); resume it once it stands still.",
        ) from error
    async with finish_on_error(store, log.lease):
        if over:
            # Until the lease was taken the head could be moved.
            await _check_head(store, run, log.head)
        log.limits = resolved.limits
        taken = TakenOverRun(log, limit=step_limit(run, resolved))
        again: set[str] = set()
        if run.open_node is not None:
            node = await store.node(run.thread_id, run.open_node)
            log.exchange, taken.uncertain = reopen(node, resolved.tools)
            known = log.exchange.results.keys() | taken.uncertain.keys()
            calls = enumerate(log.exchange.message.calls)
            again = {call.id for index, call in calls if index not in known}
            await _tell_of_commands(run, owner, log.exchange, taken.uncertain)
        await _end_children(store, run, again)
        if run.task_id is not None:
            taken.task = entry_of(await store.node(run.thread_id, run.task_id))
        begun = run_start_event(agent, resolved, taken.limit, made=run.steps)
        await log.tell_of(child_start_event(begun, run.parent_run_id, RunSpec.of(run)))
    return taken


async def _tell_of_commands(
    run: Run, owner: LeaseOwner | None, exchange: Exchange, uncertain: dict[int, ToolResult]
) -> None:
    """Say in the results of interrupted commands what of them may still run."""
    if not uncertain:
        return
    left = await anyio.to_thread.run_sync(commands.end_of_run, run.id)
    for index, result in uncertain.items():
        call = exchange.message.calls[index]
        if names := left.get(call.id):
            text = f"What it started could not all be ended; still there: {', '.join(names)}."
        elif call.name == COMMAND_TOOL and owner is not None and leases.may_run_elsewhere(owner):
            text = f"It ran on {owner.host}: what it started may still run there."
        else:
            continue
        uncertain[index] = replace(result, text=f"{result.text} {text}")


def check_own(run: Run) -> None:
    """Refuse to go on with what was imported: it is history. Raises `Conflict`."""
    if run.stop_reason == "imported":
        raise Conflict(
            f"Run {run.id} was imported: it is history, and nothing of it goes on.",
            cure=f"Start a new run on its thread, {run.thread_id}.",
        )


def check_free(run: Run) -> None:
    """Refuse to take over a run that somebody works on. Raises `ThreadBusy`."""
    if run.status in ACTIVE and not leases.is_dead(run):
        raise _busy(run)


def _busy(run: Run) -> ThreadBusy:
    return ThreadBusy(
        f"Run {run.id} is being worked on already.",
        run_id=run.id,
        cure="Wait for it, or cancel it.",
    )


def step_limit(run: Run, resolved: RunSetup) -> int:
    """Return up to how many steps a run may go that is taken over.

    One that has used up its steps gets as many again.
    """
    limit = max(run.max_steps, resolved.max_steps)
    return limit if run.steps < limit else run.steps + resolved.max_steps


def run_start_event(
    agent: str, resolved: RunSetup, limit: int, *, made: int | None = None
) -> NewEvent:
    """Return the event that tells of a run's beginning.

    Args:
        made: the steps that a run had made which goes on; None for a new one.
    """
    data: dict[str, Any] = {
        "agent": agent,
        "model": resolved.model.name,
        "max_steps": limit,
        "resumed": made is not None,
        "steps": made or 0,
    }
    if (memory := resolved.remembering) is not None:
        data |= {"observe_at": memory.thresholds.observe, "reflect_at": memory.thresholds.reflect}
        if memory.warnings:
            data["warnings"] = list(memory.warnings)
    return NewEvent("run-start", data=data)


def child_start_event(event: NewEvent, parent: str | None, spec: RunSpec) -> NewEvent:
    """Return a run's start as it is told of a child run: whose it is, and for which task."""
    if parent is None:
        return event
    return replace(
        event,
        data={
            **event.data,
            "parent": parent,
            "task_key": spec.delegation.key if spec.delegation else "",
        },
    )


async def _check_head(store: UserStore, run: Run, head: int | None) -> None:
    """Refuse to go on with an ended run whose thread went on without it, or on another branch."""
    node = None if head is None else await store.node(run.thread_id, head)
    own = node is not None and (node.run_id == run.id or node.seq == run.task_id)
    if own and run.open_node is not None:
        own = (await store.node(run.thread_id, run.open_node)).parent_id == head
    if not own:
        raise Conflict(
            f"Thread {run.thread_id} went on since run {run.id} stopped.",
            cure="Start a new run on the thread instead.",
        )


async def _end_children(store: UserStore, run: Run, again: Collection[str]) -> None:
    """End the descendants that died with the process that the run is taken over from.

    Args:
        again: the calls that run again: they go on with the sub-agents that they began.
    """
    tree = await store.runs(root_run_id=run.root_run_id, status=ACTIVE, limit=10_000)
    gone = {run.id}
    for one in sorted(tree, key=lambda one: one.created_at):
        record = delegation_record(one) if one.parent_run_id == run.id else None
        if record is not None and record.call in again:
            continue
        if one.parent_run_id in gone and leases.is_dead(one):
            gone.add(one.id)
            await end_if_dead(store, one)
