"""The contract of the queue: workers that are lost, takeovers, and runs that bring workers down."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent_runtime_storage import Commit, Finish, LeaseLost, Store, UserStore
from agent_runtime_storage.contract.leases import HeldLease
from agent_runtime_storage.contract.records.queue import PickedRun, QueueLimits
from tests.storage.contract.queueing import begin_picked, enqueue, ids, pick, states, stop
from tests.storage.helpers import OTHER, OWNER


async def test_an_expired_lease_is_due_and_its_owner_writes_nothing(
    store: Store, user: UserStore
) -> None:
    await enqueue(user, "r1")
    [lost] = await pick(store, seconds=0.0)
    await begin_picked(user, lost.lease)
    await store.queue.expel([HeldLease(user.user_id, "r1", lost.lease.epoch)])

    [taken] = await pick(store, owner=OTHER)

    # Revoked, and given.
    assert (taken.lease.epoch, taken.takeovers) == (lost.lease.epoch + 2, 1)
    with pytest.raises(LeaseLost):
        await stop(user, lost.lease, Finish("succeeded", "completed"))
    assert await states(user) == {"r1": "working"}


async def test_a_lease_that_a_pick_found_expired_is_not_renewed(
    store: Store, user: UserStore
) -> None:
    await enqueue(user, "late", version="1")
    await enqueue(user, "next", "another")
    one = QueueLimits(per_user=1)
    known = [("app", "coder", "1")]
    [late] = await pick(store, seconds=0.0, known=known, limits=one)
    held = HeldLease(user.user_id, "late", late.lease.epoch)

    # Another worker, which does not have its version, picks what the limit has room for now.
    assert ids(await pick(store, owner=OTHER, limits=one)) == ["next"]

    assert await store.leases.renew([held], seconds=60.0) == set()
    assert await store.leases.poll([held]) == {}
    with pytest.raises(LeaseLost):
        await user.runs.commit(late.lease, Commit(steps=1))


async def test_a_sweep_that_takes_a_run_from_a_dead_worker_counts_as_a_takeover(
    store: Store, user: UserStore
) -> None:
    await enqueue(user, "r1")
    worker, sweeper = replace(OWNER, instance="worker"), replace(OTHER, instance="sweeper")
    found: list[int] = []
    for _ in range(3):
        [picked] = await pick(store, owner=worker)
        found.append(picked.takeovers)
        # As the worker does when it resumes what it has picked.
        mine = await user.runs.take_lease("r1", worker, seconds=60.0, replaces=picked.lease.epoch)
        swept = await user.runs.take_lease("r1", sweeper, seconds=60.0, replaces=mine.epoch)
        await stop(user, swept, Finish("suspended", "interrupted"))
    await user.runs.get("r1")

    assert found == [0, 1, 2]


async def test_takeovers_count_from_the_last_step(store: Store, user: UserStore) -> None:
    await enqueue(user, "r1")
    [first] = await pick(store, seconds=0.0)
    assert [(await pick(store, seconds=0.0))[0].takeovers for _ in range(2)] == [1, 2]
    [last] = await pick(store)
    await user.runs.commit(last.lease, Commit(steps=1))
    await store.leases.renew([HeldLease(user.user_id, "r1", last.lease.epoch)], seconds=0)

    [after] = await pick(store)

    assert (first.takeovers, last.takeovers, after.takeovers) == (0, 3, 1)


async def test_a_poison_takes_no_other_run_of_its_worker_with_it(
    store: Store, user: UserStore
) -> None:
    for name in ("r0", "r1", "poison", "r2", "r3"):
        await enqueue(user, name)
    lost, ended = dict[str, int](), list[str]()
    # Takes each pick that has the poison with it, until that is a dead letter.
    while picked := await pick(store, 5):
        lost |= {one.lease.run_id: one.takeovers for one in picked}
        if "poison" in ids(picked) and lost["poison"] < 3:
            leases = [HeldLease(user.user_id, one.lease.run_id, one.lease.epoch) for one in picked]
            await store.queue.expel(leases)
            continue
        for one in picked:
            await user.runs.commit(one.lease, Commit(steps=1))
            await stop(user, one.lease, Finish("succeeded", "completed"))
        ended += ids(picked)

    assert sorted(ended) == ["poison", "r0", "r1", "r2", "r3"]
    assert lost == {"poison": 3} | dict.fromkeys(("r0", "r1", "r2", "r3"), 2)


async def test_a_process_tries_one_suspect_at_a_time_until_it_has_made_a_step(
    store: Store, user: UserStore
) -> None:
    for name in ("a", "b", "c"):
        await enqueue(user, name)
    for _ in range(3):
        await pick(store, seconds=0.0)
    here, there = replace(OWNER, instance="here"), replace(OTHER, instance="there")
    await enqueue(user, "new")

    [first, new] = await pick(store, owner=here)
    assert (ids([first, new]), first.takeovers) == (["a", "new"], 3)
    assert await pick(store, owner=here) == []
    assert ids(await pick(store, owner=there)) == ["b"]

    await user.runs.commit(first.lease, Commit(steps=1))
    assert ids(await pick(store, owner=here)) == ["c"]


async def test_a_run_that_made_a_step_is_no_suspect_when_it_is_handed_over(
    store: Store, user: UserStore
) -> None:
    for name in ("a", "b"):
        await enqueue(user, name)
    for _ in range(3):
        await pick(store, seconds=0.0)
    [a] = await pick(store)
    await user.runs.commit(a.lease, Commit(steps=1))
    await stop(user, a.lease, Finish("suspended", "interrupted"))

    assert {one.lease.run_id: one.takeovers for one in await pick(store)} == {"a": 0, "b": 2}


async def test_losses_of_workers_that_did_not_have_a_run_are_told_with_it(
    store: Store, user: UserStore
) -> None:
    for number in range(4):
        await enqueue(user, f"r{number}")
    picked = [(await pick(store, 1, owner=replace(OWNER, instance=f"w{n}")))[0] for n in range(4)]
    held = [HeldLease(user.user_id, one.lease.run_id, one.lease.epoch) for one in picked]

    # An outage takes the leases of three at once.
    await store.queue.expel(held[:3])
    [again] = await pick(store, 1, owner=OTHER)
    assert (again.takeovers, again.others_lost) == (1, 2)

    # Its next worker dies alone.
    await store.queue.expel([HeldLease(user.user_id, "r0", again.lease.epoch)])
    found = {one.lease.run_id: (one.takeovers, one.others_lost) for one in await pick(store)}
    assert found == {"r0": (2, 1), "r1": (1, 2), "r2": (1, 2)}


async def test_runs_that_are_lost_together_share_the_blame(store: Store, user: UserStore) -> None:
    await enqueue(user, "a")
    await enqueue(user, "b")
    first, second, third = (replace(OWNER, instance=name) for name in ("w1", "w2", "w3"))
    await pick(store, seconds=0.0, owner=first)

    again = await pick(store, seconds=0.0, owner=second)
    assert blame_of(again) == {"a": 0.5, "b": 0.5}

    # Both are suspects now, and one of them is tried at a time.
    [a] = await pick(store, 1, seconds=0.0, owner=third)
    assert blame_of([a]) == {"a": 1.0}
    [a] = await pick(store, 1)
    assert (a.lease.run_id, a.takeovers, a.blame) == ("a", 3, 2.0)


async def test_the_run_that_was_blamed_most_takes_the_blame_of_the_others(
    store: Store, user: UserStore
) -> None:
    poison, innocent = "poison", "z"
    await enqueue(user, poison)
    await pick(store, seconds=0.0)
    await enqueue(user, innocent)
    await pick(store, seconds=0.0, owner=replace(OWNER, instance="w2"))
    await pick(store, seconds=0.0, owner=replace(OWNER, instance="w3"))

    assert blame_of(await pick(store, owner=replace(OWNER, instance="w4"))) == {poison: 3.0}
    assert blame_of(await pick(store, owner=replace(OWNER, instance="w5"))) == {innocent: 0.0}


async def test_a_lease_that_expires_later_is_blamed_with_its_workers_first_one(
    store: Store, user: UserStore
) -> None:
    await enqueue(user, "early")
    await enqueue(user, "late")
    early, late = await pick(store, owner=replace(OWNER, instance="w1"))
    found = dict[str, float]()
    for lost in (early, late):
        await store.queue.expel([HeldLease(user.user_id, lost.lease.run_id, lost.lease.epoch)])
        found |= blame_of(await pick(store, owner=replace(OTHER, instance="w2")))

    assert found == {"early": 0.5, "late": 0.5}


async def test_a_step_ends_the_blame(store: Store, user: UserStore) -> None:
    await enqueue(user, "r1")
    for _ in range(2):
        await pick(store, seconds=0.0)
    [held] = await pick(store)
    await user.runs.commit(held.lease, Commit(steps=1))
    await store.queue.expel([HeldLease(user.user_id, "r1", held.lease.epoch)])

    [after] = await pick(store)
    assert (held.blame, after.blame) == (2.0, 1.0)
    await user.runs.commit(after.lease, Commit(steps=2))
    await stop(user, after.lease, Finish("suspended", "interrupted"))
    assert blame_of(await pick(store)) == {"r1": 0.0}


async def test_a_sweep_shares_the_blame_of_a_dead_worker(store: Store, user: UserStore) -> None:
    await enqueue(user, "r1")
    await enqueue(user, "r2")
    worker, sweeper = replace(OWNER, instance="worker"), replace(OTHER, instance="sweeper")
    for one in await pick(store, owner=worker):
        held = await user.runs.take_lease(
            one.lease.run_id, sweeper, seconds=60.0, replaces=one.lease.epoch
        )
        await stop(user, held, Finish("suspended", "interrupted"))

    assert blame_of(await pick(store)) == {"r1": 0.5, "r2": 0.5}


async def test_steps_of_runs_that_any_worker_may_begin_excuse_no_other_run_of_their_tree(
    store: Store, user: UserStore
) -> None:
    await enqueue(user, "root")
    [root] = await pick(store)
    placed = {"delegation": {"placed": {"model": ""}}}
    for name in ("poison", "sibling"):
        await enqueue(user, name, parent=root.lease, internal=placed)
    await stop(user, root.lease, Finish("suspended", "awaiting_children"))
    found: list[tuple[int, float]] = []
    sibling = None
    for number in range(4):
        for one in await pick(store, owner=replace(OWNER, instance=f"w{number}")):
            if one.lease.run_id == "sibling":
                sibling = one.lease
                continue
            found.append((one.takeovers, one.blame))
            await store.queue.expel([HeldLease(user.user_id, "poison", one.lease.epoch)])
        assert sibling is not None
        await user.runs.commit(sibling, Commit(steps=number + 1))

    assert [takeovers for takeovers, _ in found] == [0, 1, 2, 3]
    # The first loss was its sibling's as well.
    assert found[-1][1] == 2.5


def blame_of(picked: list[PickedRun]) -> dict[str, float]:
    """Return the blame of each run."""
    return {one.lease.run_id: one.blame for one in picked}
