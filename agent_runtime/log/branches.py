"""Branches: edit, regenerate and fork make siblings; the old branch stays.

Each moves the thread's head; the next node becomes a sibling of the nodes there.  `extract` works
on messages outside of the store: a list with ids and parents.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

from agent_runtime.errors import Conflict, CorruptThread, NotFound
from agent_runtime_storage.contract.records.log import Node, Thread
from agent_runtime_storage.contract.store import UserStore

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


def extract(messages: Iterable[T], head: K, *, ids: Callable[[T], tuple[K, K | None]]) -> list[T]:
    """Return the branch that ends at `head`, oldest first, whatever the order of the messages.

    Only ids and parents count, not times or positions.  The branch begins with a message that has
    no parent or whose parent is missing.  Apply limits to the result: applied to the input they
    would count siblings too.

    Args:
        ids: gives the id of a message, and that of its parent (None for a root).

    Raises:
        NotFound: the head is not among the messages.
        CorruptThread: two messages have one id, or the parents run in a circle.
    """
    known: dict[K, tuple[K | None, T]] = {}
    for message in messages:
        identity, parent = ids(message)
        if identity in known:
            raise _corrupt(f"Two messages have the id {identity!r}.")
        known[identity] = (parent, message)
    if head not in known:
        raise NotFound(f"There is no message {head!r}.", cure="Check the id.")
    branch: list[T] = []
    at: K | None = head
    while at is not None and at in known:
        # A branch cannot be longer than all messages together, so one parent was visited twice.
        if len(branch) == len(known):
            raise _corrupt(f"The parents of message {head!r} run in a circle.")
        parent, message = known[at]
        branch.append(message)
        at = parent
    return branch[::-1]


def _corrupt(what: str) -> CorruptThread:
    return CorruptThread(what, cure="Restore the messages from a backup.")


async def fork(store: UserStore, thread_id: str, at: int | None) -> None:
    """Continue from another node (None: from before the first node).

    To switch back to another branch, fork at that branch's last node.

    Raises:
        NotFound: the node is not there, or not closed.
        ThreadBusy: a run is active on the thread.
    """
    thread = await store.threads.get(thread_id)
    # `expect` refuses the move if a run has appended since the thread was read.
    await store.threads.move_head(thread_id, at, expect=thread.head)


async def edit(store: UserStore, thread_id: str, node_id: int) -> None:
    """Continue from before a user's message, so that the next message replaces it.

    Raises:
        Conflict: the node is not a message of the user.
        NotFound, ThreadBusy: as for `fork`.
    """
    node = await store.log.node(thread_id, node_id)
    if node.role != "user":
        raise Conflict(
            f"Node {node_id} is not a message of the user, so it cannot be edited.",
            cure="Take the number of a message of the user, as `agent-runtime show` prints it, or "
            "fork at this node.",
        )
    await fork(store, thread_id, node.parent_id)


async def regenerate(store: UserStore, thread_id: str) -> Node:
    """Move the head to the branch's newest message of the user, so that it is answered again.

    The present answer stays as a sibling of the next one.  Returns the user's node.

    Raises:
        NotFound: the branch holds no message of the user.
        ThreadBusy: as for `fork`.
    """
    thread = await store.threads.get(thread_id)
    seq = thread.head
    while seq is not None:
        node = await store.log.node(thread_id, seq)
        if node.role == "user":
            await store.threads.move_head(thread_id, seq, expect=thread.head)
            return node
        seq = node.parent_id
    raise NotFound(
        f"Thread {thread_id} has no message of the user to answer again.",
        cure="Start a run on it with a task.",
    )


async def branch_heads(store: UserStore, thread: Thread) -> list[int]:
    """Return the last node of every branch of a thread, the newest first.

    An open exchange counts as a last node.  Reads every branch, without its messages.
    """
    heads: list[int] = []
    seen: set[int] = set()
    # Children have higher numbers than their parents.  So from the end on, a node that no branch
    # has reached yet is the last of its own.
    for seq in range(thread.last_seq, 0, -1):
        if seq not in seen:
            heads.append(seq)
            seen.update(await store.log.lineage(thread.id, seq))
    return heads
