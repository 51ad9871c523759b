"""Hybrid search of an owner's threads: full text and vectors together.

Each finds what the other misses: full text finds names and rare words, vectors find other wordings.
Their scores are scaled and added (relative score fusion, as in Bruch et al. 2023, "An Analysis of
Fusion Functions for Hybrid Retrieval"), which beats fusion by ranks where one of them is sure and
the other is not.  Then context counts:

- a short message says little alone, so it gets a share of its neighbours' scores, and more from
  those before it: answers follow their questions;
- a question that names a day, a month or a year is about what was said then or soon after;
- people who ask about themselves ("my", "I") want what the user said, not the agent.

Candidates come from the store's indexes; only their outlines are read from the log.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, tzinfo
from typing import Literal, NamedTuple

import anyio

from agent_runtime.concurrency import single_error
from agent_runtime.memory.recall.dates import best_fit, dates_named
from agent_runtime.memory.recall.passages import SOURCES, node_and_call_of
from agent_runtime.memory.recall.relevance import is_covered
from agent_runtime_storage.contract.records.log import Outline
from agent_runtime_storage.contract.store import UserStore

SearchMode = Literal["hybrid", "text", "vectors"]

CANDIDATES = 200
"""How many texts, and how many passages, are considered."""
VECTORS_WEIGHT = 0.5
"""Weight of the best vector hit; the best text hit has 1."""
FROM_BEFORE, FROM_AFTER = (0.3, 0.15), (0.15, 0.07)
"""Shares of the neighbours' scores, the nearest neighbour first."""
_TO_LATER = tuple(zip(FROM_BEFORE, FROM_AFTER, strict=True))
_TO_EARLIER = tuple(zip(FROM_AFTER, FROM_BEFORE, strict=True))
SHORT = 300
"""Messages of this many tokens get nothing from their neighbours; shorter ones get more."""
SESSION_GAP = 3600.0
"""A pause of this many seconds ends a conversation; messages across it are not neighbours."""
OWN_WORDS = 1.5
"""Factor of the user's own messages if the query is about the user."""
NAMED_DATE = 1.0
"""How much a message's factor grows if its date is the one that the query names."""

_SPEAKERS = ("user", "assistant")
_OWN = re.compile(r"\b(?:i|my|me|mine|myself|we|us|our|ours)\b", re.IGNORECASE)


class NodeAddress(NamedTuple):
    """A thread and one of its nodes."""

    thread_id: str
    node: int


class HitPlace(NamedTuple):
    """A message, or (with `call`) the result of a call."""

    thread_id: str
    node: int
    call: int | None

    @property
    def address(self) -> NodeAddress:
        return NodeAddress(self.thread_id, self.node)


@dataclass(frozen=True, slots=True)
class SearchHit:
    """A message, or (with `call`) the result of a call; a higher score is a better hit."""

    thread_id: str
    node: int
    call: int | None
    score: float

    @property
    def address(self) -> NodeAddress:
        """The hit's thread and node."""
        return NodeAddress(self.thread_id, self.node)


class Fitting(NamedTuple):
    """What makes hits fit: words of the query, or at least this similarity to it."""

    least_similarity: float = math.inf


