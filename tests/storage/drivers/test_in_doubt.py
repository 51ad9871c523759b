"""Connections that break during a write: its outcome is found out, and it is not repeated."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

import pytest

from agent_runtime_storage import Commit, Finish, LeaseLost, NewEvent, StoreInDoubt, UserStore
from agent_runtime_storage.drivers.protocol import Announce, Row, SqlDialect, Statement, Value
from agent_runtime_storage.drivers.sqlite.driver import SqliteDriver
from agent_runtime_storage.queries.migrations import apply_migrations
from agent_runtime_storage.store import SqlStore
from tests.storage.helpers import OTHER, OWNER, begin, message


class Breaking:
    """A real driver whose connection breaks at chosen batches, before or after they are written."""

    dialect: SqlDialect = "sqlite"

    def __init__(self, inner: SqliteDriver) -> None:
        self.inner = inner
        self.signals = inner.signals
        self.breaks: list[str] = []
        """One entry a batch: `before`, `after`, or `late` (written just before the next batch)."""
        self._late: list[tuple[Sequence[Statement], str | None]] = []

    async def read(self, sql: str, params: Mapping[str, Value], *, owner: str | None) -> list[Row]:
        return await self.inner.read(sql, params, owner=owner)

    async def batch(
        self,
        statements: Sequence[Statement],
        *,
        owner: str | None,
        locks: Sequence[str] = (),
        repeatable: bool = False,
        announce: Announce | None = None,
    ) -> list[list[Row]]:
        for late, its_owner in self._late:
            await self.inner.batch(late, owner=its_owner)
        self._late.clear()
        fate = self.breaks.pop(0) if self.breaks else ""
        if fate == "late":
            self._late.append((statements, owner))
        elif fate != "before":
            rows = await self.inner.batch(
                statements, owner=owner, locks=locks, repeatable=repeatable
            )
            if not fate:
                if announce is not None:
                    announce(rows)
                return rows
        if repeatable:
            return await self.batch(
                statements, owner=owner, locks=locks, repeatable=True, announce=announce
            )
        raise StoreInDoubt("The connection broke.")

    async def close(self) -> None:
        await self.inner.close()


@pytest.fixture
async def breaking(tmp_path: Path) -> AsyncIterator[Breaking]:
    """A driver on an empty database with the schema."""
    inner = await SqliteDriver.open(tmp_path / "store.db")
    await apply_migrations(inner)
    yield Breaking(inner)
    await inner.close()


@pytest.fixture
def user(breaking: Breaking) -> UserStore:
    """One owner's view through the breaking driver."""
    return SqlStore(breaking).of("ann")


BREAKS = [["before"], ["after"], ["before"] * 3, ["late", "before", "after"], ["late"]]


@pytest.mark.parametrize("breaks", BREAKS)
async def test_a_commit_in_doubt_is_applied_once(
    user: UserStore, breaking: Breaking, breaks: list[str]
) -> None:
    lease = await begin(user)
    breaking.breaks = list(breaks)

    last = await user.runs.commit(
        lease, Commit(nodes=(message(2, 1),), head=2, events=(NewEvent("note"),))
    )

    assert last == 1
    assert [event.id for event in await user.events.list("t1")] == [1]
    assert (await user.threads.get("t1")).last_seq == 2


@pytest.mark.parametrize("breaks", BREAKS)
async def test_a_commit_of_only_an_event_is_applied_once(
    user: UserStore, breaking: Breaking, breaks: list[str]
) -> None:
    lease = await begin(user)
    await user.runs.commit(lease, Commit(events=(NewEvent("first"),)))
    breaking.breaks = list(breaks)

    assert await user.runs.commit(lease, Commit(events=(NewEvent("second"),))) == 2
    assert await user.runs.commit(lease, Commit(events=(NewEvent("third"),))) == 3

    assert [event.kind for event in await user.events.list("t1")] == ["first", "second", "third"]


async def test_a_commit_in_doubt_after_the_lease_was_lost_writes_nothing(
    user: UserStore, breaking: Breaking
) -> None:
    lease = await begin(user)
    await user.runs.take_lease("r1", OTHER, seconds=60, replaces=1)
    breaking.breaks = ["before"]

    with pytest.raises(LeaseLost):
        await user.runs.commit(lease, Commit(events=(NewEvent("late"),)))
    assert await user.events.list("t1") == []


