"""The terms that a query looks for: for each of its words the forms that count as that word.

Texts are found by their words as written and, in languages other than English, by keys (see
`stemming`).  Queries ask for both, so that texts that were indexed without keys are found as well.
A short query may not show its language: then the words' forms in several languages are tried, which
costs a term each, and those that do not occur change nothing.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from agent_runtime_storage.search.folding import (
    fold_word,
    in_lower_case,
    variants_of,
    without_accents,
)
from agent_runtime_storage.search.languages import (
    COMPOUNDING,
    ENGLISH,
    LATIN,
    is_function_word,
    language_of_script,
    latin_languages,
)
from agent_runtime_storage.search.numerals import han_numbers, han_pairs, in_other_digits
from agent_runtime_storage.search.query_expansion import MAX_EXPANDED_WORDS, forms_of
from agent_runtime_storage.search.stemming import GROUP, LETTERS, STEM, WORD, stems_of
from agent_runtime_storage.search.tokenizer import hash_term, query_words

WEAK = 0.5
"""The weight of what only resembles a word: groups of its letters, or its numerals."""
EXACT = 0.25
"""The part of a word's weight that only the form of the query has, and not its other forms."""
CHARACTER = 0.3
"""The weight of a single character of Chinese, Japanese or Korean, and of a pair in hiragana."""
FUNCTION = 0.05
"""The weight of a function word next to several other words: sentences alike are about the like."""
MOST_TERMS = 600
"""The terms of a query that are looked up; those of whole words first."""

# A language is tried if it has at least this part of a query's signs.
_LEAST_SHARE = 0.15
_MOST_LANGUAGES = 3
# Tried where a query shows no language and is short.
_LIKELY = ("german", "french", "spanish", "portuguese", "italian", "dutch", "polish", "turkish")
_SHORT = 4
# Characters of a query whose spelling counts, and of which single ones and numerals are looked for.
_SPELLED, _CHARACTERS = 10_000, 500
_LONGEST = 40
_HIRAGANA = re.compile("[\u3040-\u309f]+")
_UNSPACED = re.compile("[\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3]")
_DIGRAPHS = (("ae", "a"), ("oe", "o"), ("ue", "u"), ("aa", "a"))
_UMLAUTS = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "ø": "oe", "å": "aa"})


@dataclass(frozen=True, slots=True)
class TermGroup:
    """Terms that count as one word of a query.

    Attributes:
        terms: the terms, without repetitions; each occurrence of any of them counts.
        weight: how much the group counts, next to its rarity; the groups of a word have 1 together,
            and those of what only resembles one at most `WEAK` each.
    """

    terms: tuple[str, ...]
    weight: float = 1.0


def query_groups(query: str, key: bytes) -> list[TermGroup]:
    """Return the groups of terms of a query under its owner's key; whole words come first.

    Together they have at most `MOST_TERMS` terms.
    """
    weights: dict[tuple[str, ...], float] = {}
    for weight, words in _Query(query).groups():
        group = tuple(dict.fromkeys(words))
        weights[group] = max(weight, weights.get(group, 0.0))
    ranked = sorted(weights.items(), key=lambda item: -item[1])
    sizes = itertools.accumulate(len(words) for words, _ in ranked)
    return [
        TermGroup(tuple(hash_term(word, key) for word in words), weight)
        for (words, weight), size in zip(ranked, sizes, strict=True)
        # A group that no longer fits is left out whole: a part of its forms would count too
        # little.
        if size <= MOST_TERMS
    ]


def content_words(words: Iterable[str]) -> list[str]:
    """Return words without the function words of their languages; these alone are kept."""
    known = list(words)
    return _content(known, _languages_in(known, " ".join(known).lower())) or known


