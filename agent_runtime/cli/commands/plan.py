"""`agent-runtime plan`: what a thread's agent plans, and how the plan came about."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from agent_runtime.cli.terminal import say, time_text, write_json, write_output

if TYPE_CHECKING:
    from agent_runtime.plan.model import Plan
    from agent_runtime_config import Settings

json_option = click.option("--json", "as_json", is_flag=True, help="JSON on stdout.")


@click.group()
def plan() -> None:
    """Look at the plan of a thread, as its branch has it."""


@plan.command()
@click.argument("thread")
@click.option("--version", type=click.IntRange(min=1), help="An earlier version of the branch.")
@json_option
def show(thread: str, version: int | None, as_json: bool) -> None:
    """Show THREAD's plan as it is now, also while a run works on it."""
    import anyio

    from agent_runtime.plan.render import render_whole_plan
    from agent_runtime_config import load_settings

    settings = load_settings()
    if version is None:
        found = anyio.run(_current, settings, thread)
    else:
        found = anyio.run(_version, settings, thread, version)
    if as_json:
        write_json({"thread_id": thread, "plan": found and found.to_json()})
    elif found is None:
        say(f"Thread {thread} has no plan.")
    else:
        write_output(render_whole_plan(found))


@plan.command()
@click.argument("thread")
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True)
@json_option
def versions(thread: str, limit: int, as_json: bool) -> None:
    """List the versions of THREAD's plan on its branch, the newest first."""
    import anyio

    from agent_runtime_config import load_settings

    found = anyio.run(_versions, load_settings(), thread, limit)
    for one in found:
        if as_json:
            write_json({"thread_id": thread, "plan": one.to_json()})
        else:
            write_output(
                f"{one.version:>4}  {time_text(one.created_at)}  node {one.node_id}: "
                f"{one.settled} of {len(one.items)} done, phase {one.phase}, "
                f"iteration {one.iteration}"
            )
    if not found and not as_json:
        say(f"Thread {thread} has no plan.")


async def _current(settings: Settings, thread: str) -> Plan | None:
    from agent_runtime.runtime import Runtime

    async with Runtime.open(settings) as runtime:
        return await runtime.plans.current(thread)


async def _version(settings: Settings, thread: str, version: int) -> Plan:
    from agent_runtime.errors import NotFound
    from agent_runtime.runtime import Runtime

    async with Runtime.open(settings) as runtime:
        for one in await runtime.plans.versions(thread, limit=100_000):
            if one.version == version:
                return one
    raise NotFound(
        f"The branch of thread {thread} has no version {version} of a plan.",
        cure=f"`agent-runtime plan versions {thread}` lists them.",
    )


async def _versions(settings: Settings, thread: str, limit: int) -> list[Plan]:
    from agent_runtime.runtime import Runtime

    async with Runtime.open(settings) as runtime:
        return await runtime.plans.versions(thread, limit=limit)
