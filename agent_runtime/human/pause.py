"""Pausing a run: asked for through the inbox of its thread, seen at the boundary of a step.

Its sub-agents are asked as it is, each by its own thread, and the calls that wait for them wait on.
"""

from __future__ import annotations

from collections.abc import Sequence

from agent_runtime_storage.contract.records import Finish, InboxItem, Lease
from agent_runtime_storage.contract.store import UserStore

PAUSE = "pause"
"""The kind of the inbox item that asks for it; its body is the epoch of the run's lease."""
PAUSED = Finish("suspended", "paused", "It was paused.")


def pause_requested(items: Sequence[InboxItem], lease: Lease) -> bool:
    """Return whether the run is to pause as it is at work now, not as it was before a resume."""
    epoch = str(lease.epoch).encode()
    return any(
        item.kind == PAUSE and item.run_id == lease.run_id and item.body == epoch for item in items
    )


async def is_pausing(store: UserStore, run_id: str) -> bool:
    """Return whether it was asked to pause a run that is at work."""
    run = await store.run(run_id)
    lease = Lease(run.id, run.thread_id, run.root_run_id, run.epoch)
    return pause_requested(await store.inbox(run.thread_id), lease)
