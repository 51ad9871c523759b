"""Hybrid search of an owner's threads: full text and vectors together.

Each finds what the other misses: full text finds names and rare words, vectors find other wordings.
Their scores are scaled and added (relative score fusion, as in Bruch et al. 2023, "An Analysis of
Fusion Functions for Hybrid Retrieval"), which beats fusion by ranks where one of them is sure and
the other is not.  Then context counts:

- a short message says little alone, so it gets a share of its neighbours' scores, and more from
  those before it: answers follow their questions;
- it counts more the more of the query's words it has together with its neighbours, each word once;
- a question that names a day, a month or a year is about what was said then or soon after;
- people who ask about themselves ("my", "I") want what the user said, not the agent.

Candidates come from the store's indexes; only their outlines are read from the log.
"""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, tzinfo
from typing import Literal, NamedTuple

import anyio

from agent_runtime.concurrency import single_error
from agent_runtime.memory.recall.dates import best_fit, dates_named
from agent_runtime.memory.recall.passages import SOURCES, node_and_call_of
from agent_runtime.memory.recall.relevance import READ, is_covered
from agent_runtime.memory.recall.relevance import Place as _Place
from agent_runtime_storage.contract.records.log import Outline
from agent_runtime_storage.contract.records.search import TextHit
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
OWN_SHARE, WORDS_BEFORE, WORDS_AFTER = 0.5, (1.2, 0.96), (0.6,)
"""How much the share of the query's words raises a score that a short message has itself, and that
only a neighbour has, the nearest neighbour first."""
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


@dataclass(frozen=True, slots=True)
class FoundWords:
    """Which words of a query the nodes have.

    Attributes:
        of: the bits of the words, by node.
        shares: of the query's weight, by a bit's place.
    """

    of: Mapping[tuple[str, int], int]
    shares: Sequence[float]

    @classmethod
    def by_hits(cls, hits: Sequence[TextHit]) -> FoundWords:
        """Return the words of a search's hits; those of a node and of its calls together."""
        of: defaultdict[tuple[str, int], int] = defaultdict(int)
        for hit in hits:
            of[hit.thread_id, hit.node_id] |= hit.words
        return cls(of, hits[0].shares if hits else ())

    def gained(
        self,
        outlines: Sequence[Outline],
        got: Sequence[float],
        earlier: Sequence[int],
        later: Sequence[int],
    ) -> list[float]:
        """Return by how much of itself the score of each node rises for the words near it."""
        weigh = functools.cache(self._weigh)
        words = [self.of.get(outline[:2], 0) for outline in outlines]
        gained = [0.0] * len(outlines)
        for index, outline in enumerate(outlines):
            if not (got[index] or words[index]) or outline.tokens >= SHORT:
                continue
            known = words[index]
            gain = OWN_SHARE * weigh(known)
            for links, shares in ((earlier, WORDS_BEFORE), (later, WORDS_AFTER)):
                here = index
                for share in shares:
                    here = links[here]
                    if here < 0:
                        break
                    if new := words[here] & ~known:
                        known |= new
                        gain += share * weigh(new)
            gained[index] = gain * (1 - outline.tokens / SHORT)
        return gained

    def _weigh(self, words: int) -> float:
        return sum(share for place, share in enumerate(self.shares) if words >> place & 1)


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
    embedded = (model, vector) if model and vector is not None and mode != "text" else None
    words = query if mode != "vectors" or embedded is None else None
    scores, best, found = await _candidates(store, words, embedded, thread_id)
    weight = VECTORS_WEIGHT if mode == "hybrid" else 1.0
    for place, score in _from_zero(best).items():
        scores[place] += weight * score
    reach = len(FROM_BEFORE) if mode == "hybrid" else 0
    outlines = await store.log.outlines({one[:2] for one in scores}, before=reach, after=reach)
    ranked: Mapping[_Place, float] = {**scores}
    if reach:
        ranked = rank_in_context(
            query, scores, outlines, found, adds=bool(embedded), now=now, zone=zone
        )
    # Outlines exist only for nodes on the heads' branches: the indexes know all branches.
    known = {one[:2] for one in outlines}

    def is_wanted(place: _Place) -> bool:
        return place[:2] in known and (wanted is None or wanted(NodeAddress(*place[:2])))

    places = filter(is_wanted, _best_first(ranked))
    first = list(itertools.islice(places, max(limit, READ)))
    nearest = max((best[one] for one in best if is_wanted(one)), default=-1.0)
    if fitting and nearest < fitting.least_similarity and not await is_covered(store, query, first):
        return []
    if own is not None:
        first = await _of_users(store, itertools.chain(first, places), limit, own)
    return [SearchHit(*place, ranked[place]) for place in first[: max(limit, 0)]]


async def _of_users(
    store: UserStore, places: Iterable[_Place], limit: int, own: str
) -> list[_Place]:
    """Return the first places that are not in the threads of sub-agents, or in the own one."""
    found: list[_Place] = []
    of_child = {own: False}
    for place in places:
        if len(found) >= limit:
            break
        thread_id = place[0]
        if thread_id not in of_child:
            runs = await store.runs.list(thread_id=thread_id, limit=1)
            of_child[thread_id] = bool(runs) and runs[0].parent_run_id is not None
        # Asked of the store once for each thread, and only for places that are about to be shown.
        if not of_child[thread_id]:
            found.append(place)
    return found


