"""The contract of spending by tree, thread and day: counted once, and limited jointly."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime

import anyio
import psycopg
import pytest

from agent_runtime_storage import (
    Amount,
    Budget,
    BudgetExceeded,
    Commit,
    Conflict,
    Finish,
    Lease,
    Limits,
    NotFound,
    Spending,
    UserStore,
    open_store,
)
from tests.storage.families import PARENT, exported, fill, stream
from tests.storage.helpers import OTHER, begin, begin_child
from tests.support.stores import execute

DAY = Limits(day=Budget(tokens=1000, cost=5000))
THREAD = Limits(thread=Budget(tokens=1000))
CALL = Amount(300, 30)
USED = Amount(100, 10)
SUCCEEDED = Finish("succeeded", "completed")


async def reserve(user: UserStore, lease: Lease, limits: Limits, amount: Amount = CALL) -> None:
    await user.runs.commit(lease, Commit(reserve=amount, limits=limits))


async def settle(user: UserStore, lease: Lease, used: Amount = USED, held: Amount = CALL) -> None:
    await user.runs.commit(lease, Commit(release=held, settle=used))


async def execute_as_owner(url: str, sql: str) -> None:
    """Run a statement with the owner's id, past the store."""
    await execute(url, sql, owner="ann", user_id="ann")


async def test_a_day_is_the_sum_of_all_runs_of_the_owner(
    user: UserStore, stranger: UserStore
) -> None:
    first, second = await begin(user), await begin(user, "r2", "t2")
    await reserve(user, first, DAY)
    await reserve(user, second, DAY)
    await settle(user, second)
    await begin(stranger)

    day = await user.spending.of_day()
    assert (day.settled, day.unsettled, day.reserved) == (USED, Amount(), CALL)
    assert day.spent == USED
    assert await user.spending.reserving_runs() == ["r1"]
    assert day.ends_at is not None and day.ends_at % 86400 == 0
    assert 0 < day.ends_at - (await user.runs.get("r1")).created_at <= 2 * 86400
    theirs = await stranger.spending.of_day()
    assert (theirs.spent, theirs.reserved) == (Amount(), Amount())


async def test_a_reservation_over_the_days_budget_writes_nothing(user: UserStore) -> None:
    leases = [await begin(user, f"r{n}", f"t{n}") for n in range(4)]
    for lease in leases[:3]:
        await reserve(user, lease, DAY)
    before = await user.runs.get("r3"), await user.spending.of_day()

    with pytest.raises(BudgetExceeded, match=r"900 tokens .* reserved") as raised:
        await reserve(user, leases[3], DAY)
    assert raised.value.budget == "day"
    ends = datetime.fromtimestamp((before[1].ends_at or 0), UTC)
    assert f"the day ends at {ends:%Y-%m-%dT%H:%MZ}" in raised.value.message
    assert "Raise the budget of the day" in raised.value.cure
    with pytest.raises(BudgetExceeded, match="day"):
        await reserve(user, leases[3], DAY, Amount(1, 5000))
    assert (await user.runs.get("r3"), await user.spending.of_day()) == before

    await settle(user, leases[0])
    await reserve(user, leases[3], DAY)


async def test_a_commits_spending_counts_before_its_reservation(user: UserStore) -> None:
    lease = await begin(user)
    await reserve(user, lease, DAY)
    lost = Commit(release=CALL, unsettle=CALL, limits=DAY)
    with pytest.raises(BudgetExceeded):
        await user.runs.commit(lease, replace(lost, reserve=Amount(701, 0)))
    await user.runs.commit(lease, replace(lost, reserve=Amount(700, 0)))
    day = await user.spending.of_day()
    assert (day.unsettled, day.reserved) == (CALL, Amount(700, 0))


async def test_concurrent_stores_never_exceed_the_budget_of_day_or_thread(
    user: UserStore, database_url: str
) -> None:
    both = Limits(thread=Budget(tokens=2000), day=Budget(tokens=2000))
    root = await begin(user, "root", "t")
    leases = [await begin_child(user, "root", f"a{n}", f"a{n}") for n in range(4)]
    leases += [await begin(user, f"b{n}", f"b{n}") for n in range(20)]
    other = await open_store(database_url)
    accepted: list[str] = []

    async def work(store: UserStore, lease: Lease) -> None:
        try:
            await reserve(store, lease, both)
        except BudgetExceeded as error:
            assert error.budget == "day"
            return
        day = await store.spending.of_day()
        assert day.spent.tokens + day.reserved.tokens <= 2000
        accepted.append(lease.run_id)

    async with anyio.create_task_group() as group:
        for place, lease in enumerate(leases):
            group.start_soon(work, (user, other.of("ann"))[place % 2], lease)
    await other.close()

    assert len(accepted) == 2000 // CALL.tokens
    assert (await user.spending.of_day()).reserved == Amount(1800, 180)
    for lease in leases:
        if lease.run_id in accepted:
            await settle(user, lease)
    day = await user.spending.of_day()
    assert (day.spent, day.reserved) == (Amount(600, 60), Amount())
    assert (await user.spending.of_thread(root.thread_id)).spent.tokens == 100 * sum(
        name.startswith("a") for name in accepted
    )


