"""Every database ranks alike: by BM25 over the owner's texts, computed here a second time."""

from __future__ import annotations

import math
import random
from collections import Counter
from pathlib import Path

import orjson
import pytest

from agent_runtime_storage import NewNode, Store, TextHit, UserStore, open_store
from agent_runtime_storage.drivers.protocol import Row, Value
from agent_runtime_storage.queries.owner import OwnerScope
from agent_runtime_storage.search import full_text as search
from tests.services.libsql import Libsql
from tests.storage.helpers import begin

_SEED = 20_261_121
_LEXICON = [f"w{number}" for number in range(60)]
# As in a language, a few words are in most texts, and most words in few.
_FREQUENCIES = [1 / (place + 1) for place in range(60)]


def _corpus(chance: random.Random) -> dict[tuple[str, int], list[str]]:
    """Return texts of three threads, with 1 to 3,000 words."""
    texts: dict[tuple[str, int], list[str]] = {}
    for thread in ("a", "b", "c"):
        for seq in range(1, 41):
            length = chance.choice((1, 3, 10, 40, 40, 100, 3_000 if seq == 7 else 20))
            texts[thread, seq] = chance.choices(_LEXICON, _FREQUENCIES, k=length)
    return texts


def _bm25(texts: dict[tuple[str, int], list[str]], query: list[str]) -> list[TextHit]:
    average = sum(map(len, texts.values())) / len(texts)
    counts = {key: Counter(words) for key, words in texts.items()}
    scores: dict[tuple[str, int], float] = {}
    for word in dict.fromkeys(query):
        holders = [key for key, count in counts.items() if count[word]]
        weight = math.log(1 + (len(texts) - len(holders) + 0.5) / (len(holders) + 0.5))
        for key in holders:
            # The count of a word in a text is bounded.
            times = min(counts[key][word], 255)
            norm = 1.2 * (0.25 + 0.75 * len(texts[key]) / average)
            scores[key] = scores.get(key, 0) + weight * times * 2.2 / (times + norm)
    ranked = sorted(scores.items(), key=lambda item: (-round(item[1], 9), item[0]))
    return [TextHit(thread, seq, None, score) for (thread, seq), score in ranked]


async def _fill(user: UserStore, texts: dict[tuple[str, int], list[str]]) -> None:
    for thread in dict.fromkeys(thread for thread, _ in texts):
        nodes = tuple(
            NewNode(seq, seq - 1 or None, "message", "user", b"", 1, 0, text=" ".join(words))
            for (of, seq), words in texts.items()
            if of == thread
        )
        await begin(user, f"{user.user_id}-{thread}", thread, nodes=nodes)


def _check_same(hits: list[TextHit], expected: list[TextHit]) -> None:
    assert [(hit.thread_id, hit.node_id) for hit in hits] == [
        (hit.thread_id, hit.node_id) for hit in expected
    ]
    assert [hit.score for hit in hits] == pytest.approx([hit.score for hit in expected], abs=1e-6)


async def test_the_ranking_is_bm25_over_the_owners_texts(
    store: Store, user: UserStore, stranger: UserStore
) -> None:
    chance = random.Random(_SEED)
    texts = _corpus(chance)
    await _fill(user, texts)
    # Another owner's texts have no weight.
    await _fill(stranger, {("a", seq): ["w50", "w51"] * 9 for seq in range(1, 30)})
    for _ in range(20):
        query = chance.sample(_LEXICON, chance.randint(1, 8))
        hits = await user.search.find(" ".join(query), limit=1000)
        expected = _bm25(texts, query)
        _check_same(hits, expected)
        _check_same(await user.search.find(" ".join(query), limit=5), expected[:5])
        in_thread = [hit for hit in expected if hit.thread_id == "b"]
        _check_same(await user.search.find(" ".join(query), limit=1000, thread_id="b"), in_thread)
        both = [hit for hit in expected if set(query[:2]) <= set(texts[hit.thread_id, hit.node_id])]
        every = await user.search.find(" ".join(query[:2]), limit=1000, every_word=True)
        assert {(hit.thread_id, hit.node_id) for hit in every} == {
            (hit.thread_id, hit.node_id) for hit in both
        }
    await store.close()


async def test_all_databases_return_the_same_hits(
    tmp_path: Path, libsql: Libsql, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    urls = [f"file:{tmp_path / 'store.db'}", libsql.http_url, postgres_url]
    stores = [await open_store(url) for url in urls]
    users = [store.of("ann") for store in stores]
    chance = random.Random(_SEED)
    texts = _corpus(chance)
    for user in users:
        await _fill(user, texts)
    # With and without leaving out words that most texts contain.
    for postings in (search.POSTINGS, 100):
        monkeypatch.setattr(search, "POSTINGS", postings)
        for _ in range(20):
            query = " ".join(chance.sample(_LEXICON, chance.randint(1, 8)))
            first, *others = [await user.search.find(query, limit=1000) for user in users]
            assert first
            for other in others:
                _check_same(other, first)
    for store in stores:
        await store.close()


async def test_words_of_too_many_texts_are_left_out_if_there_are_rarer_ones(
    user: UserStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = {("t", seq): ["common", "rare"] if seq == 3 else ["common"] for seq in range(1, 31)}
    await _fill(user, texts)
    monkeypatch.setattr(search, "POSTINGS", 10)
    assert [hit.node_id for hit in await user.search.find("common rare", limit=50)] == [3]
    assert len(await user.search.find("common", limit=50)) == 30
    every = await user.search.find("common rare", limit=50, every_word=True)
    assert [hit.node_id for hit in every] == [3]
    # The same if the rarer word is in no text.
    assert len(await user.search.find("common missing", limit=50)) == 30
    assert await user.search.find("common missing", every_word=True) == []


async def test_counts_of_common_words_are_kept_until_the_texts_change(
    user: UserStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "_KEPT_FROM", 5)
    texts = {("t", seq): ["w1", *(["w2"] if seq == 3 else [])] for seq in range(1, 31)}
    await _fill(user, texts)
    query = ["w1", "w2"]
    counted: list[list[str]] = []
    read = OwnerScope.read

    async def counting(scope: OwnerScope, name: str, **params: Value) -> list[Row]:
        if name == "search_figures":
            counted.append(orjson.loads(str(params["terms"])))
        return await read(scope, name, **params)

    monkeypatch.setattr(OwnerScope, "read", counting)
    for _ in range(2):
        _check_same(await user.search.find("w1 w2", limit=50), _bm25(texts, query))
    # In the order of the query; the words are hashed.
    common, rare = counted[0]
    assert counted == [[common, rare], [rare]]
    # A change of one in a hundred of the texts is enough, so of few texts any.
    texts |= {("u", 1): ["w1"]}
    await _fill(user, {("u", 1): ["w1"]})
    _check_same(await user.search.find("w1 w2", limit=50), _bm25(texts, query))
    assert counted[2:] == [[rare], [common]]


async def test_repetitions_of_a_word_count_up_to_a_bound(user: UserStore) -> None:
    times = [*range(1, 40), 64, 100, 127, 128, 200, 254, 255, 256, 300]
    texts = {("t", seq): ["word"] * number for seq, number in enumerate(times, 1)}
    await _fill(user, texts)
    _check_same(await user.search.find("word", limit=100), _bm25(texts, ["word"]))
