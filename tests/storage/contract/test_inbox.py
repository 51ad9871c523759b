"""The contract of the inbox, of events, and of durable and periodic jobs."""

from __future__ import annotations

import anyio
import pytest

from agent_runtime_storage import (
    Commit,
    InboxFull,
    LeaseLost,
    NewEvent,
    NotFound,
    StoreError,
    UserStore,
)
from tests.storage.helpers import begin


async def test_posts_need_no_lease_and_stay_in_order(user: UserStore) -> None:
    lease = await begin(user)
    assert await user.runs.poll(lease) == (False, False)

    assert await user.inbox.post("t1", "steer", b"first") == 1
    assert await user.inbox.post("t1", "result", b"second", run_id="r1") == 2

    assert await user.runs.poll(lease) == (False, True)
    items = await user.inbox.pending("t1")
    assert [(item.id, item.kind, item.body, item.run_id) for item in items] == [
        (1, "steer", b"first", None),
        (2, "result", b"second", "r1"),
    ]


async def test_the_id_of_a_drained_item_is_not_used_again(user: UserStore) -> None:
    lease = await begin(user)
    first = await user.inbox.post("t1", "steer", b"x")
    await user.runs.commit(lease, Commit(drained=(first,)))

    assert await user.inbox.post("t1", "steer", b"y") == first + 1


async def test_a_post_to_an_unknown_thread_or_run_is_not_found(user: UserStore) -> None:
    await user.threads.ensure("t1")

    with pytest.raises(NotFound, match="thread nowhere"):
        await user.inbox.post("nowhere", "steer", b"x")
    with pytest.raises(NotFound, match="run r9"):
        await user.inbox.post("t1", "steer", b"x", run_id="r9")
    with pytest.raises(NotFound):
        await user.inbox.pending("nowhere")
    assert await user.inbox.pending("t1") == []


async def test_a_full_inbox_refuses_a_message_and_nothing_else(user: UserStore) -> None:
    for thread in ("t1", "t2"):
        await user.threads.ensure(thread)
    await user.inbox.post("t1", "steer", b"1", most=1, most_of_user=2)
    with pytest.raises(InboxFull, match="Too many messages wait"):
        await user.inbox.post("t1", "steer", b"2", most=1, most_of_user=2)
    await user.inbox.post("t1", "result", b"3", most=1, most_of_user=2)
    await user.inbox.post("t2", "steer", b"4", most=1, most_of_user=2)
    with pytest.raises(InboxFull):
        await user.inbox.post("t2", "steer", b"5", most=9, most_of_user=2)
    assert [one.body for one in await user.inbox.pending("t1")] == [b"1", b"3"]
    assert [one.body for one in await user.inbox.pending("t2")] == [b"4"]


async def test_concurrent_posts_are_numbered_without_gaps(user: UserStore) -> None:
    await user.threads.ensure("t1")
    ids: list[int] = []

    async def post() -> None:
        ids.append(await user.inbox.post("t1", "steer", b"x"))

    async with anyio.create_task_group() as group:
        for _ in range(50):
            group.start_soon(post)

    assert sorted(ids) == list(range(1, 51))
    assert [item.id for item in await user.inbox.pending("t1")] == list(range(1, 51))


async def test_events_are_read_after_a_cursor_without_gaps(user: UserStore) -> None:
    lease = await begin(user, events=(NewEvent("run-start"),))
    for _ in range(3):
        await user.runs.commit(lease, Commit(events=(NewEvent("answer"), NewEvent("note"))))

    seen: list[int] = []
    while events := await user.events.list("t1", after=seen[-1] if seen else 0, limit=2):
        seen += [event.id for event in events]

    assert seen == [1, 2, 3, 4, 5, 6, 7]
    assert await user.events.list("t1", after=7) == []
    with pytest.raises(NotFound):
        await user.events.list("nowhere")


async def test_usage_needs_exactly_one_filter(user: UserStore) -> None:
    await begin(user)

    with pytest.raises(StoreError, match="0 were given"):
        await user.spending.usage_total()
    with pytest.raises(StoreError, match="2 were given"):
        await user.spending.usage_total(run_id="r1", thread_id="t1")
    with pytest.raises(NotFound):
        await user.spending.usage_total(run_id="r9")
    assert (await user.spending.usage_total(run_id="r1")).calls == 0


# Jobs


async def test_a_job_is_queued_once_for_its_key(user: UserStore) -> None:
    await user.threads.ensure("t1")
    await user.threads.ensure("t2")

    assert await user.jobs.enqueue("t1", "observe", "1-9", b"payload")
    assert not await user.jobs.enqueue("t1", "observe", "1-9", b"other")
    assert await user.jobs.enqueue("t1", "reflect", "1-9", b"")
    assert await user.jobs.enqueue("t2", "observe", "1-9", b"")
    with pytest.raises(NotFound):
        await user.jobs.enqueue("nowhere", "observe", "1-9", b"")

    job = await user.jobs.claim("observe", seconds=60)
    assert job is not None
    assert (job.thread_id, job.key, job.payload, job.attempts) == ("t1", "1-9", b"payload", 1)


async def test_each_job_is_claimed_once(user: UserStore) -> None:
    await user.threads.ensure("t1")
    for key in "abc":
        await user.jobs.enqueue("t1", "observe", key, b"")

    keys: list[str] = []
    while (job := await user.jobs.claim("observe", seconds=60)) is not None:
        keys.append(job.key)

    assert sorted(keys) == ["a", "b", "c"]
    assert await user.jobs.claim("reflect", seconds=60) is None
    assert await user.jobs.claim("observe", seconds=60, thread_id="t9") is None


