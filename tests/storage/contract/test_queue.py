"""The contract of the queue: who gets which run, once, and what becomes of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import anyio
import psycopg
import pytest
from psycopg.rows import dict_row, tuple_row

from agent_runtime_storage import (
    Commit,
    Conflict,
    Finish,
    Lease,
    NewEvent,
    NotFound,
    Store,
    UserStore,
    open_store,
)
from agent_runtime_storage.contract.errors import StoreError, StoreInDoubt
from agent_runtime_storage.contract.records.questions import NewQuestion
from agent_runtime_storage.contract.records.queue import QueueLimits
from agent_runtime_storage.drivers.protocol import BatchMissed, Statement
from agent_runtime_storage.store import SqlStore
from tests.storage.contract.queueing import (
    ENDED,
    KNOWN,
    begin_picked,
    enqueue,
    ids,
    pick,
    states,
    stop,
)
from tests.storage.helpers import OWNER, begin, exchange
from tests.support.stores import driver_of


async def test_a_queued_run_begins_under_the_lease_that_a_worker_picks(
    store: Store, user: UserStore
) -> None:
    await enqueue(user, "r1", title="a title")
    queued, before = await user.runs.get("r1"), await user.threads.get("t-r1")

    [picked] = await pick(store)

    run = await user.runs.get("r1")
    assert (queued.status, queued.epoch, before.active_run, before.last_seq) == (
        "queued", 0, None, 0,
    )  # fmt: skip
    assert (before.title, picked.task, picked.takeovers) == ("a title", '{"type":"user"}', 0)
    assert (run.status, run.owner, run.lease_live, run.epoch) == ("running", OWNER, True, 1)
    assert (await user.threads.get("t-r1")).active_run == "r1"
    assert await pick(store) == []
    await begin_picked(user, picked.lease)
    await stop(user, picked.lease, Finish("succeeded", "completed"))
    assert (await states(user), (await user.runs.get("r1")).task_id) == ({}, 1)


async def test_a_run_id_is_enqueued_once(user: UserStore) -> None:
    await enqueue(user, "r1")

    with pytest.raises(Conflict):
        await enqueue(user, "r1", "another")

    with pytest.raises(NotFound):
        await user.threads.get("another")


async def test_a_worker_leaves_what_it_does_not_have(store: Store, user: UserStore) -> None:
    await enqueue(user, "old", version="1")
    await enqueue(user, "new", version="2")
    await enqueue(user, "foreign", program="another")

    picked = await pick(store, known=[("app", "coder", "2"), ("app", "writer", "1")])

    assert ids(picked) == ["new"]


async def test_shares_take_turns_and_weights_divide_them(store: Store, user: UserStore) -> None:
    for number in range(12):
        await enqueue(user, f"a{number}", share="many")
    for number in range(4):
        await enqueue(user, f"b{number}", share="few")
        await enqueue(user, f"c{number}", share="heavy", step=0.5)

    first = Counter(run_id[0] for run_id in ids(await pick(store, 8)))

    assert first == {"a": 2, "b": 2, "c": 4}


async def test_who_comes_late_has_saved_nothing_up(store: Store, user: UserStore) -> None:
    for number in range(9):
        await enqueue(user, f"a{number}", share="first")
    await pick(store, 6)
    for number in range(9):
        await enqueue(user, f"b{number}", share="late")

    assert Counter(run_id[0] for run_id in ids(await pick(store, 4))) == {"a": 2, "b": 2}


async def test_runs_of_one_thread_follow_one_another(store: Store, user: UserStore) -> None:
    for number in range(3):
        await enqueue(user, f"r{number}", "t")

    order: list[str] = []
    for _ in range(3):
        [picked] = await pick(store)
        order.append(picked.lease.run_id)
        await begin_picked(user, picked.lease)
        await stop(user, picked.lease, Finish("succeeded", "completed"))

    assert order == ["r0", "r1", "r2"]


async def test_a_thread_that_somebody_uses_is_left(store: Store, user: UserStore) -> None:
    lease = await begin(user, "other", "t")
    await enqueue(user, "r1", "t")

    assert await pick(store) == []
    [row] = await user.queue.list()
    assert (row.state, row.busy_with) == ("waiting", "other")

    await stop(user, lease, Finish("succeeded", "completed"))
    assert ids(await pick(store)) == ["r1"]


async def test_a_run_can_be_put_off(store: Store, user: UserStore) -> None:
    await enqueue(user, "later", due_at=4e9)
    await enqueue(user, "at once", "t-later")
    await enqueue(user, "past", due_at=1.0)

    assert sorted(ids(await pick(store))) == ["at once", "past"]
    assert await user.queue.wake("later", "Asked for.")
    assert (await states(user))["later"] == "waiting"


async def test_a_weighty_share_with_one_run_at_a_time_holds_up_nobody(
    store: Store, user: UserStore
) -> None:
    await enqueue(user, "plain", share="plain")
    await enqueue(user, "h0", share="heavy", step=0.25)
    order: list[str] = []
    for number in range(1, 8):
        order += ids(await pick(store, 1))
        # The one before is at work, and nothing else of its share waits.
        await enqueue(user, f"h{number}", share="heavy", step=0.25)

    assert order.index("plain") == 3


async def test_turns_go_on_where_nobody_waits(store: Store, user: UserStore) -> None:
    for number in range(9):
        await enqueue(user, f"a{number}", share="first")
    await pick(store, 9)
    for number in range(4):
        await enqueue(user, f"b{number}", share="late")
        await enqueue(user, f"c{number}", share="first")

    assert Counter(run_id[0] for run_id in ids(await pick(store, 4))) == {"b": 2, "c": 2}


async def test_a_commit_that_arrives_after_its_second_try_is_written_once(
    store: Store, user: UserStore
) -> None:
    await enqueue(user, "r1")
    [picked] = await pick(store)
    written: list[Sequence[Statement]] = []
    driver = driver_of(store)

    class Doubtful:
        """Loses the first batch on its way, and keeps it."""

        dialect, signals, read = driver.dialect, driver.signals, driver.read

        async def batch(self, statements: Sequence[Statement], **more: Any) -> Any:
            written.append(statements)
            if len(written) == 1:
                raise StoreInDoubt("The connection broke.", cure="Look.")
            return await driver.batch(statements, **more)

    doubtful: Any = Doubtful()
    late = SqlStore(doubtful).of(user.user_id)
    await late.runs.commit(picked.lease, Commit(steps=1, events=(NewEvent("step"),)))

    with pytest.raises(BatchMissed):
        await driver.batch(written[0], owner=user.user_id)
    assert [event.kind for event in await user.events.list("t-r1")] == ["step"]


async def test_picks_at_once_never_get_the_same_run(database_url: str) -> None:
    stores = [await open_store(database_url) for _ in range(3)]
    user = stores[0].of("ann")
    for number in range(12):
        await enqueue(user, f"r{number}", f"t{number // 2}")
    found: list[str] = []

    async def work(store: Store) -> None:
        for _ in range(4):
            found.extend(ids(await pick(store, 2)))

    async with anyio.create_task_group() as group:
        for store in stores:
            group.start_soon(work, store)

    # Of each thread the first one; the others are behind.
    assert sorted(found) == sorted(f"r{number}" for number in range(0, 12, 2))
    for store in stores:
        await store.close()


async def test_limits_hold_within_a_pick_and_across_picks(store: Store, user: UserStore) -> None:
    other = store.of("bob")
    for number in range(4):
        await enqueue(user, f"a{number}", model="m")
        await enqueue(other, f"b{number}", agent="writer", model="m")
    known = [*KNOWN, ("app", "writer", "")]
    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(lambda: pick(store, known=known, limits=QueueLimits(per_user=2)))
    working = Counter(row.user_id for row in await store.queue.list(state="working"))

    assert working == {"ann": 2, "bob": 2}
    assert await pick(store, known=known, limits=QueueLimits(per_model=4)) == []
    picked = await pick(store, known=known, limits=QueueLimits(per_agent=3))
    assert Counter(one.user_id for one in picked) == {"ann": 1, "bob": 1}


async def test_agents_with_similar_names_do_not_share_a_limit(
    store: Store, user: UserStore
) -> None:
    known = [("app", "a b", ""), ("app a", "b", "")]
    for number, (program, agent, _) in enumerate(known):
        await enqueue(user, f"r{number}", program=program, agent=agent)
        picked = await pick(store, known=known, limits=QueueLimits(per_agent=1))
        assert ids(picked) == [f"r{number}"]


async def ask(user: UserStore, lease: Lease, run: str = "r1") -> None:
    """Suspend a run with a question."""
    await user.runs.commit(lease, Commit(nodes=(exchange(2, 1, "shell"),)))
    question = NewQuestion(f"q-{run}", 2, 0, "text", {}, 60.0)
    finish = Finish("suspended", "awaiting_user", "It asks.")
    await stop(user, lease, finish, questions=(question,))


async def test_a_run_that_asks_holds_no_slot_and_is_woken_by_the_answer(
    store: Store, user: UserStore
) -> None:
    await enqueue(user, "r1")
    [picked] = await pick(store)
    await begin_picked(user, picked.lease)
    await ask(user, picked.lease)

    assert (await states(user), await pick(store)) == ({"r1": "parked"}, [])
    await user.questions.answer("q-r1", {"text": "yes"})

    assert [len(await pick(store)) for _ in range(2)] == [1, 0]


@pytest.mark.parametrize(
    ("finish", "state"),
    [
        (Finish("suspended", "interrupted"), "waiting"),
        (Finish("suspended", "paused"), "parked"),
        (Finish("suspended", "unavailable"), "parked"),
        (Finish("suspended", "awaiting_user"), "waiting"),
        (Finish("failed", "error", "It failed."), "dead"),
        (Finish("cancelled", "cancelled"), None),
    ],
)
async def test_what_becomes_of_a_run_that_stops(
    store: Store, user: UserStore, finish: Finish, state: str | None
) -> None:
    await enqueue(user, "r1")
    await enqueue(user, "r2", "t-r1")
    [picked] = await pick(store)
    await begin_picked(user, picked.lease)
    await stop(user, picked.lease, finish)

    found = await states(user)
    assert found.get("r1") == state
    # The thread is free only for a run that is over.
    assert found["r2"] == ("waiting" if state in (None, "dead") else "behind")


async def test_a_run_that_failed_can_be_retried(store: Store, user: UserStore) -> None:
    await enqueue(user, "r1")
    [picked] = await pick(store)
    await stop(user, picked.lease, Finish("failed", "error", "It failed."))

    assert await user.queue.wake("r1", "Retried.")
    [again] = await pick(store)

    assert (again.task, again.lease.epoch) == (picked.task, 2)
    assert not await user.queue.wake("r1", "It works.")


async def test_a_run_that_has_not_begun_is_withdrawn(store: Store, user: UserStore) -> None:
    await enqueue(user, "r1", "t")
    await enqueue(user, "r2", "t")

    assert await user.queue.withdraw("r1", Finish("cancelled", "cancelled"), ENDED)
    [picked] = await pick(store)

    run = await user.runs.get("r1")
    assert (run.status, picked.lease.run_id) == ("cancelled", "r2")
    assert [event.kind for event in await user.events.list("t")] == ["run-end"]
    assert not await user.queue.withdraw("r2", Finish("cancelled", "cancelled"), ENDED)


async def test_a_thread_takes_its_queued_runs_along(store: Store, user: UserStore) -> None:
    await enqueue(user, "r1")
    assert await user.upkeep.idle_threads(seconds=-1) == []

    await user.upkeep.delete_thread("t-r1")

    assert (await states(user), await pick(store)) == ({}, [])


async def test_owners_do_not_see_each_other(user: UserStore, stranger: UserStore) -> None:
    await enqueue(user, "r1")

    assert await stranger.queue.list() == []
    assert not await stranger.queue.wake("r1", "")
    assert not await stranger.queue.withdraw("r1", Finish("cancelled", "cancelled"), ENDED)


@pytest.mark.backends("postgres")
@pytest.mark.parametrize("rows", [tuple_row, dict_row])
async def test_a_run_joins_a_transaction_of_the_caller(
    store: Store, user: UserStore, database_url: str, rows: Any
) -> None:
    connection = await psycopg.AsyncConnection.connect(database_url, row_factory=rows)
    await connection.execute("CREATE TABLE public.orders (id int)")
    await connection.commit()
    for run, ended in (("kept", "commit"), ("dropped", "rollback")):
        await connection.execute("INSERT INTO public.orders VALUES (1)")
        await enqueue(user, run, connection=connection)
        with pytest.raises(Conflict):
            await enqueue(user, run, connection=connection)
        # The caller's own names, role and rights are back.
        await connection.execute("INSERT INTO orders VALUES (2)")
        assert await pick(store) == []
        await getattr(connection, ended)()
        assert ids(await pick(store)) == (["kept"] if ended == "commit" else [])
    found = await (await connection.execute("SELECT count(*) FROM orders")).fetchall()
    await connection.close()
    assert found == [(2,) if rows is tuple_row else {"count": 2}]


async def test_only_postgres_joins_a_transaction(user: UserStore, database_url: str) -> None:
    with pytest.raises(StoreError, match=r"Postgres|AsyncConnection"):
        await enqueue(user, "r1", connection=object())

    assert await states(user) == {}
