"""`agent-runtime schedules`: runs that workers enqueue by the clock."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import click

from agent_runtime.cli.groups import CommandGroup
from agent_runtime.cli.options import json_lines_option
from agent_runtime.cli.parameters.ids import NEW_THREAD
from agent_runtime.cli.parameters.run_options import RunOptions, run_options
from agent_runtime.cli.runtime_calls import with_runtime
from agent_runtime.cli.terminal import printable, say, shorten, time_text, write_json, write_row

if TYPE_CHECKING:
    from agent_runtime_storage.contract.records.schedules import Missed, ScheduleRow


@click.group(cls=CommandGroup)
def schedules() -> None:
    """Enqueue runs by the clock: add, list, pause, resume or remove a schedule."""


@schedules.command()
@click.argument("name")
@click.argument("cron")
@click.argument("task")
@click.option("--zone", default="UTC", show_default=True, help="Whose clock CRON means.")
@click.option(
    "--missed",
    type=click.Choice(("skip", "once", "all")),
    default="once",
    show_default=True,
    help="What becomes of times that passed without a worker.",
)
@click.option(
    "--thread", type=NEW_THREAD, help="The thread of all runs; by default a new one each time."
)
@run_options
def add(
    name: str,
    cron: str,
    task: str,
    zone: str,
    missed: Missed,
    thread: str | None,
    options: RunOptions,
) -> None:
    """Leave TASK to a worker at the times of CRON: minute, hour, day, month, weekday.

    \b
    Examples:
      agent-runtime schedules add news "0 9 * * MON-FRI" "What is new?" --zone Europe/Berlin
    """
    from agent_runtime.cli.service.applications import CommandApp
    from agent_runtime_config import load_settings

    settings = load_settings()
    spec = options.new_spec(settings)
    settings = options.limited(settings, spec)
    app = CommandApp(dataclasses.replace(spec, asking=bool(spec.model)))
    row: ScheduleRow = with_runtime(
        lambda runtime: runtime.schedules.add(
            name, cron, app.named(None), task,
            zone=zone, missed=missed, app=app, thread=thread, spec=app.spec(None),
        ),
        settings,
    )  # fmt: skip
    say(f"The next run begins at {time_text(row.next_at)}, if a worker works then.")


@schedules.command("list")
@json_lines_option
def list_(as_json: bool) -> None:
    """List the schedules, and when each comes next."""
    rows: list[ScheduleRow] = with_runtime(lambda runtime: runtime.schedules.list())
    for row in rows:
        if as_json:
            write_json(dataclasses.asdict(row))
            continue
        when = "paused" if row.paused else time_text(row.next_at)
        text = f"{row.id}  {row.cron}  {row.zone}  {when}  {row.run.agent}  "
        write_row(printable(f"{text}{shorten(row.run.title, 80)}", lines=False))
    if not rows and not as_json:
        say("There are no schedules.")


@schedules.command()
@click.argument("name")
def pause(name: str) -> None:
    """Start no more runs of NAME until it is resumed."""
    with_runtime(lambda runtime: runtime.schedules.pause(name))
    say("It is paused.")


@schedules.command()
@click.argument("name")
def resume(name: str) -> None:
    """Let NAME go on; what it missed meanwhile is not made up."""
    with_runtime(lambda runtime: runtime.schedules.resume(name))
    say("It goes on.")


@schedules.command()
@click.argument("name")
def remove(name: str) -> None:
    """Remove NAME; its runs stay."""
    with_runtime(lambda runtime: runtime.schedules.remove(name))
    say("It is removed.")
