"""The contract of commits: their effects, and when they write nothing at all."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent_runtime_storage import (
    Amount,
    BudgetExceeded,
    CallDone,
    Commit,
    Conflict,
    CorruptThread,
    Finish,
    InboxWaiting,
    Lease,
    LeaseLost,
    NewActivation,
    NewEvent,
    NewNode,
    NotFound,
    Usage,
    UserStore,
)
from tests.storage.helpers import (
    LIMITED,
    OTHER,
    SMALL,
    append,
    begin,
    begin_child,
    done,
    exchange,
    message,
)


async def snapshot(user: UserStore, thread_id: str = "t1", run_id: str = "r1") -> object:
    """Return everything that a commit could change."""
    thread = await user.threads.get(thread_id)
    return (
        thread,
        await user.runs.get(run_id),
        [await user.log.node(thread_id, seq) for seq in range(1, thread.last_seq + 1)],
        await user.events.list(thread_id),
        await user.inbox.pending(thread_id),
    )


async def test_a_step_is_recorded_before_it_runs_and_closed_afterwards(user: UserStore) -> None:
    lease = await begin(user, events=(NewEvent("run-start"),))
    await user.runs.commit(
        lease, Commit(nodes=(exchange(2, 1, "shell"),), steps=1, events=(NewEvent("answer", 2),))
    )
    assert (await user.runs.get("r1")).open_node == 2
    assert (await user.threads.get("t1")).head == 1

    await user.runs.commit(lease, Commit(start=((2, 0),), events=(NewEvent("tool-start", 2),)))
    assert (await user.log.call("t1", 2, 0)).status == "started"
    # It waits for a person, and is made again.
    await user.runs.commit(lease, Commit(wait=((2, 0),), events=(NewEvent("question", 2),)))
    assert (await user.log.call("t1", 2, 0)).status == "pending"
    await user.runs.commit(lease, Commit(start=((2, 0),)))

    item = await user.inbox.post("t1", "steer", b"also this")
    last = await user.runs.commit(
        lease,
        Commit(
            done=(done(2, 0),),
            close=(2,),
            nodes=(message(3, 2, b"also this"),),
            head=3,
            drained=(item,),
            events=(NewEvent("tool-finish", 2), NewEvent("note", 3, {"source": "steer"})),
        ),
    )

    run, thread = await user.runs.get("r1"), await user.threads.get("t1")
    assert (run.open_node, run.steps, run.status) == (None, 1, "running")
    assert (thread.head, thread.last_seq, thread.last_event) == (3, 3, last)
    assert await user.inbox.pending("t1") == []
    events = await user.events.list("t1")
    assert [event.id for event in events] == [1, 2, 3, 4, 5, 6]
    assert [event.kind for event in events][-1] == "note"
    assert events[-1].data == {"source": "steer"}


@pytest.mark.parametrize(
    "commit",
    [
        Commit(nodes=(message(2, 1),)),
        Commit(nodes=(message(4, 1),)),
        Commit(nodes=(message(3, 1), message(5, 3))),
        Commit(nodes=(message(3, 2),)),
        Commit(nodes=(message(3, 9),)),
        Commit(nodes=(exchange(3, 1, "a"),)),
        Commit(nodes=(NewNode(3, 1, "exchange", "assistant", b"", 1, 0, "closed", ("a",)),)),
        Commit(nodes=(NewNode(3, 1, "message", "user", b"", -1, 0),)),
        Commit(head=2),
        Commit(head=9),
        Commit(start=((2, 1),)),
        Commit(start=((2, 0), (2, 0))),
        Commit(start=((2, 7),)),
        Commit(wait=((2, 0),)),
        Commit(wait=((2, 7),)),
        Commit(done=(done(2, 1),)),
        Commit(done=(CallDone(1, 0, "ok", b"", 1),)),
        Commit(close=(2,)),
        Commit(close=(1,)),
        Commit(activation=NewActivation(1, 1, "again", b"", b"")),
        Commit(activation=NewActivation(3, 1, "gap", b"", b"")),
        Commit(activation=NewActivation(2, 9, "nowhere", b"", b"")),
        Commit(drained=(1, 1)),
        Commit(drained=(9,)),
        Commit(release=Amount(tokens=1)),
        Commit(finish=Finish("running", "completed")),
        Commit(events=(NewEvent("answer", 9),)),
    ],
)
async def test_a_refused_commit_writes_nothing(user: UserStore, commit: Commit) -> None:
    lease = await begin(user, activation=NewActivation(1, None, "begin", b"", b""))
    await user.runs.commit(lease, Commit(nodes=(exchange(2, 1, "a", "b"),)))
    await user.runs.commit(lease, Commit(done=(done(2, 1),)))
    await user.inbox.post("t1", "steer", b"x")
    before = await snapshot(user)

    with pytest.raises(Conflict):
        await user.runs.commit(
            lease, replace(commit, steps=9, events=(NewEvent("answer"), *commit.events))
        )

    assert await snapshot(user) == before


async def test_a_repeated_commit_is_refused(user: UserStore) -> None:
    lease = await begin(user)
    commit = Commit(nodes=(message(2, 1),), head=2, events=(NewEvent("answer", 2),))
    await user.runs.commit(lease, commit)
    before = await snapshot(user)

    with pytest.raises(Conflict):
        await user.runs.commit(lease, commit)

    assert await snapshot(user) == before


async def test_a_lost_lease_writes_nothing(user: UserStore) -> None:
    lease = await begin(user)
    taken = await user.runs.take_lease("r1", OTHER, seconds=60, replaces=1)
    before = await snapshot(user)

    for commit in (Commit(), Commit(nodes=(message(2, 1),), head=2), Commit(steps=3)):
        with pytest.raises(LeaseLost, match="epoch is 2"):
            await user.runs.commit(lease, commit)

    assert await snapshot(user) == before
    await append(user, taken, 1)


@pytest.mark.parametrize("field", ["thread_id", "root_run_id"])
async def test_a_lease_on_another_thread_or_root_is_void(user: UserStore, field: str) -> None:
    lease = await begin(user)
    await begin(user, "r2", "t2")
    forged = {
        "thread_id": replace(lease, thread_id="t2"),
        "root_run_id": replace(lease, root_run_id="r2"),
    }

    with pytest.raises(LeaseLost):
        await user.runs.commit(forged[field], Commit(steps=2))
    await user.runs.commit(lease, Commit(steps=2))


async def test_a_commit_for_an_unknown_run_is_not_found(user: UserStore) -> None:
    await user.threads.ensure("t1")

    with pytest.raises(NotFound):
        await user.runs.commit(Lease("r9", "t1", "r9", 1), Commit(steps=1))


async def test_calls_can_begin_as_started(user: UserStore) -> None:
    lease = await begin(user)
    await user.runs.commit(lease, Commit(nodes=(replace(exchange(2, 1, "a", "b"), started=True),)))
    assert [call.status for call in (await user.log.node("t1", 2)).calls] == ["started"] * 2
    with pytest.raises(Conflict):
        await user.runs.commit(lease, Commit(start=((2, 0),)))
    results = (done(2, 0), done(2, 1))
    await user.runs.commit(lease, Commit(done=results, close=(2,), head=2))


@pytest.mark.parametrize("what", ["post", "cancel"])
async def test_an_undisturbed_commit_writes_nothing_if_something_waits(
    user: UserStore, what: str
) -> None:
    lease, items = await begin(user), list[int]()
    await user.runs.commit(lease, Commit(nodes=(message(2, 1),), head=2, undisturbed=True))
    if what == "post":
        items.append(await user.inbox.post("t1", "steer", b"wait"))
    else:
        await user.runs.cancel("r1")
    before = await snapshot(user)
    wanted = Commit(nodes=(message(3, 2),), head=3)
    with pytest.raises(InboxWaiting):
        await user.runs.commit(lease, replace(wanted, undisturbed=True))
    assert await snapshot(user) == before
    await user.runs.commit(lease, replace(wanted, drained=tuple(items)))
    # A commit may drain the item itself; a cancel remains.
    await user.runs.commit(
        lease, Commit(nodes=(message(4, 3),), head=4, undisturbed=what == "post")
    )


async def test_finishing_frees_the_thread_and_the_lease(user: UserStore) -> None:
    lease = await begin(user)

    await user.runs.commit(
        lease, Commit(finish=Finish("succeeded", "completed", "all done", b"the answer"))
    )

    run = await user.runs.get("r1")
    assert (run.status, run.stop_reason, run.detail) == ("succeeded", "completed", "all done")
    assert (run.output, run.owner, run.lease_live) == (b"the answer", None, False)
    assert run.finished_at is not None
    assert (await user.threads.get("t1")).active_run is None
    with pytest.raises(LeaseLost):
        await user.runs.commit(lease, Commit(steps=2))


async def test_suspending_frees_the_lease_but_not_the_thread(user: UserStore) -> None:
    lease = await begin(user)

    await user.runs.commit(lease, Commit(finish=Finish("suspended", "awaiting_user")))

    run = await user.runs.get("r1")
    assert (run.status, run.owner, run.lease_live) == ("suspended", None, False)
    assert run.finished_at is None
    assert (await user.threads.get("t1")).active_run == "r1"
    with pytest.raises(LeaseLost):
        await user.runs.renew_lease(lease, seconds=60)
    taken = await user.runs.take_lease("r1", OTHER, seconds=60, replaces=1)
    assert (taken.epoch, (await user.runs.get("r1")).status) == (2, "running")


# Budgets


async def test_spending_moves_from_reserved_to_settled(user: UserStore) -> None:
    lease = await begin(user, budget=LIMITED, reserve=SMALL)
    assert (await user.runs.get("r1")).reserved == SMALL

    await user.runs.commit(
        lease, Commit(release=SMALL, settle=Amount(60, 30), reserve=Amount(900, 400))
    )

    run = await user.runs.get("r1")
    assert (run.reserved, run.settled, run.unsettled) == (
        Amount(900, 400),
        Amount(60, 30),
        Amount(),
    )


@pytest.mark.parametrize("reserve", [Amount(tokens=901), Amount(cost=451)])
async def test_a_reservation_over_the_limit_writes_nothing(
    user: UserStore, reserve: Amount
) -> None:
    lease = await begin(user, budget=LIMITED, reserve=SMALL)
    before = await snapshot(user)

    with pytest.raises(BudgetExceeded, match="1,000 tokens"):
        await user.runs.commit(lease, Commit(nodes=(message(2, 1),), head=2, reserve=reserve))

    assert await snapshot(user) == before
    await user.runs.commit(lease, Commit(reserve=Amount(900, 450)))


async def test_spending_is_recorded_even_over_the_limit(user: UserStore) -> None:
    lease = await begin(user, budget=LIMITED, reserve=SMALL)

    await user.runs.commit(
        lease, Commit(release=SMALL, settle=Amount(5000, 10), unsettle=Amount(1, 2))
    )

    run = await user.runs.get("r1")
    assert (run.settled, run.unsettled) == (Amount(5000, 10), Amount(1, 2))
    with pytest.raises(BudgetExceeded):
        await user.runs.commit(lease, Commit(reserve=Amount(tokens=1)))


async def test_children_reserve_on_the_root(user: UserStore) -> None:
    await begin(user, budget=LIMITED, reserve=SMALL)
    child = await begin_child(user, "r1", "r2", "t2", reserve=Amount(200, 0))
    grandchild = await begin_child(user, "r2", "r3", "t3", reserve=Amount(300, 0))

    assert (child.root_run_id, grandchild.root_run_id) == ("r1", "r1")
    assert (await user.runs.get("r1")).reserved == Amount(600, 50)
    assert (await user.runs.get("r2")).reserved == Amount()
    with pytest.raises(BudgetExceeded):
        await begin_child(user, "r1", "r4", "t4", reserve=Amount(401, 0))
    assert await user.runs.list(thread_id="t4") == []
    assert (await user.threads.get("t4")).active_run is None

    await user.runs.commit(child, Commit(release=Amount(200, 0), settle=Amount(150, 0)))
    assert (await user.runs.get("r1")).settled == Amount(150, 0)


async def test_a_dead_runs_reservation_counts_as_spent(user: UserStore) -> None:
    await begin(user, budget=LIMITED, reserve=SMALL)
    await begin_child(user, "r1", "r2", "t2", reserve=Amount(200, 20))

    taken = await user.runs.take_lease("r2", OTHER, seconds=60, replaces=1)
    root = await user.runs.get("r1")
    assert (root.reserved, root.unsettled) == (SMALL, Amount(200, 20))

    await user.runs.commit(taken, Commit(reserve=Amount(10, 0)))
    await user.runs.commit(taken, Commit(finish=Finish("cancelled", "cancelled", "killed")))
    root = await user.runs.get("r1")
    assert (root.reserved, root.unsettled) == (SMALL, Amount(210, 20))


async def test_usage_is_summed_over_the_tree_the_run_and_the_thread(user: UserStore) -> None:
    lease = await begin(user)
    child = await begin_child(user, "r1", "r2", "t2")

    def usage(run_id: str, cost: int | None, reported: bool = True, purpose: str = "step") -> Usage:
        return Usage(run_id, "r1", None, purpose, "m", 100, 40, 10, 20, 90, cost, reported)

    await user.runs.commit(
        lease, Commit(usage=(usage("r1", 5), usage("r1", None, purpose="observe")))
    )
    await user.runs.commit(child, Commit(usage=(usage("r2", 7, reported=False),)))

    tree = await user.spending.usage_total(root_run_id="r1")
    assert (tree.calls, tree.prompt_tokens, tree.completion_tokens, tree.cost) == (3, 300, 60, 12)
    assert (tree.cached_tokens, tree.cache_write_tokens) == (120, 30)
    assert (tree.unpriced_calls, tree.unreported_calls) == (1, 1)
    assert (await user.spending.usage_total(run_id="r1")).calls == 2
    assert (await user.spending.usage_total(thread_id="t2")).calls == 1
    by_purpose = await user.spending.usage_by_purpose(root_run_id="r1")
    assert {purpose: (total.calls, total.cost) for purpose, total in by_purpose.items()} == {
        "observe": (1, 0),
        "step": (2, 12),
    }
    assert by_purpose["observe"].unpriced_calls == 1
    assert list(await user.spending.usage_by_purpose(thread_id="t2")) == ["step"]
    by_run = await user.spending.usage_by_run("r1")
    assert {run: (total.calls, total.cost) for run, total in by_run.items()} == {
        "r1": (2, 5),
        "r2": (1, 7),
    }
    recent = await user.spending.recent_usage("m")
    assert {item.run_id for item in recent} == {"r1"}
    assert sorted(item.id for item in recent) == [1, 2]
    assert len(await user.spending.recent_usage("m", limit=1)) == 1
    assert await user.spending.recent_usage("another") == []


async def test_a_damaged_reference_is_an_error_and_not_a_shorter_history(user: UserStore) -> None:
    lease = await begin(user)
    await append(user, lease, 3)

    with pytest.raises(CorruptThread):
        await user.log.branch("t1", 4, first=9)


async def test_usage_can_be_recorded_after_the_end_of_its_run(user: UserStore) -> None:
    lease = await begin(user)
    await user.runs.commit(lease, Commit(finish=Finish("succeeded", "completed")))
    before = await user.runs.get("r1")
    usage = Usage("r1", "r1", None, "embed", "m", 10, 0, 0, 0, 9, 1)

    await user.spending.record_late(lease, [usage, usage])

    by_purpose = await user.spending.usage_by_purpose(run_id="r1")
    assert (
        by_purpose["embed"].calls,
        by_purpose["embed"].prompt_tokens,
        by_purpose["embed"].cost,
    ) == (2, 20, 2)
    # The run is unchanged otherwise, including its budget.
    assert await user.runs.get("r1") == before
    await user.upkeep.delete_thread("t1")
    with pytest.raises(NotFound):
        await user.spending.record_late(lease, [usage])


async def test_a_skeleton_has_the_figures_of_steps_and_the_marks_of_notes(user: UserStore) -> None:
    lease = await begin(user, events=(NewEvent("run-start"),))
    answered = NewEvent("answer", 2, {"seconds": 0.25, "retries": 2, "text": '50% "retries"'})
    await user.runs.commit(lease, Commit(nodes=(exchange(2, 1, "shell"),), events=(answered,)))
    noted = (NewEvent("note", 3, {"source": "steer"}), NewEvent("answer", 4, {"seconds": 1.5}))
    closing = Commit(
        done=(done(2, 0),), close=(2,), nodes=(message(3, 2, b"x"), message(4, 3, b"y")), head=4,
        events=noted,
    )  # fmt: skip
    await user.runs.commit(lease, closing)
    found = await user.inspection.skeleton("t1")
    assert found.calls == ((2, "shell", "ok"),)
    assert (found.seconds[2], found.seconds[4]) == (0.25, 1.5)
    assert (found.retries, found.steered) == ({2: 2}, (3,))
    nodes = await user.inspection.nodes("t1")
    assert [(one.seq, one.parent_id, one.status) for one in nodes] == [
        (1, None, "closed"), (2, 1, "closed"), (3, 2, "closed"), (4, 3, "closed")
    ]  # fmt: skip
    later = await user.inspection.skeleton("t1", after=4)
    assert (later.calls, later.usage, later.seconds, later.steered) == ((), (), {}, ())
    assert await user.inspection.nodes("t1", after=4) == []
