"""The contract of owners: using another owner's ids; `test_isolation` tries every method."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from agent_runtime_config.errors import ConfigError
from agent_runtime_storage import (
    Commit,
    Job,
    Lease,
    LeaseLost,
    NewEvent,
    NotFound,
    Store,
    Usage,
    UserStore,
)
from tests.storage.helpers import OTHER, begin, begin_child, done, exchange, message, new_run

_LEASE = Lease("r1", "t1", "r1", 1)
_Attempt = Callable[[UserStore], Awaitable[object]]

NOT_FOUND: dict[str, _Attempt] = {
    "thread": lambda user: user.threads.get("t1"),
    "update_thread": lambda user: user.threads.update("t1", title="mine"),
    "move_head": lambda user: user.threads.move_head("t1", None, expect=1),
    "branch": lambda user: user.log.branch("t1", 1),
    "lineage": lambda user: user.log.lineage("t1", 1),
    "node": lambda user: user.log.node("t1", 1),
    "children": lambda user: user.log.children("t1", None),
    "call": lambda user: user.log.call("t1", 2, 0),
    "activation": lambda user: user.log.activation("t1", 1),
    "activations": lambda user: user.log.activations("t1"),
    "begin_run": lambda user: user.runs.begin(new_run("r9", "t1")),
    "commit": lambda user: user.runs.commit(_LEASE, Commit(steps=9)),
    "run": lambda user: user.runs.get("r1"),
    "take_lease": lambda user: user.runs.take_lease("r1", OTHER, seconds=60, replaces=1),
    "renew_lease": lambda user: user.runs.renew_lease(_LEASE, seconds=60),
    "cancel_run": lambda user: user.runs.cancel("r1"),
    "post": lambda user: user.inbox.post("t1", "steer", b"mine"),
    "inbox": lambda user: user.inbox.pending("t1"),
    "poll": lambda user: user.runs.poll(_LEASE),
    "events": lambda user: user.events.list("t1"),
    "usage_total": lambda user: user.spending.usage_total(root_run_id="r1"),
    "usage_by_purpose": lambda user: user.spending.usage_by_purpose(thread_id="t1"),
    "usage_by_run": lambda user: user.spending.usage_by_run("r1"),
    "enqueue": lambda user: user.jobs.enqueue("t1", "observe", "b", b""),
}
EMPTY: dict[str, tuple[_Attempt, object]] = {
    "threads": (lambda user: user.threads.list(), []),
    "runs": (lambda user: user.runs.list(thread_id="t1"), []),
    "recent_usage": (lambda user: user.spending.recent_usage("m"), []),
    "claim": (lambda user: user.jobs.claim("observe", seconds=60), None),
}
LOST: dict[str, Callable[[UserStore, Job], Awaitable[object]]] = {
    "finish_job": lambda user, job: user.jobs.finish(job),
    "fail_job": lambda user, job: user.jobs.fail(job, retry_after=0, detail="mine"),
}


async def fill(user: UserStore) -> Job:
    """Write rows of several kinds, and return a claimed job."""
    lease = await begin(user, events=(NewEvent("run-start"),))
    usage = Usage("r1", "r1", None, "step", "m", 1, 0, 0, 1, 1, 1)
    await user.runs.commit(lease, Commit(nodes=(exchange(2, 1, "a"),), usage=(usage,)))
    await user.runs.commit(lease, Commit(done=(done(2, 0),)))
    await user.inbox.post("t1", "steer", b"x")
    await user.jobs.enqueue("t1", "observe", "a", b"")
    await user.jobs.enqueue("t1", "other", "a", b"")
    job = await user.jobs.claim("other", seconds=60)
    assert job is not None
    return job


async def snapshot(user: UserStore) -> object:
    """Return the rows that another owner could have changed."""
    return (
        await user.threads.get("t1"),
        await user.runs.get("r1"),
        await user.log.branch("t1", 2),
        await user.inbox.pending("t1"),
        await user.events.list("t1"),
        await user.threads.list(),
        await user.runs.list(),
    )


@pytest.mark.parametrize("name", NOT_FOUND)
async def test_another_owners_rows_are_not_found(
    user: UserStore, stranger: UserStore, name: str
) -> None:
    await fill(user)
    before = await snapshot(user)

    with pytest.raises(NotFound):
        await NOT_FOUND[name](stranger)

    assert await snapshot(user) == before


@pytest.mark.parametrize("name", EMPTY)
async def test_lists_have_no_rows_of_another_owner(
    user: UserStore, stranger: UserStore, name: str
) -> None:
    await fill(user)
    before = await snapshot(user)
    attempt, nothing = EMPTY[name]

    assert await attempt(stranger) == nothing
    assert await snapshot(user) == before


@pytest.mark.parametrize("name", LOST)
async def test_another_owners_job_cannot_be_ended(
    user: UserStore, stranger: UserStore, name: str
) -> None:
    job = await fill(user)

    with pytest.raises(LeaseLost):
        await LOST[name](stranger, job)

    await user.jobs.finish(job)


async def test_owners_can_use_the_same_ids(user: UserStore, stranger: UserStore) -> None:
    await fill(user)
    before = await snapshot(user)

    await begin(stranger, nodes=(message(1, None, b"another task"),))

    assert [node.body for node in await stranger.log.branch("t1", 1)] == [b"another task"]
    assert await snapshot(user) == before


async def test_a_run_cannot_have_another_owners_run_as_parent(
    user: UserStore, stranger: UserStore
) -> None:
    await fill(user)

    with pytest.raises(NotFound):
        await begin_child(stranger, "r1", "r2", "t2")
    with pytest.raises(NotFound):
        await begin_child(stranger, "r1", "r2", "t2", root_run_id="r1")


async def test_an_empty_owner_is_refused(store: Store) -> None:
    with pytest.raises(ConfigError, match="empty"):
        store.of("")
