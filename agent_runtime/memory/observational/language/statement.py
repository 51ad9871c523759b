"""Whether one statement says what another one says, by rules and without a model.

It does if its numbers are the same, if it denies what the other denies, allows nothing that the
other requires, has most of its words or words for the same thing, and is not the same sentence with
a word exchanged or two of them swapped.
"""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from agent_runtime.memory.observational.language.base import (
    Language,
    PatternName,
    fold,
    function_words,
    pattern,
    searched,
    word_list,
)
from agent_runtime.memory.observational.language.detect import languages_of
from agent_runtime.memory.observational.language.numerals import has_numbers, numbers_of

OVERLAP = 0.5
"""Share of a statement's words that what stands for it must contain."""
LONGEST = 2_000
"""Characters of a statement that are compared."""

_WORD = re.compile(
    # A private character stands for a group of words for the same thing.
    "[\ue000-\uf8ff\u3400-\u9fff]|[\u30a1-\u30ff]{2,}|[\uac00-\ud7a3]{2,}"
    "|[^\\W\\d_\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3]+(?:[\u0900-\u0963]+[^\\W\\d_\u3040-\u30ff\uac00-\ud7a3]*)*"
)
_TURNS: tuple[PatternName, ...] = ("negation", "denies", "without", "obliges", "permits", "only")
# Words of a reporting clause say nothing of the statement.
_REPORTING = word_list("user said says asked asks want wants agent")
# Chinese characters that say little by themselves.
_COMMON_HAN = frozenset(
    "的了是在我你他她们这那和有就也都还把被给吗呢着过对从到为以及与之其者所个些么请时后前上下中里外会要去来说得地日月年号点分"
)
# Two statements that share this much of their words are one with changes.
_CLOSE, _FEW = 0.5, 3
# Shorter ones, with their small words.
_COPIED = 0.6
_ALIKE = 0.5
# Characters between a negation and the forbidding word that it turns.
_NEAR = 12
# Words whose groups are remembered for a set of languages.
_KNOWN = 10_000
# Letters that forms of a word share.
_KEY = 3


Matcher = difflib.SequenceMatcher[str]


@dataclass(frozen=True, slots=True)
class StatementSense:
    """What a statement says, as far as rules can tell.

    Attributes:
        words: its words in order, folded, without those that say little.
        numbers: its numbers, as digits.
        denied: whether it denies or forbids.
        turns: which words that turn a meaning it has.
        keys: by what statements that may say the same are found: numbers, beginnings of words,
            and groups of words for the same thing.
    """

    text: str
    languages: tuple[Language, ...]
    words: tuple[str, ...]
    numbers: frozenset[str]
    denied: bool
    turns: frozenset[PatternName]
    keys: frozenset[str]


@functools.lru_cache(4096)
def read_statement(text: str, context: str = "") -> StatementSense:
    """Read a statement.

    Args:
        context: more text, by which the language of a short statement is known.
    """
    text = text[:LONGEST]
    languages = languages_of(text)
    if len(languages) > 1:
        wider = languages_of(f"{text} {context}")
        languages = tuple(table for table in wider if table in languages) or languages
    folded = fold(text)
    turns = frozenset[PatternName](
        name for name in _TURNS if any(searched(table, name, folded) for table in languages)
    )
    denied = any(_is_denied(folded, table) for table in languages)
    words = _content(folded, languages)
    numbers = numbers_of(text, languages)
    keys = _keys(words, languages) | numbers
    return StatementSense(text, languages, words, numbers, denied, turns, keys)


def _keys(words: Sequence[str], languages: tuple[Language, ...]) -> frozenset[str]:
    groups = _groups(languages)
    found = {_bare(word)[:_KEY] for word in words}
    return frozenset(found.union(*(groups.of(word) for word in words)))


def _is_denied(folded: str, table: Language) -> bool:
    """Return whether a statement denies or forbids, in one language."""
    if obliged := pattern(table, "obliges"):
        # In Japanese "must" is a double negation.
        folded = obliged.sub(" ", folded)
    negated, denied, without = (
        [match.span() for match in found.finditer(folded)]
        if (found := pattern(table, name))
        else []
        for name in ("negation", "denies", "without")
    )
    turned = any(
        0 <= max(one[0], two[0]) - min(one[1], two[1]) <= _NEAR for one in negated for two in denied
    )
    # "Not forbidden" allows, and "nothing without" requires.
    return bool(negated or denied) != (turned or bool(without))


def covers(statement: StatementSense, other: StatementSense) -> bool:
    """Return whether `other` says what `statement` says."""
    if statement.text == other.text:
        return True
    if statement.denied != other.denied or not _as_strong(statement, other):
        return False
    if statement.numbers and not has_numbers(statement.numbers, _numbers(statement, other)):
        return False
    return _overlap(statement, other) >= OVERLAP and not is_changed(statement, other)


def _numbers(statement: StatementSense, other: StatementSense) -> frozenset[str]:
    more = tuple(table for table in statement.languages if table not in other.languages)
    return other.numbers | numbers_of(other.text, more) if more else other.numbers


def _as_strong(statement: StatementSense, other: StatementSense) -> bool:
    """Return whether nothing required became allowed, and no limit was lost."""
    turns, others = statement.turns, other.turns
    if "only" in turns and "only" not in others and not other.denied:
        return False
    if statement.denied:
        return True
    if "obliges" in turns and "obliges" not in others and "only" not in others:
        return "permits" not in others
    return not ("permits" in turns and "obliges" in others and "permits" not in others)