async def retrieve(
    store: UserStore,
    query: str,
    *,
    vector: Sequence[float] | None = None,
    model: str | None = None,
    mode: SearchMode = "hybrid",
    thread_id: str | None = None,
    limit: int = 10,
    wanted: Callable[[NodeAddress], bool] | None = None,
    own: str | None = None,
    now: float | None = None,
    zone: tzinfo = UTC,
    fitting: Fitting | None = None,
) -> list[SearchHit]:
    """Search the owner's threads; return the best hits first.

    Only nodes on the branch of a thread's head are found.  `text` and `vectors` rank by one index.

    Args:
        vector: of the query, by the embedder `model`; without it the mode is `text`.
        thread_id: the only thread to search; None for all.
        wanted: whether a node may be returned; None for all.
        own: leaves out threads of sub-agents other than this one, as no user has seen them.
        now: when the query was written, in seconds since the epoch; by default now.
        zone: of its author; both decide which days "yesterday" or "on 3 May" mean.
        fitting: if given, nothing is returned unless a hit fits the query (see `relevance`).

    Raises:
        NotFound: there is no such thread.
        InvalidVector, DimensionMismatch: the vector cannot be compared with those of its model.
        StoreError: the database cannot be read.
    """
    with_vectors = mode != "text" and vector is not None and model is not None
    scores, best = await _candidates(
        store,
        query if mode != "vectors" or not with_vectors else None,
        (model, vector) if with_vectors and model is not None and vector is not None else None,
        thread_id,
    )
    weight = VECTORS_WEIGHT if mode == "hybrid" else 1.0
    for place, score in _from_zero(best).items():
        scores[place] += weight * score
    reach = len(FROM_BEFORE) if mode == "hybrid" else 0
    nodes = {place.address for place in scores}
    outlines = await store.log.outlines(nodes, before=reach, after=reach)
    if reach:
        scores = rank_in_context(query, scores, outlines, adds=with_vectors, now=now, zone=zone)
    # Outlines exist only for nodes on the heads' branches: the indexes know all branches.
    known = {(one.thread_id, one.seq) for one in outlines}
    places = [
        place
        for place, _ in sorted(scores.items(), key=_order)
        if place[:2] in known and (wanted is None or wanted(place.address))
    ]
    if fitting is not None and not await _fits(store, query, places, best, fitting):
        return []
    if own is not None:
        places = await _of_users(store, places, limit, own)
    return [SearchHit(*place, scores[place]) for place in places[: max(limit, 0)]]


async def _of_users(
    store: UserStore, places: Sequence[HitPlace], limit: int, own: str
) -> list[HitPlace]:
    """Return the first places that are not in the threads of sub-agents, or in the own one."""
    found: list[HitPlace] = []
    of_child = {own: False}
    for place in places:
        if len(found) >= limit:
            break
        if place.thread_id not in of_child:
            runs = await store.runs.list(thread_id=place.thread_id, limit=1)
            of_child[place.thread_id] = bool(runs) and runs[0].parent_run_id is not None
        if not of_child[place.thread_id]:
            found.append(place)
    return found


async def _candidates(
    store: UserStore,
    query: str | None,
    embedded: tuple[str, Sequence[float]] | None,
    thread_id: str | None,
) -> tuple[dict[HitPlace, float], dict[HitPlace, float]]:
    """Search texts and vectors at the same time.

    Returns the scores of texts, relative to the best one, and the similarities of vectors.
    """
    scores: dict[HitPlace, float] = defaultdict(float)
    similarities: dict[HitPlace, float] = {}

    async def find_texts(query: str) -> None:
        hits = await store.search.find(query, thread_id=thread_id, limit=CANDIDATES)
        for hit in hits:
            # The scales of BM25 differ by database and query; relative to the best they are alike.
            scores[HitPlace(hit.thread_id, hit.node_id, hit.call)] += hit.score / hits[0].score

    async def find_vectors(model: str, vector: Sequence[float]) -> None:
        near = await store.vectors.nearest(
            model, vector, limit=CANDIDATES, thread_id=thread_id, sources=SOURCES
        )
        for one in near:
            place = HitPlace(one.thread_id, *node_and_call_of(one.source, one.source_id))
            # A place has several passages; the first is the nearest.
            similarities.setdefault(place, one.similarity)

    async with single_error(), anyio.create_task_group() as group:
        if query is not None:
            group.start_soon(find_texts, query)
        if embedded is not None:
            group.start_soon(find_vectors, *embedded)
    return scores, similarities


