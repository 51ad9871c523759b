"""Interrupt a call as a crash does: its run goes to an owner that does not exist any more."""

from __future__ import annotations

from agent_runtime_storage import UserStore
from tests.human.elsewhere import AT_ONCE
from tests.storage.helpers import OTHER


async def interrupt(store: UserStore, run_id: str) -> None:
    """Give a run to a dead owner; the next write of the present one raises `LeaseLost`."""
    run = await store.runs.get(run_id)
    await store.runs.take_lease(run_id, OTHER, seconds=AT_ONCE, replaces=run.epoch)
