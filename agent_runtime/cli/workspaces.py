"""Which threads belong to the folder that the command stands in."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent_runtime_storage import UserStore
    from agent_runtime_storage.contract.records import Run, Thread

MOST = 10_000
"""The most threads that are looked at to find those of the folder."""


def workspace_of(thread: Thread) -> str:
    """Return the folder that a thread's first run worked in; empty if it had none."""
    from agent_runtime.run.start import WORKSPACE

    found = thread.metadata.get(WORKSPACE)
    return found if isinstance(found, str) else ""


def is_other_folder(workspace: str) -> bool:
    """Return whether a workspace is another folder than this one, those in it and those above."""
    if not workspace:
        return False
    here, there = Path.cwd(), Path(workspace)
    return not (here.is_relative_to(there) or there.is_relative_to(here))


def here_first(threads: Iterable[Thread]) -> list[Thread]:
    """Return the threads of this folder, then the others, each as they were in order."""
    return sorted(threads, key=lambda one: is_other_folder(workspace_of(one)))


def describe_folder(workspace: str) -> str:
    """Return what is told of a thread or run of another folder."""
    return f"  in {workspace}" if is_other_folder(workspace) else ""


async def workspaces(store: UserStore, runs: Iterable[Run]) -> dict[str, str]:
    """Return by run the folder that it works in: a sub-agent's is that of its root."""
    threads = {one.id: workspace_of(one) for one in await store.threads(limit=MOST)}
    found = list(runs)
    roots = {run.id: run.thread_id for run in found}
    return {run.id: threads.get(roots.get(run.root_run_id, run.thread_id), "") for run in found}