async def test_a_thread_is_the_sum_of_the_trees_on_it(user: UserStore) -> None:
    first = await begin(user)
    child = await begin_child(user, "r1", "c1", "t1-child")
    await reserve(user, child, THREAD)
    await settle(user, child, Amount(500, 0))
    await user.runs.commit(first, Commit(finish=SUCCEEDED))
    second = await begin(user, "r2", expect_head=1, expect_seq=1, nodes=())

    with pytest.raises(BudgetExceeded, match="of the thread: of 1,000 tokens, 500") as raised:
        await reserve(user, second, THREAD, Amount(501, 0))
    assert raised.value.budget == "thread"
    await reserve(user, second, THREAD, Amount(400, 0))
    # A background child of the first run still counts on its thread.
    with pytest.raises(BudgetExceeded, match="400 tokens reserved"):
        await reserve(user, child, THREAD, Amount(101, 0))
    spending = await user.spending.of_thread("t1")
    assert spending == Spending(settled=Amount(500, 0), reserved=Amount(400, 0))
    assert (
        await user.spending.of_thread("t1-child")
        == await user.spending.of_thread("none")
        == Spending()
    )


async def test_a_dead_runs_reservation_counts_as_spent_after_a_takeover(
    user: UserStore,
) -> None:
    dead = await begin(user)
    await reserve(user, dead, DAY, Amount(800, 80))
    other = await begin(user, "r2", "t2")
    with pytest.raises(BudgetExceeded, match=r"800 tokens .* reserved"):
        await reserve(user, other, DAY)

    lease = await user.runs.take_lease("r1", OTHER, seconds=60, replaces=1)
    day = await user.spending.of_day()
    assert (day.unsettled, day.reserved) == (Amount(800, 80), Amount())
    await reserve(user, lease, DAY, Amount(150, 15))
    await user.runs.commit(lease, Commit(finish=Finish("failed", "error")))
    day = await user.spending.of_day()
    assert (day.unsettled, day.reserved) == (Amount(950, 95), Amount())
    with pytest.raises(BudgetExceeded, match="950 tokens"):
        await reserve(user, other, DAY)


async def test_only_open_reservations_carry_over_to_the_next_day(
    user: UserStore, database_url: str
) -> None:
    lease, other = await begin(user), await begin(user, "r2", "t2")
    await reserve(user, lease, DAY, Amount(600, 0))
    await settle(user, lease, Amount(500, 0), held=Amount(600, 0))
    await reserve(user, lease, DAY, Amount(400, 0))
    with pytest.raises(BudgetExceeded):
        await reserve(user, other, DAY)

    await execute_as_owner(
        database_url, "UPDATE spending SET day = day - 1 WHERE user_id = :user_id"
    )

    await reserve(user, other, DAY, Amount(600, 0))
    with pytest.raises(BudgetExceeded, match=r"0 tokens .* spent and 1,000 tokens .* reserved"):
        await reserve(user, lease, DAY, Amount(1, 0))
    await settle(user, lease, Amount(350, 0), held=Amount(400, 0))
    assert (await user.spending.of_day()).spent == Amount(350, 0)


async def test_deleting_a_thread_does_not_reduce_the_days_spending(
    user: UserStore, database_url: str
) -> None:
    lease = await begin(user, lease_seconds=-1)
    await reserve(user, lease, DAY)
    await settle(user, lease)
    await reserve(user, lease, DAY)
    child = await begin_child(user, "r1", "c1", "t2", lease_seconds=-1)
    await reserve(user, child, DAY)

    await user.upkeep.delete_thread("t1")

    day = await user.spending.of_day()
    assert (day.settled, day.unsettled, day.reserved) == (USED, Amount(600, 60), Amount())
    assert await user.spending.of_thread("t1") == Spending()


