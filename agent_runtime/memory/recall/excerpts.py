"""Excerpts of what a search found: the stretch of a text that has most of the words asked for."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

EXCERPT = 400
"""How many characters of a place are shown."""
_LOOKED_AT = 100_000
_MATCHES = 2_000
_WORD = re.compile(r"\w+")


def words_of(query: str) -> list[str]:
    """Return the words of a query, by which excerpts are chosen."""
    return list(dict.fromkeys(word.lower() for word in _WORD.findall(query)))[:64]


def excerpt(text: str, words: Sequence[str], size: int = EXCERPT) -> tuple[int, str]:
    """Return where in a text most of the words stand close together, and what stands there."""
    if len(text) <= size:
        return 0, text
    start = _densest(text[:_LOOKED_AT], words, size)
    # A little of what stands before, from a line's or a word's beginning.
    start = max(0, min(start - size // 4, len(text) - size))
    if start:
        near = max(text.find(end, start, start + size // 8) for end in ("\n", " "))
        start = near + 1 if near >= 0 else start
    shown = text[start : start + size].rstrip()
    before, after = "… " if start else "", " …" if start + size < len(text) else ""
    return start, f"{before}{shown}{after}"


def _densest(text: str, words: Sequence[str], size: int) -> int:
    """Return where the stretch of an excerpt's length begins that has most of the words."""
    if not words:
        return 0
    pattern = re.compile("|".join(map(re.escape, words)), re.IGNORECASE)
    places = [(match.start(), match[0].lower()) for match in pattern.finditer(text)][:_MATCHES]
    within: Counter[str] = Counter()
    best, most, first = 0, 0, 0
    for start, word in places:
        within[word] += 1
        while start - places[first][0] > size // 2:
            within[places[first][1]] -= 1
            first += 1
        if (distinct := len(+within)) > most:
            best, most = places[first][0], distinct
    return best
