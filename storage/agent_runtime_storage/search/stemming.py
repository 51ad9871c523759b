"""The keys of words: what a text is found by apart from its words as written.

A word's keys are its stem in the text's language, with all letters folded, and groups of letters:
its first ones, by which words are found whose stem changes; in languages that write compounds as
one word, all groups of a long word, by which its parts are found.  English texts have no keys:
their queries are expanded instead (see `query_expansion`), so that their index stays small.
"""

from __future__ import annotations

import functools
import importlib
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

from agent_runtime_storage.search.folding import (
    SPECIAL_LETTERS,
    fold_word,
    in_lower_case,
    without_accents,
)
from agent_runtime_storage.search.languages import (
    COMPOUNDING,
    ENGLISH,
    LATIN,
    OTHER_SCRIPTS,
    is_function_word,
    language_of_script,
    latin_languages,
)

UNKNOWN = ""
"""The language of a Latin text without a sign of one."""
STEM, LETTERS = "~", "^"
"""What keys begin with, so that none is a word: a stem, or a group of letters."""
GROUP = 5
"""Letters of a group: as selective as a stem in most languages (McNamee and Mayfield, 2004)."""
SHORTEST_COMPOUND = 9
_SHORTEST, _LONGEST = 3, 40
# A longer text without a single function word is data or code.
_MOST_OF_UNKNOWN = 30
WORD = re.compile(
    r"(?:[^\W\d_]|[\u0300-\u036f\u0610-\u061a\u064b-\u065f\u0670\u0900-\u0963\u0b82-\u0bcd\u200c\u200d])+"
)


def words_to_stem(text: str, words: Mapping[str, int]) -> Iterator[tuple[str, str, int]]:
    """Yield the words of a text that have keys, each with its language and how often it occurs.

    Args:
        words: the text's words as the index holds them, and how often each occurs.
    """
    lower = in_lower_case(text)
    latin = next(iter(latin_languages(words.keys(), lower)), UNKNOWN)
    if latin == UNKNOWN and len(words) > _MOST_OF_UNKNOWN:
        latin = ENGLISH
    if latin == ENGLISH and (
        lower.isascii() or not (OTHER_SCRIPTS.search(lower) or SPECIAL_LETTERS.search(lower))
    ):
        return
    # In ASCII, the index holds the words as they are written.
    counts = words if lower.isascii() else Counter(WORD.findall(lower))
    for word, times in counts.items():
        if not _SHORTEST <= len(word) <= _LONGEST or not (word.isalpha() or not word.isascii()):
            continue
        language = language_of_script(word)
        if language == LATIN:
            language = latin
        elif not language:
            continue
        if language != ENGLISH or not word.isascii():
            yield word, language, times


@functools.lru_cache(maxsize=8_192)
def keys_of(word: str, language: str) -> tuple[str, ...]:
    """Return the keys of a text's word, which is in lower case and composed."""
    folded = fold_word(word)
    if is_function_word(folded, (language,)):
        return ()
    keys = [STEM + stem for stem in stems_of(word, language) if stem != without_accents(word)]
    if language != ENGLISH:
        keys += [LETTERS + group for group in letter_groups(folded, language)]
    return tuple(dict.fromkeys(keys))


def letter_groups(folded: str, language: str) -> list[str]:
    """Return the groups of letters that a folded word has in a language."""
    if len(folded) <= GROUP:
        return []
    if language not in COMPOUNDING or len(folded) < SHORTEST_COMPOUND:
        return [folded[:GROUP]]
    return [folded[start : start + GROUP] for start in range(len(folded) - GROUP + 1)]


@functools.lru_cache(maxsize=8_192)
def stems_of(word: str, language: str) -> tuple[str, ...]:
    """Return the folded stems of a word: as it is written, and as written without accents."""
    folded = fold_word(word)
    stem = _stemmer(language)
    if stem is None or not _SHORTEST <= len(word) <= _LONGEST:
        return (folded,)
    stems = [fold_word(stem(word))]
    # Writers leave accents out: a query without them has to find the text, and the other way
    # round.
    if folded != word:
        stems.append(fold_word(stem(folded)))
    return tuple(dict.fromkeys(stems))


@functools.cache
def _stemmer(language: str) -> Callable[[str], str] | None:
    if language in (UNKNOWN, ENGLISH):
        return None
    try:
        # Not above: the package imports all its languages, and most processes need none.
        module = importlib.import_module(f"snowballstemmer.{language}_stemmer")
    except ModuleNotFoundError:
        return None
    stemmer: Any = getattr(module, f"{language.capitalize()}Stemmer")()
    return cast("Callable[[str], str]", stemmer.stemWord)
