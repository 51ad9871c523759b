"""The part of the contract that is about plans."""

from __future__ import annotations

from typing import Protocol

from agent_runtime_storage.contract.plan_records import PlanRow


class PlansContract(Protocol):
    """Reading plans; a `Commit` writes their versions.

    A version belongs to the exchange whose call made it, so that every branch has its own newest
    one.  Nothing is read of the nodes between, so a branch that is broken is not noticed here.
    """

    async def plan(self, thread_id: str, head: int) -> PlanRow | None:
        """Return the newest version among the ancestors of `head` and `head` itself.

        Args:
            head: a node of the thread, closed or open.

        Raises `NotFound`: the thread is not there.
        """
        ...

    async def plans(
        self, thread_id: str, head: int, *, first: int = 0, limit: int = 100
    ) -> list[PlanRow]:
        """Return the versions on the branch that ends at `head`, the newest first.

        Args:
            first: leave out those of the nodes before this one.

        Raises `NotFound`: the thread is not there.
        """
        ...

    async def last_plan(self, thread_id: str) -> int:
        """Return the id of the thread's newest version, on whatever branch; 0 if there is none.

        Raises `NotFound`: the thread is not there.
        """
        ...
