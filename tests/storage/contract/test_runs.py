"""The contract of runs: beginning, leases, cancellation, and one active run per thread."""

from __future__ import annotations

from typing import Any

import pytest

from agent_runtime_storage import (
    ACTIVE,
    Commit,
    Conflict,
    Finish,
    LeaseLost,
    LeaseOwner,
    NewActivation,
    NewEvent,
    NewRun,
    NotFound,
    RunCancelled,
    Store,
    ThreadBusy,
    UserStore,
)
from agent_runtime_storage.contract.leases import HeldLease
from tests.storage.helpers import OTHER, OWNER, begin, begin_child, exchange, message, new_run


async def test_a_run_begins_with_its_task_a_lease_and_its_events(user: UserStore) -> None:
    await user.threads.ensure("t1")

    lease, last = await user.runs.begin(
        new_run(
            "r1",
            "t1",
            activation=NewActivation(1, None, "begin", b"{}", b"prompt"),
            events=(NewEvent("run-start", 1, {"agent": "coder"}),),
        )
    )

    run, thread = await user.runs.get("r1"), await user.threads.get("t1")
    assert (lease.epoch, lease.root_run_id, last) == (1, "r1", 1)
    assert (run.status, run.owner, run.lease_live) == ("running", OWNER, True)
    assert (run.task_id, run.max_steps, run.spec) == (1, 10, {"model": "scripted"})
    assert (thread.active_run, thread.head, thread.last_activation) == ("r1", 1, 1)
    assert [(event.id, event.node_id, event.run_id) for event in await user.events.list("t1")] == [
        (1, 1, "r1")
    ]


async def test_a_thread_has_one_active_run(user: UserStore) -> None:
    await begin(user)

    with pytest.raises(ThreadBusy) as raised:
        await begin(user, "r2", expect_head=1, expect_seq=1, nodes=(message(2, 1),), task_id=2)

    assert raised.value.run_id == "r1"
    with pytest.raises(NotFound):
        await user.runs.get("r2")


@pytest.mark.parametrize(
    "changes",
    [
        {"expect_head": 1},
        {"expect_seq": 1, "nodes": (message(2, None),)},
        {"nodes": (message(2, None),)},
        {"nodes": (exchange(1, None, "a"),)},
        {"activation": NewActivation(2, None, "gap", b"", b"")},
    ],
)
async def test_a_run_begins_only_at_the_expected_place(
    user: UserStore, changes: dict[str, object]
) -> None:
    thread = await user.threads.ensure("t1")

    with pytest.raises(Conflict):
        await user.runs.begin(new_run("r1", "t1", **changes))

    assert await user.threads.get("t1") == thread


async def test_a_run_on_an_unknown_thread_is_not_found(user: UserStore) -> None:
    with pytest.raises(NotFound, match="nowhere"):
        await user.runs.begin(new_run("r1", "nowhere"))


async def test_a_run_id_cannot_be_used_twice(user: UserStore) -> None:
    await begin(user)

    with pytest.raises(Conflict):
        await begin(user, "r1", "t2")

    assert (await user.threads.get("t2")).active_run is None


async def test_runs_are_filtered_and_listed_newest_first(user: UserStore) -> None:
    await begin(user, "r1", "t1")
    child = await begin_child(user, "r1", "r2", "t2")
    await begin_child(user, "r2", "r3", "t3")
    await begin(user, "r4", "t4")
    await user.runs.commit(child, Commit(finish=Finish("failed", "error")))

    async def ids(**filters: Any) -> set[str]:
        return {run.id for run in await user.runs.list(**filters)}

    assert await ids() == {"r1", "r2", "r3", "r4"}
    assert await ids(thread_id="t2") == {"r2"}
    assert await ids(root_run_id="r1") == {"r1", "r2", "r3"}
    assert await ids(parent_run_id="r1") == {"r2"}
    assert await ids(parent_run_id="r1", thread_id="t3") == set()
    assert {run.id for run in await user.runs.list(status=ACTIVE)} == {"r1", "r3", "r4"}
    assert {run.id for run in await user.runs.list(root_run_id="r1", status=["failed"])} == {"r2"}
    assert await user.runs.list(status=[]) == []
    created = [run.created_at for run in await user.runs.list()]
    assert created == sorted(created, reverse=True)
    assert len(await user.runs.list(limit=2)) == 2