async def test_an_imported_thread_has_its_spending_but_counts_on_no_day(
    user: UserStore, stranger: UserStore
) -> None:
    await fill(user, "mark")
    spent = await user.spending.of_thread(PARENT)
    await stranger.upkeep.import_thread(stream(await exported(user)))

    assert spent.spent.tokens > 0
    assert await stranger.spending.of_thread(PARENT) == spent
    assert (await stranger.spending.of_day()).spent == Amount()


async def test_children_cannot_use_the_roots_reserve(user: UserStore) -> None:
    root = await begin(user, budget=Budget(tokens=1000, cost=500))
    child = await begin_child(user, "r1", "c1", "t2")
    limits = Limits(thread=Budget(tokens=1000), day=Budget(tokens=1000))
    await user.runs.commit(root, Commit(keep=Amount(200, 50)))
    assert (await user.runs.get("r1")).kept == Amount(200, 50)

    for amount in (Amount(801, 0), Amount(0, 451)):
        with pytest.raises(BudgetExceeded, match="kept for the run itself"):
            await reserve(user, child, Limits(), amount)
    await reserve(user, child, limits, Amount(700, 0))
    await reserve(user, root, limits, Amount(300, 50))
    await user.runs.commit(root, Commit(release=Amount(300, 50)))
    for lowered in (Limits(thread=Budget(tokens=850)), Limits(day=Budget(tokens=850))):
        with pytest.raises(BudgetExceeded):
            await reserve(user, child, lowered, Amount(1, 0))
        await reserve(user, root, lowered, Amount(100, 0))
        await user.runs.commit(root, Commit(release=Amount(100, 0)))

    # Once the root has ended, its background children may use the rest.
    await user.runs.commit(root, Commit(finish=SUCCEEDED))
    await reserve(user, child, limits, Amount(300, 0))


@pytest.mark.parametrize(
    "limits",
    [Limits(), Limits(thread=Budget(tokens=1000)), Limits(day=Budget(tokens=1000))],
    ids=["tree", "thread", "day"],
)
async def test_memory_cannot_use_the_roots_reserve(user: UserStore, limits: Limits) -> None:
    budget = Budget(tokens=1000) if limits == Limits() else Budget()
    root = await begin(user, budget=budget)
    await user.runs.commit(root, Commit(keep=Amount(200, 50)))
    spare = replace(limits, spare=True)

    with pytest.raises(BudgetExceeded, match="200 tokens kept for the run itself"):
        await reserve(user, root, spare, Amount(801, 0))
    await reserve(user, root, spare, Amount(800, 0))
    await reserve(user, root, limits, Amount(200, 0))


@pytest.mark.backends("postgres")
async def test_uncommitted_reservations_are_waited_for(user: UserStore, database_url: str) -> None:
    # Commits linger after they have written: another reservation must wait for the new sum instead
    # of using the old one.
    slow = (
        "CREATE FUNCTION linger() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN PERFORM pg_sleep(0.05); RETURN NULL; END $$",
        "CREATE CONSTRAINT TRIGGER lingering AFTER UPDATE ON agent_runtime.runs"
        " DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION linger()",
    )
    leases = [await begin(user, f"r{n}", f"t{n}") for n in range(6)]
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as connection:
        for statement in slow:
            await connection.execute(statement)
    accepted: list[str] = []

    async def work(lease: Lease) -> None:
        with suppress(BudgetExceeded):
            await reserve(user, lease, DAY)
            accepted.append(lease.run_id)

    async with anyio.create_task_group() as group:
        for lease in leases:
            group.start_soon(work, lease)
    assert len(accepted) == 1000 // CALL.tokens
    assert (await user.spending.of_day()).reserved == Amount(900, 90)


async def test_the_steps_of_a_tree_are_limited_jointly(user: UserStore) -> None:
    limits = Limits(steps=6, kept_steps=2)
    root = await begin(user)
    children = [await begin_child(user, "r1", f"c{n}", f"t-{n}") for n in range(3)]
    await reserve(user, root, limits)
    await user.runs.commit(root, Commit(release=CALL, settle=USED, steps=2))
    for child in children[:2]:
        await reserve(user, child, limits)

    # Two steps are made, two under way, two kept.
    with pytest.raises(BudgetExceeded, match="6 steps: 2 are made") as raised:
        await reserve(user, children[2], limits)
    assert raised.value.budget == "steps"
    await user.runs.commit(children[0], Commit(release=CALL, settle=USED, steps=1))
    assert await user.runs.count_tree_steps("r1") == 3
    with pytest.raises(BudgetExceeded):
        await reserve(user, children[0], limits)
    await reserve(user, root, limits)
    await user.runs.commit(root, Commit(release=CALL, settle=USED, steps=3))
    await reserve(user, root, limits)
    with pytest.raises(BudgetExceeded):
        await reserve(user, root, Limits(steps=5))


