"""Pausing a run: asked for through the inbox of its thread, seen at the boundary of a step."""

from __future__ import annotations

from collections.abc import Sequence

from agent_runtime_storage.records import Finish, InboxItem, Lease

PAUSE = "pause"
"""The kind of the inbox item that asks for it; its body is the epoch of the run's lease."""
PAUSED = Finish("suspended", "paused", "It was paused.")


def pausing(items: Sequence[InboxItem], lease: Lease) -> bool:
    """Return whether the run is to pause as it is at work now, not as it was before a resume."""
    epoch = str(lease.epoch).encode()
    return any(
        item.kind == PAUSE and item.run_id == lease.run_id and item.body == epoch for item in items
    )