# Leases


async def test_a_lease_expires_by_the_databases_clock(user: UserStore) -> None:
    lease = await begin(user, lease_seconds=-1.0)
    assert not (await user.runs.get("r1")).lease_live

    assert await user.runs.renew_lease(lease, seconds=60) is False
    assert (await user.runs.get("r1")).lease_live


async def test_a_cancel_stays_requested_until_the_run_has_ended(user: UserStore) -> None:
    await begin(user)
    await user.runs.cancel("r1")

    lease = await user.runs.take_lease("r1", OTHER, seconds=60, replaces=1)
    assert await user.runs.poll(lease) == (True, False)
    await user.runs.commit(lease, Commit(finish=Finish("cancelled", "cancelled")))
    assert (await user.runs.get("r1")).cancel_requested

    # A run that is taken over after its cancel is meant to continue.
    lease = await user.runs.take_lease("r1", OTHER, seconds=60, replaces=2)
    assert await user.runs.poll(lease) == (False, False)


async def test_a_run_that_ended_since_it_was_read_is_not_taken_over(
    user: UserStore,
) -> None:
    lease = await begin(user)
    await user.runs.commit(lease, Commit(finish=Finish("cancelled", "cancelled")))

    with pytest.raises(LeaseLost, match="has become cancelled"):
        await user.runs.take_lease("r1", OTHER, seconds=60, replaces=1, was="running")

    run = await user.runs.get("r1")
    assert (run.status, run.epoch, run.owner) == ("cancelled", 1, None)
    assert (
        await user.runs.take_lease("r1", OTHER, seconds=60, replaces=1, was="cancelled")
    ).epoch == 2


async def test_a_taken_lease_has_the_next_epoch_and_the_new_owner(user: UserStore) -> None:
    old = await begin(user)

    lease = await user.runs.take_lease("r1", OTHER, seconds=60, replaces=1)

    run = await user.runs.get("r1")
    assert (lease.epoch, run.epoch, run.owner) == (2, 2, OTHER)
    assert (run.cancel_requested, run.status) == (False, "running")
    for lost in (
        user.runs.renew_lease(old, seconds=60),
        user.runs.poll(old),
        user.runs.take_lease("r1", OWNER, seconds=60, replaces=1),
    ):
        with pytest.raises(LeaseLost):
            await lost


async def test_a_failed_run_can_be_taken_over(user: UserStore) -> None:
    lease = await begin(user)
    await user.runs.commit(lease, Commit(nodes=(exchange(2, 1, "a"),)))
    await user.runs.commit(lease, Commit(finish=Finish("failed", "error", "broken", b"x")))

    await user.runs.take_lease("r1", OTHER, seconds=60, replaces=1)

    run = await user.runs.get("r1")
    assert (run.status, run.stop_reason, run.detail, run.output) == ("running", None, "", b"")
    assert (run.open_node, run.finished_at) == (2, None)
    assert (await user.threads.get("t1")).active_run == "r1"


async def test_a_succeeded_run_is_not_taken_over(user: UserStore) -> None:
    lease = await begin(user)
    await user.runs.commit(lease, Commit(finish=Finish("succeeded", "completed")))

    with pytest.raises(Conflict, match="succeeded"):
        await user.runs.take_lease("r1", OTHER, seconds=60, replaces=1)


async def test_a_run_is_not_taken_over_while_another_is_active(user: UserStore) -> None:
    lease = await begin(user)
    await user.runs.commit(lease, Commit(finish=Finish("failed", "error")))
    await begin(user, "r2", expect_head=1, expect_seq=1, nodes=(message(2, 1),), task_id=2)

    with pytest.raises(ThreadBusy) as raised:
        await user.runs.take_lease("r1", OTHER, seconds=60, replaces=1)

    assert raised.value.run_id == "r2"
    assert (await user.runs.get("r1")).status == "failed"


async def test_all_fields_of_a_lease_owner_are_stored(user: UserStore) -> None:
    owner = LeaseOwner(host="höst", boot="boot", pid=2**31, started="12345.6")

    await begin(user, owner=owner)

    assert (await user.runs.get("r1")).owner == owner


