"""`agent-runtime runs`: all runs, the tree of one run, and the runs of dead processes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from agent_runtime.cli import exit_codes as exits
from agent_runtime.cli import session
from agent_runtime.cli.agents import build_agent, is_of_command
from agent_runtime.cli.commands.resume import respecified
from agent_runtime.cli.display.figures import cost_text
from agent_runtime.cli.display.short_ids import said_id, short_id
from agent_runtime.cli.groups import CommandGroup
from agent_runtime.cli.options import json_lines_option
from agent_runtime.cli.parameters.ids import RUN, THREAD
from agent_runtime.cli.parameters.run_options import RunOptions
from agent_runtime.cli.runtime_calls import user_store, with_runtime, with_store
from agent_runtime.cli.terminal import say, shorten, time_text, write_json, write_row
from agent_runtime.cli.workspaces import describe_folder, is_other_folder, workspaces
from agent_runtime_config.counted import counted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agent_runtime.run.sweep import ContinuationWay, Sweep
    from agent_runtime.run.tree import TreeRun
    from agent_runtime.runtime import Runtime
    from agent_runtime_config import Settings
    from agent_runtime_storage import UserStore
    from agent_runtime_storage.contract.records.log import Run

LOOKED_AT = 1000
"""How many of the newest runs are searched for those of this folder."""
WAYS = {
    "resume": "resume it with: agent-runtime resume {run}",
    "answer": "it waits for an answer: agent-runtime questions",
    "root": "it continues with the run that it works for",
    "task": "resume it with: agent-runtime resume {run}, or let its agent delegate the task again",
}
"""How to continue a run that is not active."""


@click.group(cls=CommandGroup, invoke_without_command=True)
@click.option("--thread", type=THREAD, help="Only the runs of this thread.")
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True)
@json_lines_option
@click.pass_context
def runs(ctx: click.Context, thread: str | None, limit: int, as_json: bool) -> None:
    """List runs, this folder's first, then newest first; includes sub-agents' runs."""
    if ctx.invoked_subcommand is not None:
        return
    found = with_store(lambda store: _runs(store, thread, limit))
    for run, way, workspace in found:
        if as_json:
            write_json({**_run_json(run, way), "workspace": workspace})
        else:
            below = ("  sub-agent" if run.parent_run_id else "") + describe_folder(workspace)
            write_row(
                f"{short_id(run.id)}  {time_text(run.created_at)}  {run.status:<9}  "
                f"{_steps(run.steps):<10}  {shorten(run.agent, 40)}{below}{_shown(run, way)}"
            )
    if not found and not as_json:
        say("There are no runs yet." if thread is None else f"Thread {thread} has no runs.")


@runs.command()
@click.option(
    "--resume",
    "resuming",
    is_flag=True,
    help="Resume them too, one after the other.",
)
@json_lines_option
@click.pass_context
def sweep(ctx: click.Context, resuming: bool, as_json: bool) -> None:
    """Suspend the runs whose process is dead, so that they can be resumed.

    Lists them, and the suspended runs that wait for nobody, such as one whose questions were
    answered or have expired. Active runs are not touched.
    """
    from agent_runtime_config import load_settings

    settings = load_settings()
    swept, ways, begun = with_runtime(_sweep, settings)
    left = (*swept.resumable, *swept.tasks)
    done = {run.id: run for run in (*swept.interrupted, *swept.ended)}
    for run in (done | {run.id: run for run in left}).values():
        if as_json:
            write_json({**_run_json(run, ways[run.id]), "swept": run.id in done})
        else:
            way = ways[run.id]
            # Otherwise it says that the run waits for an answer.
            said = run.detail if not _was_answered(run, way) else ""
            detail = f": {shorten(said, 200)}" if said else ""
            write_row(f"{short_id(run.id)}  {shorten(run.agent, 40)}{_shown(run, way)}{detail}")
    if not done and not left and not as_json:
        say("No stopped run can be resumed.")
    if resuming:
        ctx.exit(_resume_all(settings, left, begun, as_json=as_json))


@runs.command()
@click.argument("run", type=RUN)
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout, with the child runs inside.")
def tree(run: str, as_json: bool) -> None:
    """Show RUN and all runs below it: how each ended, what it used, how long it took."""
    found, ways = with_runtime(lambda runtime: _tree(runtime, run))
    if as_json:
        write_json(_json(found, ways))
        return
    for line in lines(found):
        write_row(line)
    for one in found:
        if (way := ways[one.run_id]) in ("resume", "answer"):
            run_id = said_id(one.run_id)
            say(f"Run {run_id} is not active; {WAYS[way].format(run=run_id)}")


def lines(root: TreeRun) -> list[str]:
    """Return a tree as lines, each run beneath its parent."""
    found: list[str] = []

    def walk(run: TreeRun, before: str, mark: str, below: str) -> None:
        found.append(before + mark + describe_run(run))
        for index, child in enumerate(run.children):
            last = index == len(run.children) - 1
            walk(child, before + below, "└─ " if last else "├─ ", "   " if last else "│  ")

    walk(root, "", "", "")
    return found


def describe_run(run: TreeRun) -> str:
    """Return a run as one line."""
    how: str = run.status
    if (run.status == "running" and not run.alive) or run.stop_reason == "interrupted":
        how = "interrupted"
    elif run.stop_reason not in (None, "completed", run.status):
        how = f"{run.status} ({run.stop_reason})"
    tokens = run.usage.prompt_tokens + run.usage.completion_tokens
    cost = f", {cost_text(run.usage.cost, run.usage.unpriced_calls)}" if run.usage.calls else ""
    key = f" [{shorten(run.task_key, 40)}]" if run.task_key else ""
    return (
        f"{shorten(run.agent, 40)}{key}: {how}, {_steps(run.steps)}, {tokens:,} tokens{cost}, "
        f"{run.duration:.1f} s  {short_id(run.run_id)}"
    )


def _steps(count: int) -> str:
    return counted(count, "step")


async def _runs(
    store: UserStore, thread: str | None, limit: int
) -> list[tuple[Run, ContinuationWay | None, str]]:
    from agent_runtime.run.sweep import continuation_of

    if thread is not None:
        await store.threads.get(thread)
    # Read more than are shown, because runs of other folders come last.
    found = await store.runs.list(thread_id=thread, limit=max(limit, LOOKED_AT))
    folders = await workspaces(store, found)
    found.sort(key=lambda run: is_other_folder(folders[run.id]))
    return [(run, await continuation_of(store, run), folders[run.id]) for run in found[:limit]]


async def _tree(runtime: Runtime, run: str) -> tuple[TreeRun, dict[str, ContinuationWay | None]]:
    from agent_runtime.run.sweep import continuation_of

    store = user_store(runtime)
    found = await runtime.tree(run)
    return found, {
        one.run_id: await continuation_of(store, await store.runs.get(one.run_id)) for one in found
    }


async def _sweep(
    runtime: Runtime,
) -> tuple[Sweep, dict[str, ContinuationWay | None], dict[str, Run]]:
    """Sweep; return also how each run continues, and whose agent continues it."""
    from agent_runtime.run.queue.background_tasks import agent_run_of
    from agent_runtime.run.sweep import continuation_of

    store = user_store(runtime)
    swept = await runtime.sweep()
    left = (*swept.resumable, *swept.tasks)
    found = (*swept.interrupted, *swept.ended, *left)
    ways: dict[str, ContinuationWay | None] = {}
    for run in found:
        ways[run.id] = await continuation_of(store, run)
    return swept, ways, {run.id: await agent_run_of(store, run) for run in left}


def _resume_all(
    settings: Settings, found: Sequence[Run], begun: Mapping[str, Run], *, as_json: bool
) -> int:
    """Resume runs, one after the other, and return the first exit code of a failure.

    Ctrl-C ends the active run and skips the others.

    Args:
        begun: by run, the run whose agent continues it: itself, or the one that delegated it.
    """
    code = exits.SUCCESS
    for run in found:
        if not is_of_command(begun[run.id]):
            say(
                f"Run {run.id} was not started from the command line: "
                "resume it in the program that started it."
            )
            continue
        if with_runtime(partial(_is_done, run=run.id), settings):
            # A task that the resumed run above it has continued.
            continue
        say(f"Resuming run {run.id}.")
        spec = respecified(begun[run.id], RunOptions(), settings)
        agent = build_agent(spec)
        outcome = session.follow(
            RunOptions().limited(settings, spec),
            # Defaults bind the values of this iteration.
            lambda runtime, one=run.id, agent=agent: runtime.resume_stream(one, agent),
            lambda runtime, one, agent=agent: runtime.resume_stream(one, agent),
        )
        session.report(outcome, as_json=as_json)
        # A failure does not stop the others.
        code = code or outcome.exit_code
        if outcome.interrupted:
            break
    return code


async def _is_done(runtime: Runtime, run: str) -> bool:
    return (await user_store(runtime).runs.get(run)).status != "suspended"


def _shown(run: Run, way: ContinuationWay | None) -> str:
    """Return why a run is not active and how to continue it; empty for other runs."""
    if way is None:
        return ""
    if run.status == "queued":
        return "  it waits for a worker: agent-runtime queue list"
    why = "interrupted" if run.status == "running" else run.stop_reason
    if _was_answered(run, way):
        why = "no question is open any more"
    return f"  {why}; {WAYS[way].format(run=short_id(run.id))}"


def _was_answered(run: Run, way: ContinuationWay | None) -> bool:
    """Return whether a run was suspended for an answer, and waits for none any more."""
    return run.stop_reason == "awaiting_user" and way is not None and way != "answer"


def _run_json(run: Run, way: ContinuationWay | None) -> dict[str, Any]:
    return {
        "run_id": run.id,
        "thread_id": run.thread_id,
        "parent_run_id": run.parent_run_id,
        "agent": run.agent,
        "status": run.status,
        "stop_reason": run.stop_reason,
        "steps": run.steps,
        "created_at": run.created_at,
        "way_on": way,
    }


def _json(run: TreeRun, ways: Mapping[str, ContinuationWay | None]) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        **asdict(run),
        "cost_usd": run.cost_usd,
        "way_on": ways[run.run_id],
        "children": [_json(child, ways) for child in run.children],
    }
