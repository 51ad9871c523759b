"""`agent-runtime tasks`: the background tasks of a thread's agent."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from agent_runtime.cli.options import json_lines_option
from agent_runtime.cli.runtime_calls import with_runtime
from agent_runtime.cli.terminal import say, shorten, time_text, write_json, write_row

if TYPE_CHECKING:
    from agent_runtime.runtime import Runtime


@click.group()
def tasks() -> None:
    """List, cancel or steer the background tasks of agents."""


@tasks.command("list")
@click.argument("thread")
@json_lines_option
def list_(thread: str, as_json: bool) -> None:
    """List the tasks of THREAD, newest first."""
    from dataclasses import asdict

    found = with_runtime(lambda runtime: runtime.tasks(thread))
    for task in found:
        if as_json:
            write_json(asdict(task))
        else:
            write_row(
                f"{task.run_id}  {time_text(task.created_at)}  {task.status:<11}  "
                f"{task.steps:>4} steps  {shorten(task.key, 40)}  {shorten(task.action, 80)}"
            )
    if not found and not as_json:
        say(f"Thread {thread} has no background tasks.")


@tasks.command()
@click.argument("thread")
@click.argument("task")
def cancel(thread: str, task: str) -> None:
    """Cancel TASK of THREAD, named by its key or its run's id."""

    async def cancel_task(runtime: Runtime) -> None:
        await runtime.cancel(await _run_of(runtime, thread, task))

    with_runtime(cancel_task)
    say(f"Task {task} is being cancelled.")


@tasks.command()
@click.argument("thread")
@click.argument("task")
@click.argument("text")
def steer(thread: str, task: str, text: str) -> None:
    """Send TEXT to TASK of THREAD; its sub-agent reads it at its next step."""

    async def steer_task(runtime: Runtime) -> None:
        await runtime.steer(await _run_of(runtime, thread, task), text)

    with_runtime(steer_task)
    say(f"Task {task} reads it at its next step.")


async def _run_of(runtime: Runtime, thread: str, task: str) -> str:
    """Return the run of the newest task with this key or run id. Raises `NotFound`."""
    from agent_runtime.errors import NotFound

    for known in await runtime.tasks(thread):
        if task in (known.key, known.run_id):
            return known.run_id
    raise NotFound(
        f"Thread {thread} has no background task {task!r}.",
        cure=f"List them: agent-runtime tasks list {thread}",
    )