async def test_a_void_claim_is_taken_over_by_its_token(user: UserStore) -> None:
    await user.threads.ensure("t1")
    await user.jobs.enqueue("t1", "observe", "a", b"")
    dead = await user.jobs.claim("observe", seconds=60, holder="who held it")
    assert dead is not None
    assert await user.jobs.standing("t1", "reflect") == []
    [standing] = await user.jobs.standing("t1", "observe")
    assert (standing.key, standing.holder, standing.token) == ("a", "who held it", dead.token)

    assert await user.jobs.claim("observe", seconds=60, key="a", void="another token") is None
    taken = await user.jobs.claim("observe", seconds=60, key="a", void=dead.token)
    assert taken is not None and taken.attempts == 2
    with pytest.raises(LeaseLost):
        await user.jobs.finish(dead)
    await user.jobs.fail(taken, retry_after=60, detail="")

    assert await user.jobs.standing("t1", "observe") == []
    # A job that waits for its next attempt is claimed by nobody.
    assert await user.jobs.claim("observe", seconds=60, key="a", void=taken.token) is None


async def test_an_expired_claim_is_claimed_again_and_the_first_is_fenced(user: UserStore) -> None:
    await user.threads.ensure("t1")
    await user.jobs.enqueue("t1", "observe", "a", b"")
    late = await user.jobs.claim("observe", seconds=-1)
    next_one = await user.jobs.claim("observe", seconds=60)
    assert late is not None
    assert next_one is not None
    assert next_one.attempts == 2

    with pytest.raises(LeaseLost):
        await user.jobs.finish(late)
    with pytest.raises(LeaseLost):
        await user.jobs.fail(late, retry_after=0, detail="")

    await user.jobs.finish(next_one)
    await user.jobs.finish(next_one)
    with pytest.raises(LeaseLost):
        await user.jobs.fail(next_one, retry_after=0, detail="")
    assert await user.jobs.claim("observe", seconds=60) is None
    assert not await user.jobs.enqueue("t1", "observe", "a", b"")


async def test_a_failed_job_is_retried_after_a_wait_or_given_up(user: UserStore) -> None:
    await user.threads.ensure("t1")
    await user.jobs.enqueue("t1", "observe", "a", b"")

    job = await user.jobs.claim("observe", seconds=60)
    assert job is not None
    await user.jobs.fail(job, retry_after=3600, detail="overloaded")
    assert await user.jobs.claim("observe", seconds=60) is None

    await user.jobs.enqueue("t1", "observe", "b", b"")
    job = await user.jobs.claim("observe", seconds=60)
    assert job is not None
    await user.jobs.fail(job, retry_after=0, detail="once more")
    job = await user.jobs.claim("observe", seconds=60)
    assert job is not None
    assert (job.key, job.attempts) == ("b", 2)
    await user.jobs.fail(job, retry_after=None, detail="hopeless")
    assert await user.jobs.claim("observe", seconds=60) is None


async def test_a_periodic_job_is_claimed_once_each_time_it_is_due(user: UserStore) -> None:
    token = await user.jobs.claim_periodic("tidy", seconds=60)
    assert token is not None
    assert await user.jobs.claim_periodic("tidy", seconds=60) is None
    assert await user.jobs.claim_periodic("other", seconds=60) is not None

    await user.jobs.finish_periodic("tidy", token, again_after=3600)
    await user.jobs.finish_periodic("tidy", token, again_after=3600)
    assert await user.jobs.claim_periodic("tidy", seconds=60) is None
    await user.jobs.finish_periodic("tidy", token, again_after=-1)
    assert await user.jobs.claim_periodic("tidy", seconds=60) is not None


async def test_a_claim_of_a_periodic_job_is_invalid_for_another_owner(
    user: UserStore, stranger: UserStore
) -> None:
    token = await user.jobs.claim_periodic("tidy", seconds=60)
    assert token is not None
    assert await stranger.jobs.claim_periodic("tidy", seconds=-1) is not None

    with pytest.raises(LeaseLost, match="'tidy'"):
        await stranger.jobs.finish_periodic("tidy", token, again_after=-1)
    assert await user.jobs.claim_periodic("tidy", seconds=60) is None
    await user.jobs.finish_periodic("tidy", token, again_after=3600)


async def test_one_of_many_concurrent_claims_gets_a_periodic_job(user: UserStore) -> None:
    tokens: list[str | None] = []

    async def claim() -> None:
        tokens.append(await user.jobs.claim_periodic("tidy", seconds=60))

    async with anyio.create_task_group() as group:
        for _ in range(8):
            group.start_soon(claim)
    assert sum(token is not None for token in tokens) == 1


async def test_a_periodic_job_with_an_expired_claim_is_claimed_again(user: UserStore) -> None:
    late = await user.jobs.claim_periodic("tidy", seconds=-1)
    next_one = await user.jobs.claim_periodic("tidy", seconds=60)
    assert late is not None and next_one is not None

    with pytest.raises(LeaseLost, match="'tidy'"):
        await user.jobs.finish_periodic("tidy", late, again_after=0)
    await user.jobs.finish_periodic("tidy", next_one, again_after=3600)
    assert await user.jobs.claim_periodic("tidy", seconds=60) is None
