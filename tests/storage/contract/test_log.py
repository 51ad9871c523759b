"""The contract of the log: branches, nodes, calls, activations, and large bodies."""

from __future__ import annotations

import os

import pytest

from agent_runtime_storage import (
    Commit,
    CorruptThread,
    Finish,
    NewActivation,
    NewNode,
    NotFound,
    UserStore,
)
from tests.storage.helpers import LARGE, append, begin, done, exchange, message


async def test_a_branch_is_the_chain_of_parents_oldest_first(user: UserStore) -> None:
    lease = await begin(user)
    await append(user, lease, 4)

    nodes = await user.log.branch("t1", 5)

    assert [node.seq for node in nodes] == [1, 2, 3, 4, 5]
    assert [node.parent_id for node in nodes] == [None, 1, 2, 3, 4]


async def test_a_branch_can_begin_at_first_or_have_at_most_limit_nodes(user: UserStore) -> None:
    lease = await begin(user)
    await append(user, lease, 4)

    assert [node.seq for node in await user.log.branch("t1", 5, first=4)] == [4, 5]
    assert [node.seq for node in await user.log.branch("t1", 5, limit=3)] == [3, 4, 5]
    assert [node.seq for node in await user.log.branch("t1", 2, limit=9)] == [1, 2]
    assert await user.log.branch("t1", 5, limit=0) == []


async def test_outlines_are_of_nodes_on_the_heads_branch_and_their_neighbours(
    user: UserStore,
) -> None:
    lease = await begin(user)
    await append(user, lease, 3)
    await user.runs.commit(lease, Commit(nodes=(message(5, 2, b"sibling"),), head=5))
    await user.runs.commit(
        lease, Commit(nodes=(message(6, 5, b"after"), message(7, 4, b"x")), head=6)
    )
    head = (await user.threads.get("t1")).head
    assert head == 6
    branch = {node.seq: node for node in await user.log.branch("t1", head)}
    order = list(branch)
    for seq in order:
        place = order.index(seq)
        outlines = await user.log.outlines([("t1", seq)], before=1, after=1)
        assert [outline.seq for outline in outlines] == order[max(place - 1, 0) : place + 2]
    for outline in await user.log.outlines([("t1", seq) for seq in range(9)]):
        node = branch.pop(outline.seq)
        assert (outline.thread_id, outline.parent_id, outline.role) == (
            "t1",
            node.parent_id,
            node.role,
        )
        assert (outline.tokens, outline.created_at) == (node.tokens, node.created_at)
    assert not branch
    assert await user.log.outlines([]) == []
    assert await user.log.outlines([("nowhere", 1), ("t1", 10**6)]) == []


async def test_a_lineage_is_a_branch_without_bodies(user: UserStore) -> None:
    lease = await begin(user)
    await append(user, lease, 3)
    await user.runs.commit(lease, Commit(nodes=(message(5, 2, b"sibling"),), head=5))

    assert await user.log.lineage("t1", 4) == [1, 2, 3, 4]
    assert await user.log.lineage("t1", 5) == [1, 2, 5]
    # `first` may be on another branch.
    assert await user.log.lineage("t1", 5, first=3) == [5]
    assert await user.log.lineage("t1", 5, first=2) == [2, 5]
    assert await user.log.lineage("t1", 5, first=9) == []
    with pytest.raises(NotFound):
        await user.log.lineage("t1", 9)


async def test_siblings_are_on_separate_branches(user: UserStore) -> None:
    lease = await begin(user)
    await user.runs.commit(lease, Commit(nodes=(message(2, 1, b"left"),), head=2))
    await user.runs.commit(lease, Commit(nodes=(message(3, 1, b"right"),), head=3))

    assert [node.body for node in await user.log.branch("t1", 2)] == [b"the task", b"left"]
    assert [node.body for node in await user.log.branch("t1", 3)] == [b"the task", b"right"]
    assert [node.seq for node in await user.log.children("t1", 1)] == [2, 3]
    with pytest.raises(CorruptThread, match="pass through"):
        await user.log.branch("t1", 3, first=2)


async def test_a_thread_may_have_several_roots(user: UserStore) -> None:
    lease = await begin(user)
    await user.runs.commit(lease, Commit(finish=Finish("succeeded", "completed")))
    await user.threads.move_head("t1", None, expect=1)
    await begin(user, "r2", expect_seq=1, nodes=(message(2, None, b"again"),), task_id=2)

    assert [node.seq for node in await user.log.children("t1", None)] == [1, 2]
    assert [node.body for node in await user.log.branch("t1", 2)] == [b"again"]


async def test_a_branch_of_a_missing_head_is_not_found(user: UserStore) -> None:
    await begin(user)

    with pytest.raises(NotFound):
        await user.log.branch("t1", 2)
    with pytest.raises(NotFound):
        await user.log.node("t1", 2)
    assert await user.log.children("t1", 1) == []


