"""Records of what the inspector reads: keys and figures of a thread, without its contents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple


class SkeletonNode(NamedTuple):
    """A node without its content; `tokens` counts its message alone."""

    seq: int
    parent_id: int | None
    status: str
    role: str
    activation_id: int
    tokens: int
    created_at: float


class SkeletonUsage(NamedTuple):
    """What a step used; `node_id` is its answer."""

    node_id: int
    model: str
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    counted_tokens: int
    cost: int | None
    reported: bool


@dataclass(frozen=True, slots=True)
class Skeleton:
    """What is known of a thread's nodes after one, of every branch.

    Attributes:
        calls: for each call of a node, its tool and its outcome (None until it is done).
        seconds: how long each model call took, by its answer's node; None where it is not known.
        retries: how often a model call was tried again; those that were not are left out.
        steered: the notes by which a person steered.
        asked: the nodes that ask a person.
        parts: the token parts of each activation; None where an older version wrote the row.
    """

    calls: tuple[tuple[int, str, str | None], ...]
    usage: tuple[SkeletonUsage, ...]
    seconds: Mapping[int, float | None]
    retries: Mapping[int, int]
    steered: tuple[int, ...]
    asked: tuple[int, ...]
    parts: Mapping[int, str | None]
