"""Which nodes are on a branch, and the activation under which each of its steps was made."""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import anyio
from anyio.lowlevel import RunVar

from agent_runtime.errors import CorruptThread, NotFound
from agent_runtime_storage.contract.records.inspection import SkeletonNode
from agent_runtime_storage.contract.records.log import Thread
from agent_runtime_storage.contract.store import UserStore


class BranchLine:
    """Stands for the closed nodes of a branch: while it is the same, nodes were only added."""

    __slots__ = ("__weakref__",)


@dataclass(frozen=True, slots=True)
class Branch:
    """The nodes of a branch, oldest first.

    Attributes:
        head: its last closed node; None on an empty thread.
        nodes: from after the asked one; an exchange in progress above the head is the last.
        line: what is made of the closed nodes can be kept by it.
        reset: whether the asked node is not on it, so that these are all its nodes.
    """

    thread_id: str
    head: int | None
    nodes: tuple[SkeletonNode, ...]
    line: BranchLine
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
    if (line := _line(nodes, head, after)) is not None:
        return line
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


def _line(nodes: Sequence[SkeletonNode], head: int | None, after: int) -> list[SkeletonNode] | None:
    """Return what `walk` does where each node follows the one before it; else None.

    Nearly all threads are like that, and walking takes ten times as long.
    """
    seqs = [node.seq for node in nodes]
    end = bisect_left(seqs, (head or 0) + 1)
    if end < len(nodes) - 1 or (seqs[end - 1] if end else after or None) != head:
        return None
    above = [node.parent_id for node in nodes]
    if above != [after or None, *seqs[:-1]] or (nodes and seqs[0] <= after):
        return None
    return None if any(node.status != "open" for node in nodes[end:]) else list(nodes)


async def branch_of(
    store: UserStore, thread_id: str, head: int | None = None, *, after: int = 0, first: int = 0
) -> Branch:
    """Return a branch of a thread; its closed nodes are read once, and kept for the next time.

    Args:
        head: its last closed node; None for the thread's own.
        after: leave out this node and those before it.
        first: leave out nodes before this one, whether it is on the branch or not.

    Raises:
        NotFound: there is no such thread or closed node.
        CorruptThread: the branch is broken.
    """
    thread = await store.threads.get(thread_id)
    top = _top(thread, head)
    kept = _kept_of((store.user_id, thread_id, thread.created_at, head))
    # Two requests that read the same new nodes would append them twice.
    async with kept.lock:
        opened = await _read(store, thread_id, top, kept)
        seqs = kept.seqs
        place = bisect_left(seqs, after + 1)
        reset = bool(after) and (not place or seqs[place - 1] != after)
        begin = 0 if reset else max(place, bisect_left(seqs, first))
        return Branch(thread_id, top, (*kept.nodes[begin:], *opened), kept.line, reset)


@dataclass(slots=True)
class _Kept:
    """The closed nodes of a branch, oldest first, and their numbers."""

    lock: anyio.Lock = field(default_factory=anyio.Lock)
    nodes: list[SkeletonNode] = field(default_factory=list[SkeletonNode])
    seqs: list[int] = field(default_factory=list[int])
    line: BranchLine = field(default_factory=BranchLine)


_Key: TypeAlias = tuple[str, str, float, int | None]
_MOST_NODES = 100_000
_known: RunVar[OrderedDict[_Key, _Kept]] = RunVar("branches")
"""By owner, thread, the thread's creation and the head that was asked for; newest last."""


def _kept_of(key: _Key) -> _Kept:
    known = _known.get(None)
    if known is None:
        known = OrderedDict[_Key, _Kept]()
        _known.set(known)
    kept = known.setdefault(key, _Kept())
    known.move_to_end(key)
    size = sum(len(one.nodes) for one in known.values())
    # The newest stays even if it is larger than all may be: its request is in progress.
    while size > _MOST_NODES and len(known) > 1:
        size -= len(known.popitem(last=False)[1].nodes)
    return kept


async def _read(
    store: UserStore, thread_id: str, top: int | None, kept: _Kept
) -> Sequence[SkeletonNode]:
    """Read the nodes of a branch that are not kept; return those that are not closed."""
    last = kept.nodes[-1] if kept.nodes else None
    found = None
    if last is not None:
        # From the last one on: a thread that was removed and imported may have another there.
        read = await store.inspection.nodes(thread_id, after=last.seq - 1)
        if read and read[0] == last:
            found = walk(read[1:], top, last.seq)
    if found is None:
        # Walked before anything is dropped: a broken branch leaves what is kept as it is.
        found = walk(await store.inspection.nodes(thread_id), top, 0) or []
        kept.nodes, kept.seqs, kept.line = [], [], BranchLine()
    closed = [node for node in found if node.status != "open"]
    kept.nodes += closed
    kept.seqs += [node.seq for node in closed]
    return [node for node in found if node.status == "open"]


def _top(thread: Thread, head: int | None) -> int | None:
    """Return the last closed node of a branch: the given one, or the thread's head for None."""
    top = thread.head if head is None else head
    if top is not None and not 0 < top <= thread.last_seq:
        raise NotFound(
            f"Thread {thread.id} has no node {top}.", cure="Check the number of the node."
        )
    return top
