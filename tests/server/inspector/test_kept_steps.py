"""What the page keeps of steps that ended is what the store has, whatever happens to a thread."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from agent_runtime.server.inspector import steps
from agent_runtime.server.inspector.columns import decode_tables
from agent_runtime.server.inspector.steps import OPEN, STEERED, steps_of
from agent_runtime_storage import Usage, UserStore, open_store
from agent_runtime_storage.contract.records.log import Commit, Finish, Lease, NewEvent
from tests.storage.helpers import append, begin, done, exchange, message


async def _answer(user: UserStore, lease: Lease, model: str, *, closed: bool) -> None:
    """Append an exchange with what its model call used, and close it."""
    thread = await user.threads.get("t1")
    seq = thread.last_seq + 1
    used = Usage(lease.run_id, lease.run_id, seq, "step", model, 90 * seq, seq, 0, 9, 80 * seq, 5)
    answer = NewEvent("answer", seq, {"seconds": seq / 4, "retries": seq % 2})
    node = exchange(seq, thread.head, "look")
    await user.runs.commit(lease, Commit(nodes=(node,), usage=(used,), events=(answer,)))
    if closed:
        await _close(user, lease, seq)


async def _close(user: UserStore, lease: Lease, seq: int) -> None:
    results = Commit(start=((seq, 0),), done=(done(seq, 0),), close=(seq,), head=seq)
    await user.runs.commit(lease, results)


async def _steer(user: UserStore, lease: Lease) -> None:
    thread = await user.threads.get("t1")
    said = message(thread.last_seq + 1, thread.head, b"Hurry.")
    note = NewEvent("note", said.seq, {"source": "steer"})
    await user.runs.commit(lease, Commit(nodes=(said,), head=said.seq, events=(note,)))


async def _same(user: UserStore, head: int | None) -> dict[str, dict[str, list[int]]]:
    """Check what is kept against a new reading; return the tables."""
    kept: tuple[dict[str, Any], Any] = decode_tables(await steps_of(user, "t1", head))
    steps.forget()
    header, tables = decode_tables(await steps_of(user, "t1", head))
    assert kept[1] == tables
    assert kept[0]["models"] == header["models"]
    return tables


async def test_kept_steps_are_the_stored_ones(tmp_path: Path) -> None:
    store, chance = await open_store(f"file:{tmp_path}/store.db"), random.Random(1)
    user = store.of("ann")
    lease = await begin(user, "r0", max_steps=1000)
    for number in range(50):
        model = chance.choice(["small", "large"])
        work = chance.choice(["answer", "open", "steer", "say", "back"])
        if work == "answer":
            await _answer(user, lease, model, closed=True)
        elif work == "open":
            await _answer(user, lease, model, closed=False)
            tables = decode_tables(await steps_of(user, "t1"))[1]
            assert tables["steps"]["flags"][-1] & OPEN
            await _close(user, lease, tables["nodes"]["node"][-1])
        elif work == "steer":
            await _steer(user, lease)
        elif work == "say":
            await append(user, lease, 2)
        else:
            await user.runs.commit(lease, Commit(finish=Finish("succeeded", "completed")))
            thread = await user.threads.get("t1")
            head = chance.randint(1, thread.last_seq)
            await user.threads.move_head("t1", head, expect=thread.head)
            task = message(thread.last_seq + 1, head, b"the task")
            lease = await begin(
                user, f"r{number + 1}", expect_head=head, expect_seq=thread.last_seq,
                nodes=(task,), task_id=task.seq, max_steps=1000,
            )  # fmt: skip
        # Mostly only read, so that much is kept before it is compared.
        if chance.random() < 0.3:
            await _same(user, chance.choice([None, (await user.threads.get("t1")).head]))
        else:
            await steps_of(user, "t1")
    await _steer(user, lease)
    await steps_of(user, "t1")
    await _answer(user, lease, "small", closed=True)
    tables = await _same(user, None)
    assert tables["steps"]["flags"][-1] & STEERED
    await store.close()


async def test_an_unchanged_branch_is_not_read_again(tmp_path: Path) -> None:
    store = await open_store(f"file:{tmp_path}/store.db")
    user = store.of("ann")
    lease = await begin(user)
    for _ in range(3):
        await _answer(user, lease, "small", closed=True)
    first = await steps_of(user, "t1")
    (kept,) = [one for one in steps.kept_steps() if one.whole == 3 + 1]
    encoded = kept.encoded
    assert encoded is not None
    assert await steps_of(user, "t1") == first
    assert kept.encoded is encoded
    await user.runs.commit(lease, Commit(finish=Finish("succeeded", "completed")))
    await user.upkeep.delete_thread("t1")
    await append(user, await begin(user, "r2"), 1)
    assert decode_tables(await steps_of(user, "t1"))[1]["steps"].get("node", []) == []
    await store.close()
