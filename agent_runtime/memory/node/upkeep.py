"""Looking after node memories: which there are, and which were not used for long."""

from __future__ import annotations

import logging
import time
from contextlib import aclosing
from dataclasses import dataclass

from agent_runtime.memory.node.document import COMPRESSED, PLAIN
from agent_runtime_storage.contract.errors import StoreError
from agent_runtime_storage.contract.store import UserStore
from agent_runtime_storage.objects.documents import NODE_MEMORY

_log = logging.getLogger(__name__)

PRUNE = "prune-node-memory"
DAY = 86_400.0
CLAIM_SECONDS = 600.0
"""After so long another may take up what a process began; doing it twice does no harm."""


@dataclass(frozen=True, slots=True)
class StoredNodeMemory:
    """A node memory as it lies in the object store.

    Attributes:
        bytes: as it is stored.
        modified: when it was last written to, in seconds since the epoch.
        places: its documents; two if it was moved when compression was switched.
    """

    app_id: str
    conversation_id: str
    node_id: str
    bytes: int
    modified: float
    places: tuple[str, ...]


async def stored_memories(store: UserStore) -> list[StoredNodeMemory]:
    """Return the owner's node memories, those first that were not written to for longest.

    Raises:
        ConfigError: the database has no object store.
        ObjectsUnavailable: it cannot be read.
    """
    found: dict[str, StoredNodeMemory] = {}
    async with aclosing(store.documents().list(NODE_MEMORY)) as chunks:
        async for chunk in chunks:
            for info in chunk:
                path = info.key.removesuffix(COMPRESSED).removesuffix(PLAIN)
                parts = path.split("/")
                if path == info.key or len(parts) != 4:
                    continue
                before = found.get(path)
                found[path] = StoredNodeMemory(
                    *parts[1:],
                    bytes=info.bytes + (before.bytes if before else 0),
                    modified=max(info.modified, before.modified if before else 0.0),
                    places=(info.key, *(before.places if before else ())),
                )
    return sorted(found.values(), key=lambda one: one.modified)


async def prune(store: UserStore, *, seconds: float) -> list[StoredNodeMemory]:
    """Delete the owner's node memories that were not written to for so long; return them.

    One that is written to meanwhile stays.  What a failure cuts short is gone on with by calling
    it again.  Raises like `stored_memories`.
    """
    before = time.time() - seconds
    documents = store.documents()
    gone: list[StoredNodeMemory] = []
    for memory in await stored_memories(store):
        if memory.modified >= before:
            break
        deleted = [await documents.delete(place, before=before) for place in memory.places]
        if all(deleted):
            gone.append(memory)
    return gone


async def prune_daily(store: UserStore, *, days: float) -> None:
    """Delete the owner's node memories without a turn for so many days, once a day.

    Whichever process comes first does it, and a crash leaves it to the next.  What fails is told
    in the program's log only, and tried again when the claim has expired.
    """
    try:
        token = await store.claim_periodic(PRUNE, seconds=CLAIM_SECONDS)
        if token is None:
            return
        gone = await prune(store, seconds=days * DAY)
        await store.finish_periodic(PRUNE, token, again_after=DAY)
    except StoreError as error:
        _log.warning("Old node memories could not be deleted: %s", error)
        return
    if gone:
        _log.info("%d node memories without a turn for %g days were deleted.", len(gone), days)
