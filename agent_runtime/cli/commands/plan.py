"""`agent-runtime plan`: the plan of a thread and its versions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from agent_runtime.cli.groups import CommandGroup
from agent_runtime.cli.parameters.ids import THREAD
from agent_runtime.cli.runtime_calls import with_runtime
from agent_runtime.cli.terminal import say, time_text, write_json, write_output, write_row

if TYPE_CHECKING:
    from agent_runtime.messages import Plan
    from agent_runtime.runtime import Runtime

json_option = click.option("--json", "as_json", is_flag=True, help="JSON on stdout.")


@click.group(cls=CommandGroup)
def plan() -> None:
    """Show the plan of a thread's current branch."""


@plan.command()
@click.argument("thread", type=THREAD)
@click.option("--version", type=click.IntRange(min=1), help="An earlier version on the branch.")
@json_option
def show(thread: str, version: int | None, as_json: bool) -> None:
    """Show THREAD's current plan, even while a run works on it."""
    from agent_runtime.plan.render import render_whole_plan

    if version is None:
        found = with_runtime(lambda runtime: runtime.plans.current(thread))
    else:
        found = with_runtime(lambda runtime: _version(runtime, thread, version))
    if as_json:
        write_json({"thread_id": thread, "plan": found and found.to_json()})
    elif found is None:
        say(f"Thread {thread} has no plan.")
    else:
        write_output(render_whole_plan(found))


@plan.command()
@click.argument("thread", type=THREAD)
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True)
@json_option
def versions(thread: str, limit: int, as_json: bool) -> None:
    """List the versions of THREAD's plan on its branch, newest first."""
    found = with_runtime(lambda runtime: runtime.plans.versions(thread, limit=limit))
    for row in found:
        if as_json:
            write_json({"thread_id": thread, "plan": row.to_json()})
        else:
            write_row(
                f"{row.version:>4}  {time_text(row.created_at)}  node {row.node_id}: "
                f"{row.settled} of {len(row.items)} done, phase {row.phase}, "
                f"iteration {row.iteration}"
            )
    if not found and not as_json:
        say(f"Thread {thread} has no plan.")


async def _version(runtime: Runtime, thread: str, version: int) -> Plan:
    from agent_runtime.errors import NotFound

    for row in await runtime.plans.versions(thread, limit=100_000):
        if row.version == version:
            return row
    raise NotFound(
        f"The branch of thread {thread} has no version {version} of a plan.",
        cure=f"`agent-runtime plan versions {thread}` lists them.",
    )
