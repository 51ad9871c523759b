"""`agent-runtime runs`: which runs there are, and the tree of one with its sub-agents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from .options import json_lines_option
from .terminal import say, shorten, time_text, write_json, write_output

if TYPE_CHECKING:
    from agent_runtime.run_tree import TreeRun
    from agent_runtime_config import Settings
    from agent_runtime_storage.records import Run


@click.group(invoke_without_command=True)
@click.option("--thread", help="Only the runs of this thread.")
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True)
@json_lines_option
@click.pass_context
def runs(ctx: click.Context, thread: str | None, limit: int, as_json: bool) -> None:
    """List runs, the newest first, those of sub-agents included."""
    if ctx.invoked_subcommand is not None:
        return
    import anyio

    from agent_runtime_config import load_settings

    found = anyio.run(_runs, load_settings(), thread, limit)
    for run in found:
        if as_json:
            write_json(
                {
                    "run_id": run.id,
                    "thread_id": run.thread_id,
                    "parent_run_id": run.parent_run_id,
                    "agent": run.agent,
                    "status": run.status,
                    "stop_reason": run.stop_reason,
                    "steps": run.steps,
                    "created_at": run.created_at,
                }
            )
        else:
            below = "  sub-agent" if run.parent_run_id else ""
            write_output(
                f"{run.id}  {time_text(run.created_at)}  {run.status:<9}  {run.steps:>4} steps  "
                f"{shorten(run.agent, 40)}{below}"
            )
    if not found and not as_json:
        say("There are no runs yet." if thread is None else f"Thread {thread} has no runs.")


@runs.command()
@click.argument("run")
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout, the runs below inside.")
def tree(run: str, as_json: bool) -> None:
    """Show RUN and all runs below it: how each ended, what it used, how long it took."""
    import anyio

    from agent_runtime_config import load_settings

    found = anyio.run(_tree, load_settings(), run)
    if as_json:
        write_json(_json(found))
        return
    for line in lines(found):
        write_output(line)


def lines(root: TreeRun) -> list[str]:
    """Return a tree as lines, each run beneath its parent."""
    found: list[str] = []

    def walk(run: TreeRun, before: str, mark: str, below: str) -> None:
        found.append(before + mark + described(run))
        for index, child in enumerate(run.children):
            last = index == len(run.children) - 1
            walk(child, before + below, "└─ " if last else "├─ ", "   " if last else "│  ")

    walk(root, "", "", "")
    return found


def described(run: TreeRun) -> str:
    """Return a run as one line."""
    how: str = run.status
    if run.status == "running" and not run.alive:
        how = "interrupted"
    elif run.stop_reason not in (None, "completed", run.status):
        how = f"{run.status} ({run.stop_reason})"
    tokens = run.usage.prompt_tokens + run.usage.completion_tokens
    cost = "" if not run.cost_usd else f", ${run.cost_usd:.4f}"
    key = f" [{shorten(run.task_key, 40)}]" if run.task_key else ""
    return (
        f"{shorten(run.agent, 40)}{key}: {how}, {run.steps} steps, {tokens:,} tokens{cost}, "
        f"{run.duration:.1f} s  {run.run_id}"
    )


async def _runs(settings: Settings, thread: str | None, limit: int) -> list[Run]:
    from agent_runtime.runtime import Runtime

    async with Runtime.open(settings) as runtime:
        store = runtime.store.of(settings.user)
        if thread is not None:
            await store.thread(thread)
        return await store.runs(thread_id=thread, limit=limit)


async def _tree(settings: Settings, run: str) -> TreeRun:
    from agent_runtime.runtime import Runtime

    async with Runtime.open(settings) as runtime:
        return await runtime.tree(run)


def _json(run: TreeRun) -> dict[str, Any]:
    from dataclasses import asdict

    return {**asdict(run), "cost_usd": run.cost_usd, "children": [_json(c) for c in run.children]}
