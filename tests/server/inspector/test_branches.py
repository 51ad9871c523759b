"""The branches that the page keeps are those of the store, whatever happens to a thread."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from agent_runtime.server.inspector import branches
from agent_runtime.server.inspector.branches import branch_of, walk
from agent_runtime_storage import UserStore, open_store
from agent_runtime_storage.contract.records.log import Commit, Finish
from tests.storage.helpers import append, begin, message


async def _check(user: UserStore, chance: random.Random) -> None:
    """Compare branches with what the store has, for some heads and beginnings."""
    thread = await user.threads.get("t1")
    stored = await user.inspection.nodes("t1")
    for head in (None, chance.randint(1, thread.last_seq)):
        top = thread.head if head is None else head
        whole = walk(stored, top, 0)
        assert whole is not None
        after = chance.choice([0, chance.randint(1, thread.last_seq)])
        rest = walk(stored, top, after)
        found = await branch_of(user, "t1", head, after=after)
        assert (found.head, found.reset) == (top, rest is None)
        assert list(found.nodes) == (whole if rest is None else rest)
        first = chance.randint(1, thread.last_seq)
        found = await branch_of(user, "t1", head, first=first)
        assert list(found.nodes) == [
            node for node in whole if node.seq >= first or node.status == "open"
        ]


@pytest.mark.parametrize("kept", [100_000, 20], ids=["all kept", "few kept"])
async def test_a_kept_branch_is_the_stored_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    monkeypatch.setattr(branches, "_MOST_NODES", kept)
    store, chance = await open_store(f"file:{tmp_path}/store.db"), random.Random(kept)
    user = store.of("ann")
    lease = await begin(user, "r0")
    for number in range(1, 60):
        await append(user, lease, chance.randint(1, 5))
        await _check(user, chance)
        if chance.random() < 0.4:
            await user.runs.commit(lease, Commit(finish=Finish("succeeded", "completed")))
            thread = await user.threads.get("t1")
            # Back on the branch, to another one, or before the first node.
            head = chance.choice([None, thread.head, *range(1, thread.last_seq + 1)])
            await user.threads.move_head("t1", head, expect=thread.head)
            task = message(thread.last_seq + 1, head, b"the task")
            lease = await begin(
                user, f"r{number}", expect_head=head, expect_seq=thread.last_seq,
                nodes=(task,), task_id=task.seq,
            )  # fmt: skip
            await _check(user, chance)
    await store.close()


async def test_a_thread_that_comes_again_is_read_again(tmp_path: Path) -> None:
    store = await open_store(f"file:{tmp_path}/store.db")
    user = store.of("ann")
    for length in (9, 4, 6):
        lease = await begin(user, f"r{length}")
        await append(user, lease, length)
        assert [node.seq for node in (await branch_of(user, "t1")).nodes] == [*range(1, length + 2)]
        await user.runs.commit(lease, Commit(finish=Finish("succeeded", "completed")))
        await user.upkeep.delete_thread("t1")
    await store.close()
