"""Full-text search over the log, ranked by BM25.

Every database ranks alike: the words are split here (`tokenizer`), the statistics are the owner's
own (the number of texts, their lengths, the number of texts with each word), and the databases
compute the same sum from them.  The ranking is exact as long as the query's words occur in few
texts; see `POSTINGS`.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar
from weakref import WeakKeyDictionary

import orjson

from agent_runtime_storage.contract.records.search import NodeText, TextHit
from agent_runtime_storage.drivers.protocol import Driver, Statement, Value
from agent_runtime_storage.queries.owner import OwnerScope
from agent_runtime_storage.search.query_groups import WEAK, TermGroup, query_groups
from agent_runtime_storage.search.tokenizer import Terms, owner_key, query_terms, terms_of

INDEX_VERSION = 2
"""The version of what is indexed; migration 0020 and `search.sql` name it, too."""
POSTINGS = 10_000
"""The most texts that a search reads, counted once for each word that they have.

The query's words are used in the order of their rarity until they have more texts together than
this; the rarest is always used.  So words are ignored only for an owner with very many texts, and
only words that most of these have.
"""
# Texts indexed in one batch, which holds the lock of their thread.
_BATCH = 100
# Instead of NULL, which would make the key of a text not unique.
_NO_CALL = -1
_ALL = 2**62
# By owner.  The secret of a database changes only if its index is built again.
_KEYS: WeakKeyDictionary[Driver, dict[str, bytes]] = WeakKeyDictionary()
_COUNTED_AGAIN_AFTER = 600.0
"""Seconds for which a counted term need not be counted again, unless the owner's texts change."""
_DRIFT = 100
"""Counts hold until the owner's texts have become one of this many more or fewer."""
_KEPT_FROM = 500
"""Smaller counts are made in every search: that takes less than a millisecond."""
# Terms that are kept for each database.
_MOST_KEPT = 10_000
_MARKED = 62
"""The words of a query that hits tell apart, the rarest first; they fit into an integer."""
# BM25's k1 and b; `search.sql` holds constants that follow from them.
_SATURATION = 1.2
_LENGTH_SHARE = 0.75


async def index_key(scope: OwnerScope) -> bytes:
    """Return the key that hashes the words of an owner in the database's index."""
    keys = _KEYS.setdefault(scope.driver, {})
    if (key := keys.get(scope.user_id)) is None:
        [(secret,)] = await scope.read("search_secret")
        key = keys[scope.user_id] = owner_key(scope.user_id, bytes(secret))
    return key


class TextIndexer:
    """Builds the statements that index texts, for every writer of texts."""

    def __init__(self, scope: OwnerScope) -> None:
        self._scope = scope

    async def statements(self, thread_id: str, texts: Iterable[NodeText]) -> list[Statement]:
        """Return the statements that index texts; one that is indexed already changes nothing."""
        key = await index_key(self._scope)
        batch: list[Statement] = []
        for text in texts:
            terms = await terms_of(text.text, key)
            if terms.length:
                values = {**self._place(thread_id, text), "length": terms.length}
                values["terms"] = self.encode(terms)
                batch.append(self._scope.statement("index_text", values))
        return batch

    async def again(self, thread_id: str, text: NodeText) -> Statement:
        """Return the statement that replaces the terms of a text that an older version indexed."""
        key = await index_key(self._scope)
        terms = await terms_of(text.text, key)
        values = self._place(thread_id, text)
        # Only keys are new since then, so the index of most texts is current.  Not if the database
        # has a secret: a process of the older version, still at work, did not know of it.
        if not terms.length or (not terms.keys and key == owner_key(self._scope.user_id)):
            return self._scope.statement("mark_text", values)
        return self._scope.statement("reindex_text", {**values, "terms": self.encode(terms)})

    def _place(self, thread_id: str, text: NodeText) -> dict[str, Value]:
        return {
            "thread_id": thread_id,
            "node_id": text.node_id,
            "call": _NO_CALL if text.call is None else text.call,
            "version": INDEX_VERSION,
        }

    def encode(self, terms: Terms) -> str:
        """Return terms as the statements of this database take them."""
        if self._scope.driver.dialect == "postgres":
            return terms.by_place()
        return orjson.dumps(terms.by_bit()).decode()