async def _candidates(
    store: UserStore,
    query: str | None,
    embedded: tuple[str, Sequence[float]] | None,
    thread_id: str | None,
) -> tuple[dict[HitPlace, float], dict[HitPlace, float], FoundWords]:
    """Search texts and vectors at the same time.

    Returns the scores of texts, relative to the best one, the similarities of vectors, and which
    words of the query the nodes have.
    """
    scores: dict[HitPlace, float] = defaultdict(float)
    similarities: dict[HitPlace, float] = {}
    found = FoundWords({}, ())

    async def find_texts(query: str) -> None:
        nonlocal found
        hits = await store.search.find(query, thread_id=thread_id, limit=CANDIDATES)
        for hit in hits:
            # The scales of BM25 differ by database and query; relative to the best they are alike.
            scores[HitPlace(hit.thread_id, hit.node_id, hit.call)] += hit.score / hits[0].score
        found = FoundWords.by_hits(hits)

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
    return scores, similarities, found


def _from_zero(similarities: Mapping[HitPlace, float]) -> dict[HitPlace, float]:
    """Scale similarities to 0 (the least) to 1, because embedders use different ranges."""
    if not similarities:
        return {}
    least, most = min(similarities.values()), max(similarities.values())
    width = most - least
    return {place: (one - least) / width if width else 1.0 for place, one in similarities.items()}


def _best_first(scores: Mapping[_Place, float]) -> Iterator[_Place]:
    """Yield places by their scores; ties by their keys, so that every database breaks them alike.

    Plain tuples, compared without a key function: a search sorts thousands.
    """
    ordered = sorted(
        (-round(score, 9), thread_id, node, -1 if call is None else call)
        for (thread_id, node, call), score in scores.items()
    )
    for _, thread_id, node, call in ordered:
        yield thread_id, node, None if call == -1 else call


def rank_in_context(
    query: str,
    scores: Mapping[HitPlace, float],
    outlines: Sequence[Outline],
    found: FoundWords | None = None,
    *,
    adds: bool = True,
    now: float | None = None,
    zone: tzinfo = UTC,
) -> dict[_Place, float]:
    """Return scores adjusted by neighbours, dates and speakers.

    It holds up the event loop, so it makes few objects: there are thousands of neighbours.

    Args:
        found: the words of the query that nodes have, if they are known.
        adds: whether neighbours of hits are added, which are no hits themselves.
        now, zone: see `retrieve`.
    """
    own: dict[tuple[str, int], float] = {}
    for place, score in scores.items():
        address = place[:2]
        own[address] = max(own.get(address, 0.0), score)
    factor = _factors(query, now, zone)
    earlier, later = _links(outlines)
    got = _from_neighbours(outlines, own, earlier, later)
    gained = found.gained(outlines, got, earlier, later) if found else itertools.repeat(0.0)
    of_hits: dict[tuple[str, int], tuple[float, float]] = {}
    ranked: dict[_Place, float] = {}
    for outline, more, gain in zip(outlines, got, gained, strict=False):
        address = outline[:2]
        times = (1 + gain) * (factor(outline) if factor else 1.0)
        if address in own:
            of_hits[address] = more, times
        elif more and adds and outline[3] in _SPEAKERS:
            ranked[*address, None] = more * times
    for place, score in scores.items():
        if near := of_hits.get(place[:2]):
            ranked[place] = (score + near[0]) * near[1]
    return ranked


def _factors(query: str, now: float | None, zone: tzinfo) -> Callable[[Outline], float] | None:
    """Return the function of a node's factor; None if it is 1 for all."""
    dates, about_user = dates_named(query, now=now, zone=zone), bool(_OWN.search(query))
    if not dates and not about_user:
        return None

    def factor(outline: Outline) -> float:
        speaker = OWN_WORDS if about_user and outline.role == "user" else 1.0
        return speaker * (1 + NAMED_DATE * best_fit(dates, outline.created_at, zone))

    return factor


def _links(outlines: Sequence[Outline]) -> tuple[list[int], list[int]]:
    """Return the places of the nodes before and after each in its conversation; -1 for none."""
    indexes: defaultdict[str, dict[int | None, int]] = defaultdict(dict[int | None, int])
    for index, outline in enumerate(outlines):
        indexes[outline[0]][outline[1]] = index
    earlier, later = [-1] * len(outlines), [-1] * len(outlines)
    for index, (thread_id, _, parent_id, _, _, created_at) in enumerate(outlines):
        parent = indexes[thread_id].get(parent_id, -1)
        if parent >= 0 and abs(created_at - outlines[parent].created_at) <= SESSION_GAP:
            earlier[index], later[parent] = parent, index
    return earlier, later


def _from_neighbours(
    outlines: Sequence[Outline],
    own: Mapping[tuple[str, int], float],
    earlier: Sequence[int],
    later: Sequence[int],
) -> list[float]:
    """Return what each node gets of the scores of its neighbours in the conversation.

    All from the scores as they are: no neighbour passes on what it got from another.  A node stands
    for its own missing neighbours, so that the first message of a conversation is not at a
    disadvantage.
    """
    got = [0.0] * len(outlines)
    for index, outline in enumerate(outlines):
        if (score := own.get(outline[:2])) is None:
            continue
        # What comes after a node has it before itself.
        for links, shares in ((later, _TO_LATER), (earlier, _TO_EARLIER)):
            here = index
            for given, kept in shares:
                here = links[here] if here >= 0 else here
                if here < 0:
                    # A missing neighbour: the node gets the share that it would have had from
                    # one.
                    got[index] += kept * score
                else:
                    got[here] += given * score
    return [
        more and more * max(0.0, 1 - outline.tokens / SHORT)
        for outline, more in zip(outlines, got, strict=True)
    ]