# Cancellation


async def test_a_cancel_reaches_the_active_runs_of_the_subtree_only(user: UserStore) -> None:
    lease = await begin(user)
    finished = await begin_child(user, "r1", "r2", "t2")
    await begin_child(user, "r2", "r3", "t3")
    await begin(user, "r4", "t4")
    await user.runs.commit(finished, Commit(finish=Finish("succeeded", "completed")))

    assert sorted(await user.runs.cancel("r1")) == ["r1", "r3"]
    assert sorted(await user.runs.cancel("r1")) == ["r1", "r3"]

    assert await user.runs.renew_lease(lease, seconds=60) is True
    assert await user.runs.poll(lease) == (True, False)
    assert not (await user.runs.get("r2")).cancel_requested
    assert not (await user.runs.get("r4")).cancel_requested


async def test_cancelling_a_child_does_not_cancel_its_parent(user: UserStore) -> None:
    await begin(user)
    await begin_child(user, "r1", "r2", "t2")

    assert await user.runs.cancel("r2") == ["r2"]
    assert not (await user.runs.get("r1")).cancel_requested


async def test_a_cancelled_or_finished_run_starts_no_children(user: UserStore) -> None:
    lease = await begin(user)
    await user.runs.cancel("r1")
    with pytest.raises(RunCancelled):
        await begin_child(user, "r1", "r2", "t2")

    await user.runs.commit(lease, Commit(finish=Finish("cancelled", "cancelled")))
    with pytest.raises(RunCancelled):
        await begin_child(user, "r1", "r2", "t2")
    with pytest.raises(NotFound):
        await begin_child(user, "r9", "r2", "t2")
    assert (await user.threads.get("t2")).active_run is None


async def test_a_cancel_of_an_unknown_run_is_not_found(user: UserStore) -> None:
    with pytest.raises(NotFound):
        await user.runs.cancel("r9")


async def test_runs_are_listed_by_parent_thread_and_task_key(
    user: UserStore,
) -> None:
    await begin(user)
    for name, internal in (
        ("a", {"delegation": {"key": "k1"}}),
        ("b", {"delegation": {"key": "k2"}}),
        ("c", {"delegation": "broken"}),
    ):
        # A key in the caller's spec does not count.
        await begin_child(
            user, "r1", name, name, internal=internal, spec={"delegation": {"key": "k3"}}
        )
    await begin_child(user, "a", "d", "d", internal={"delegation": {"key": "k1"}})

    async def ids(**filters: Any) -> list[str]:
        return sorted(run.id for run in await user.runs.list(parent_thread_id="t1", **filters))

    assert await ids() == ["a", "b", "c"]
    assert await ids(task_key="k1") == ["a"]
    assert await ids(task_key="k3") == []
    assert await ids(status=("succeeded",)) == []
    assert [run.id for run in await user.runs.list(parent_thread_id="a")] == ["d"]


async def test_the_leases_of_a_process_are_renewed_and_polled_together(store: Store) -> None:
    held: list[HeldLease] = []
    for number, owner in enumerate(["ann", "ann", "bob"]):
        user = store.of(owner)
        await user.threads.ensure(f"t{number}")
        run = NewRun(
            f"r{number}", f"t{number}", "agent", 5, {}, OWNER, -60, expect_head=None, expect_seq=0
        )
        lease, _ = await user.runs.begin(run)
        held.append(HeldLease(owner, lease.run_id, lease.epoch))
    # One epoch too old, one of another owner, and one that never was.
    void = [HeldLease("ann", "r0", 0), HeldLease("bob", "r1", 1), HeldLease("eve", "r", 1)]
    await store.of("bob").runs.cancel("r2")

    assert await store.leases.renew([*held[1:], *void], seconds=60) == set(held[1:])
    assert await store.leases.poll([*held, *void]) == {
        held[0]: False,
        held[1]: False,
        held[2]: True,
    }
    assert await store.leases.poll([]) == {}
    live = [(await store.of(one.user_id).runs.get(one.run_id)).lease_live for one in held]
    assert live == [False, True, True]
    assert sorted(await store.leases.owners_at_work()) == ["ann", "bob"]
