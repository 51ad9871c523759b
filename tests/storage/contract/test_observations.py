"""The contract of observations: ids, reading by interval, and commits that end their job."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from agent_runtime_storage import (
    Commit,
    Conflict,
    Finish,
    LateObservation,
    LeaseLost,
    NewEvent,
    NewObservation,
    NotFound,
    Usage,
    UserStore,
)
from tests.storage.families import exported, stream
from tests.storage.helpers import LARGE, OTHER, append, begin


def observation(identity: int, first: int, last: int, **changes: Any) -> NewObservation:
    """Return an observation of level 0 of nodes `first` to `last`; `changes` override fields."""
    values: dict[str, Any] = {
        "id": identity,
        "level": 0,
        "parent_id": first - 1 or None,
        "first": first,
        "last": last,
        "body": b"seen",
        "tokens": 7,
        **changes,
    }
    return NewObservation(**values)


async def test_an_observation_is_read_as_it_was_written(user: UserStore) -> None:
    lease = await begin(user)
    await append(user, lease, 5)
    new = observation(1, 2, 4, body=LARGE, provisional=True)

    await user.runs.commit(lease, Commit(observation=new, events=(NewEvent("observation", 4),)))

    [row] = await user.log.observations("t1", ids=[1])
    assert (row.id, row.level, row.parent_id, row.first, row.last) == (1, 0, 1, 2, 4)
    assert (row.parts, row.provisional, row.body, row.tokens) == ((), True, LARGE, 7)
    assert row.created_at > 0
    assert await user.log.last_observation_id("t1") == 1


async def test_observations_are_read_by_their_ends_and_by_their_ids(user: UserStore) -> None:
    lease = await begin(user)
    await append(user, lease, 8)
    for place, (first, last) in enumerate([(1, 2), (3, 5), (6, 8)], 1):
        await user.runs.commit(lease, Commit(observation=observation(place, first, last)))
    whole = observation(4, 1, 5, level=1, parts=(1, 2))
    await user.runs.commit(lease, Commit(observation=whole))

    assert [row.id for row in await user.log.observations("t1", ending_from=5)] == [2, 3, 4]
    assert [row.id for row in await user.log.observations("t1", ids=[1], ending_from=6)] == [1, 3]
    assert [row.id for row in await user.log.observations("t1", ids=[4, 2])] == [2, 4]
    assert (await user.log.observations("t1", ids=[4]))[0].parts == (1, 2)
    assert await user.log.observations("t1") == []


async def test_the_next_id_is_required(user: UserStore) -> None:
    lease = await begin(user)
    await user.runs.commit(lease, Commit(observation=observation(1, 1, 1)))

    for wrong in (1, 3):
        with pytest.raises(Conflict):
            await user.runs.commit(lease, Commit(observation=observation(wrong, 1, 1)))
    assert await user.log.last_observation_id("t1") == 1


async def test_an_observation_is_committed_with_the_end_of_its_job_or_not_at_all(
    user: UserStore,
) -> None:
    lease = await begin(user)
    await user.jobs.enqueue("t1", "observe", "1-1", b"")
    late = await user.jobs.claim("observe", seconds=0, thread_id="t1", key="1-1")
    job = await user.jobs.claim("observe", seconds=60, thread_id="t1", key="1-1")
    assert late is not None and job is not None
    usage = Usage(
        run_id="r1",
        root_run_id="r1",
        node_id=1,
        purpose="observe",
        model="m",
        prompt_tokens=10,
        cached_tokens=0,
        cache_write_tokens=0,
        completion_tokens=2,
        counted_tokens=9,
        cost=1,
        reported=True,
    )

    with pytest.raises(Conflict, match="job"):
        await user.runs.commit(
            lease, Commit(observation=observation(1, 1, 1), job=late, usage=(usage,))
        )
    assert await user.log.last_observation_id("t1") == 0
    assert (await user.spending.usage_total(run_id="r1")).calls == 0

    await user.runs.commit(lease, Commit(observation=observation(1, 1, 1), job=job, usage=(usage,)))
    assert await user.log.last_observation_id("t1") == 1
    assert (await user.spending.usage_total(run_id="r1")).calls == 1
    assert await user.jobs.claim("observe", seconds=60) is None
    with pytest.raises(Conflict, match="job"):
        await user.runs.commit(lease, Commit(observation=observation(2, 1, 1), job=job))


async def test_a_job_is_claimed_by_its_key(user: UserStore) -> None:
    await user.threads.ensure("t1")
    for key in ("1-4", "5-9"):
        await user.jobs.enqueue("t1", "observe", key, b"")

    job = await user.jobs.claim("observe", seconds=60, thread_id="t1", key="5-9")

    assert job is not None and job.key == "5-9"
    assert await user.jobs.claim("observe", seconds=60, thread_id="t1", key="5-9") is None
    assert await user.jobs.claim("observe", seconds=60, thread_id="t1", key="0-0") is None


async def test_a_lost_lease_writes_no_observation(user: UserStore) -> None:
    lease = await begin(user)
    await user.runs.take_lease("r1", OTHER, seconds=60, replaces=1)

    with pytest.raises(LeaseLost):
        await user.runs.commit(lease, Commit(observation=observation(1, 1, 1)))


async def test_observations_are_private_to_their_owner(
    user: UserStore, stranger: UserStore
) -> None:
    lease = await begin(user)
    await user.runs.commit(lease, Commit(observation=observation(1, 1, 1)))

    for read in (stranger.log.observations("t1", ids=[1]), stranger.log.last_observation_id("t1")):
        with pytest.raises(NotFound):
            await read


async def test_observations_are_exported_and_deleted_with_their_thread(user: UserStore) -> None:
    lease = await begin(user)
    await append(user, lease, 3)
    await user.runs.commit(lease, Commit(observation=observation(1, 1, 2, body=LARGE)))
    await user.runs.commit(lease, Commit(observation=observation(2, 1, 2, level=1, parts=(1,))))
    await user.runs.commit(lease, Commit(finish=Finish("succeeded", "completed")))
    records = await exported(user, "t1")

    await user.upkeep.import_thread(stream(records), rename="t2")

    assert [row.body for row in await user.log.observations("t2", ids=[1, 2])] == [LARGE, b"seen"]
    await user.upkeep.delete_thread("t1")
    with pytest.raises(NotFound):
        await user.log.observations("t1", ids=[1])
    assert await user.log.last_observation_id("t2") == 2


async def test_an_observation_can_be_committed_after_the_end_of_its_run(user: UserStore) -> None:
    lease = await begin(user)
    await append(user, lease, 3)
    await user.jobs.enqueue("t1", "observe", "1-2", b"")
    job = await user.jobs.claim("observe", seconds=60, thread_id="t1", key="1-2")
    assert job is not None
    usage = Usage("r1", "r1", 2, "observe", "m", 10, 0, 0, 2, 9, 1)
    late = LateObservation(
        observation(1, 1, 2, body=LARGE), job, (usage,), (NewEvent("observation", 2),)
    )
    await user.runs.commit(lease, Commit(finish=Finish("succeeded", "completed")))

    last = await user.runs.commit_late(lease, late)

    [row] = await user.log.observations("t1", ids=[1])
    assert (row.first, row.last, row.body) == (1, 2, LARGE)
    assert (await user.spending.usage_total(run_id="r1")).calls == 1
    assert [(event.id, event.kind) for event in await user.events.list("t1")][-1] == (
        last,
        "observation",
    )
    # The job is over, so a repetition is refused and writes nothing.
    with pytest.raises(Conflict, match="job"):
        await user.runs.commit_late(lease, late)
    assert (await user.spending.usage_total(run_id="r1")).calls == 1
    assert not await user.jobs.enqueue("t1", "observe", "1-2", b"")


async def test_a_late_observation_needs_the_claim_and_the_next_id(user: UserStore) -> None:
    lease = await begin(user)
    await append(user, lease, 3)
    await user.jobs.enqueue("t1", "observe", "1-2", b"")
    old = await user.jobs.claim("observe", seconds=0, thread_id="t1", key="1-2")
    job = await user.jobs.claim("observe", seconds=60, thread_id="t1", key="1-2")
    assert old is not None and job is not None

    with pytest.raises(Conflict, match="job"):
        await user.runs.commit_late(lease, LateObservation(observation(1, 1, 2), old))
    with pytest.raises(Conflict, match="observation"):
        await user.runs.commit_late(lease, LateObservation(observation(2, 1, 2), job))
    with pytest.raises(Conflict, match="not of thread"):
        elsewhere = dataclasses.replace(lease, thread_id="t2")
        await user.runs.commit_late(elsewhere, LateObservation(observation(1, 1, 2), job))
    assert await user.log.last_observation_id("t1") == 0
    # The refused commits have not ended the job.
    await user.runs.commit_late(lease, LateObservation(observation(1, 1, 2), job))


async def test_a_late_observation_of_a_deleted_thread_is_refused(user: UserStore) -> None:
    lease = await begin(user)
    await user.jobs.enqueue("t1", "observe", "1-1", b"")
    job = await user.jobs.claim("observe", seconds=60, thread_id="t1", key="1-1")
    assert job is not None
    await user.runs.commit(lease, Commit(finish=Finish("succeeded", "completed")))
    await user.upkeep.delete_thread("t1")

    with pytest.raises(NotFound):
        await user.runs.commit_late(lease, LateObservation(observation(1, 1, 1), job))
