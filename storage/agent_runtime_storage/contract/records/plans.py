"""Records of plans, whose bodies the store never interprets."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PlanRow:
    """A version of a thread's plan.

    Attributes:
        id: counts up within the thread, over all its branches.
        node_id: the exchange whose call made it; branches with this node have the version.
        call_id: the call that made it.
    """

    id: int
    node_id: int
    call_id: str
    run_id: str
    body: bytes
    created_at: float


@dataclass(frozen=True, slots=True)
class NewPlan:
    """A version to append; `id` must be the thread's next one, `node_id` the open exchange."""

    id: int
    node_id: int
    call_id: str
    body: bytes
