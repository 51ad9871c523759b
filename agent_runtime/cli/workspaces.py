"""Find the threads and runs that belong to the current folder."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from agent_runtime.log.run_spec import WORKSPACE

if TYPE_CHECKING:
    from agent_runtime_storage import UserStore
    from agent_runtime_storage.contract.records.log import Run, Thread

MOST = 10_000
"""Most threads to search for those of the folder."""


def workspace_of(thread: Thread) -> str:
    """Return the folder that a thread's first run worked in; empty if it had none."""
    workspace = thread.metadata.get(WORKSPACE)
    return workspace if isinstance(workspace, str) else ""


def is_other_folder(workspace: str) -> bool:
    """Return whether a workspace is neither this folder, nor in it, nor above it."""
    if not workspace:
        return False
    here, there = Path.cwd(), Path(workspace)
    # Both ways: people start a run in a repository and resume it from a folder in it, or above.
    return not (here.is_relative_to(there) or there.is_relative_to(here))


def here_first(threads: Iterable[Thread]) -> list[Thread]:
    """Return the threads of this folder, then the others; the order is otherwise kept."""
    return sorted(threads, key=lambda one: is_other_folder(workspace_of(one)))


def describe_folder(workspace: str) -> str:
    """Return the text that names the folder of a thread or run, if it is another one."""
    return f"  in {workspace}" if is_other_folder(workspace) else ""


async def workspaces(store: UserStore, runs: Iterable[Run]) -> dict[str, str]:
    """Return the folder of each run; a sub-agent has the folder of its root."""
    threads = {one.id: workspace_of(one) for one in await store.threads.list(limit=MOST)}
    listed = list(runs)
    roots = {run.id: run.thread_id for run in listed}
    return {run.id: threads.get(roots.get(run.root_run_id, run.thread_id), "") for run in listed}
