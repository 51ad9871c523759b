"""Records of full-text and vector search: the inputs and the hits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class NodeText:
    """The text for full-text search of a node, or (with `call`) of the result of a call."""

    node_id: int
    call: int | None
    text: str


@dataclass(frozen=True, slots=True)
class TextHit:
    """A node or a call's result that a search found; a higher score is a better hit.

    Attributes:
        words: bits of those words of the query that the text has.
        shares: of the query's weight that each of these words has, by its bit's place; the same
            for all hits of a search.
    """

    thread_id: str
    node_id: int
    call: int | None
    score: float
    words: int = field(default=0, compare=False)
    shares: tuple[float, ...] = field(default=(), compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class VectorKey:
    """The origin of a vector: a part of a source in a thread, such as `message` 17."""

    thread_id: str
    source: str
    source_id: int
    part: int = 0


@dataclass(frozen=True, slots=True)
class VectorItem:
    """A vector, stored in single precision, and its origin.

    Attributes:
        digest: of its text, so that the same text need not be embedded again; empty for none.
    """

    thread_id: str
    source: str
    source_id: int
    values: Sequence[float]
    part: int = 0
    digest: str = ""


@dataclass(frozen=True, slots=True)
class VectorHit:
    """A hit of a vector search; `similarity` is the cosine, from -1 (opposite) to 1 (equal)."""

    thread_id: str
    source: str
    source_id: int
    part: int
    similarity: float


@dataclass(frozen=True, slots=True)
class EmbedderRow:
    """A model that made vectors for an owner, their dimensions and their number."""

    model: str
    dimensions: int
    vectors: int