async def _fits(
    store: UserStore,
    query: str,
    places: Sequence[HitPlace],
    similarities: Mapping[HitPlace, float],
    fitting: Fitting,
) -> bool:
    """Return whether one of the places is near enough to the query, or holds enough of it."""
    nearest = max((similarities[one] for one in places if one in similarities), default=-1.0)
    return nearest >= fitting.least_similarity or await is_covered(store, query, places)


def _from_zero(similarities: Mapping[HitPlace, float]) -> dict[HitPlace, float]:
    """Scale similarities to 0 (the least) to 1, because embedders use different ranges."""
    if not similarities:
        return {}
    least, most = min(similarities.values()), max(similarities.values())
    width = most - least
    return {place: (one - least) / width if width else 1.0 for place, one in similarities.items()}


def _order(scored: tuple[HitPlace, float]) -> tuple[float, str, int, int]:
    (thread_id, node, call), score = scored
    # Rounded, so that every database breaks ties alike.
    return -round(score, 9), thread_id, node, -1 if call is None else call


def rank_in_context(
    query: str,
    scores: Mapping[HitPlace, float],
    outlines: Sequence[Outline],
    *,
    adds: bool = True,
    now: float | None = None,
    zone: tzinfo = UTC,
) -> dict[HitPlace, float]:
    """Return scores adjusted by neighbours, dates and speakers.

    Args:
        adds: whether neighbours of hits are added, which are no hits themselves.
        now, zone: see `retrieve`.
    """
    # Plain tuples, as a search makes thousands; a `NodeAddress` is equal to one.
    known = {(one.thread_id, one.seq): one for one in outlines}
    own: dict[tuple[str, int], float] = {}
    for place, score in scores.items():
        own[place[:2]] = max(own.get(place[:2], 0.0), score)
    dates, about_user = dates_named(query, now=now, zone=zone), bool(_OWN.search(query))

    def factor(outline: Outline) -> float:
        if not dates and not about_user:
            return 1.0
        speaker = OWN_WORDS if about_user and outline.role == "user" else 1.0
        return speaker * (1 + NAMED_DATE * best_fit(dates, outline.created_at, zone))

    raised = _from_neighbours(known, own)
    ranked: dict[HitPlace, float] = {}
    for place, score in scores.items():
        if outline := known.get(place[:2]):
            ranked[place] = (score + raised.get(place[:2], 0.0)) * factor(outline)
    for address, more in raised.items() if adds else ():
        outline = known[address]
        if more and address not in own and outline.role in _SPEAKERS:
            ranked[HitPlace(*address, None)] = more * factor(outline)
    return ranked


def _from_neighbours(
    known: Mapping[tuple[str, int], Outline], own: Mapping[tuple[str, int], float]
) -> dict[tuple[str, int], float]:
    """Return what nodes get of the scores of their neighbours in the conversation.

    All from the scores as they are: no neighbour passes on what it got from another.  A node stands
    for its own missing neighbours, so that the first message of a conversation is not at a
    disadvantage.
    """
    child_of = {(one.thread_id, one.parent_id): one for one in known.values()}
    got: defaultdict[tuple[str, int], float] = defaultdict(float)
    for address, score in own.items():
        if (outline := known.get(address)) is None:
            continue
        # What comes after a node has it before itself.
        for back, shares in ((False, _TO_LATER), (True, _TO_EARLIER)):
            here: Outline | None = outline
            for given, kept in shares:
                # Not a function: this is most of the processor time of ranking.
                if here is not None:
                    there = (
                        known.get((here.thread_id, here.parent_id or 0))
                        if back
                        else child_of.get((here.thread_id, here.seq))
                    )
                    far = there and abs(there.created_at - here.created_at) > SESSION_GAP
                    here = None if far else there
                if here is None:
                    got[address] += kept * score
                else:
                    got[here.thread_id, here.seq] += given * score
    return {
        address: more * max(0.0, 1 - known[address].tokens / SHORT) for address, more in got.items()
    }