async def test_results_are_in_call_order_whichever_ends_first(
    user: UserStore,
) -> None:
    lease = await begin(user)
    await user.runs.commit(lease, Commit(nodes=(exchange(2, 1, "a", "b", "c"),)))
    await user.runs.commit(lease, Commit(start=((2, 0), (2, 1), (2, 2))))
    await user.runs.commit(lease, Commit(done=(done(2, 2, b"third"),)))
    await user.runs.commit(
        lease, Commit(done=(done(2, 0, b"first"), done(2, 1, b"second")), close=(2,))
    )

    node = await user.log.node("t1", 2)

    assert [(call.index, call.tool, call.body) for call in node.calls] == [
        (0, "a", b"first"),
        (1, "b", b"second"),
        (2, "c", b"third"),
    ]
    assert node.status == "closed"
    assert node.tokens == 10 + 3 * 5
    assert node == (await user.log.branch("t1", 2))[-1] == (await user.log.children("t1", 1))[0]
    assert await user.log.call("t1", 2, 1) == node.calls[1]
    with pytest.raises(NotFound):
        await user.log.call("t1", 2, 3)


@pytest.mark.parametrize(
    "body",
    [b"", b"x" * 4096, b"x" * 4097, LARGE, os.urandom(10_000), LARGE * 40],
    ids=["empty", "at-limit", "above-limit", "text", "random", "700-KB"],
)
async def test_a_body_is_read_as_it_was_written(user: UserStore, body: bytes) -> None:
    lease = await begin(user)
    await user.runs.commit(lease, Commit(nodes=(exchange(2, 1, "a"),)))
    await user.runs.commit(lease, Commit(done=(done(2, 0, body),), close=(2,)))
    node = NewNode(3, 2, "message", "user", body, 1, 0)
    activation = NewActivation(1, 3, "test", body, body)
    await user.runs.commit(lease, Commit(nodes=(node,), head=3, activation=activation))
    await user.inbox.post("t1", "steer", body)
    assert await user.jobs.enqueue("t1", "observe", "1-3", body)
    await user.runs.commit(lease, Commit(finish=Finish("succeeded", "completed", output=body)))

    stored = await user.log.activation("t1", 3)
    job = await user.jobs.claim("observe", seconds=60)

    assert (await user.log.call("t1", 2, 0)).body == body
    assert [node.body for node in await user.log.branch("t1", 3, first=3)] == [body]
    assert stored is not None
    assert (stored.body, stored.prefix) == (body, body)
    assert [item.body for item in await user.inbox.pending("t1")] == [body]
    assert job is not None
    assert job.payload == body
    assert (await user.runs.get("r1")).output == body


async def test_the_current_activation_is_the_newest_on_the_branch(user: UserStore) -> None:
    lease = await begin(user, activation=NewActivation(1, None, "begin", b"a1", b"prompt"))
    first = NewNode(2, 1, "message", "user", b"", 1, 1)
    await user.runs.commit(lease, Commit(nodes=(first,), head=2))
    second = NewActivation(2, 2, "threshold", b"a2", b"prompt")
    await user.runs.commit(lease, Commit(activation=second))
    await user.runs.commit(
        lease, Commit(nodes=(NewNode(3, 2, "message", "user", b"", 1, 2),), head=3)
    )
    await user.runs.commit(
        lease, Commit(nodes=(NewNode(4, 1, "message", "user", b"", 1, 1),), head=4)
    )

    async def in_force(head: int | None) -> int | None:
        current = await user.log.activation("t1", head)
        return None if current is None else current.id

    assert await in_force(None) == 1
    assert await in_force(2) == 2
    assert await in_force(3) == 2
    assert await in_force(4) == 1
    assert await in_force(1) is None
    activations = await user.log.activations("t1")
    assert [
        (activation.id, activation.cause, activation.body, activation.prefix)
        for activation in activations
    ] == [
        (1, "begin", b"a1", b"prompt"),
        (2, "threshold", b"a2", b"prompt"),
    ]
    await user.threads.ensure("empty")
    assert await user.log.activations("empty") == []


async def test_the_newer_of_two_activations_at_a_node_is_current(user: UserStore) -> None:
    lease = await begin(user)
    for number, cause in ((1, "threshold"), (2, "model")):
        activation = NewActivation(number, 1, cause, b"", b"")
        await user.runs.commit(lease, Commit(activation=activation))

    current = await user.log.activation("t1", 1)

    assert current is not None
    assert (current.id, current.cause, current.anchor, current.run_id) == (2, "model", 1, "r1")


async def test_a_thread_begins_without_an_activation(user: UserStore) -> None:
    await user.threads.ensure("t1")

    assert await user.log.activation("t1", None) is None
    with pytest.raises(NotFound):
        await user.log.activation("t1", 1)
