"""The part of the store's contract that finds: by words, and by likeness."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from agent_runtime_storage.contract.search_records import (
    EmbedderRow,
    NodeText,
    TextHit,
    VectorHit,
    VectorItem,
    VectorKey,
)


class SearchContract(Protocol):
    """What `UserStore` has for full text and vectors."""

    # Text

    async def search_text(
        self,
        query: str,
        *,
        thread_id: str | None = None,
        limit: int = 10,
        every_word: bool = False,
    ) -> list[TextHit]:
        """Return what holds words of the query, the best hits first, ranked by BM25.

        Any text is a query, and its words alone count: there are no operators.  English words are
        found in their other forms too, and those that only hold a sentence together do not count,
        unless there are no others; with `every_word` words are taken as they are.  Identifiers and
        paths are found whole and by their parts, whatever their case.  The figures behind the
        ranking are the owner's own, and every database ranks alike.  Of each text the first
        100,000 characters are found, of the query the first 64 distinct words count.  Words of
        more than about 10,000 texts count only where the query has no rarer ones.  Equal hits come
        in the order of thread, node and call; the node itself comes before its calls.

        Args:
            thread_id: search in this thread only. Raises `NotFound`.
            every_word: whether a hit must hold all words, instead of any.
        """
        ...

    async def index_texts(self, thread_id: str, texts: Sequence[NodeText]) -> None:
        """Index texts of nodes and results that are in the log already.

        `begin_run` and `commit` index what they append; this is for what came otherwise.  A node
        or result that is indexed already is left as it is, so doing it again changes nothing.
        Large numbers are written in several batches.

        Raises:
            NotFound: the thread is not there.
            Conflict: a node is not there.
        """
        ...

    # Vectors

    async def upsert_vectors(self, model: str, items: Sequence[VectorItem]) -> None:
        """Write vectors, all or none, each in the place of that of the same key and model.

        Vectors of different models are never compared.  The first ones fix the model's number of
        dimensions, as long as there are vectors of it.  One batch: send a few hundred at a time.

        Raises:
            InvalidVector: one is empty, longer than 16,000 numbers, zero, or not finite.
            DimensionMismatch: one has another length than the model's others.
            NotFound: a thread is not there.
        """
        ...

    async def search_vectors(
        self,
        model: str,
        query: Sequence[float],
        *,
        limit: int = 10,
        thread_id: str | None = None,
        sources: Sequence[str] | None = None,
    ) -> list[VectorHit]:
        """Return what is most like the query among the model's vectors, the likest first.

        Equal hits are ordered by their keys.  The answer is exact, but on Postgres among more
        than 20,000 candidates (see `nearest_vectors` in its migrations).  A model that has no
        vectors gives nothing.

        Args:
            sources: only what was made of these.

        Raises:
            InvalidVector, DimensionMismatch: as for `upsert_vectors`, of the query.
            NotFound: the thread is not there.
        """
        ...

    async def delete_vectors(
        self,
        thread_id: str,
        *,
        model: str | None = None,
        source: str | None = None,
        source_ids: Sequence[int] | None = None,
    ) -> int:
        """Delete a thread's vectors that match all that is given; return how many there were.

        Raises `NotFound` if the thread is not there.
        """
        ...

    async def vectors_by_digest(
        self, model: str, digests: Sequence[str]
    ) -> dict[str, tuple[float, ...]]:
        """Return the model's vectors of texts with these digests, of whatever thread."""
        ...

    async def embedded(
        self, thread_id: str, model: str, source: str, source_ids: Sequence[int]
    ) -> list[int]:
        """Return which of these sources have a vector of the model, of their part 0."""
        ...

    async def embedders(self) -> list[EmbedderRow]:
        """Return the models that the owner has vectors of, by name."""
        ...

    async def to_embed(self, model: str, *, limit: int = 100) -> list[VectorKey]:
        """Return what has a vector of another model and none of this one, in the order of keys.

        So a change of the model is noticed, and made good by embedding again what this lists.
        """
        ...

    async def vectors_of_thread(
        self,
        thread_id: str,
        *,
        after: tuple[str, VectorKey | VectorItem] | None = None,
        limit: int = 500,
    ) -> list[tuple[str, VectorItem]]:
        """Return a thread's vectors with their models, ordered by model and key, a page at a time.

        Args:
            after: the model and key of the last one of the page before.
        """
        ...