def is_changed(statement: StatementSense, other: StatementSense) -> bool:
    """Return whether a statement is the other one with words exchanged or swapped."""
    ours, theirs = list(statement.words), list(other.words)
    if not ours or not theirs:
        return False
    groups = _groups(statement.languages + other.languages)
    # Each word of theirs as its like of ours, so that other endings are no change.
    alike = [next((one for one in ours if _means(one, word, groups)), word) for word in theirs]
    if sorted(ours) == sorted(alike) and ours != alike:
        # The same words in the same frame: who and whom are swapped.
        stayed = sum(one == two for one, two in zip(ours, alike, strict=True))
        if 2 * stayed >= len(ours):
            return True
    matcher = difflib.SequenceMatcher(None, ours, alike, autojunk=False)
    if not _is_close(statement, other, matcher):
        return False
    replaced = [
        (ours[start:end], alike[begin:stop])
        for kind, start, end, begin, stop in matcher.get_opcodes()
        if kind == "replace"
    ]
    if any(word not in alike for gone, _ in replaced for word in gone):
        return True
    return any(
        set(one[0]) & set(two[1]) and set(two[0]) & set(one[1])
        for place, one in enumerate(replaced)
        for two in replaced[place + 1 :]
    )


def _is_close(statement: StatementSense, other: StatementSense, matcher: Matcher) -> bool:
    """Return whether one statement looks like a copy of the other one with changes."""
    if sum(block.size for block in matcher.get_matching_blocks()) >= _FEW:
        return matcher.ratio() >= _CLOSE
    ours, theirs = (_WORD.findall(fold(one.text)) for one in (statement, other))
    return difflib.SequenceMatcher(None, ours, theirs, autojunk=False).ratio() >= _COPIED


def _overlap(statement: StatementSense, other: StatementSense) -> float:
    groups = _groups(statement.languages + other.languages)
    ours, theirs = set(statement.words), set(other.words)
    shared = sum(any(_means(word, one, groups) for one in theirs) for word in ours)
    # Numbers, which are all there, count like words.
    terms = len(statement.numbers)
    total = len(ours) + terms
    return (shared + terms) / total if total else 1.0


@functools.lru_cache(16_384)
def _alike(one: str, two: str) -> bool:
    """Return whether two words are likely forms of one."""
    if one == two:
        return True
    shorter, longer = sorted((_bare(one), _bare(two)), key=len)
    if len(shorter) < 3 or not _WORD.fullmatch(shorter):
        return len(shorter) == 2 and longer.startswith(shorter) and not shorter.isascii()
    common = next(
        (place for place, char in enumerate(shorter) if longer[place] != char), len(shorter)
    )
    return common >= max(3, _ALIKE * len(longer)) or (len(shorter) > 4 and shorter in longer)


def _bare(word: str) -> str:
    # The Arabic article and the particles that are written with it.
    for start in ("وال", "بال", "فال", "ال", "لل"):
        if word.startswith(start) and len(word) > len(start) + 2:
            return word[len(start) :]
    return word


def _content(folded: str, languages: tuple[Language, ...]) -> tuple[str, ...]:
    for table in languages:
        for name in _TURNS:
            if compiled := pattern(table, name):
                folded = compiled.sub(" ", folded)
        if table.code in ("zh", "ja"):
            for group, word in _dense_groups(table):
                folded = folded.replace(word, group)
    # A numeral counts as a number, not as a word.
    little = _REPORTING.union(*(function_words(table.code) for table in languages))
    return tuple(
        word
        for word in _WORD.findall(folded)
        if word not in little
        and word not in _COMMON_HAN
        and (len(word) > 2 or not word.isascii())
        and not numbers_of(word, languages)
    )


@functools.cache
def _dense_groups(table: Language) -> tuple[tuple[str, str], ...]:
    """Return a character for each word of a group, the longest words first."""
    groups = [
        (chr(0xE000 + place), word.rstrip("*"))
        for place, line in enumerate(table.synonyms.strip().splitlines())
        for word in fold(line).split()
    ]
    return tuple(sorted(groups, key=lambda one: -len(one[1])))


@functools.lru_cache(256)
def _groups(languages: tuple[Language, ...]) -> Groups:
    """Return the words for the same thing: a group by each word, and by each prefix."""
    exact: dict[str, str] = {}
    starts: list[tuple[str, str]] = []
    for table in languages:
        for place, line in enumerate(table.synonyms.strip().splitlines()):
            for word in fold(line).split():
                name = f"{table.code}{place}"
                if word.endswith("*"):
                    starts.append((word[:-1], name))
                else:
                    exact[word] = name
    return Groups(exact, tuple(starts))


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """Words for the same thing."""

    exact: Mapping[str, str]
    starts: tuple[tuple[str, str], ...]
    known: dict[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])

    def of(self, word: str) -> frozenset[str]:
        """Return the groups that a word is in."""
        if word not in self.known:
            forms = (word, _bare(word))
            found = {name for start, name in self.starts if any(f.startswith(start) for f in forms)}
            found |= {self.exact[form] for form in forms if form in self.exact}
            if len(self.known) > _KNOWN:
                self.known.clear()
            self.known[word] = frozenset(found)
        return self.known[word]


def _means(one: str, two: str, groups: Groups) -> bool:
    """Return whether two words are forms of one, or words for the same thing."""
    return _alike(one, two) or not groups.of(one).isdisjoint(groups.of(two))
