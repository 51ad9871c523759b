"""Tell the language of a text by its script, its function words and its letters."""

from __future__ import annotations

import functools
import re
from collections import defaultdict
from collections.abc import Collection, Mapping
from importlib import resources

from agent_runtime_storage.search import data
from agent_runtime_storage.search.folding import fold_word

ENGLISH = "english"
LATIN = "latin"
"""Stands for every language that is written in Latin letters."""
COMPOUNDING = frozenset(
    ["german", "dutch", "swedish", "danish", "norwegian", "finnish", "estonian", "hungarian"]
)
"""Languages that write compounds as one word."""

_SCRIPTS = (
    ("russian", re.compile("[\u0400-\u052f]")),
    ("greek", re.compile("[\u0370-\u03ff\u1f00-\u1fff]")),
    ("arabic", re.compile("[\u0600-\u06ff\u0750-\u077f]")),
    ("hindi", re.compile("[\u0900-\u097f]")),
    ("armenian", re.compile("[\u0530-\u058f]")),
    ("tamil", re.compile("[\u0b80-\u0bff]")),
)
OTHER_SCRIPTS = re.compile("[\u0370-\u06ff\u0750-\u077f\u0900-\u097f\u0b80-\u0bff\u1f00-\u1fff]")
"""Letters of the scripts whose words have stems, apart from Latin."""
_NOT_LATIN = re.compile("[^\u0000-\u024f\u0300-\u036f\u1e00-\u1eff]")
# Every text in a language has far more function words; code has fewer.
_WORDS_PER_SIGN = 25
# Letters that few languages in Latin script have.
_LETTERS = {
    "ß": ("german",),
    "äö": ("german", "swedish", "finnish", "estonian"),
    "ü": ("german", "turkish", "hungarian", "estonian"),
    "å": ("swedish", "danish", "norwegian"),
    "æø": ("danish", "norwegian"),
    "ñ¿¡": ("spanish",),
    "ãõ": ("portuguese",),
    "êôâ": ("portuguese", "french"),
    "œëûî": ("french",),
    "ç": ("french", "portuguese", "turkish", "catalan"),
    "ìò": ("italian", "catalan"),
    "èà": ("italian", "french", "catalan"),
    "ığ": ("turkish",),
    "ş": ("turkish", "romanian"),
    "łąęśźż": ("polish",),
    "ćń": ("polish",),
    "řěů": ("czech",),
    "čšž": ("czech", "lithuanian"),
    "őű": ("hungarian",),
    "ățș": ("romanian",),
    "ėįųū": ("lithuanian",),
}


def language_of_script(word: str) -> str:
    """Return the language of a word's script, `LATIN`, or nothing if words of it have no stems."""
    if word.isascii() or not _NOT_LATIN.search(word):
        return LATIN
    return next((language for language, letters in _SCRIPTS if letters.match(word)), "")


def latin_languages(words: Collection[str], text: str) -> dict[str, float]:
    """Return the languages in Latin script that a text shows signs of, the likeliest first.

    A text with few signs for its length, such as code, is of no language.

    Args:
        words: the text's distinct words, folded.
        text: the text in lower case.

    Returns:
        For each language its share of the signs.
    """
    scores: defaultdict[str, float] = defaultdict(float)
    table = _languages_by_word()
    signs: list[Collection[str]] = [table[word] for word in table.keys() & words if len(word) > 1]
    if not text.isascii():
        # Any one of a group's letters is a sign, and counts once however often it occurs.
        present = set(text)
        for letters, languages in _LETTERS.items():
            if not present.isdisjoint(letters):
                signs.append(languages)
    if len(signs) * _WORDS_PER_SIGN < len(words):
        return {}
    for languages in signs:
        # A sign that many languages share tells little.
        for language in languages:
            scores[language] += 1 / len(languages)
    total = sum(scores.values())
    # Where scores are equal English, the language of code, and then by name, so that every process
    # chooses the same.
    ranked = sorted(scores.items(), key=lambda item: (-item[1], item[0] != ENGLISH, item[0]))
    return {language: score / total for language, score in ranked}


def is_function_word(folded: str, languages: Collection[str]) -> bool:
    """Return whether a folded word is a function word in one of the languages."""
    return not _languages_by_word().get(folded, frozenset()).isdisjoint(languages)


def function_words_of(language: str) -> tuple[str, ...]:
    """Return the function words of a language as they are written; none if it has no list."""
    return _function_words().get(language, ())


@functools.cache
def _function_words() -> Mapping[str, tuple[str, ...]]:
    file = resources.files(data).joinpath("function_words.txt")
    paragraphs = file.read_text("utf-8").split("\n\n")[1:]
    lists = (paragraph.partition("\n") for paragraph in paragraphs)
    return {language: tuple(words.split()) for language, _, words in lists}


@functools.cache
def _languages_by_word() -> Mapping[str, frozenset[str]]:
    """Return the languages of each folded function word."""
    table: dict[str, set[str]] = {}
    for language, words in _function_words().items():
        for word in words:
            table.setdefault(fold_word(word), set()).add(language)
    return {word: frozenset(languages) for word, languages in table.items()}
