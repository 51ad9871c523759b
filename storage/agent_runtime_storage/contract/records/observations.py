"""Records of observations, whose bodies the store never interprets."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ObservationRow:
    """A row that stands for an interval of a branch: a node and its ancestors down to another one.

    Attributes:
        level: 0 if it stands for nodes, higher if it stands for other observations.
        parent_id: the node before the first; None if the first is a root.
        parts: the observations that it replaces, in order; empty at level 0.
        provisional: whether a later observation is to replace it.
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
