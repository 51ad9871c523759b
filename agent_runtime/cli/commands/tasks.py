"""`agent-runtime tasks`: what an agent has in the background."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from agent_runtime.cli.options import json_lines_option
from agent_runtime.cli.terminal import say, shorten, time_text, write_json, write_output

if TYPE_CHECKING:
    from agent_runtime.delegation.background import BackgroundTask
    from agent_runtime.runtime import Runtime
    from agent_runtime_config import Settings


@click.group()
def tasks() -> None:
    """Look after the tasks that agents have in the background."""


@tasks.command("list")
@click.argument("thread")
@json_lines_option
def list_(thread: str, as_json: bool) -> None:
    """List the tasks of THREAD, the newest first."""
    from dataclasses import asdict

    import anyio

    from agent_runtime_config import load_settings

    found = anyio.run(_tasks, load_settings(), thread)
    for task in found:
        if as_json:
            write_json(asdict(task))
        else:
            write_output(
                f"{task.run_id}  {time_text(task.created_at)}  {task.status:<11}  "
                f"{task.steps:>4} steps  {shorten(task.key, 40)}  {shorten(task.action, 80)}"
            )
    if not found and not as_json:
        say(f"Thread {thread} has nothing in the background.")


@tasks.command()
@click.argument("thread")
@click.argument("task")
def cancel(thread: str, task: str) -> None:
    """Cancel TASK of THREAD: its key, or its run's id."""
    import anyio

    from agent_runtime_config import load_settings

    anyio.run(_cancel, load_settings(), thread, task)
    say(f"The task {task} is being cancelled.")


@tasks.command()
@click.argument("thread")
@click.argument("task")
@click.argument("text")
def steer(thread: str, task: str, text: str) -> None:
    """Tell TASK of THREAD something, which its sub-agent reads at its next step."""
    import anyio

    from agent_runtime_config import load_settings

    anyio.run(_steer, load_settings(), thread, task, text)
    say(f"The task {task} reads it at its next step.")


async def _tasks(settings: Settings, thread: str) -> list[BackgroundTask]:
    from agent_runtime.runtime import Runtime

    async with Runtime.open(settings) as runtime:
        return await runtime.tasks(thread)


async def _cancel(settings: Settings, thread: str, task: str) -> None:
    from agent_runtime.runtime import Runtime

    async with Runtime.open(settings) as runtime:
        await runtime.cancel((await _find(runtime, thread, task)).run_id)


async def _steer(settings: Settings, thread: str, task: str, text: str) -> None:
    from agent_runtime.runtime import Runtime

    async with Runtime.open(settings) as runtime:
        await runtime.steer((await _find(runtime, thread, task)).run_id, text)


async def _find(runtime: Runtime, thread: str, task: str) -> BackgroundTask:
    """Return the newest task of this key or run id. Raises `NotFound`."""
    from agent_runtime.errors import NotFound

    for one in await runtime.tasks(thread):
        if task in (one.key, one.run_id):
            return one
    raise NotFound(
        f"Thread {thread} has no task {task!r} in the background.",
        cure=f"List them: agent-runtime tasks list {thread}",
    )
