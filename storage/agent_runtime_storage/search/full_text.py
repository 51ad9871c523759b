"""Full text: what was said in the log, found by its words and ranked by BM25.

Every database ranks alike: the words are made here (`words`), the figures are the owner's own
(how many texts there are, how long they are, how many hold a word), and the databases compute the
same sum from them.  The ranking is exact as long as the query's words occur in few texts; see
`POSTINGS`.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from weakref import WeakKeyDictionary

import orjson

from agent_runtime_storage.contract.records.search import NodeText, TextHit
from agent_runtime_storage.drivers.protocol import Driver, Statement, Value
from agent_runtime_storage.queries.owner import OwnerScope
from agent_runtime_storage.search.query_expansion import MAX_EXPANDED_WORDS, content_words, forms_of
from agent_runtime_storage.search.tokenizer import (
    Terms,
    hash_term,
    owner_key,
    query_terms,
    query_words,
    terms_of,
)

POSTINGS = 10_000
"""How many texts a search looks at, once for each word that they have.

The query's words count in the order of their rarity, as long as they are together in no more texts
than this; the rarest always counts.  So only an owner with very many texts, asking with words that
most of them have, notices.
"""
_BATCH = 100
_NO_CALL = -1
_ALL = 2**62
# Words of very many texts, by their terms, until when they count as such: to count them again at
# each search cost Postgres more than the search.
_COMMON: WeakKeyDictionary[Driver, dict[str, float]] = WeakKeyDictionary()
_COMMON_SECONDS = 600.0
_MOST_COMMON = 10_000
_SATURATION = 1.2
_LENGTH_SHARE = 0.75


class TextIndexer:
    """Makes the statements that index texts, for every writer of texts."""

    def __init__(self, scope: OwnerScope) -> None:
        self._scope = scope

    async def statements(self, thread_id: str, texts: Iterable[NodeText]) -> list[Statement]:
        """Return what indexes texts; what is indexed already, or has no words, is left out."""
        key = owner_key(self._scope.user_id)
        batch: list[Statement] = []
        for text in texts:
            terms = await terms_of(text.text, key)
            if terms.length:
                values: dict[str, Value] = {
                    "thread_id": thread_id,
                    "node_id": text.node_id,
                    "call": _NO_CALL if text.call is None else text.call,
                    "length": terms.length,
                    "terms": self._encode(terms),
                }
                batch.append(self._scope.statement("index_text", values))
        return batch

    def _encode(self, terms: Terms) -> str:
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
        words = self._asked(query, every_word=every_word)
        if not words or limit < 1:
            return []
        terms = list(dict.fromkeys(itertools.chain.from_iterable(words)))
        texts, length, counts = await self._count_texts(terms, every_word=every_word)
        if not counts:
            return []
        asked: dict[str, Value] = {
            "words": orjson.dumps(_weights(words, counts, texts)).decode(),
            "per_word": _SATURATION * _LENGTH_SHARE * texts / length,
            "thread_id": thread_id,
            "limit": limit,
        }
        if every_word:
            rows = await self._scope.read("search_all", **asked, terms=" ".join(terms))
        else:
            rows = await self._scope.read("search_any", **asked)
        return [
            TextHit(str(thread), int(node), None if call == _NO_CALL else int(call), float(score))
            for thread, node, call, score in rows
        ]

    def _asked(self, query: str, *, every_word: bool) -> list[list[str]]:
        """Return the query's words, each as the terms that count as it."""
        key = owner_key(self._scope.user_id)
        if every_word:
            return [[term] for term in query_terms(query, key, plain=True)]
        words = content_words(query_words(query, plain=False))
        forms = [
            forms_of(word) if place < MAX_EXPANDED_WORDS else (word,)
            for place, word in enumerate(words)
        ]
        return [[hash_term(form, key) for form in one] for one in forms]

    async def _count_texts(
        self, terms: Sequence[str], *, every_word: bool
    ) -> tuple[int, int, dict[str, int]]:
        """Return what `_figures` does, of as many terms as the ranking can need.

        There are none if nothing can be found.
        """
        common = _COMMON.setdefault(self._scope.driver, {})
        now = time.monotonic()
        asked = [term for term in terms if common.get(term, 0.0) <= now]
        texts, length, counts = await self._figures(asked, POSTINGS + 1)
        if len(common) > _MOST_COMMON:
            common.clear()
        for term, count in counts.items():
            if count > POSTINGS:
                common[term] = now + _COMMON_SECONDS
        if every_word and len(counts) < len(asked):
            return texts, length, {}
        if min(counts.values(), default=_ALL) > POSTINGS and texts > POSTINGS:
            # Of words that are all in very many texts the rarest has to be known.
            return await self._figures(terms, _ALL)
        return texts, length, {**dict.fromkeys(set(terms) - set(asked), POSTINGS + 1), **counts}

    async def _figures(self, terms: Sequence[str], most: int) -> tuple[int, int, dict[str, int]]:
        """Return how many texts and words the owner has, and how many texts have each term.

        Terms that no text has are left out; texts are counted up to `most`.
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


def _weights(
    words: Sequence[Sequence[str]], counts: Mapping[str, int], texts: int
) -> list[tuple[str, float, int]]:
    """Return the terms that count, each with its word's weight and number.

    The rarer a word is, in all its forms together, the more it weighs.  A word of which one form is
    too common to be counted is too common itself.
    """
    weights: list[tuple[str, float, int]] = []
    room = POSTINGS
    found = [{term: counts[term] for term in forms if term in counts} for forms in words]
    for number, forms in sorted(
        enumerate(found), key=lambda one: (sum(one[1].values()), sorted(one[1]))
    ):
        count = sum(forms.values())
        if weights and count > room:
            break
        room -= count
        weight = math.log1p((max(texts - count, 0) + 0.5) / (count + 0.5))
        weights += [(term, weight, number) for term in forms]
    return weights
