"""Pause a run: the request is an inbox item of its thread, read between two steps.

Each sub-agent gets a request on its own thread; the calls that wait for them keep waiting.
"""

from __future__ import annotations

from collections.abc import Sequence

from agent_runtime_storage.contract.records.log import Finish, InboxItem, Lease
from agent_runtime_storage.contract.store import UserStore

PAUSE = "pause"
"""The kind of the inbox item; its body is the epoch of the run's lease."""
PAUSED = Finish("suspended", "paused", "It was paused.")


def pause_requested(items: Sequence[InboxItem], lease: Lease) -> bool:
    """Return whether the run's present execution is to pause; a resume voids earlier requests."""
    # The epoch rises when a run is resumed, so a request that came too late does not pause it
    # again.
    epoch = str(lease.epoch).encode()
    return any(
        item.kind == PAUSE and item.run_id == lease.run_id and item.body == epoch for item in items
    )


async def is_pausing(store: UserStore, run_id: str) -> bool:
    """Return whether a pause of a working run was requested."""
    run = await store.runs.get(run_id)
    lease = Lease(run.id, run.thread_id, run.root_run_id, run.epoch)
    return pause_requested(await store.inbox.pending(run.thread_id), lease)
