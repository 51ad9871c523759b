"""Enqueue, pick, begin and stop runs: what the tests of the queue's contract share."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from agent_runtime_storage import Commit, Finish, Lease, LeaseOwner, NewEvent, Store, UserStore
from agent_runtime_storage.contract.records.queue import (
    NewQueuedRun,
    PickedRun,
    QueueLimits,
    QueueState,
)
from tests.storage.helpers import OWNER, message, new_run

KNOWN = [("app", "coder", "")]
FREE = QueueLimits()
ENDED = NewEvent("run-end", None, {})


async def enqueue(user: UserStore, run_id: str, thread: str | None = None, **changes: Any) -> None:
    """Enqueue a run, by default on a thread of its own."""
    queued = NewQueuedRun(
        run_id, thread or f"t-{run_id}", "coder", "app", '{"type":"user"}', {}, user.user_id
    )
    connection = changes.pop("connection", None)
    await user.queue.enqueue(replace(queued, **changes), connection=connection)


async def pick(
    store: Store,
    slots: int = 10,
    *,
    owner: LeaseOwner = OWNER,
    seconds: float = 60.0,
    limits: QueueLimits = FREE,
    known: list[tuple[str, str, str]] = KNOWN,
) -> list[PickedRun]:
    """Pick runs that the tests' worker knows."""
    return await store.queue.pick(slots, known, owner, seconds=seconds, limits=limits)


def ids(picked: list[PickedRun]) -> list[str]:
    """Return the ids of the runs."""
    return [one.lease.run_id for one in picked]


async def begin_picked(user: UserStore, lease: Lease) -> None:
    """Begin a picked run: its task enters the log."""
    thread = await user.threads.get(lease.thread_id)
    run = new_run(
        lease.run_id,
        lease.thread_id,
        epoch=lease.epoch,
        expect_head=thread.head,
        expect_seq=thread.last_seq,
        nodes=(message(thread.last_seq + 1, thread.head),),
        task_id=thread.last_seq + 1,
    )
    assert (await user.runs.begin(run))[0] == lease


async def stop(user: UserStore, lease: Lease, finish: Finish, **changes: Any) -> None:
    """End or suspend a run."""
    await user.runs.commit(lease, Commit(finish=finish, **changes))


async def states(user: UserStore) -> dict[str, QueueState]:
    """Return the states of the owner's rows."""
    return {row.run_id: row.state for row in await user.queue.list()}
