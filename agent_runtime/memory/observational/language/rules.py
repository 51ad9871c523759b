"""What a sentence does: requires, forbids, prefers, corrects, decides, finds, fails, succeeds."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

from agent_runtime.memory.observational.language.base import (
    Language,
    PatternName,
    fold,
    pattern,
    searched,
)
from agent_runtime.memory.observational.language.detect import languages_of

SENTENCE = 2_000
"""Characters of a sentence that are searched; a longer one is data."""

_RULES: tuple[PatternName, ...] = ("forbids", "binds", "corrects", "prefers")
_SAID: tuple[PatternName, ...] = ("finds", "decides", "fails", "succeeds")
_MIGHT: tuple[PatternName, ...] = ("negation", "obliges", "only", "without")
# Words of further languages that require or forbid: Swedish, Danish, Norwegian, Czech, Ukrainian,
# Vietnamese, Indonesian, Greek, Hebrew, Thai, Persian.
_ELSEWHERE = re.compile(
    r"\b(?:aldrig|aldri|alltid|altid|måste|skal|skall|ikke|inte|endast|kun|bare|förbjud\w*|forbudt|"
    r"nikdy|vždy|musí\w*|nesm\w+|zakáz\w+|pouze|vinn\w+|ніколи|завжди|треба|повин\w+|заборон\w+|не|"
    r"không|phải|luôn|đừng|cấm|chỉ|jangan|harus|selalu|hanya|dilarang|μην?|πάντα|ποτέ|πρέπει|"
    r"μόνο|אסור|תמיד|חייב|אל|רק|هرگز|همیشه|باید|نباید|فقط|ممنوع)\b|ห้าม|ต้อง|เสมอ|อย่า|เท่านั้น",
    re.IGNORECASE,
)
# What may stand behind the mark that ends a sentence.
_CLOSING = "\"'”’»)]』」›… "
_END = re.compile(
    # A full stop after a number of one or two digits may make it an ordinal.
    r"(?<=[.!?…])(?<!\b\d\.)(?<!\b\d\d\.)[\"')*_”»]*\s+|(?<=[。！？؟।])[\"'」』”)]*\s*|\s*\n\s*"
)


def split(text: str) -> list[str]:
    """Return the sentences of a text, in scripts with and without spaces."""
    return [part for part in _END.split(text) if part and not part.isspace()]


@functools.lru_cache(8192)
def binds(sentence: str) -> bool:
    """Return whether a user's sentence is a rule, or may be one."""
    return is_rule(sentence) or may_be_rule(sentence)


def is_rule(sentence: str) -> bool:
    """Return whether a user's sentence requires, forbids, prefers or corrects something."""
    read = _read(sentence[:SENTENCE])
    return any(_requires(table, read.plain) for table in read.known if table not in read.asking)


def asks(sentence: str) -> bool:
    """Return whether a sentence is a question in a language that it may be in."""
    if sentence.rstrip(_CLOSING).endswith(("?", "？", "؟")):
        return True
    return bool(_read(sentence[:SENTENCE]).asking)


def may_be_rule(sentence: str) -> bool:
    """Return whether a sentence that is no plain rule could still bind, in any language.

    A negation or an "only" binds as often as it tells; words of languages without a table count.
    """
    read = _read(sentence[:SENTENCE])
    if read.asking:
        return False
    if any(searched(table, name, read.plain) for table in read.known for name in _MIGHT):
        return True
    return len(read.known) != 1 and _ELSEWHERE.search(sentence[:SENTENCE]) is not None


@dataclass(frozen=True, slots=True)
class _Sentence:
    """A sentence as it is searched.

    Attributes:
        known: the languages that it may be in.
        asking: those in which it is a question.
        plain: it without what is exempt; another clause of it may bind.
    """

    known: tuple[Language, ...]
    asking: tuple[Language, ...]
    plain: str


@functools.lru_cache(64)
def _read(sentence: str) -> _Sentence:
    known, folded = languages_of(sentence), fold(sentence).strip()
    asking = tuple(table for table in known if _asks(table, folded))
    plain = folded
    for table in known:
        exempt = pattern(table, "exempt")
        plain = exempt.sub(" ", plain) if exempt else plain
    return _Sentence(known, asking, plain.rstrip(_CLOSING))


def kinds_of(sentence: str) -> frozenset[PatternName]:
    """Return what an agent's sentence says: `finds`, `decides`, `fails`, `succeeds`."""
    folded = fold(sentence[:SENTENCE])
    known = languages_of(sentence[:SENTENCE])
    return frozenset(
        name for name in _SAID if any(searched(table, name, folded) for table in known)
    )


def _requires(table: Language, plain: str) -> bool:
    if any(searched(table, name, plain) for name in _RULES):
        return True
    orders, standing = (searched(table, name, plain) for name in ("orders", "standing"))
    return orders is not None and standing is not None


def _asks(table: Language, folded: str) -> bool:
    """Return whether a sentence is a question; a polite request in that form is none."""
    plain = folded.rstrip(_CLOSING + ".。।")
    if not plain.endswith(("?", "؟")) and not searched(table, "questions", plain):
        return False
    return not searched(table, "requests", folded)
