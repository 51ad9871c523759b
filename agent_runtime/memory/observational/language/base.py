"""The table of a language, and how its patterns are written and compiled.

Tables are data.  A pattern is written one alternative a line; it is folded, bounded by words and
compiled when it is first searched.  A line that begins with `@` matches at the start of a clause
only, and `~` stands for at most 60 characters.
"""

from __future__ import annotations

import functools
import importlib
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from agent_runtime_storage.search.languages import function_words_of

Code = Literal[
    "en", "de", "fr", "es", "pt", "it", "nl", "pl", "fi", "tr", "ru", "ar", "hi", "zh", "ja", "ko"
]
LATIN: tuple[Code, ...] = ("en", "de", "fr", "es", "pt", "it", "nl", "pl", "fi", "tr")
CODES: tuple[Code, ...] = (*LATIN, "ru", "ar", "hi", "zh", "ja", "ko")

PatternName = Literal[
    "binds",
    "orders",
    "standing",
    "forbids",
    "prefers",
    "corrects",
    "exempt",
    "questions",
    "requests",
    "decides",
    "finds",
    "fails",
    "succeeds",
    "negation",
    "denies",
    "without",
    "obliges",
    "permits",
    "only",
    "afternoon",
]


@dataclass(frozen=True, slots=True)
class NoteWords:
    """How a model words the fields of its notes; separated by `|`.

    Attributes:
        months: names of the twelve months, separated by spaces; variants of one by `/`.
        clock: words around a time of day, as "o'clock".
    """

    critical: str = ""
    important: str = ""
    info: str = ""
    done: str = ""
    task: str = ""
    next: str = ""
    nothing: str = ""
    unknown_time: str = ""
    clock: str = ""
    morning: str = ""
    afternoon: str = ""


@dataclass(frozen=True, slots=True)
class EndingWords:
    """Words of sentences by which a user ends a rule; `*` ends a prefix.

    Attributes:
        bans: that something is forbidden: only what no longer is so may be done.
        laws: names of a rule.
        duties: that something is necessary, holds, or is to be used.
        hedges: that something holds in a case, at a time, perhaps, or as others see it; such a
            sentence ends nothing.
        permits: a regular expression: that the user now allows something; its groups tell what.
    """

    bans: str = ""
    laws: str = ""
    duties: str = ""
    hedges: str = ""
    permits: str = ""


@dataclass(frozen=True, slots=True)
class Language:
    """Words and patterns of a language.

    Attributes:
        name: under which full text search keeps its function words; empty if it has none.
        function_words: of a language that full text search keeps none of.
        letters: letters that few other languages of the script have.
        spaced: whether words are separated by spaces.
        rule_words: words that say that something is a rule, holds, is forbidden, allowed or used,
            but not what: a rule is not known by them.
        ending: the words by which the user ends a rule.
        patterns: what sentences do, by name; see `PatternName`.
        numerals: a number and its words, as `2 two second`, one number a line; `*` ends a prefix.
        months: the twelve months; variants of one are separated by `/`.
        synonyms: words for the same thing, one group a line; `*` ends a prefix.
        notes: words of the format of notes.
    """

    code: str
    name: str = ""
    function_words: str = ""
    letters: str = ""
    spaced: bool = True
    lead: str = ""
    rule_words: str = ""
    ending: EndingWords = EndingWords()
    patterns: Mapping[PatternName, str] = field(default_factory=dict[PatternName, str])
    numerals: str = ""
    months: str = ""
    synonyms: str = ""
    notes: NoteWords = NoteWords()

    def __hash__(self) -> int:
        return hash(self.code)


