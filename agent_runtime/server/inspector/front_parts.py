"""The parts of prompts under activations whose rows lack them, as older versions wrote them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection

import anyio.to_thread

from agent_runtime.log.branch import BranchRows, read_branch, view_from
from agent_runtime.prompt.parts import FrontParts
from agent_runtime_storage.contract.store import UserStore

# Activations of the whole process; one has some dozens of numbers.
_MOST = 20_000
_known: OrderedDict[tuple[str, str, float, int], FrontParts] = OrderedDict()
"""By owner, thread, the thread's creation and activation; none of them ever changes."""


async def missing_parts(
    store: UserStore, thread_id: str, activations: Collection[int]
) -> dict[int, FrontParts]:
    """Return the parts of activations, made from what they refer to; kept for the next time."""
    if not activations:
        return {}
    created = (await store.threads.get(thread_id)).created_at
    keys = {one: (store.user_id, thread_id, created, one) for one in activations}
    found = {one: _known[key] for one, key in keys.items() if key in _known}
    rows = await store.inspection.activations(thread_id, sorted(keys.keys() - found.keys()))
    for row in rows:
        branch = await read_branch(store, thread_id, row, row.anchor, raw=False)
        found[row.id] = await anyio.to_thread.run_sync(_parts, branch)
        _known[keys[row.id]] = found[row.id]
    while len(_known) > _MOST:
        _known.popitem(last=False)
    return found


def forget() -> None:
    """Forget what is kept, as a new process has."""
    _known.clear()


def _parts(rows: BranchRows) -> FrontParts:
    return FrontParts.of(view_from(rows))
