"""The tool `tasks`: a model looks after what it has in the background."""

from __future__ import annotations

from typing import Literal

import anyio

from agent_runtime.delegation.background import TASKS, BackgroundTask, tasks_of
from agent_runtime.errors import ToolError
from agent_runtime.memory.transcript import time_of
from agent_runtime.messages import encodable
from agent_runtime.tools.base import ToolContext, tool

MOST_LISTED = 30
POLL_SECONDS = 0.2
QUIET_POLLS = 10
"""How often nothing is found before a wait ends in vain."""

__all__ = ["TASKS", "tasks", "tasks_note"]


@tool
async def tasks(
    context: ToolContext,
    action: Literal["list", "wait", "cancel", "steer"] = "list",
    task: str = "",
    text: str = "",
) -> str:
    """List, await, cancel or steer the tasks that you have in the background.

    Args:
        action: list; wait for the next message, of whichever task; cancel a task; or steer one,
            which tells its sub-agent something.
        task: the task_key or the run id of the task.
        text: what to tell it.
    """
    if action == "wait":
        return await _wait(context)
    known = await tasks_of(context.store, context.thread_id)
    if action == "list":
        return listed(known)
    found = next((one for one in known if task.strip() in (one.run_id, one.key)), None)
    if found is None:
        raise ToolError(f"There is no background task {task[:80]!r}.", cure="List them first.")
    if found.status != "running":
        raise ToolError(f"The task {found.key!r} is not running: {found.status}.")
    if action == "cancel":
        await context.store.cancel_run(found.run_id)
        return f"The task {found.key!r} is being cancelled."
    if not text.strip():
        raise ToolError("What is the task to be told?", cure="Give a text.")
    run = await context.store.run(found.run_id)
    body = encodable(text).encode()
    await context.store.post(run.thread_id, "steer", body, run_id=found.run_id)
    return f"The task {found.key!r} reads it at its next step."


async def _wait(context: ToolContext) -> str:
    store, thread_id = context.store, context.thread_id
    quiet = 0
    with context.timer.paused():
        while quiet < QUIET_POLLS:
            known = await tasks_of(store, thread_id)
            if await store.inbox(thread_id):
                return "A message has come; you read it now."
            # A task that has ended sends its message soon after.
            quiet = 0 if any(one.status == "running" for one in known) else quiet + 1
            await anyio.sleep(POLL_SECONDS)
    return "Nothing is running, and no message has come."


async def tasks_note(context: ToolContext) -> str:
    """Say which tasks are running or interrupted, for the state note."""
    known = await tasks_of(context.store, context.thread_id)
    open_tasks = [one for one in known if one.status in ("running", "interrupted")]
    return f"Your background tasks:\n{listed(open_tasks)}" if open_tasks else ""


def listed(known: list[BackgroundTask]) -> str:
    """Return tasks as lines, the newest first."""
    lines = [
        f"- {one.key}: {one.status}, {one.steps} steps, begun {time_of(one.created_at)} UTC, "
        f"run {one.run_id}: {one.action[:120]}"
        for one in known[:MOST_LISTED]
    ]
    if len(known) > MOST_LISTED:
        lines.append(f"[{len(known) - MOST_LISTED} older tasks are left out.]")
    return "\n".join(lines) or "You have no background tasks."
