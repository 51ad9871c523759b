"""The span of a commit, and the count of what it records."""

from __future__ import annotations

from agent_runtime.models.telemetry import conventions as names
from agent_runtime.models.telemetry.spans import span, tracer
from agent_runtime.models.telemetry.tally import TALLY
from agent_runtime_storage.contract.records.log import Commit, Lease
from agent_runtime_storage.contract.store import UserStore


async def commit_counted(store: UserStore, lease: Lease, commit: Commit) -> int:
    """Commit as `RunStore.commit` does; return the last event's id."""
    if tracer() is None:
        last = await store.runs.commit(lease, commit)
    else:
        size = {names.COMMIT_NODES: len(commit.nodes), names.COMMIT_EVENTS: len(commit.events)}
        with span("commit", size):
            last = await store.runs.commit(lease, commit)
    TALLY.committed(commit)
    return last
