"""Records of what the inspector reads: keys and figures of a thread, without its contents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from agent_runtime_storage.contract.records.log import JsonObject


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
        answers: the data of each answer's event, by its node; those without a node are left out.
        notes: the same for notes.
        asked: the nodes that ask a person.
        parts: the token parts of each activation; None where an older version wrote the row.
    """

    calls: tuple[tuple[int, str, str | None], ...]
    usage: tuple[SkeletonUsage, ...]
    answers: Mapping[int, JsonObject]
    notes: Mapping[int, JsonObject]
    asked: tuple[int, ...]
    parts: Mapping[int, str | None]
