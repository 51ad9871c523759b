"""`agent-runtime queue`: who waits and why; retry, cancel, forget."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import click

from agent_runtime.cli.display.short_ids import short_id
from agent_runtime.cli.groups import CommandGroup
from agent_runtime.cli.options import json_lines_option
from agent_runtime.cli.parameters.ids import RUN
from agent_runtime.cli.runtime_calls import with_runtime
from agent_runtime.cli.terminal import printable, say, shorten, time_text, write_json, write_row

if TYPE_CHECKING:
    from agent_runtime_storage.contract.records.queue import QueueRow, QueueState

_STATES = ("delayed", "waiting", "behind", "working", "parked", "dead")


@click.group(cls=CommandGroup)
def queue() -> None:
    """Look at the queue of runs; retry, cancel or forget one."""


@queue.command("list")
@click.option("--state", type=click.Choice(_STATES), help="Only the runs in this state.")
@click.option("--all", "everyone", is_flag=True, help="The runs of all users.")
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True)
@json_lines_option
def list_(state: QueueState | None, everyone: bool, limit: int, as_json: bool) -> None:
    """List the runs in the queue in the order of their turns, and why each waits."""

    async def rows(runtime: Any) -> list[tuple[QueueRow, str]]:
        of = runtime.queue.list_all if everyone else runtime.queue.list
        found = await of(state=state, limit=limit)
        return list(zip(found, await runtime.queue.reasons(found), strict=True))

    found: list[tuple[QueueRow, str]] = with_runtime(rows)
    for row, reason in found:
        if as_json:
            write_json({**dataclasses.asdict(row), "why": reason})
            continue
        at = time_text(row.due_at or row.enqueued_at)
        owner = f"{row.user_id}  " if everyone else ""
        text = f"{short_id(row.run_id)}  {row.state:<8} {at}  {owner}{row.agent}  "
        write_row(printable(f"{text}{shorten(reason, 200)}", lines=False))
    if not found and not as_json:
        say("The queue is empty." if state is None else f"No run is {state}.")


@queue.command()
@click.argument("run_id", metavar="RUN", type=RUN)
def retry(run_id: str) -> None:
    """Let RUN wait for a worker again: it failed, was paused, or was put off."""
    with_runtime(lambda runtime: runtime.queue.retry(run_id))
    say("It waits for a worker.")


@queue.command()
@click.argument("run_id", metavar="RUN", type=RUN)
def cancel(run_id: str) -> None:
    """Cancel RUN, whether it waits or works."""
    with_runtime(lambda runtime: runtime.cancel(run_id))
    say("It is being cancelled.")


@queue.command()
@click.argument("run_id", metavar="RUN", type=RUN)
def forget(run_id: str) -> None:
    """Take RUN, which failed, out of the queue; its thread stays."""
    with_runtime(lambda runtime: runtime.queue.forget(run_id))
    say("It is forgotten.")