async def test_waiting_does_not_count_as_active_time(user: UserStore, database_url: str) -> None:
    earlier = "UPDATE runs SET working_since = working_since - 100 WHERE user_id = :user_id"
    ago = (
        "UPDATE runs SET updated_at = updated_at - 40, working_since = working_since - 100, "
        "lease_until = lease_until - 40 WHERE user_id = :user_id"
    )
    lease = await begin(user)
    await execute_as_owner(database_url, earlier)
    assert 100 <= await user.runs.active_seconds("r1") < 160
    await user.runs.commit(lease, Commit(finish=Finish("suspended", "awaiting_user")))
    waited = await user.runs.active_seconds("r1")
    assert 100 <= waited < 160 and await user.runs.active_seconds("r1") == waited

    await user.runs.take_lease("r1", OTHER, seconds=60, replaces=1)
    assert waited <= await user.runs.active_seconds("r1") < waited + 60
    # Its process dies, and 40 seconds later it is taken over.
    await execute_as_owner(database_url, ago)
    await user.runs.take_lease("r1", OTHER, seconds=60, replaces=2)
    assert 60 <= await user.runs.active_seconds("r1") - waited < 100
    assert await user.runs.active_seconds("none") == 0


async def test_a_changed_budget_applies_to_the_next_reservation(user: UserStore) -> None:
    lease = await begin(user, budget=Budget(tokens=500))
    child = await begin_child(user, "r1", "r2", "t2")
    await reserve(user, lease, Limits())
    with pytest.raises(BudgetExceeded):
        await reserve(user, child, Limits())

    await user.spending.set_budget("r1", tokens=600)
    await reserve(user, child, Limits())
    assert (await user.runs.get("r1")).budget == Budget(tokens=600)

    await user.spending.set_budget("r1", tokens=1)
    await settle(user, lease)
    with pytest.raises(BudgetExceeded, match="of 1 tokens, 100 tokens are spent"):
        await reserve(user, lease, Limits())


async def test_a_limit_given_to_a_tree_at_work_refuses_what_was_planned_without(
    user: UserStore,
) -> None:
    lease = await begin(user)
    unplanned = Commit(reserve=Amount(100), unplanned=True)
    await user.runs.commit(lease, unplanned)
    await user.runs.commit(lease, Commit(release=Amount(100)))
    await user.spending.set_budget("r1", tokens=1_000, cost=10**12)
    with pytest.raises(BudgetExceeded):
        await user.runs.commit(lease, unplanned)
    await user.runs.commit(lease, Commit(reserve=Amount(100)))
    # Each limit is lifted by itself; without any, the tree is as it was.
    await user.spending.set_budget("r1", tokens=None)
    assert (await user.runs.get("r1")).budget == Budget(cost=10**12)
    with pytest.raises(BudgetExceeded):
        await user.runs.commit(lease, unplanned)
    await user.spending.set_budget("r1", cost=None)
    await user.runs.commit(lease, unplanned)


async def test_some_budgets_cannot_be_changed(user: UserStore, stranger: UserStore) -> None:
    lease = await begin(user, budget=Budget(tokens=500))
    await begin_child(user, "r1", "r2", "t2")
    await user.spending.set_budget("r1")
    with pytest.raises(Conflict, match="from the budget of run r1"):
        await user.spending.set_budget("r2", tokens=1)
    for store, run_id in ((stranger, "r1"), (user, "r9")):
        with pytest.raises(NotFound):
            await store.spending.set_budget(run_id, tokens=1)
    assert (await user.runs.get("r1")).budget == Budget(tokens=500)

    await user.runs.commit(lease, Commit(finish=Finish("failed", "budget")))
    await user.spending.set_budget("r1", cost=7)
    assert (await user.runs.get("r1")).budget == Budget(tokens=500, cost=7)
    lease = await user.runs.take_lease("r1", OTHER, seconds=60, replaces=1)
    await user.runs.commit(lease, Commit(finish=SUCCEEDED))
    with pytest.raises(Conflict, match="is over: succeeded"):
        await user.spending.set_budget("r1", tokens=1)