class _Query:
    """The words of a query and the languages that it may be in."""

    def __init__(self, query: str) -> None:
        self._text = without_accents(query[:_CHARACTERS])
        lower = in_lower_case(query[:_SPELLED])
        # The words with their accents, which stemmers need.
        self._written: dict[str, list[str]] = {}
        for word in WORD.findall(lower):
            self._written.setdefault(without_accents(word).casefold(), []).append(word)
        self._words = query_words(query, plain=False)
        self._languages = _languages_in(self._words, lower)
        self._expandable = not self._languages or ENGLISH in self._languages or query.isascii()

    def groups(self) -> Iterator[tuple[float, list[str]]]:
        content = _content(self._words, self._languages)
        for place, word in enumerate(content or self._words):
            if _UNSPACED.search(word):
                yield (
                    CHARACTER if _HIRAGANA.fullmatch(word) else 1.0,
                    [word, *sorted(variants_of(word))],
                )
            elif word.isdecimal():
                yield from _number(word)
            elif place < MAX_EXPANDED_WORDS:
                yield from self._word(word)
            else:
                yield 1.0, [word]
        if len(content) > 1:
            yield from ((FUNCTION, [word]) for word in self._words if word not in content)
        for character in dict.fromkeys(filter(_UNSPACED.match, self._text)):
            if not _HIRAGANA.match(character):
                yield CHARACTER, [character, *sorted(variants_of(character))]
        yield from ((1.0, [number]) for number in han_numbers(self._text))

    def _word(self, word: str) -> Iterator[tuple[float, list[str]]]:
        """Yield a word with its forms and stems, and groups of its letters."""
        script = language_of_script(word)
        forms = [word]
        if script == LATIN and self._expandable:
            forms += forms_of(word)
        languages = self._languages_of(script)
        weak: list[str] = []
        for written in self._written.get(word, ()):
            for spelling in _spellings(written):
                folded = fold_word(spelling)
                forms += [folded, STEM + folded]
                for language in languages:
                    for stem in stems_of(spelling, language):
                        forms += [stem, STEM + stem]
            if self._languages != (ENGLISH,) or script != LATIN:
                weak += _letter_groups(fold_word(written), languages)
        if set(forms) == {word}:
            yield 1.0, [word]
        else:
            # Together the weight of one word; a text with the very form has both parts.
            yield 1.0 - EXACT, forms
            yield EXACT, [word]
        for number, group in enumerate(dict.fromkeys(weak)):
            # The first letters tell the word, the others together as much.
            yield WEAK if number == 0 else 2 * WEAK / (len(weak) - 1), [group]

    def _languages_of(self, script: str) -> Sequence[str]:
        if script != LATIN:
            return (script,) if script else ()
        if self._languages or len(self._words) > _SHORT:
            return self._languages
        return _LIKELY


def _languages_in(words: Sequence[str], lower: str) -> tuple[str, ...]:
    """Return the Latin languages that words may be in; none if they do not show any."""
    shares = latin_languages({fold_word(word) for word in words}, lower)
    fitting = [name for name, share in shares.items() if share >= _LEAST_SHARE]
    return tuple(fitting[:_MOST_LANGUAGES])


def _content(words: Sequence[str], languages: Sequence[str]) -> list[str]:
    return [
        word
        for word in words
        if not is_function_word(fold_word(word), {*languages, ENGLISH, language_of_script(word)})
    ]


def _letter_groups(folded: str, languages: Sequence[str]) -> list[str]:
    """Return the keys of the groups of letters of a word: of a compound all, else the first."""
    compounding = not COMPOUNDING.isdisjoint(languages)
    if not GROUP + (not compounding) <= len(folded) <= _LONGEST:
        return []
    last = len(folded) - GROUP if compounding else 0
    return [LETTERS + folded[start : start + GROUP] for start in range(last + 1)]


def _spellings(word: str) -> Iterator[str]:
    """Yield a word with its umlauts, with two letters for each, and with one for two."""
    yield word
    if (spelled := word.translate(_UMLAUTS)) != word:
        yield spelled
    for pair, letter in _DIGRAPHS:
        if pair in word:
            yield word.replace(pair, letter)


def _number(word: str) -> Iterator[tuple[float, list[str]]]:
    digits = in_other_digits(word)
    yield 1.0, [word, *digits]
    if len(digits[0]) <= 4:
        yield from ((WEAK, [pair]) for pair in han_pairs(digits[0]))
