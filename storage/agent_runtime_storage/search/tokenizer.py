"""Split text into words for full-text search, in the same way for every database.

Words are folded (case, compatibility forms, accents of European scripts) and split in the same way
for texts and for queries.  An identifier, a path or an address is found whole and by its parts:
`app/fooBar.py` holds itself, `foobar.py`, `foobar`, `app`, `foo`, `bar` and `py`.  Scripts that put
no spaces between words are cut into pairs of characters.  Words of other languages than English
also have keys, such as their stems (see `stemming`).  Everything else (punctuation, operators,
emoji, zero bytes) separates words and is never searched for.

The index holds no readable word: a term is a short keyed hash of a word and its owner.  So owners
never share terms, databases cannot differ in what a word is, and remains of deleted texts in unused
pages cannot be read.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from anyio.lowlevel import checkpoint

from agent_runtime_storage.search.folding import without_accents
from agent_runtime_storage.search.stemming import keys_of, words_to_stem

MAX_CHARACTERS = 100_000
"""Characters of a text that are indexed; text beyond them is not found."""
MAX_QUERY_WORDS = 64
"""Distinct words of a query that count, from the first."""

MAX_TIMES = 255
"""The most occurrences of a word that count in one text."""

# Two words of one owner share a term once in 10^14 pairs, and a longer hash makes a larger index.
_TERM_BYTES = 6

# Python's \w misses the combining marks of many scripts.
_MARKS = (
    "\u0300-\u036f\u0483-\u0489\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a"
    "\u064b-\u065f\u0670\u06d6-\u06dc\u06df-\u06e8\u06ea-\u06ed\u0711\u0730-\u074a\u07a6-\u07b0"
    "\u0900-\u0963\u0966-\u0dff\u0e31-\u0e3a\u0e47-\u0e4e\u0eb1-\u0ebc\u0ec8-\u0ecd"
    "\u0f18\u0f19\u0f35\u0f37\u0f39\u0f71-\u0f84\u102b-\u103e\u17b4-\u17d3\u3099\u309a"
)
_UNSPACED = (
    "\u0e01-\u0e4e\u0e81-\u0ecd\u1000-\u104f\u1780-\u17d3\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uf900-\ufaff\U00020000-\U0003ffff"
)
_WORD = rf"[\w{_MARKS}]+"
_COMPOUND = re.compile(rf"{_WORD}(?:[./\\:@-]{{1,3}}{_WORD})*")
_ASCII_COMPOUND = re.compile(r"\w+(?:[./\\:@-]{1,3}\w+)*", re.ASCII)
_LEVELS = tuple(re.compile(joint) for joint in (r"[/\\:@]+", r"[.-]+", r"_+"))
_UNSPACED_RUN = re.compile(rf"[{_UNSPACED}]+|[^{_UNSPACED}]+")
_HAS_UNSPACED = re.compile(rf"[{_UNSPACED}]")
# Longer compounds are data, such as base64: each occurs once and would fill the cache.
_CACHED_LENGTH = _LONGEST_NAME = 64
# Words counted or hashed in about a millisecond.
_PORTION = 1000
# Words stemmed in about a millisecond, if they are new.
_STEMMED = 8
_PLACES = tuple(",".join(map(str, range(1, times + 1))) for times in range(MAX_TIMES + 1))


@dataclass(frozen=True, slots=True)
class WordParts:
    """The words of a part of a text: the smallest ones, and the compounds that they form."""

    plain: tuple[str, ...]
    wholes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Terms:
    """The indexed form of a text.

    Attributes:
        length: how many words it has.
        times: the occurrences of each term, at most `MAX_TIMES`: those of its words and of their
            keys (see `stemming`).
        keys: how many of the terms are keys.
    """

    length: int
    times: dict[str, int]
    keys: int = 0

    def by_bit(self) -> list[str]:
        """Return, for each bit of the occurrence counts, the terms that have it set."""
        odd = [term for term, times in self.times.items() if times & 1]
        columns = [odd, *([] for _ in range(MAX_TIMES.bit_length() - 1))]
        # Most words occur once.
        for term, times in self.times.items():
            if times > 1:
                for bit in range(1, times.bit_length()):
                    if times >> bit & 1:
                        columns[bit].append(term)
        return [" ".join(column) for column in columns]

    def by_place(self) -> str:
        """Return the terms as a Postgres `tsvector`, with a position for each occurrence."""
        return " ".join(
            f"{term}:{_PLACES[times]}" if times > 1 else term for term, times in self.times.items()
        )


def split_words(text: str, *, query: bool = False) -> Iterator[WordParts]:
    """Yield the words of a text, part by part.

    Args:
        query: whether the text is a query: scripts without spaces then give pairs of characters
            only, where a text gives single ones too.
    """
    for match in _COMPOUND.finditer(without_accents(text)):
        yield _split(match[0], query)


async def terms_of(text: str, key: bytes) -> Terms:
    """Return the terms of a text under its owner's key.

    It takes about 0.15 µs a character and yields to the event loop; a thread would not help, as it
    would hold the GIL.
    """
    counts: dict[str, int] = {}
    folded = without_accents(text[:MAX_CHARACTERS])
    # The same matches, in three quarters of the time.
    compounds = (_ASCII_COMPOUND if folded.isascii() else _COMPOUND).findall(folded)
    for start in range(0, len(compounds), _PORTION):
        _count_words(compounds[start : start + _PORTION], counts)
        if start + _PORTION < len(compounds):
            await checkpoint()
    length = sum(counts.values())
    keys = await _keys(text[:MAX_CHARACTERS], counts)
    counts |= keys
    terms: list[str] = []
    words = iter(counts)
    while portion := list(itertools.islice(words, _PORTION)):
        if terms:
            await checkpoint()
        terms += map(hash_term, portion, itertools.repeat(key))
    numbers = counts.values()
    if max(numbers, default=0) > MAX_TIMES:
        numbers = [min(number, MAX_TIMES) for number in numbers]
    return Terms(length, dict(zip(terms, numbers, strict=True)), len(keys))


def query_words(text: str, *, plain: bool) -> list[str]:
    """Return the distinct words of a query, at most `MAX_QUERY_WORDS`.

    Args:
        plain: whether to leave out compounds whose parts are included.
    """
    parts = split_words(text[:MAX_CHARACTERS], query=True)
    words = (word for part in parts for word in (part.plain if plain else part.wholes + part.plain))
    found: dict[str, None] = {}
    for word in words:
        found[word] = None
        if len(found) == MAX_QUERY_WORDS:
            break
    return list(found)


def query_terms(text: str, key: bytes, *, plain: bool) -> list[str]:
    """Return the terms of the words that `query_words` returned."""
    return [hash_term(word, key) for word in query_words(text, plain=plain)]


def owner_key(user_id: str, secret: bytes = b"") -> bytes:
    """Return the key that hashes an owner's words.

    Args:
        secret: the database's; none for an index from before there was one.
    """
    owner = user_id.encode("utf-8", "surrogatepass")
    return hashlib.blake2b(owner, key=secret, digest_size=32).digest()


@functools.lru_cache(maxsize=8_192)
def hash_term(word: str, key: bytes) -> str:
    """Return the term of an owner's word, in hexadecimal."""
    encoded = word.encode("utf-8", "surrogatepass")
    return hashlib.blake2b(encoded, key=key, digest_size=_TERM_BYTES).hexdigest()


