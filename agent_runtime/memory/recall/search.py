"""Retrieval: what an owner's threads hold on a query, by full text and vectors together.

Both find what the other misses: names and rare words, and what is said in other words.  Their
scores are brought to one scale and added (relative score fusion, as in Bruch et al. 2023, "An
Analysis of Fusion Functions for Hybrid Retrieval"), which beats fusion by ranks where one of the
two is sure and the other is not.  Then what is known of a message beside its words counts:

- a short one says little without what was said around it, so it gets a share of the scores of its
  neighbours, more of those before it: answers follow their questions;
- a question that names a day, a month or a year is about what was said then, or soon after;
- who asks about themselves ("my", "I") asks for what the user said, not the agent.

Candidates come from the store's indexes; of the log only outlines of these are read.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from agent_runtime.memory.recall.dates import best_fit, dates_named
from agent_runtime.memory.recall.passages import SOURCES, node_and_call_of
from agent_runtime_storage.contract.records import Outline
from agent_runtime_storage.contract.store import UserStore

SearchMode = Literal["hybrid", "text", "vectors"]

CANDIDATES = 200
"""How many texts, and how many passages, are looked at."""
VECTORS_WEIGHT = 0.5
"""What the likest passage counts beside the best text, which counts 1."""
FROM_BEFORE, FROM_AFTER = (0.3, 0.15), (0.15, 0.07)
"""Which shares a message gets of the scores of those before and after it, the nearest first."""
SHORT = 300
"""A message of so many tokens stands by itself; a shorter one gets the more of its neighbours."""
SESSION_GAP = 3600.0
"""After so many seconds another conversation has begun: what was said before is not near."""
OWN_WORDS = 1.5
"""What the user's own messages count by in answering who asks about themselves."""
NAMED_DATE = 1.0
"""How much more a message counts that was written when the query's date was."""

_SPEAKERS = ("user", "assistant")
_OWN = re.compile(r"\b(?:i|my|me|mine|myself|we|us|our|ours)\b", re.IGNORECASE)

NodeAddress = tuple[str, int]
_Place = tuple[str, int, int | None]


@dataclass(frozen=True, slots=True)
class SearchHit:
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
    mode: SearchMode = "hybrid",
    thread_id: str | None = None,
    limit: int = 10,
    wanted: Callable[[str, int], bool] | None = None,
) -> list[SearchHit]:
    """Return what the owner's threads hold on a query, the best first.

    Only what is on the branch of a thread's head is found.  The modes `text` and `vectors` rank by
    the one alone.

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
    with_vectors = mode != "text" and vector is not None and model is not None
    if mode != "vectors" or not with_vectors:
        hits = await store.search_text(query, thread_id=thread_id, limit=CANDIDATES)
        for hit in hits:
            scores[hit.thread_id, hit.node_id, hit.call] += hit.score / hits[0].score
    if with_vectors and vector is not None and model is not None:
        near = await store.search_vectors(
            model, vector, limit=CANDIDATES, thread_id=thread_id, sources=SOURCES
        )
        best: dict[_Place, float] = {}
        for one in near:
            best.setdefault(
                (one.thread_id, *node_and_call_of(one.source, one.source_id)), one.similarity
            )
        weight = VECTORS_WEIGHT if mode == "hybrid" else 1.0
        for place, score in _from_zero(best).items():
            scores[place] += weight * score
    nodes = {place[:2] for place in scores}
    reach = len(FROM_BEFORE) if mode == "hybrid" else 0
    outlines = await store.outlines(nodes, before=reach, after=reach)
    if reach:
        scores = ranked_by_all(query, scores, outlines)
    known = {(one.thread_id, one.seq) for one in outlines}
    places = [
        place
        for place in sorted(scores, key=lambda place: _order(place, scores))
        if place[:2] in known and (wanted is None or wanted(*place[:2]))
    ]
    return [SearchHit(*place, scores[place]) for place in places[: max(limit, 0)]]


def _from_zero(similarities: Mapping[_Place, float]) -> dict[_Place, float]:
    """Return similarities from 0, of the least like one, to 1: cosines differ by the embedder."""
    if not similarities:
        return {}
    least, most = min(similarities.values()), max(similarities.values())
    width = most - least
    return {place: (one - least) / width if width else 1.0 for place, one in similarities.items()}


def _order(place: _Place, scores: Mapping[_Place, float]) -> tuple[float, str, int, int]:
    thread_id, node, call = place
    # Rounded, so that every database breaks ties alike.
    return -round(scores[place], 9), thread_id, node, -1 if call is None else call


def ranked_by_all(
    query: str, scores: Mapping[_Place, float], outlines: Sequence[Outline]
) -> dict[_Place, float]:
    """Return the scores with what is known beside the words: neighbours, dates, who spoke."""
    known = {(one.thread_id, one.seq): one for one in outlines}
    own: dict[NodeAddress, float] = defaultdict(float)
    for place, score in scores.items():
        own[place[:2]] = max(own[place[:2]], score)
    dates, own_words = dates_named(query), bool(_OWN.search(query))

    def factor(outline: Outline) -> float:
        spoken = OWN_WORDS if own_words and outline.role == "user" else 1.0
        return spoken * (1 + NAMED_DATE * best_fit(dates, outline.created_at))

    raised = {
        node: _from_neighbours(outline, near, own)
        for (node, outline), near in zip(known.items(), _neighbours(known), strict=True)
    }
    found: dict[_Place, float] = {}
    for place, score in scores.items():
        if outline := known.get(place[:2]):
            found[place] = (score + raised[place[:2]]) * factor(outline)
    for node, more in raised.items():
        if more and node not in own and known[node].role in _SPEAKERS:
            found[*node, None] = more * factor(known[node])
    return found


def _neighbours(known: Mapping[NodeAddress, Outline]) -> Iterable[list[tuple[Outline, float]]]:
    """Return for each node those around it in its conversation, with the share that it gets.

    Where there is none a message stands for it itself: being alone is no fault.
    """
    following = {
        (one.thread_id, one.parent_id): one for one in known.values() if one.parent_id is not None
    }
    for outline in known.values():
        before = _walk(
            outline, FROM_BEFORE, lambda one: known.get((one.thread_id, one.parent_id or 0))
        )
        after = _walk(outline, FROM_AFTER, lambda one: following.get((one.thread_id, one.seq)))
        yield [*before, *after]


def _walk(
    outline: Outline, shares: Sequence[float], step: Callable[[Outline], Outline | None]
) -> Iterable[tuple[Outline, float]]:
    here, ended = outline, False
    for share in shares:
        there = None if ended else step(here)
        if there is None or abs(there.created_at - here.created_at) > SESSION_GAP:
            there, ended = outline, True
        yield there, share
        here = there


def _from_neighbours(
    outline: Outline, near: Iterable[tuple[Outline, float]], scores: Mapping[NodeAddress, float]
) -> float:
    room = max(0.0, 1 - outline.tokens / SHORT)
    return room * sum(
        share * scores.get((other.thread_id, other.seq), 0.0) for other, share in near
    )
