"""Branches: edit, regenerate and fork make siblings; nothing of the old branch is lost.

Each moves the thread's head; what is appended next becomes a sibling of what stood there.
"""

from __future__ import annotations

from agent_runtime.errors import Conflict, NotFound
from agent_runtime_storage.contract import UserStore
from agent_runtime_storage.records import Node


async def fork(store: UserStore, thread_id: str, at: int | None) -> None:
    """Go on from another node (None: from before the first one).

    It is also how a thread switches back to another branch: fork at that branch's last node.

    Raises:
        NotFound: the node is not there, or not closed.
        ThreadBusy: a run is active on the thread.
    """
    thread = await store.thread(thread_id)
    await store.move_head(thread_id, at, expect=thread.head)


async def edit(store: UserStore, thread_id: str, node_id: int) -> None:
    """Go on from before a user's message, so that the next one takes its place.

    Raises:
        Conflict: the node is no message of the user.
        NotFound, ThreadBusy: as for `fork`.
    """
    node = await store.node(thread_id, node_id)
    if node.role != "user":
        raise Conflict(
            f"Node {node_id} is no message of the user, so it cannot be edited.",
            cure="Fork at the node instead.",
        )
    await fork(store, thread_id, node.parent_id)


async def regenerate(store: UserStore, thread_id: str) -> Node:
    """Go back to the branch's newest message of the user, so that it is answered again.

    The answer so far stays, as a sibling of the one to come.  Returns the user's node.

    Raises:
        NotFound: the branch holds no message of the user.
        ThreadBusy: as for `fork`.
    """
    thread = await store.thread(thread_id)
    seq = thread.head
    while seq is not None:
        node = await store.node(thread_id, seq)
        if node.role == "user":
            await store.move_head(thread_id, seq, expect=thread.head)
            return node
        seq = node.parent_id
    raise NotFound(
        f"Thread {thread_id} has no message of the user to answer again.",
        cure="Start a run on it with a task.",
    )
