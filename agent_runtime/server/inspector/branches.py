"""Which nodes are on a branch, and the activation under which each of its steps was made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agent_runtime.errors import CorruptThread, NotFound
from agent_runtime_storage.contract.records.inspection import SkeletonNode
from agent_runtime_storage.contract.store import UserStore


@dataclass(frozen=True, slots=True)
class Branch:
    """The nodes of a branch, oldest first.

    Attributes:
        head: its last closed node; None on an empty thread.
        nodes: from after the asked one; an exchange in progress above the head is the last.
        reset: whether the asked node is not on it, so that these are all its nodes.
    """

    thread_id: str
    head: int | None
    nodes: tuple[SkeletonNode, ...]
    reset: bool = False

    @property
    def tip(self) -> int | None:
        """Its last node, open or closed."""
        return self.nodes[-1].seq if self.nodes else self.head


def walk(nodes: Sequence[SkeletonNode], head: int | None, after: int) -> list[SkeletonNode] | None:
    """Return the nodes from after `after` up to a head; None if `after` is not below the head.

    Raises:
        CorruptThread: a node in between is missing.
    """
    known = {node.seq: node for node in nodes}
    found: list[SkeletonNode] = []
    seq = head
    while seq is not None and seq > after:
        node = known.get(seq)
        if node is None or (node.parent_id is not None and node.parent_id >= seq):
            raise CorruptThread(
                f"Node {seq} is missing from the log, or does not follow its parent.",
                cure="Fork the thread before it, or restore the database from a backup.",
            )
        found.append(node)
        seq = node.parent_id
    if after and seq != after:
        return None
    # The exchange in progress is above the head, which moves only to closed nodes.
    opened = next((n for n in reversed(nodes) if n.status == "open" and n.parent_id == head), None)
    found.reverse()
    return found if opened is None else [*found, opened]


async def branch_of(
    store: UserStore, thread_id: str, head: int | None = None, *, after: int = 0
) -> Branch:
    """Return a branch of a thread.

    Args:
        head: its last closed node; None for the thread's own.
        after: leave out this node and those before it.

    Raises:
        NotFound: there is no such thread or closed node.
        CorruptThread: the branch is broken.
    """
    thread = await store.threads.get(thread_id)
    top = thread.head if head is None else head
    if top is not None and not 0 < top <= thread.last_seq:
        raise NotFound(
            f"Thread {thread_id} has no node {top}.", cure="Check the number of the node."
        )
    nodes = await store.inspection.nodes(thread_id, after=after)
    found, reset = walk(nodes, top, after), False
    if found is None:
        found, reset = walk(await store.inspection.nodes(thread_id), top, 0), True
    return Branch(thread_id, top, tuple(found or ()), reset)