# Full-width forms become ASCII; traditional characters that the tables use become simplified.
_TRADITIONAL = (
    "們这個來時為說話請謝應該須許準確實變動記錄務過還沒無從後總類認識誤錯對樣點種機會開關"
    "發現問題據結論決標絕嚴題別給與經讓據禁擾離試測驗號聯將內轉"
)
_SIMPLIFIED = (
    "们这个来时为说话请谢应该须许准确实变动记录务过还没无从后总类认识误错对样点种机会开关"
    "发现问题据结论决标绝严题别给与经让据禁扰离试测验号联将内转"
)
_FOLDED = str.maketrans(
    {
        **{chr(0xFF01 + place): chr(0x21 + place) for place in range(94)},
        **dict(zip(_TRADITIONAL, _SIMPLIFIED, strict=True)),
        **dict.fromkeys("\u2018\u2019\u02bc\u00b4`", "'"),
        **dict.fromkeys("أإآٱ", "ا"),
        # Arabic vowel signs and the Hindi dot are left out as often as they are written.
        **dict.fromkeys(map(chr, range(0x64B, 0x653)), None),
        "\u0640": None,
        "\u093c": None,
        "\u3000": " ",
        "\u00a0": " ",
        "\u202f": " ",
        "ى": "ي",
        "ß": "ss",
        "ł": "l",
        "ø": "o",
        "æ": "ae",
        "œ": "oe",
        "ı": "i",
    }
)
_ACCENTS = re.compile("[\u0300-\u036f]+")
# Words that may precede an order, one after another: "ok, and now please".
_LEADS = 5
# Without the full stop of Hindi, which lies between.
_HINDI = "\u0900-\u0963\u0966-\u097f"


def fold(text: str) -> str:
    """Return a text in lower case without accents, to compare it with the tables."""
    if text.isascii():
        return text.lower().replace("`", "'")
    plain = _ACCENTS.sub("", unicodedata.normalize("NFD", text))
    return unicodedata.normalize("NFC", plain).translate(_FOLDED).lower()


@functools.cache
def language(code: str) -> Language:
    """Return the table of a language."""
    module = importlib.import_module(f"{__package__}.tables.{code}")
    table: Language = module.TABLE
    return table


@functools.cache
def pattern(table: Language, name: PatternName) -> re.Pattern[str] | None:
    """Return a compiled pattern of a language, for folded texts; None if it has none."""
    lines = [line.strip() for line in table.patterns.get(name, "").splitlines()]
    # `\w` and `\b` do not know the vowel signs of Hindi, which are no letters.
    letter = rf"[\w{_HINDI}]" if table.code == "hi" else r"\w"
    end = rf"(?!{letter})" if table.spaced else ""
    anywhere = [_written(line, letter) for line in lines if line and line[0] != "@"]
    at_start = [_written(line[1:], letter) for line in lines if line and line[0] == "@"]
    # Bounded once, not in each alternative: most positions of a text are no start of a word.
    parts: list[str] = []
    if anywhere:
        parts.append((rf"(?<!{letter})" if table.spaced else "") + f"(?:{'|'.join(anywhere)}){end}")
    if at_start:
        parts.append(f"{_start(table)}(?:{'|'.join(at_start)}){end}")
    return re.compile("|".join(parts)) if parts else None


def searched(table: Language, name: PatternName, folded: str) -> re.Match[str] | None:
    """Search a folded text for a pattern of a language."""
    compiled = pattern(table, name)
    return compiled.search(folded) if compiled else None


def _written(line: str, letter: str) -> str:
    body = fold(line).replace("~", ".{0,60}?")
    if letter != r"\w":
        body = body.replace(r"\w", letter).replace(r"\b", rf"(?!{letter})")
    return body


def _start(table: Language) -> str:
    """Return the pattern of a clause's start, with the words that may precede an order."""
    gap = "[,:]? " if table.spaced else "[,: ]?"
    # Bounded: a search tries it at each clause, so a chain of such words would take quadratic time.
    lead = rf"(?:(?:{fold(table.lead)}){gap}){{0,{_LEADS}}}" if table.lead else ""
    return rf"(?:^[\"'(«„“\s]*|[,;:!?.—–] ?){lead}"


@functools.cache
def function_words(code: str) -> frozenset[str]:
    """Return the folded words by which a language is known, and which say little."""
    table = language(code)
    return frozenset(map(fold, (*function_words_of(table.name), *table.function_words.split())))


@functools.cache
def word_list(text: str) -> frozenset[str]:
    """Return the folded words of a list."""
    return frozenset(fold(text).split())
