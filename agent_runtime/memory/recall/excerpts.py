"""Excerpts of search hits: the part of a text with most of the query's words."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Sequence

from agent_runtime_storage.search.query_expansion import forms_of
from agent_runtime_storage.search.query_groups import content_words

EXCERPT = 400
"""Characters shown of a hit."""
# Bounds of the work on one text.
# Characters of a text, and matches of the words in it.
_READ = 100_000
_MATCHES = 2_000
_WORD = re.compile(r"\w+")


def words_of(query: str) -> list[str]:
    """Return the distinct words of a query, at most 64, without function words."""
    words = dict.fromkeys(word.lower() for word in _WORD.findall(query))
    return content_words(words)[:64]


def excerpt(text: str, words: Sequence[str], size: int = EXCERPT) -> tuple[int, str]:
    """Return the offset and the text of the part with most of the words."""
    if len(text) <= size:
        return 0, text
    start = _densest(text[:_READ], words, size)
    # Begin a little before the words, at the beginning of a line or a word.
    start = max(0, min(start - size // 4, len(text) - size))
    if start:
        near = max(text.find(end, start, start + size // 8) for end in ("\n", " "))
        start = near + 1 if near >= 0 else start
    shown = text[start : start + size].rstrip()
    before, after = "… " if start else "", " …" if start + size < len(text) else ""
    return start, f"{before}{shown}{after}"


def _densest(text: str, words: Sequence[str], size: int) -> int:
    """Return the offset of the window of half the size that has most distinct words."""
    if not words:
        return 0
    # Any form of a word counts as the word.
    base = {form: word for word in words for form in forms_of(word)} | {
        word: word for word in words
    }
    # The longest first: else a form's beginning would be taken for another one.
    forms = sorted(base, key=len, reverse=True)
    pattern = re.compile("|".join(map(re.escape, forms)), re.IGNORECASE)
    found = itertools.islice(pattern.finditer(text), _MATCHES)
    places = [(match.start(), base.get(match[0].lower(), match[0])) for match in found]
    within: Counter[str] = Counter()
    best, most, first = 0, 0, 0
    for start, word in places:
        within[word] += 1
        while start - places[first][0] > size // 2:
            within[places[first][1]] -= 1
            first += 1
        if (distinct := len(+within)) > most:
            # Distinct words, not matches: one word in a list of repetitions would win otherwise.
            best, most = places[first][0], distinct
    return best
