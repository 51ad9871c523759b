"""What full text and vectors are made of, and what is found by them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NodeText:
    """What full text search finds a node by, or (with `call`) the result of one of its calls."""

    node_id: int
    call: int | None
    text: str


@dataclass(frozen=True, slots=True)
class TextHit:
    """A node, or the result of a call, that a search found; a higher score is a better hit."""

    thread_id: str
    node_id: int
    call: int | None
    score: float


@dataclass(frozen=True, slots=True)
class VectorKey:
    """What a vector was made of: a part of a source of a thread, such as `message` 17."""

    thread_id: str
    source: str
    source_id: int
    part: int = 0


@dataclass(frozen=True, slots=True)
class VectorItem:
    """A vector, kept in single precision, and what it was made of.

    Attributes:
        digest: of its text, by which it is found for the same text again; empty for none.
    """

    thread_id: str
    source: str
    source_id: int
    values: Sequence[float]
    part: int = 0
    digest: str = ""


@dataclass(frozen=True, slots=True)
class VectorHit:
    """What a search found; `similarity` is the cosine, from -1 (opposite) to 1 (the same)."""

    thread_id: str
    source: str
    source_id: int
    part: int
    similarity: float


@dataclass(frozen=True, slots=True)
class EmbedderRow:
    """A model that made vectors of an owner's, their dimensions, and how many there are."""

    model: str
    dimensions: int
    vectors: int
