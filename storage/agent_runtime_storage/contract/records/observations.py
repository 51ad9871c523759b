"""Observations as the store takes and gives them; it does not interpret their bodies."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ObservationRow:
    """What stands for an interval of a branch: a node and its ancestors down to another one.

    Attributes:
        level: 0 over nodes, more over other observations.
        parent_id: the node before the first; None if that is the root.
        parts: the observations that it replaces, in order; empty at level 0.
        provisional: whether it is to be written again.
    """

    id: int
    level: int
    parent_id: int | None
    first: int
    last: int
    parts: tuple[int, ...]
    provisional: bool
    body: bytes
    tokens: int
    created_at: float


@dataclass(frozen=True, slots=True)
class NewObservation:
    """An observation to append; `id` must be the thread's next one."""

    id: int
    level: int
    parent_id: int | None
    first: int
    last: int
    body: bytes
    tokens: int
    parts: tuple[int, ...] = ()
    provisional: bool = False
