"""List node memories, and delete those that have been unused for long."""

from __future__ import annotations

import logging
import time
from contextlib import aclosing
from dataclasses import dataclass

from agent_runtime.memory.node.document import COMPRESSED, PLAIN
from agent_runtime_storage.contract.documents import NODE_MEMORY
from agent_runtime_storage.contract.errors import StoreError
from agent_runtime_storage.contract.store import UserStore

_log = logging.getLogger(__name__)

PRUNE = "prune-node-memory"
DAY = 86_400.0
CLAIM_SECONDS = 600.0
"""Seconds until another process may take over; pruning twice does no harm."""


@dataclass(frozen=True, slots=True)
class StoredNodeMemory:
    """A node memory in the object store.

    Attributes:
        bytes: its stored size.
        modified: when it was last written, in seconds since the epoch.
        places: its documents; two if it moved when compression was switched.
    """

    app_id: str
    conversation_id: str
    node_id: str
    bytes: int
    modified: float
    places: tuple[str, ...]


async def stored_memories(store: UserStore) -> list[StoredNodeMemory]:
    """Return the owner's node memories, least recently written first.

    Raises:
        ConfigError: the database has no object store.
        ObjectsUnavailable: the object store cannot be read.
    """
    memories: dict[str, StoredNodeMemory] = {}
    async with aclosing(store.documents.list(NODE_MEMORY)) as chunks:
        async for chunk in chunks:
            for info in chunk:
                path = info.key.removesuffix(COMPRESSED).removesuffix(PLAIN)
                parts = path.split("/")
                # Not one of ours: people put other files into buckets.
                if path == info.key or len(parts) != 4:
                    continue
                before = memories.get(path)
                memories[path] = StoredNodeMemory(
                    *parts[1:],
                    bytes=info.bytes + (before.bytes if before else 0),
                    modified=max(info.modified, before.modified if before else 0.0),
                    places=(info.key, *(before.places if before else ())),
                )
    return sorted(memories.values(), key=lambda memory: memory.modified)


async def prune(store: UserStore, *, seconds: float) -> list[StoredNodeMemory]:
    """Delete the owner's node memories unchanged for `seconds`; return them.

    A memory that is written to in the meantime stays.  After a failure, call it again to continue.
    Raises like `stored_memories`.
    """
    before = time.time() - seconds
    documents = store.documents
    pruned: list[StoredNodeMemory] = []
    for memory in await stored_memories(store):
        if memory.modified >= before:
            # The rest is younger: they are sorted by their time.
            break
        deleted = [await documents.delete(place, before=before) for place in memory.places]
        if all(deleted):
            pruned.append(memory)
    return pruned


async def prune_daily(store: UserStore, *, days: float) -> None:
    """Delete the owner's node memories that had no turn for `days` days, once a day.

    The first process to claim the job does it.  A failure is logged; like a crash, it is retried
    once the claim has expired.
    """
    try:
        token = await store.jobs.claim_periodic(PRUNE, seconds=CLAIM_SECONDS)
        if token is None:
            return
        pruned = await prune(store, seconds=days * DAY)
        await store.jobs.finish_periodic(PRUNE, token, again_after=DAY)
    except StoreError as error:
        _log.warning("Old node memories could not be deleted: %s", error)
        return
    if pruned:
        _log.info("Deleted %d node memories without a turn for %g days.", len(pruned), days)
