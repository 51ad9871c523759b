"""The words of the format of notes in all languages: priorities, fields, verdicts."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import Literal

from agent_runtime.memory.observational.language.base import (
    CODES,
    NoteWords,
    fold,
    language,
)
from agent_runtime.prompt.observation import Priority

PRIORITIES: tuple[Priority, ...] = ("critical", "important", "info", "done")
"""The priorities, the highest first."""
Part = Literal["task", "next", "nothing", "unknown_time", "clock", "morning", "afternoon"]

_JOINED = re.compile(r"[/,+&、·]|\s-\s")
# Words that may stand among those of a phrase, such as "new" or "here".
_MORE_WORDS = 3
_NOTHING_DENSE = re.compile(
    fold(
        # Chinese, Japanese, Korean
        r"(?:没有|没什么|无需|无|不需要).{0,8}(?:记录|观察|可记|值得|内容|需要|可观)"
        r"|(?:記録|観察|メモ|特筆|特記|記載|注目).{0,14}(?:ありません|ない|なし|ございません)"
        r"|(?:기록|관찰|메모|특이|적을|남길).{0,12}(?:없|않)"
    )
)
# Characters; a longer line says something of its own.
_LONGEST_VERDICT = 60


@functools.cache
def _notes() -> tuple[NoteWords, ...]:
    return tuple(language(code).notes for code in CODES)


@functools.cache
def _phrases(part: str) -> frozenset[str]:
    found = (phrase for notes in _notes() for phrase in getattr(notes, part).split("|"))
    return frozenset(fold(phrase.strip()) for phrase in found if phrase.strip())


@functools.cache
def _priorities() -> dict[str, Priority]:
    # Where languages disagree about a word, the higher priority counts.
    return {word: name for name in reversed(PRIORITIES) for word in _phrases(name)}


def priority_of(text: str) -> Priority | None:
    """Return the priority that a field names, of several the highest; None if it names none."""
    if whole := _priorities().get(fold(text).strip()):
        return whole
    words = [fold(word).strip(" *_'.") for word in _JOINED.split(text) if word.strip()]
    known = [_priorities().get(word) for word in words]
    if not known or not all(known):
        return None
    return next(name for name in PRIORITIES if name in known)


def is_word(text: str, part: Part) -> bool:
    """Return whether a text is a word or phrase of the format."""
    return fold(text.strip(" *_`")).strip(" .") in _phrases(part)


@functools.cache
def words_of(part: Part) -> str:
    """Return a pattern of the words of a part, for texts in lower case."""
    words = sorted(
        {phrase for notes in _notes() for phrase in getattr(notes, part).split("|")}, key=len
    )
    return "|".join(re.escape(word.lower()) for word in reversed(words) if word)


@functools.cache
def months() -> dict[str, int]:
    """Return the numbers of months by their folded names."""
    return {
        fold(name): place
        for code in CODES
        for place, names in enumerate(language(code).months.split(), 1)
        for name in names.replace("*", "").split("/")
    }


def month_of(name: str) -> int | None:
    """Return the number of a month, in any form of its name that a table knows."""
    plain = fold(name).strip(". ")
    known = months().get(plain)
    if known is None and len(plain) > 4:
        known = next((place for start, place in months().items() if _inflects(plain, start)), None)
    return known


def _inflects(plain: str, start: str) -> bool:
    return len(start) > 3 and plain.startswith(start) and len(plain) <= len(start) + 4


def says_nothing(text: str) -> bool:
    """Return whether a line says, as a whole, that there is nothing to observe."""
    if len(text) > _LONGEST_VERDICT:
        return False
    plain = " ".join(re.findall(r"[^\s.,!?:;()\[\]*_\"«»“”、。！]+", fold(text)))
    if plain in _phrases("nothing"):
        return True
    if _NOTHING_DENSE.search(plain) and " | " not in text:
        return not any(map(str.isdigit, plain))
    words = plain.split()
    return any(_within(phrase, words) for word in words for phrase in _verdicts().get(word, ()))


@functools.cache
def _verdicts() -> dict[str, list[Sequence[str]]]:
    """Return the words of longer phrases by their first one."""
    found: dict[str, list[Sequence[str]]] = {}
    for phrase in _phrases("nothing"):
        if len(words := phrase.split()) > 1:
            found.setdefault(words[0], []).append(words)
    return found


def _within(phrase: Sequence[str], words: Sequence[str]) -> bool:
    """Return whether a phrase occurs in order among hardly more words."""
    left = iter(words)
    return len(words) <= len(phrase) + _MORE_WORDS and all(word in left for word in phrase)
