"""Reading the log: branches, nodes, calls, activations, observations and plans."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from agent_runtime_storage.contract.records.log import Activation, CallRow, Node, Outline
from agent_runtime_storage.contract.records.observations import ObservationRow
from agent_runtime_storage.contract.records.plans import PlanRow


class LogStore(Protocol):
    """Reads the log of threads; a `Commit` writes it.

    A version of a plan belongs to the exchange whose call made it, so every branch has its own
    newest version.  Reading plans reads no nodes in between and does not notice a broken branch.
    """

    async def branch(
        self, thread_id: str, head: int, *, first: int | None = None, limit: int | None = None
    ) -> list[Node]:
        """Return the chain that ends at `head`, oldest first, with calls.

        Args:
            first: the oldest node to return; None returns the chain from its root.
            limit: return at most this many nodes, the newest ones.

        Raises:
            NotFound: there is no such node.
            CorruptThread: an ancestor is missing, the chain has a cycle, or `first` is not on it.
        """
        ...

    async def lineage(self, thread_id: str, head: int, *, first: int = 0) -> list[int]:
        """Return the seqs of the chain that ends at `head`, oldest first, from `first` on.

        It reads no bodies and is faster than `branch`; `first` need not be on the branch.

        Raises:
            NotFound: there is no such node.
            CorruptThread: an ancestor is missing, or the chain has a cycle.
        """
        ...

    async def outlines(
        self, places: Collection[tuple[str, int]], *, before: int = 0, after: int = 0
    ) -> list[Outline]:
        """Return nodes without their bodies, ordered by thread and `seq`.

        Args:
            places: the threads and nodes; nodes that do not exist, or are not on the branch of
                their thread's head, are left out.
            before, after: how many neighbours of each node on its branch to include.
        """
        ...

    async def node(self, thread_id: str, seq: int) -> Node:
        """Return one node with its calls. Raises `NotFound`."""
        ...

    async def children(self, thread_id: str, parent_id: int | None) -> list[Node]:
        """Return the nodes with this parent (None: the roots), in `seq` order."""
        ...

    async def call(self, thread_id: str, node_id: int, index: int) -> CallRow:
        """Return one tool call with its whole result. Raises `NotFound`."""
        ...

    async def activation(self, thread_id: str, head: int | None) -> Activation | None:
        """Return the newest activation among the head's ancestors and the head itself.

        That is the newest one anchored at the head (for None: at no node), else the one that
        applied when the head was appended.
        """
        ...

    async def activations(self, thread_id: str) -> list[Activation]:
        """Return all activations of the thread, of every branch, in the order of their ids."""
        ...

    async def observations(
        self, thread_id: str, *, ids: Sequence[int] = (), ending_from: int | None = None
    ) -> list[ObservationRow]:
        """Return observations in the order of their ids.

        Args:
            ids: the observations to return in any case.
            ending_from: also return those whose last node is this one or a later one, on any
                branch; None adds none.
        """
        ...

    async def last_observation_id(self, thread_id: str) -> int:
        """Return the id of the thread's newest observation; 0 if there is none."""
        ...

    async def plan(self, thread_id: str, head: int) -> PlanRow | None:
        """Return the newest version among the ancestors of `head` and `head` itself.

        Args:
            head: a node of the thread, closed or open.

        Raises:
            NotFound: there is no such thread.
        """
        ...

    async def plans(
        self, thread_id: str, head: int, *, first: int = 0, limit: int = 100
    ) -> list[PlanRow]:
        """Return the versions on the branch that ends at `head`, the newest first.

        Args:
            first: leave out versions of nodes before this one.

        Raises:
            NotFound: there is no such thread.
        """
        ...

    async def last_plan_id(self, thread_id: str) -> int:
        """Return the id of the thread's newest version, on any branch; 0 if there is none.

        Raises:
            NotFound: there is no such thread.
        """
        ...
