"""`agent-runtime run`: run an agent on a task."""

from __future__ import annotations

import sys
from datetime import datetime
from pathlib import Path

import click

from agent_runtime.cli import session
from agent_runtime.cli.display.view import remark
from agent_runtime.cli.options import json_object_option
from agent_runtime.cli.parameters.ids import NEW_THREAD
from agent_runtime.cli.parameters.points import POINT, QueueTurn
from agent_runtime.cli.parameters.run_options import RunOptions, describe_limits, run_options

thread_option = click.option(
    "--thread", type=NEW_THREAD, help="The thread to continue; by default a new one."
)
attach_option = click.option(
    "--attach",
    "files",
    multiple=True,
    metavar="PATH|URL",
    help="An image or document for the task. Can be given several times.",
)


@click.command()
@click.argument("task", required=False)
@click.option(
    "--file",
    "task_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Read the task from a file.",
)
@attach_option
@thread_option
@click.option("--queue", "queued", is_flag=True, help="Leave it to a worker, and print its id.")
@click.option("--at", type=POINT, help="With --queue: when it may begin, such as 2030-01-31T09:00.")
@click.option("--priority", type=float, help="With --queue: its turns for one of another run.")
@run_options
@json_object_option
def run(
    task: str | None,
    task_file: Path | None,
    files: tuple[str, ...],
    thread: str | None,
    queued: bool,
    at: datetime | None,
    priority: float | None,
    options: RunOptions,
    as_json: bool,
) -> None:
    """Run TASK to its end, and print the answer.

    TASK is read from stdin if it is `-`, or if it is missing and stdin is not a terminal.
    Progress goes to stderr. Ctrl-C stops the run; it can be resumed. At a terminal the agent may
    ask; without one, a call that needs an approval suspends the run (exit code 8). With
    --ask-shell every command needs an approval.

    \b
    Examples:
      agent-runtime run "Make the tests pass." --workspace . --ask-shell
      agent-runtime run "What changed since May?" --workspace . --read-only
      agent-runtime run --file task.md --thread last --budget-usd 2
      agent-runtime run "Look for dead links." --workspace . --queue
    """
    from agent_runtime_config import load_settings

    if not queued and (at is not None or priority is not None):
        raise click.UsageError("--at and --priority are for runs with --queue.")
    text = read_task(task, task_file)
    settings = load_settings()
    spec = options.new_spec(settings)
    settings = options.limited(settings, spec)
    if queued:
        from agent_runtime.cli.queue.enqueue import enqueue

        turn = QueueTurn(at, 1.0 if priority is None else priority)
        enqueue(settings, spec, text, thread, files, turn, as_json=as_json)
        return
    if spec.model:
        remark(describe_limits(settings))
    session.finish(session.run_task(settings, spec, text, thread, files), as_json=as_json)


def read_task(task: str | None, task_file: Path | None) -> str:
    """Return the task from the argument, a file or stdin. Raises `click.UsageError`."""
    if task is not None and task_file is not None:
        raise click.UsageError("Give either TASK or --file, not both.")
    if task is None and task_file is None and sys.stdin.isatty():
        raise click.UsageError("Give a TASK, or --file, or pipe the task into stdin.")
    try:
        if task_file is not None:
            text = task_file.read_text(encoding="utf-8")
        else:
            text = sys.stdin.read() if task is None or task == "-" else task
    except UnicodeDecodeError:
        raise click.UsageError("The task is not UTF-8 text.") from None
    except OSError as error:
        raise click.UsageError(f"The task cannot be read: {error.strerror}.") from None
    if not text.strip():
        raise click.UsageError("The task is empty.")
    return text
