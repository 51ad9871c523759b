"""The tool `tasks`: a model lists, awaits, cancels and steers its background tasks."""

from __future__ import annotations

from typing import Literal

import anyio

from agent_runtime.delegation.background import BackgroundTask, deliver_results, tasks_of
from agent_runtime.delegation.request import DelegationServices
from agent_runtime.errors import ToolError
from agent_runtime.human.posting import InboxLimits, post_message
from agent_runtime.memory.transcript import time_of
from agent_runtime.prompt.calendar import named_time
from agent_runtime.tools.context import ToolContext
from agent_runtime.tools.function import tool
from agent_runtime_config.counted import counted

MOST_LISTED = 30
# Polled, because tasks may run in other processes.
POLL_SECONDS = 0.2
QUIET_POLLS = 10
"""A wait ends after this many polls without a running task or a message."""


@tool
async def tasks(
    context: ToolContext,
    action: Literal["list", "wait", "cancel", "steer"] = "list",
    task: str = "",
    text: str = "",
) -> str:
    """List, await, cancel or steer your background tasks.

    Args:
        action: `wait` is for the next message; `steer` sends `text`.
        task: a task_key or run id.
    """
    if action == "wait":
        return await _wait(context)
    known = await tasks_of(context.store, context.thread_id)
    if action == "list":
        return format_tasks(known, context.timezone)
    chosen = next((one for one in known if task.strip() in (one.run_id, one.key)), None)
    if chosen is None:
        raise ToolError(f"There is no background task {task[:80]!r}.", cure="List them first.")
    if chosen.status not in ("running", "waiting"):
        raise ToolError(f"The task {chosen.key!r} is not running: {chosen.status}.")
    if action == "cancel":
        services = context.service(DelegationServices)
        await (services.cancel if services else context.store.runs.cancel)(chosen.run_id)
        return f"The task {chosen.key!r} is being cancelled."
    if not text.strip():
        raise ToolError("The message is empty.", cure="Give a text.")
    run = await context.store.runs.get(chosen.run_id)
    limits = context.service(InboxLimits) or InboxLimits()
    await post_message(context.store, run, text, limits)
    return f"The task {chosen.key!r} reads it at its next step."


async def _wait(context: ToolContext) -> str:
    store, thread_id = context.store, context.thread_id
    quiet, known = 0, list[BackgroundTask]()
    # Waiting is not this tool's own work, so its timeout does not apply.
    with context.timer.paused():
        while quiet < QUIET_POLLS:
            known = await tasks_of(store, thread_id)
            if await store.inbox.pending(thread_id):
                return "A message has arrived; you read it now."
            if quiet:
                # The worker of a queued task may have died before it sent the message.
                await deliver_results(store, thread_id, context.max_file_bytes)
            # A task that has ended sends its message soon after.
            quiet = 0 if any(one.status == "running" for one in known) else quiet + 1
            await anyio.sleep(POLL_SECONDS)
    asking = [repr(one.key) for one in known if one.status == "waiting"]
    waits = f" The user has yet to answer what {', '.join(asking)} asks." if asking else ""
    return f"No task is running, and no message has arrived.{waits}"


async def tasks_note(context: ToolContext) -> str:
    """List the tasks that are not over, for the state note."""
    known = await tasks_of(context.store, context.thread_id)
    open_tasks = [one for one in known if one.status in ("running", "waiting", "interrupted")]
    if not open_tasks:
        return ""
    return f"Your background tasks:\n{format_tasks(open_tasks, context.timezone)}"


def format_tasks(known: list[BackgroundTask], zone: str = "UTC") -> str:
    """Return tasks as lines, newest first, with times in a zone."""
    lines = [
        f"- {one.key}: {one.status}, {counted(one.steps, 'step')}, "
        f"started {named_time(time_of(one.created_at), zone)}, "
        f"run {one.run_id}: {one.action[:120]}"
        for one in known[:MOST_LISTED]
    ]
    if len(known) > MOST_LISTED:
        lines.append(f"[Left out: {counted(len(known) - MOST_LISTED, 'older task')}.]")
    return "\n".join(lines) or "You have no background tasks."
