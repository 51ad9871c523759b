"""Short forms of the values that tests of the store write."""

from __future__ import annotations

from typing import Any

from agent_runtime_storage import (
    Amount,
    Budget,
    CallDone,
    Commit,
    Lease,
    LeaseOwner,
    NewNode,
    NewRun,
    UserStore,
)

OWNER = LeaseOwner(host="here", boot="b1", pid=100, started="s1")
OTHER = LeaseOwner(host="there", boot="b2", pid=200, started="s2")
CREATE_A_THREAD = """
import sys, anyio
from agent_runtime_storage import open_store
async def main():
    store = await open_store(sys.argv[1])
    await store.of("ann").threads.ensure(sys.argv[2])
    await store.close()
anyio.run(main)
"""
"""A program that opens the store of a URL, and creates a thread with a given id."""
LARGE = b"a line that repeats itself, as tool results do\n" * 400


def message(seq: int, parent: int | None, body: bytes = b"hello", tokens: int = 3) -> NewNode:
    """Return a closed message."""
    return NewNode(seq, parent, "message", "user", body, tokens, 0)


def exchange(seq: int, parent: int | None, *tools: str) -> NewNode:
    """Return an open exchange with a call of each tool."""
    return NewNode(seq, parent, "exchange", "assistant", b"calls", 10, 0, "open", tools)


def done(node: int, index: int, body: bytes = b"result", tokens: int = 5) -> CallDone:
    """Return a good result."""
    return CallDone(node, index, "ok", body, tokens)


def new_run(run_id: str, thread_id: str, **changes: Any) -> NewRun:
    """Return a run whose task is its thread's first node; `changes` override fields."""
    values: dict[str, Any] = {
        "id": run_id,
        "thread_id": thread_id,
        "agent": "coder",
        "max_steps": 10,
        "spec": {"model": "scripted"},
        "owner": OWNER,
        "lease_seconds": 60.0,
        "expect_head": None,
        "expect_seq": 0,
        "nodes": (message(1, None, b"the task"),),
        "task_id": 1,
        **changes,
    }
    return NewRun(**values)


async def begin(
    user: UserStore, run_id: str = "r1", thread_id: str = "t1", **changes: object
) -> Lease:
    """Create the thread if it is missing, begin a run on it, and return the lease."""
    await user.threads.ensure(thread_id)
    lease, _ = await user.runs.begin(new_run(run_id, thread_id, **changes))
    return lease


async def begin_child(
    user: UserStore, parent: str, run_id: str, thread_id: str, **changes: object
) -> Lease:
    """Begin a child run on its own thread."""
    return await begin(user, run_id, thread_id, parent_run_id=parent, **changes)


async def append(user: UserStore, lease: Lease, count: int) -> None:
    """Append `count` messages below the thread's head."""
    thread = await user.threads.get(lease.thread_id)
    first = thread.last_seq + 1
    nodes = tuple(
        message(seq, thread.head if seq == first else seq - 1)
        for seq in range(first, first + count)
    )
    await user.runs.commit(lease, Commit(nodes=nodes, head=nodes[-1].seq))


LIMITED = Budget(tokens=1000, cost=500)
SMALL = Amount(tokens=100, cost=50)
