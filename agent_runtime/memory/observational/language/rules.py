"""What a sentence does: requires, forbids, prefers, corrects, decides, finds, fails, succeeds."""

from __future__ import annotations

import re

from agent_runtime.memory.observational.language.base import (
    Language,
    PatternName,
    fold,
    pattern,
    searched,
)
from agent_runtime.memory.observational.language.detect import languages_of, understood

SENTENCE = 2_000
"""Characters of a sentence that are searched; a longer one is data."""

_RULES: tuple[PatternName, ...] = ("forbids", "binds", "corrects", "prefers")
_MIGHT: tuple[PatternName, ...] = ("negation", "denies", "without", "obliges", "only", "orders")
# Words of further languages that require or forbid: Swedish, Danish, Norwegian, Czech, Ukrainian,
# Vietnamese, Indonesian, Greek, Hebrew, Thai, Persian.
_ELSEWHERE = re.compile(
    r"\b(?:aldrig|aldri|alltid|altid|måste|skal|skall|ikke|inte|endast|kun|bare|förbjud\w*|forbudt|"
    r"nikdy|vždy|musí\w*|nesm\w+|zakáz\w+|pouze|vinn\w+|ніколи|завжди|треба|повин\w+|заборон\w+|не|"
    r"không|phải|luôn|đừng|cấm|chỉ|jangan|harus|selalu|hanya|dilarang|μην?|πάντα|ποτέ|πρέπει|"
    r"μόνο|אסור|תמיד|חייב|אל|רק|هرگز|همیشه|باید|نباید|فقط|ممنوع)\b|ห้าม|ต้อง|เสมอ|อย่า|เท่านั้น",
    re.IGNORECASE,
)
_CLOSING = "\"'”’»)]』」›… "
_END = re.compile(
    # A full stop after a number of one or two digits may make it an ordinal.
    r"(?<=[.!?…])(?<!\b\d\.)(?<!\b\d\d\.)[\"')*_”»]*\s+|(?<=[。！？؟।])[\"'」』”)]*\s*|\s*\n\s*"
)


def split(text: str) -> list[str]:
    """Return the sentences of a text, in scripts with and without spaces."""
    return [part for part in _END.split(text) if part and not part.isspace()]


def is_rule(sentence: str) -> bool:
    """Return whether a user's sentence requires, forbids, prefers or corrects something."""
    known = languages_of(sentence[:SENTENCE])
    folded = fold(sentence[:SENTENCE]).strip()
    return any(_is_rule(table, folded) for table in known)


def may_be_rule(sentence: str) -> bool:
    """Return whether a sentence could be a rule: one of any language, or a hidden one."""
    known = languages_of(sentence[:SENTENCE])
    folded = fold(sentence[:SENTENCE]).strip()
    if any(_asks(table, folded) for table in known):
        return False
    if any(searched(table, name, folded) for table in known for name in _MIGHT):
        return True
    return not understood(sentence) and _ELSEWHERE.search(sentence[:SENTENCE]) is not None


def does(sentence: str, name: PatternName) -> bool:
    """Return whether a sentence matches a pattern of the languages that it may be in."""
    folded = fold(sentence[:SENTENCE])
    return any(searched(table, name, folded) for table in languages_of(sentence[:SENTENCE]))


def _is_rule(table: Language, folded: str) -> bool:
    if _asks(table, folded):
        return False
    exempt = pattern(table, "exempt")
    # What is exempt says nothing, but another clause of the sentence may.
    plain = exempt.sub(" ", folded) if exempt else folded
    plain = plain.rstrip(_CLOSING)
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