class SqlTextSearch:
    """`TextSearch` over SQL."""

    def __init__(self, scope: OwnerScope, indexer: TextIndexer) -> None:
        self._scope = scope
        self._indexer = indexer

    async def find(
        self,
        query: str,
        *,
        thread_id: str | None = None,
        limit: int = 10,
        every_word: bool = False,
    ) -> list[TextHit]:
        if thread_id is not None:
            await self._scope.require_thread(thread_id)
        groups = await self._groups(query, every_word=every_word)
        if not groups or limit < 1:
            return []
        terms = list(dict.fromkeys(itertools.chain.from_iterable(group.terms for group in groups)))
        texts, length, counts = await self._count_texts(terms, every_word=every_word)
        if not counts:
            return []
        words = _weights(groups, counts, texts)
        shares = _shares(words)
        values: dict[str, Value] = {
            "words": orjson.dumps(words).decode(),
            "per_word": _SATURATION * _LENGTH_SHARE * texts / length,
            "thread_id": thread_id,
            "limit": limit,
        }
        if every_word:
            rows = await self._scope.read("search_all", **values, terms=" ".join(terms))
        else:
            rows = await self._scope.read("search_any", **values)
        return [
            TextHit(
                str(thread),
                int(node),
                None if call == _NO_CALL else int(call),
                float(score),
                int(marks),
                shares,
            )
            for thread, node, call, score, marks in rows
        ]

    async def _groups(self, query: str, *, every_word: bool) -> list[TermGroup]:
        key = await index_key(self._scope)
        if every_word:
            # As they were written, for a query that names something exactly.
            return [TermGroup((term,)) for term in query_terms(query, key, plain=True)]
        return query_groups(query, key)

    async def _count_texts(
        self, terms: Sequence[str], *, every_word: bool
    ) -> tuple[int, int, dict[str, int]]:
        """Return what `_figures` does, for the terms that the ranking can use.

        The counts are empty if no text can match.
        """
        kept = _KeptCounts.of(self._scope.driver)
        known = kept.recent(terms)
        most = POSTINGS + 1
        new = [term for term in terms if term not in known]
        texts, length, counts = await self._figures(new, most)
        if outdated := [term for term in known if known[term].is_outdated(texts)]:
            counts |= (await self._figures(outdated, most))[2]
        kept.add(counts, texts)
        counts = {term: one.count for term, one in known.items() if term not in outdated} | counts
        # A word that no text has: nothing can match.
        if every_word and len(counts) < len(terms):
            return texts, length, {}
        if min(counts.values(), default=0) > POSTINGS:
            # All words are common, and the rarest of them is used: count them exactly.
            # Counting stopped there, so that the rarest of them is not known.
            capped = [term for term, count in counts.items() if count == most]
            exact = (await self._figures(capped, _ALL))[2] if capped else {}
            kept.add(exact, texts)
            counts |= exact
        return texts, length, counts

    async def _figures(self, terms: Sequence[str], most: int) -> tuple[int, int, dict[str, int]]:
        """Return the owner's number of texts and of words, and the number of texts with each term.

        Terms without a text are left out; the texts of a term are counted up to `most`.
        """
        encoded = orjson.dumps(terms).decode()
        rows = await self._scope.read("search_figures", terms=encoded, most=most)
        figures = {str(term): (int(texts), int(length)) for term, texts, length in rows}
        texts, length = figures.pop("")
        return texts, length, {term: count for term, (count, _) in figures.items() if count}

    async def index(self, thread_id: str, texts: Sequence[NodeText]) -> None:
        await self._scope.require_thread(thread_id)
        for first in range(0, len(texts), _BATCH):
            batch = await self._indexer.statements(thread_id, texts[first : first + _BATCH])
            if batch:
                await self._scope.batch(batch, thread=thread_id, repeatable=True)


@dataclass(frozen=True, slots=True)
class _KeptCount:
    """The number of texts with a term, when the owner had `texts` texts."""

    count: int
    texts: int
    until: float

    def is_outdated(self, texts: int) -> bool:
        return abs(texts - self.texts) > texts // _DRIFT


class _KeptCounts:
    """The counts of words in many texts, for each database.

    Counting them in every search cost more than the search itself.
    """

    _of_drivers: ClassVar[WeakKeyDictionary[Driver, _KeptCounts]] = WeakKeyDictionary()

    def __init__(self) -> None:
        # By term: owners have no term in common.
        self._counts: dict[str, _KeptCount] = {}

    @classmethod
    def of(cls, driver: Driver) -> _KeptCounts:
        return cls._of_drivers.setdefault(driver, cls())

    def recent(self, terms: Iterable[str]) -> dict[str, _KeptCount]:
        now = time.monotonic()
        kept = {term: self._counts[term] for term in terms if term in self._counts}
        return {term: one for term, one in kept.items() if one.until > now}

    def add(self, counts: Mapping[str, int], texts: int) -> None:
        # Cleared whole: the terms that matter are counted again once.
        if len(self._counts) > _MOST_KEPT:
            self._counts.clear()
        until = time.monotonic() + _COUNTED_AGAIN_AFTER
        for term, count in counts.items():
            if count >= _KEPT_FROM:
                self._counts[term] = _KeptCount(count, texts, until)
            else:
                self._counts.pop(term, None)


def _weights(
    groups: Sequence[TermGroup], counts: Mapping[str, int], texts: int
) -> list[tuple[str, float, int, int]]:
    """Return the terms that are used, each with its group's weight, number and bit.

    The rarer a group is, in all its terms together, the more it weighs.  A group is too common if
    one of its terms is.  Whole words are used before what only resembles them.
    """
    weights: list[tuple[str, float, int, int]] = []
    room, used = POSTINGS, 0
    present = [[term for term in group.terms if term in counts] for group in groups]
    totals = [sum(counts[term] for term in terms) for terms in present]
    # Of equally rare groups the first one in the query comes first, so that every database uses the
    # same ones: terms are hashed with a secret of the database.
    for number in sorted(
        range(len(groups)), key=lambda place: (groups[place].weight <= WEAK, totals[place])
    ):
        count = totals[number]
        # The rarest is used in any case, and a later, more frequent one never fits either; a weak
        # one may.
        if not count or (weights and count > room):
            continue
        room -= count
        rarity = math.log1p((max(texts - count, 0) + 0.5) / (count + 0.5))
        weight = rarity * groups[number].weight
        mark = 1 << used if used < _MARKED else 0
        used += 1
        weights += [(term, weight, number, mark) for term in present[number]]
    return weights


def _shares(words: Sequence[tuple[str, float, int, int]]) -> tuple[float, ...]:
    """Return what share of the weight of a query's words each marked one has."""
    weights = {mark: weight for _, weight, _, mark in words if mark}
    total = sum(weights.values())
    return tuple(weight / total for weight in weights.values()) if total else ()