async def test_a_run_that_began_in_doubt_is_found(user: UserStore, breaking: Breaking) -> None:
    await user.threads.ensure("t1")
    breaking.breaks = ["after"]

    lease = await begin(user, events=(NewEvent("run-start"),))

    assert (lease.run_id, lease.epoch) == ("r1", 1)
    assert (await user.threads.get("t1")).active_run == "r1"


async def test_a_run_that_did_not_begin_is_in_doubt(user: UserStore, breaking: Breaking) -> None:
    await user.threads.ensure("t1")
    breaking.breaks = ["before"]

    with pytest.raises(StoreInDoubt):
        await begin(user)
    assert (await user.threads.get("t1")).active_run is None


async def test_a_lease_that_was_taken_in_doubt_is_found(
    user: UserStore, breaking: Breaking
) -> None:
    await begin(user)
    breaking.breaks = ["after"]

    lease = await user.runs.take_lease("r1", OTHER, seconds=60, replaces=1)

    assert lease.epoch == 2
    assert await user.runs.commit(lease, Commit(events=(NewEvent("mine"),))) == 1


async def test_a_lease_that_another_process_took_meanwhile_is_not_ours(
    user: UserStore, breaking: Breaking
) -> None:
    await begin(user)
    await user.runs.take_lease("r1", OTHER, seconds=60, replaces=1)
    breaking.breaks = ["before"]

    with pytest.raises(StoreInDoubt):
        await user.runs.take_lease("r1", OWNER, seconds=60, replaces=1)
    with pytest.raises(LeaseLost):
        await user.runs.take_lease("r1", OWNER, seconds=60, replaces=1)


@pytest.mark.parametrize("breaks", [["before"], ["after"]])
async def test_repeatable_writes_are_repeated(
    user: UserStore, breaking: Breaking, breaks: list[str]
) -> None:
    breaking.breaks = list(breaks)
    await user.threads.ensure("t1")
    breaking.breaks = list(breaks)
    await user.threads.update("t1", metadata={"colour": "red"})
    breaking.breaks = list(breaks)
    await user.jobs.enqueue("t1", "observe", "1-10", b"{}")
    job = await user.jobs.claim("observe", seconds=60)
    assert job is not None
    breaking.breaks = list(breaks)
    await user.jobs.finish(job)
    lease = await begin(user)
    breaking.breaks = list(breaks)
    assert await user.runs.renew_lease(lease, seconds=60) is False
    breaking.breaks = list(breaks)
    assert await user.runs.cancel("r1") == ["r1"]

    assert (await user.threads.get("t1")).metadata == {"colour": "red"}
    assert await user.jobs.claim("observe", seconds=60) is None


async def test_a_claim_in_doubt_is_found_by_its_token(user: UserStore, breaking: Breaking) -> None:
    await user.threads.ensure("t1")
    await user.jobs.enqueue("t1", "observe", "1-10", b"{}")
    breaking.breaks = ["before"]
    with pytest.raises(StoreInDoubt):
        await user.jobs.claim("observe", seconds=60)
    breaking.breaks = ["after"]

    job = await user.jobs.claim("observe", seconds=60)

    assert job is not None and job.attempts == 1
    await user.jobs.finish(job)


async def test_a_head_that_moved_in_doubt_is_found(user: UserStore, breaking: Breaking) -> None:
    lease = await begin(user)
    await user.runs.commit(lease, Commit(nodes=(message(2, 1),), head=2))
    await user.runs.commit(lease, Commit(finish=Finish("succeeded", "completed")))
    breaking.breaks = ["after"]

    await user.threads.move_head("t1", 1, expect=2)

    assert (await user.threads.get("t1")).head == 1
    breaking.breaks = ["before"]
    with pytest.raises(StoreInDoubt):
        await user.threads.move_head("t1", 2, expect=1)


async def test_a_post_in_doubt_raises(user: UserStore, breaking: Breaking) -> None:
    await user.threads.ensure("t1")
    breaking.breaks = ["after"]

    with pytest.raises(StoreInDoubt):
        await user.inbox.post("t1", "steer", b"x")
    assert [item.body for item in await user.inbox.pending("t1")] == [b"x"]
