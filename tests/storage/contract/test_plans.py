"""The contract of plans: versions belong to exchanges, so each branch has its own newest one."""

from __future__ import annotations

import pytest

from agent_runtime_storage import (
    CallDone,
    Commit,
    Conflict,
    Finish,
    Lease,
    LeaseLost,
    NewEvent,
    NewPlan,
    NotFound,
    UserStore,
)
from tests.storage.families import exported, stream
from tests.storage.helpers import LARGE, OTHER, append, begin, exchange


async def append_plans(
    user: UserStore, lease: Lease, *bodies: bytes, closed: bool = True
) -> tuple[int, int]:
    """Append an exchange with a plan of each body; return its node and the newest version."""
    thread = await user.threads.get(lease.thread_id)
    seq = thread.last_seq + 1
    await user.runs.commit(lease, Commit(nodes=(exchange(seq, thread.head, "plan"),)))
    version = await user.log.last_plan_id(lease.thread_id)
    for body in bodies:
        version += 1
        await user.runs.commit(lease, Commit(plan=NewPlan(version, seq, f"call-{seq}", body)))
    if closed:
        done = CallDone(seq, 0, "ok", b"", 0)
        await user.runs.commit(lease, Commit(done=(done,), close=(seq,), head=seq))
    return seq, version


async def test_a_plan_is_read_as_it_was_written(user: UserStore) -> None:
    lease = await begin(user)
    assert await user.log.plan("t1", 1) is None
    assert await user.log.plans("t1", 1) == []
    assert await user.log.last_plan_id("t1") == 0

    seq, _ = await append_plans(user, lease, b"first", LARGE, closed=False)

    row = await user.log.plan("t1", seq)
    assert row is not None
    assert (row.id, row.node_id, row.call_id, row.run_id) == (2, seq, "call-2", "r1")
    assert row.body == LARGE and row.created_at > 0
    assert [row.body for row in await user.log.plans("t1", seq)] == [LARGE, b"first"]
    # The exchange is still open, so the head has no plan.
    assert await user.log.plan("t1", 1) is None


async def test_each_branch_has_its_own_newest_plan(user: UserStore) -> None:
    lease = await begin(user)
    common, first = await append_plans(user, lease, b"common")
    await append(user, lease, 2)
    left, second = await append_plans(user, lease, b"left")
    await append(user, lease, 2)
    left_end = (await user.threads.get("t1")).head or 0
    await user.runs.commit(lease, Commit(head=common))
    await append(user, lease, 3)
    right_end = (await user.threads.get("t1")).head or 0

    async def at(head: int) -> bytes | None:
        row = await user.log.plan("t1", head)
        return row and row.body

    assert [await at(head) for head in (common, left - 1, left, left_end)] == [
        b"common",
        b"common",
        b"left",
        b"left",
    ]
    assert await at(right_end) == b"common"
    right, third = await append_plans(user, lease, b"right")
    assert await at(right) == b"right" and await at(left_end) == b"left"
    assert [row.id for row in await user.log.plans("t1", right)] == [third, first]
    assert [row.id for row in await user.log.plans("t1", left_end)] == [second, first]
    assert [row.id for row in await user.log.plans("t1", left_end, first=left)] == [second]
    assert [row.id for row in await user.log.plans("t1", left_end, limit=1)] == [second]
    # A new branch from the root has none.
    await user.runs.commit(lease, Commit(head=1))
    await append(user, lease, 1)
    assert await at((await user.threads.get("t1")).head or 0) is None


async def test_a_plan_needs_the_next_version(user: UserStore) -> None:
    lease = await begin(user)
    seq, version = await append_plans(user, lease, b"one", closed=False)

    for wrong in (version, version + 2):
        with pytest.raises(Conflict, match="plan"):
            event = NewEvent("plan", seq)
            await user.runs.commit(
                lease, Commit(plan=NewPlan(wrong, seq, "", b"x"), events=(event,))
            )

    assert [row.body for row in await user.log.plans("t1", seq)] == [b"one"]
    assert await user.events.list("t1") == []


async def test_a_plan_belongs_to_the_open_exchange_of_its_run(user: UserStore) -> None:
    lease = await begin(user)
    seq, version = await append_plans(user, lease, b"one")

    for node in (1, seq, seq + 9):
        with pytest.raises(Conflict):
            await user.runs.commit(lease, Commit(plan=NewPlan(version + 1, node, "", b"x")))
    assert await user.log.last_plan_id("t1") == version


async def test_a_lost_lease_writes_no_plan(user: UserStore) -> None:
    lease = await begin(user)
    seq, version = await append_plans(user, lease, b"one", closed=False)
    await user.runs.take_lease("r1", OTHER, seconds=60, replaces=1)

    with pytest.raises(LeaseLost):
        await user.runs.commit(lease, Commit(plan=NewPlan(version + 1, seq, "", b"x")))
    assert await user.log.last_plan_id("t1") == version


async def test_plans_are_private_to_their_owner(user: UserStore, stranger: UserStore) -> None:
    lease = await begin(user)
    seq, _ = await append_plans(user, lease, b"one")

    for read in (
        stranger.log.plan("t1", seq),
        stranger.log.plans("t1", seq),
        stranger.log.last_plan_id("t1"),
    ):
        with pytest.raises(NotFound):
            await read


async def test_plans_are_exported_and_deleted_with_their_thread(user: UserStore) -> None:
    lease = await begin(user)
    seq, _ = await append_plans(user, lease, b"one", LARGE)
    await user.runs.commit(lease, Commit(finish=Finish("succeeded", "completed")))
    records = await exported(user, "t1")

    await user.upkeep.import_thread(stream(records), rename="t2")

    [newest, oldest] = await user.log.plans("t2", seq)
    assert (newest.body, oldest.body, newest.call_id) == (LARGE, b"one", f"call-{seq}")
    assert newest.run_id != "r1"
    await user.upkeep.delete_thread("t1")
    with pytest.raises(NotFound):
        await user.log.plan("t1", seq)
    assert await user.log.last_plan_id("t2") == 2
