"""`agent-runtime tasks`: the background tasks of a thread's agent."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from agent_runtime.cli.display.short_ids import short_id
from agent_runtime.cli.groups import CommandGroup
from agent_runtime.cli.options import json_lines_option
from agent_runtime.cli.parameters.ids import LAST, LEAST, THREAD
from agent_runtime.cli.runtime_calls import with_runtime
from agent_runtime.cli.terminal import say, shorten, time_text, write_json, write_row

if TYPE_CHECKING:
    from agent_runtime.runtime import Runtime


@click.group(cls=CommandGroup)
def tasks() -> None:
    """List, cancel or steer the background tasks of agents."""


@tasks.command("list")
@click.argument("thread", type=THREAD)
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
                f"{short_id(task.run_id)}  {time_text(task.created_at)}  {task.status:<11}  "
                f"{task.steps:>4} {'step' if task.steps == 1 else 'steps':<5}  "
                f"{shorten(task.key, 40)}  {shorten(task.action, 80)}"
            )
    if not found and not as_json:
        say(f"Thread {thread} has no background tasks.")


@tasks.command()
@click.argument("thread", type=THREAD)
@click.argument("task")
def cancel(thread: str, task: str) -> None:
    """Cancel TASK of THREAD, named by its key, its run's id, or `last`."""

    async def cancel_task(runtime: Runtime) -> None:
        await runtime.cancel(await _run_of(runtime, thread, task))

    with_runtime(cancel_task)
    say(f"Task {task} is being cancelled.")


@tasks.command()
@click.argument("thread", type=THREAD)
@click.argument("task")
@click.argument("text")
def steer(thread: str, task: str, text: str) -> None:
    """Send TEXT to TASK of THREAD; its sub-agent reads it at its next step."""

    async def steer_task(runtime: Runtime) -> None:
        await runtime.steer(await _run_of(runtime, thread, task), text)

    with_runtime(steer_task)
    say(f"Task {task} reads it at its next step.")


async def _run_of(runtime: Runtime, thread: str, task: str) -> str:
    """Return the run of the newest task with this key, or this id, its beginning or end.

    Raises:
        NotFound: there is none.
        click.UsageError: several ids begin or end so.
    """
    from agent_runtime.errors import NotFound

    tasks = await runtime.tasks(thread)
    for known in tasks:
        if task in (known.key, known.run_id) or task == LAST:
            return known.run_id
    ids = [one.run_id for one in tasks if one.run_id.startswith(task) or one.run_id.endswith(task)]
    if len(task) >= LEAST and len(ids) == 1:
        return ids[0]
    if len(task) >= LEAST and ids:
        raise click.UsageError(f"{task!r} names several tasks: {', '.join(ids)}.")
    raise NotFound(
        f"Thread {thread} has no background task {task!r}.",
        cure=f"List them: agent-runtime tasks list {thread}",
    )
