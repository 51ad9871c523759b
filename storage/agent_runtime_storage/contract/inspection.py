"""Reading for those who look into threads and runs; nothing here is needed to run an agent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from agent_runtime_storage.contract.records.inspection import Skeleton, SkeletonNode
from agent_runtime_storage.contract.records.log import Activation, JsonObject, Run


class InspectionStore(Protocol):
    """What the inspector reads of one owner's threads."""

    async def skeleton(self, thread_id: str, *, after: int = 0) -> Skeleton:
        """Return what is known of a thread's nodes from after one on.

        What is written meanwhile may be there in part: a later call returns it whole.

        Raises:
            NotFound: there is no such thread.
        """
        ...

    async def nodes(self, thread_id: str, *, after: int = 0) -> list[SkeletonNode]:
        """Return a thread's nodes of every branch, without contents, from after a node on.

        Raises:
            NotFound: there is no such thread.
        """
        ...

    async def activations(self, thread_id: str, ids: Sequence[int]) -> list[Activation]:
        """Return these activations, in the order of their ids; ids that do not exist are left out.

        Raises:
            NotFound: there is no such thread.
        """
        ...

    async def parts(self, thread_id: str) -> Mapping[int, str | None]:
        """Return the token parts of a thread's activations as JSON, by id.

        None where an older version wrote the row.
        """
        ...

    async def children(self, thread_id: str, parents: Sequence[int]) -> list[tuple[int, int]]:
        """Return the nodes with these parents, each with its parent, in `seq` order."""
        ...

    async def active_roots(self, *, limit: int = 200) -> list[Run]:
        """Return the roots of run trees that are queued, running or suspended, changed last first.

        That is, without runs that another run began.
        """
        ...

    async def ended_roots(
        self, *, before: tuple[float, str] | None = None, limit: int = 50
    ) -> list[Run]:
        """Return the roots of run trees that are over, those that began last first.

        Args:
            before: `created_at` and id of the last one of the previous page.
        """
        ...

    async def last_start(self, thread_id: str) -> JsonObject:
        """Return the data of a thread's newest `run-start` event; empty if there is none."""
        ...

    async def last_prompts(self, thread_id: str, run_id: str, *, limit: int = 60) -> list[int]:
        """Return the reported prompt tokens of a run's last steps, oldest first."""
        ...

    async def last_model(self, thread_id: str, run_id: str) -> str:
        """Return the name of the model of a run's newest answer; empty if it has none."""
        ...
