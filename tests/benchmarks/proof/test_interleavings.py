"""Two stores on one thread, in many orders: only the lease holder writes, and without gaps."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_runtime_storage import (
    Commit,
    Conflict,
    Lease,
    LeaseLost,
    NewEvent,
    UserStore,
    open_store,
)
from agent_runtime_storage.urls import backend_of
from benchmarks.proof.interleavings.harness import Verdict, run_seeds
from benchmarks.proof.interleavings.store import StoreWorld
from benchmarks.proof.interleavings.store_actions import ACTIONS as ALL
from benchmarks.proof.interleavings.store_actions import COMMITS
from tests.storage.helpers import OTHER, OWNER, begin, done, exchange, message

ACTIONS = ("step", "take", "stale", "repeat", "post", "drain", "renew")


@dataclass
class Holder:
    """One process's view of the run: the lease that it believes it holds, and its last commit."""

    lease: Lease
    last: Commit | None = None
    written: list[int] = field(default_factory=list[int])


async def step(user: UserStore, holder: Holder, body: bytes) -> None:
    """Write an exchange ahead, then close it, as the engine does."""
    thread = await user.threads.get("t1")
    seq = thread.last_seq + 1
    opening = Commit(nodes=(exchange(seq, thread.head, "a"),), events=(NewEvent("answer", seq),))
    await user.runs.commit(holder.lease, opening)
    holder.last = Commit(
        done=(done(seq, 0, body),),
        close=(seq,),
        nodes=(message(seq + 1, seq, body),),
        head=seq + 1,
        events=(NewEvent("tool-finish", seq), NewEvent("note", seq + 1)),
    )
    await user.runs.commit(holder.lease, holder.last)
    holder.written += [seq, seq + 1]


async def act(user: UserStore, holders: list[Holder], who: int, action: str) -> None:
    """Let one of the two act, and check that the action succeeds exactly if it holds the lease."""
    holder = holders[who]
    run = await user.runs.get("r1")
    holds = run.epoch == holder.lease.epoch
    body = f"{who}".encode()
    if action == "post":
        await user.inbox.post("t1", "steer", body)
    elif action == "take":
        owner = OWNER if who == 0 else OTHER
        holder.lease = await user.runs.take_lease("r1", owner, seconds=60, replaces=run.epoch)
    elif action == "repeat":
        if holder.last is not None:
            with pytest.raises(Conflict):
                await user.runs.commit(holder.lease, holder.last)
    elif not holds:
        with pytest.raises(LeaseLost):
            await step(user, holder, body)
        with pytest.raises(LeaseLost):
            await user.runs.renew_lease(holder.lease, seconds=60)
    elif action == "step":
        await step(user, holder, body)
    elif action == "renew":
        await user.runs.renew_lease(holder.lease, seconds=60)
    elif action == "stale":
        with pytest.raises(Conflict):
            await user.runs.commit(holder.lease, Commit(nodes=(message(1, None),), head=1))
    elif items := await user.inbox.pending("t1"):
        thread = await user.threads.get("t1")
        node = message(thread.last_seq + 1, thread.head, items[0].body)
        drained = Commit(
            nodes=(node,),
            head=node.seq,
            drained=(items[0].id,),
            events=(NewEvent("note", node.seq),),
        )
        await user.runs.commit(holder.lease, drained)
        holder.written.append(node.seq)


async def check(user: UserStore, holders: list[Holder]) -> None:
    """Check that each node is there once and was written by a lease holder."""
    thread = await user.threads.get("t1")
    branch = await user.log.branch("t1", thread.head or 0)
    written = sorted([1, *holders[0].written, *holders[1].written])
    assert [node.seq for node in branch] == written == list(range(1, thread.last_seq + 1))
    assert all(node.status == "closed" for node in branch)
    events = await user.events.list("t1")
    assert [event.id for event in events] == list(range(1, thread.last_event + 1))
    appended = [event.node_id for event in events if event.kind != "answer"]
    assert appended == list(range(2, thread.last_seq + 1))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1), st.sampled_from(ACTIONS)), max_size=25))
def test_only_the_holder_writes_in_any_order(actions: list[tuple[int, str]]) -> None:
    async def run(folder: str) -> None:
        store = await open_store(str(Path(folder, "store.db")), synchronous="normal")
        try:
            user = store.of("ann")
            lease = await begin(user)
            holders = [Holder(lease), Holder(Lease("r1", "t1", "r1", 0))]
            for who, action in actions:
                await act(user, holders, who, action)
            await check(user, holders)
        finally:
            await store.close()

    with tempfile.TemporaryDirectory() as folder:
        anyio.run(run, folder)


async def test_of_many_who_take_a_lease_at_once_one_gets_it(user: UserStore) -> None:
    await begin(user)
    leases: list[Lease] = []
    lost: list[int] = []

    async def take(number: int) -> None:
        try:
            leases.append(await user.runs.take_lease("r1", OTHER, seconds=60, replaces=1))
        except LeaseLost:
            lost.append(number)

    async with anyio.create_task_group() as group:
        for number in range(20):
            group.start_soon(take, number)

    assert [lease.epoch for lease in leases] == [2]
    assert len(lost) == 19


async def test_of_many_who_append_the_same_seq_one_writes(user: UserStore) -> None:
    lease = await begin(user)
    refused: list[int] = []

    async def append(number: int) -> None:
        try:
            await user.runs.commit(lease, Commit(nodes=(message(2, 1, b"%d" % number),), head=2))
        except Conflict:
            refused.append(number)

    async with anyio.create_task_group() as group:
        for number in range(20):
            group.start_soon(append, number)

    assert len(refused) == 19
    [body] = [node.body for node in await user.log.children("t1", 1)]
    assert int(body) not in refused


SEEDS = {"file": 200}
"""How many seeds the tests try; `python -m benchmarks interleavings.store` tries more."""


@pytest.mark.slow
async def test_two_stores_on_one_thread_in_the_order_of_many_seeds(database_url: str) -> None:
    verdicts: list[Verdict] = []
    count = SEEDS.get(backend_of(database_url), 20)

    await run_seeds(StoreWorld, database_url, range(count), verdicts.append, actions=40)

    assert {verdict.seed: verdict.problems for verdict in verdicts if verdict.problems} == {}
    assert len(verdicts) == count
    if count == SEEDS["file"]:
        assert_much_was_tried(verdicts)


def assert_much_was_tried(verdicts: list[Verdict]) -> None:
    """Over many seeds every action was both done and, where possible, refused."""
    acted = {op.what for verdict in verdicts for op in verdict.history if op.outcome == "ok"}
    assert acted >= set(ALL) - {"repeat", "wrong"}
    refused = {op.what for verdict in verdicts for op in verdict.history if op.outcome == "refused"}
    assert refused >= {*COMMITS, "repeat", "wrong", "take", "move"} - {"result", "start"}


async def test_a_seed_repeats_its_interleaving(database_url: str) -> None:
    """Runs are identical if no two calls overlap and none is cancelled in progress."""
    verdicts: list[Verdict] = []

    for _ in range(2):
        await run_seeds(
            StoreWorld, database_url, [1], verdicts.append, actions=40, concurrent=False
        )

    first, second = (
        [(op.what, op.outcome, op.error) for op in verdict.history] for verdict in verdicts
    )
    assert first == second
    assert len(first) > 10
