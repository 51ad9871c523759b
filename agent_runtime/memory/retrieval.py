"""Retrieval: what an owner's threads hold on a query, by full text and vectors together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from agent_runtime_storage.contract import UserStore

from .passages import SOURCES, place_of

Mode = Literal["hybrid", "text", "vectors"]
CANDIDATES = 100

_Place = tuple[str, int, int | None]


@dataclass(frozen=True, slots=True)
class Found:
    """A message, or (with `call`) the result of a call; a higher score is a better hit."""

    thread_id: str
    node: int
    call: int | None
    score: float


async def retrieve(
    store: UserStore,
    query: str,
    *,
    vector: Sequence[float] | None = None,
    model: str | None = None,
    mode: Mode = "hybrid",
    thread_id: str | None = None,
    limit: int = 10,
    wanted: Callable[[str, int], bool] | None = None,
) -> list[Found]:
    """Return what the owner's threads hold on a query, the best first.

    Only what is on the branch of a thread's head is found.

    Args:
        vector: the query's, by the embedder `model`; without one the mode is `text`.
        thread_id: search in this thread only, by default in all.
        wanted: whether a node of a thread counts, by default each.

    Raises:
        NotFound: the thread is not there.
        InvalidVector, DimensionMismatch: the vector cannot be compared with those of its model.
        StoreError: the database cannot be read.
    """
    scores: dict[_Place, float] = defaultdict(float)
    if mode != "vectors" or vector is None or model is None:
        hits = await store.search_text(query, thread_id=thread_id, limit=CANDIDATES)
        _add(scores, (((hit.thread_id, hit.node_id, hit.call), hit.score) for hit in hits))
    if mode != "text" and vector is not None and model is not None:
        near = await store.search_vectors(
            model, vector, limit=CANDIDATES, thread_id=thread_id, sources=SOURCES
        )
        _add(
            scores,
            (
                ((hit.thread_id, *place_of(hit.source, hit.source_id)), hit.similarity)
                for hit in near
            ),
        )
    kept = await _on_branches(store, scores)
    ranked = sorted(kept, key=lambda place: (-scores[place], place[:2], place[2] or -1))
    return [
        Found(*place, scores[place])
        for place in ranked
        if wanted is None or wanted(place[0], place[1])
    ][: max(limit, 0)]


def _add(scores: dict[_Place, float], hits: Iterable[tuple[_Place, float]]) -> None:
    best: dict[_Place, float] = {}
    for place, score in hits:
        best[place] = max(score, best.get(place, 0.0))
    top = max(best.values(), default=0.0)
    for place, score in best.items():
        scores[place] += score / top if top > 0 else 0.0


async def _on_branches(store: UserStore, places: Iterable[_Place]) -> list[_Place]:
    """Return the places that are on the branch of their thread's head."""
    by_thread: dict[str, list[_Place]] = defaultdict(list)
    for place in places:
        by_thread[place[0]].append(place)
    kept: list[_Place] = []
    for thread_id, found in by_thread.items():
        head = (await store.thread(thread_id)).head
        if head is not None:
            first = min(node for _, node, _ in found)
            branch = set(await store.lineage(thread_id, head, first=first))
            kept += [place for place in found if place[1] in branch]
    return kept