async def _keys(text: str, words: Mapping[str, int]) -> dict[str, int]:
    """Return the keys of a text's words, and how often each occurs."""
    keys: dict[str, int] = {}
    for number, (word, language, times) in enumerate(words_to_stem(text, words)):
        if number % _STEMMED == _STEMMED - 1:
            await checkpoint()
        for key in keys_of(word, language):
            keys[key] = keys.get(key, 0) + times
    return keys


def _count_words(compounds: list[str], counts: dict[str, int]) -> None:
    """Add the words of compounds to their counts: those of the compounds' parts first."""
    get = counts.get
    wholes: list[tuple[str, int]] = []
    # Most words of a text are repeated in it, and each is split once.
    for compound, times in Counter(compounds).items():
        if _is_plain(compound):
            word = compound.casefold()
            counts[word] = get(word, 0) + times
            continue
        parts = _split(compound, False)
        for word in parts.plain:
            counts[word] = get(word, 0) + times
        for word in parts.wholes:
            wholes.append((word, times))
    for word, times in wholes:
        counts[word] = get(word, 0) + times


def _is_plain(compound: str) -> bool:
    """Return whether a compound is one plain word, as most are."""
    # Decided before any cache, because a text of many words would empty it.
    if compound.islower():
        return compound.isalpha() and compound.isascii()
    if not (compound.isalpha() and compound.isascii()):
        return False
    return compound[1:].islower() or compound.isupper()


def _split(compound: str, query: bool) -> WordParts:
    return (_split_cached if len(compound) <= _CACHED_LENGTH else _cut)(compound, query)


@functools.lru_cache(maxsize=4_096)
def _split_cached(compound: str, query: bool) -> WordParts:
    return _cut(compound, query)


def _cut(compound: str, query: bool) -> WordParts:
    if _is_plain(compound):
        return WordParts((compound.casefold(),))
    wholes: dict[str, None] = {}
    pieces = [compound]
    for split in (*(level.split for level in _LEVELS), _humps, _unspaced):
        smaller: list[str] = []
        for piece in pieces:
            parts = [part for part in split(piece) if part]
            if parts != [piece] and not _HAS_UNSPACED.search(piece):
                wholes[piece.casefold()] = None
            smaller += parts
        pieces = smaller
    plain: list[str] = []
    for piece in pieces:
        if not _HAS_UNSPACED.match(piece) or len(piece) == 1:
            plain.append(piece.casefold())
            continue
        plain += map("".join, itertools.pairwise(piece))
        # A query of one character has no pair; texts hold single ones for it to find.
        if not query:
            plain += piece
    parts = set(plain)
    return WordParts(tuple(plain), tuple(whole for whole in wholes if plain and whole not in parts))


def _humps(piece: str) -> list[str]:
    """Split `fooBar` and `HTTPServer` at the humps; longer texts are data rather than names."""
    if len(piece) > _LONGEST_NAME or piece.islower() or piece.isupper() or piece[1:].islower():
        return [piece]
    starts = [
        at
        for at in range(1, len(piece))
        if piece[at].isupper() and (not piece[at - 1].isupper() or piece[at + 1 : at + 2].islower())
    ]
    return [piece[a:b] for a, b in itertools.pairwise((0, *starts, len(piece)))]


def _unspaced(piece: str) -> list[str]:
    return _UNSPACED_RUN.findall(piece) if _HAS_UNSPACED.search(piece) else [piece]
