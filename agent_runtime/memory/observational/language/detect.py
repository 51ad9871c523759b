"""The language of a sentence, by its script and its function words."""

from __future__ import annotations

import functools
import re

from agent_runtime.memory.observational.language.base import (
    LATIN,
    Code,
    Language,
    fold,
    function_words,
    language,
)

LONGEST = 2_000
"""Characters of a text by which its language is judged."""
# Words from which a text without one function word is taken for another language.
_MANY = 5

_SCRIPTS: tuple[tuple[Code, re.Pattern[str]], ...] = (
    # Japanese before Chinese, because it has Chinese characters, too.
    ("ja", re.compile("[\u3041-\u30fa\u30fc-\u30ff]")),
    ("zh", re.compile("[\u3400-\u4dbf\u4e00-\u9fff]")),
    ("ko", re.compile("[\uac00-\ud7a3]")),
    ("hi", re.compile("[\u0900-\u0963\u0966-\u097f]")),
    ("ar", re.compile("[\u0620-\u064a]")),
    ("ru", re.compile("[\u0400-\u04ff]")),
)
_LATIN = re.compile("[A-Za-z\u00c0-\u024f]")
_LETTER = re.compile(r"[^\W\d_]")
# Paths, names with dots or digits and code are in no language.
_QUOTED = re.compile("`[^`]{0,200}`")
_ASCII_RUN = re.compile("[!-~]+")
_TECHNICAL = re.compile(r"[\d_/\\@]|\.\w|\(\)")
_WORD = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)*")
# Letters of Ukrainian, Persian and Urdu, which share a script with a known language.
_UNKNOWN = re.compile("[іїєґҐІЇЄپچژگکیےٹڈڑ]")
_ASCII_WORDS = re.compile(r"[a-z]+(?:'[a-z]+)*")


@functools.lru_cache(4096)
def languages_of(text: str) -> tuple[Language, ...]:
    """Return the languages that a sentence may be in, likeliest first; empty if none is known.

    A text without a single function word may be in any language of its script.
    """
    text = _prose(text)
    if text.isascii():
        return _latin(text)
    found: list[Language] = []
    total = len(_LETTER.findall(text))
    for code, script in _SCRIPTS:
        letters = len(script.findall(text))
        # A few characters may be a quotation in a text of another language.
        if letters and 5 * letters >= total:
            if code == "zh" and found:
                continue
            if code in ("ru", "ar") and _UNKNOWN.search(text):
                continue
            found.append(language(code))
    latin = len(_LATIN.findall(text))
    if latin and 2 * latin >= total:
        found += _latin(text)
    return tuple(found)


def _prose(text: str) -> str:
    """Return a text without the names in it."""
    return _ASCII_RUN.sub(
        lambda run: " " if _TECHNICAL.search(run[0]) else run[0], _QUOTED.sub(" ", text[:LONGEST])
    )


def _latin(text: str) -> tuple[Language, ...]:
    folded = fold(text)
    words = set((_ASCII_WORDS if folded.isascii() else _WORD).findall(folded))
    words |= {part for word in words if "'" in word for part in word.split("'")}
    if not words:
        return ()
    letters = set(text.lower()) if not text.isascii() else set[str]()
    scores = {code: _score(language(code), words, letters) for code in LATIN}
    best = max(scores.values())
    # With few signs a difference of one is chance, so the second best language counts as well.
    return tuple(language(code) for code in LATIN if scores[code] >= best - (best < 4))


def _score(table: Language, words: set[str], letters: set[str]) -> int:
    return len(words & function_words(table.code)) + len(letters & set(table.letters))


def is_unknown(text: str) -> bool:
    """Return whether a sentence is in none of the languages that have a table."""
    plain = _prose(text)
    known = languages_of(text)
    if any(table.code not in LATIN for table in known) or not _LETTER.search(plain):
        return False
    words = set(_WORD.findall(fold(plain)))
    # Without one function word a short text may be in any language, a long one is in none.
    common = (function_words(table.code) for table in known)
    return len(words) >= _MANY and not any(words & one for one in common)
