"""Splitting text into words, and the hashed terms of an owner."""

from __future__ import annotations

import random
import sys
from collections import Counter

import pytest

from agent_runtime_storage.search.tokenizer import (
    MAX_QUERY_WORDS,
    MAX_TIMES,
    hash_term,
    owner_key,
    query_terms,
    split_words,
    terms_of,
)

KEY = owner_key("ann")


@pytest.mark.parametrize(
    ("text", "plain", "wholes"),
    [
        ("plain Words", ["plain", "words"], []),
        ("don't", ["don", "t"], []),
        ("fooBar", ["foo", "bar"], ["foobar"]),
        ("HTTPServer2", ["http", "server2"], ["httpserver2"]),
        ("NASA iPhone", ["nasa", "i", "phone"], ["iphone"]),
        ("foo_bar.baz", ["foo", "bar", "baz"], ["foo_bar.baz", "foo_bar"]),
        ("__init__", ["init"], ["__init__"]),
        ("a/b.py", ["a", "b", "py"], ["a/b.py", "b.py"]),
        ("C:\\Temp\\x", ["c", "temp", "x"], ["c:\\temp\\x"]),
        ("std::vector", ["std", "vector"], ["std::vector"]),
        ("3.14 2024-01-15", ["3", "14", "2024", "01", "15"], ["3.14", "2024-01-15"]),
        ("end. Begin", ["end", "begin"], []),
        ("Ｆｕｌｌ naïve ﬁne", ["full", "naive", "fine"], []),
        ("Straße", ["strasse"], []),
        ("한국어", ["한국", "국어", "한", "국", "어"], []),
        ("東京都", ["東京", "京都", "東", "京", "都"], []),
        ("Python入門", ["python", "入門", "入", "門"], []),
        ("_ . - /", [], []),
        ("aB" * 33, ["ab" * 33], []),
    ],
)
def test_words(text: str, plain: list[str], wholes: list[str]) -> None:
    words = list(split_words(text))
    assert [word for part in words for word in part.plain] == plain
    assert [word for part in words for word in part.wholes] == wholes


def test_a_query_uses_pairs_of_characters_where_there_are_some() -> None:
    assert [part.plain for part in split_words("東京都 猫", query=True)] == [
        ("東京", "京都"),
        ("猫",),
    ]


async def test_every_query_term_of_an_indexed_text_is_indexed() -> None:
    chance = random.Random(7)
    alphabet = "aB1_./-:@\\ éß東か한ิ\u0301\u200d\ud83d😀\0'\"\n"
    for _ in range(3_000):
        text = "".join(chance.choices(alphabet, k=chance.randint(1, 30)))
        indexed = (await terms_of(text, KEY)).times
        for plain in (True, False):
            assert set(query_terms(text, KEY, plain=plain)) <= indexed.keys(), repr(text)
        assert bool(indexed) == bool(query_terms(text, KEY, plain=True))


@pytest.mark.parametrize("more", ["", " naïve 東京都"])
async def test_terms_count_the_words_of_a_text(more: str) -> None:
    dice = random.Random(7)
    text = "".join(dice.choices("abcdeXYZ01_./\\:@- \n", k=20_000)) + " again" * 300 + more
    expected: Counter[str] = Counter()
    for part in split_words(text):
        expected.update(part.plain + part.wholes)
    terms = await terms_of(text, KEY)
    assert len(expected) > 2000
    assert terms.length == expected.total()
    assert terms.times == {
        hash_term(word, KEY): min(times, MAX_TIMES) for word, times in expected.items()
    }
    counted: Counter[str] = Counter()
    for bit, column in enumerate(terms.by_bit()):
        counted.update(dict.fromkeys(column.split(), 1 << bit))
    assert counted == terms.times


async def test_terms_depend_on_the_owner() -> None:
    assert hash_term("word", KEY) != hash_term("word", owner_key("bob"))
    terms = await terms_of("word other word", KEY)
    assert terms.length == 3
    assert terms.times == {hash_term("word", KEY): 2, hash_term("other", KEY): 1}
    assert terms.by_place() == f"{hash_term('word', KEY)}:1,2 {hash_term('other', KEY)}"
    assert terms.by_bit()[:2] == [hash_term("other", KEY), hash_term("word", KEY)]


async def test_bounds() -> None:
    repeated = await terms_of("word " * 1_000, KEY)
    assert repeated.length == 1_000
    assert repeated.times == {hash_term("word", KEY): MAX_TIMES}
    assert all(column == hash_term("word", KEY) for column in repeated.by_bit())
    words = " ".join(f"w{number}" for number in range(1_000))
    assert query_terms(words, KEY, plain=True) == [
        hash_term(f"w{number}", KEY) for number in range(MAX_QUERY_WORDS)
    ]
    deep = "a/" * 40_000 + "b_" * 10_000 + "cD" * 5_000
    assert (await terms_of(deep, KEY)).times
    assert sys.getrecursionlimit() < 40_000
