"""Search in full text, and among vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from agent_runtime_storage.contract.records.search import (
    EmbedderRow,
    NodeText,
    TextHit,
    VectorHit,
    VectorItem,
    VectorKey,
)


class TextSearch(Protocol):
    """Full text, ranked by BM25."""

    async def find(
        self,
        query: str,
        *,
        thread_id: str | None = None,
        limit: int = 10,
        every_word: bool = False,
    ) -> list[TextHit]:
        """Return the texts that contain words of the query, the best hits first, by BM25.

        Any text is a query: only its words count, there are no operators.  A word also matches its
        other forms, in English and in the languages of `search.stemming`; the form of the query
        ranks above others.  Function words decide only between texts that are equal otherwise, and
        alone if the query has no other words.
        Identifiers and paths match whole and by their parts, in any case.  The statistics behind
        the ranking are the owner's own, and every database ranks alike.  The first 100,000
        characters of a text are indexed; the first 64 distinct words of a query count.  Words of
        more than about 10,000 texts count only if the query has no rarer ones.  Equal hits are
        ordered by thread, node and call, a node before its calls.

        Args:
            thread_id: search in this thread only.
            every_word: whether a hit must contain all words exactly, instead of any.

        Raises:
            NotFound: there is no such thread.
        """
        ...

    async def index(self, thread_id: str, texts: Sequence[NodeText]) -> None:
        """Index texts of nodes and results that are already in the log.

        `runs.begin` and `runs.commit` index what they append; this is for other texts.  An indexed
        node or result is left unchanged, so calling it again changes nothing.  Many texts are
        written in several batches.

        Raises:
            NotFound: there is no such thread.
            Conflict: a node does not exist.
        """
        ...


class VectorStore(Protocol):
    """Vectors, by the model that made them."""

    async def upsert(self, model: str, items: Sequence[VectorItem]) -> None:
        """Write vectors, all or none; each replaces the vector of its key and model.

        Vectors of different models are never compared.  The first vectors of a model fix its
        number of dimensions, until all its vectors are deleted.  All items are one batch: send a
        few hundred at a time.

        Raises:
            InvalidVector: a vector is empty, longer than 16,000 numbers, zero, or not finite.
            DimensionMismatch: a vector has another length than the model's others.
            NotFound: a thread does not exist.
        """
        ...

    async def nearest(
        self,
        model: str,
        query: Sequence[float],
        *,
        limit: int = 10,
        thread_id: str | None = None,
        sources: Sequence[str] | None = None,
    ) -> list[VectorHit]:
        """Return the model's vectors most similar to the query, the most similar first.

        Equal hits are ordered by their keys.  The answer is exact, except on Postgres among more
        than 20,000 candidates (see `nearest_vectors` in its migrations).  A model without vectors
        has no hits.

        Args:
            sources: only vectors of these sources.

        Raises:
            InvalidVector, DimensionMismatch: as for `upsert`, of the query.
            NotFound: there is no such thread.
        """
        ...

    async def delete(
        self,
        thread_id: str,
        *,
        model: str | None = None,
        source: str | None = None,
        source_ids: Sequence[int] | None = None,
    ) -> int:
        """Delete the thread's vectors that match every given filter; return how many.

        Raises `NotFound` if there is no such thread.
        """
        ...

    async def by_digest(self, model: str, digests: Sequence[str]) -> dict[str, tuple[float, ...]]:
        """Return the model's vectors of texts with these digests, of any thread."""
        ...

    async def embedded_ids(
        self, thread_id: str, model: str, source: str, source_ids: Sequence[int]
    ) -> list[int]:
        """Return which of these sources have a vector of the model for their part 0."""
        ...

    async def models(self) -> list[EmbedderRow]:
        """Return the models that the owner has vectors of, by name."""
        ...

    async def missing(self, model: str, *, limit: int = 100) -> list[VectorKey]:
        """Return the keys that have a vector of another model and none of this one, in order.

        After a change of the model, embed what this lists.
        """
        ...

    async def of_thread(
        self,
        thread_id: str,
        *,
        after: tuple[str, VectorKey | VectorItem] | None = None,
        limit: int = 500,
    ) -> list[tuple[str, VectorItem]]:
        """Return a thread's vectors with their models, ordered by model and key, a page at a time.

        Args:
            after: the model and key of the last item of the previous page.
        """
        ...
