"""Which of the user's constraints another one ends.

A user ends a rule in words of their own language ("no longer", "nicht mehr", "不再") and names what
it was about.  Names are compared by their stems, without the words that say only that something is
a rule, is forbidden or holds: the tables of the languages have these.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator

from agent_runtime.memory.observational.language.base import (
    Language,
    fold,
    function_words,
    word_list,
)
from agent_runtime.memory.observational.language.detect import languages_of
from agent_runtime.memory.observational.observer.sentences import words
from agent_runtime.memory.observational.reflector.retention import verbatim_terms
from agent_runtime_storage.search.stemming import stems_of

_NO_LONGER = re.compile(
    r"\bno longer\b|\bnot? (.{0,30})\bany ?more\b|\bany ?more\b|"
    r"\bforget (?:about|the rule|what I said about)\b|\byou (?:may|can) now\b|"
    r"\bnicht mehr\b(?! als)|\bkein\w{0,2} (.{0,40})\bmehr\b(?! als)|\bya no\b|"
    r"\bne (.{1,30}) plus\b|\bnon (.{1,30}) più\b(?! d[i'’]| che)|"
    r"\bmais não\b|\bjá não\b|\bnão (.{1,40}) mais\b(?! d[eo]| que)|"
    r"\bбольше не\b|\bniet meer\b(?! dan)|\bgeen (.{1,40}) meer\b(?! dan)|"
    r"\bjuż nie\b|\bwięcej nie\b|\b(?:ei|eivät|älä) (?:(.{1,30}) )?enää\b|\bartık\b|لم [يت]عد|"
    r"अब (.{0,40})नहीं|더 ?이상|不再|もう(?=.{0,40}(?:な[いくし]|ません|[いよ]い|大丈夫))",
    re.IGNORECASE,
)
_FROM_NOW_ON = re.compile(
    r"\b(?:from now on|going forward|starting now|from here on|ab (?:jetzt|sofort)|künftig|"
    r"désormais|dorénavant|a partir de (?:ahora|agora)|d'ora in poi|отныне|voortaan|vanaf nu|odtąd|"
    r"od teraz|tästä lähtien|bundan böyle)\b|अब से|من الآن فصاعد|앞으로|이제부터|"
    r"从现在起|今后|今後|これから",
    re.IGNORECASE,
)
_ENDS_SOMETHING = re.compile(f"{_NO_LONGER.pattern}|{_FROM_NOW_ON.pattern}", re.IGNORECASE)
_INSTEAD = re.compile(
    r"\b(?:instead|rather|stattdessen|à la place|en (?:su )?lugar|invece|вместо)\b|"
    r"改为|改用|代わりに",
    re.IGNORECASE,
)
_INSTEAD_OF = re.compile(
    r"\b(?:instead of|rather than|statt|anstatt|au lieu d[eu]|en lugar de|invece di|вместо)\s+"
    r"([^,;.!?]{1,120})",
    re.IGNORECASE,
)
_CLAUSE = re.compile(
    r"[,;:!?。，；—]\s*|\.\s+|\s+(?:but|and|from now on|instead|sondern|mais|pero)\s+"
)
_NEGATED = re.compile(
    r"\b(?:never|not|no|nie|niemals|nicht|kein\w*|jamais|nunca)\b|n't\b|不|别|ない", re.I
)
_NUMBERED = re.compile(r"\b(?:rule|point|item|regel|règle|regla|no\.?|nr\.?|#)\s*(\d+)\b")
_WORD = re.compile(r"[\w][\w./-]*[\w]|\w")
# Words that do not say what a rule is about: two rules that share only these are unrelated.
_GENERIC = words(
    "a an the this that these those it its is are be been being was were do does did done has "
    "have had i you we they he she my your our their me us them of to in on at by for from with "
    "without into up down out off over as and or but if then than so too also not no never always "
    "only any all each every must should shall will would can could may might now longer more "
    "anymore instead rather please need needed require required rule rules use used using keep "
    "make put take set get let run go apply thi doe ha wa don isn aren doesn won t s d ll ve re "
    "forbidden forbid allowed allow avoid hold matter valid necessary obsolete der die das den "
    "dem ein eine einen und oder ist sind nicht kein keine nie immer mehr ab jetzt sofort bitte "
    "nur le la les un une de du des et ou est el los las y es"
)

# Characters of scripts without spaces; what is in hiragana says how words belong together.
_DENSE = re.compile("[\u30a1-\u30fa\u30fc\u3400-\u4dbf\u4e00-\u9fff]+")
_UNSPACED = ("zh", "ja")
_KOREAN_ROOT = 2
"""Characters of a Korean word that are compared: particles follow them."""
_PART = re.compile(r"(?:[^\W_]|[\u0900-\u0963])+(?:[./_-]+[^\W_]+)*")
# Where a name in ASCII touches a word of a script without spaces, or a Korean particle.
_SEAM = re.compile(r"(?<=[a-z0-9])(?=[^\x00-\x7f])|(?<=[^\x00-\x7f])(?=[a-z0-9])")


def ends_something(text: str) -> bool:
    """Return whether a constraint may say that another one no longer holds."""
    return bool(_ENDS_SOMETHING.search(text))


def supersedes(new: str, old: str) -> bool:
    """Return whether a constraint says that an older one no longer holds.

    It has to say so ("no longer", "from now on … instead") and to name what ends.  If it is not
    clear that it means the older one, both stay.
    """
    tables = [one for one in languages_of(new) if one.code != "en"]
    for ended in _ended(new):
        if not _all_in(verbatim_terms(ended), old):
            continue
        named = _content(ended)
        if named and named <= _content(old):
            return True
        # A sentence of a few words may be in several languages.
        if any((stems := _stems(ended, table)) and stems <= _stems(old, table) for table in tables):
            return True
    if not _FROM_NOW_ON.search(new) or not _INSTEAD.search(new) or _INSTEAD_OF.search(new):
        return False
    shared, ours, theirs = _content(new) & _content(old), _content(new), _content(old)
    alike = bool(_NEGATED.search(new)) == bool(_NEGATED.search(old))
    return alike and bool(shared) and 2 * len(shared) >= min(len(ours), len(theirs))


def _ended(new: str) -> Iterator[str]:
    """Yield the parts of a constraint that name what ends with it."""
    for clause in _CLAUSE.split(new):
        if _NO_LONGER.search(clause):
            # The words in between name what ends, as in "not use tabs any more".
            yield _NO_LONGER.sub(lambda said: f" {' '.join(filter(None, said.groups()))} ", clause)
    if _FROM_NOW_ON.search(new):
        yield from (match[1] for match in _INSTEAD_OF.finditer(new))


@functools.lru_cache(8192)
def _content(text: str) -> frozenset[str]:
    """Return the stems of the words that say what an English text is about."""
    # "Rule 3" names a rule.  As separate words, "rule" is generic and 3 could be any number.
    plain = _NUMBERED.sub(r"rule_\1", text.casefold())
    stems = (_stem(match[0]) for match in _WORD.finditer(plain))
    return frozenset(word for word in stems if word not in _GENERIC)


def _stem(word: str) -> str:
    return word[:-1] if len(word) > 3 and word.endswith("s") else word


@functools.lru_cache(8192)
def _stems(text: str, table: Language) -> frozenset[str]:
    """Return the stems of the words that say what a text of a language is about."""
    plain = _NUMBERED.sub(r"rule_\1", text.casefold())
    if table.code in (*_UNSPACED, "ko"):
        plain = _SEAM.sub(" ", plain)
    if table.code in _UNSPACED:
        return _pairs(fold(plain), table)
    said = [match[0] for match in _PART.finditer(plain)]
    common = function_words(table.code) | _GENERIC
    stems = {_root(word, table) for word in said if fold(word) not in common}
    return frozenset(stems - _generic(table))


def _pairs(plain: str, table: Language) -> frozenset[str]:
    """Return the pairs of characters of a text without spaces, and its words in ASCII."""
    for word in sorted(word_list(table.rule_words), key=len, reverse=True):
        plain = plain.replace(word, " ")
    pairs = {run[at : at + 2] for run in _DENSE.findall(plain) for at in range(len(run) - 1)}
    return frozenset(pairs | {word for word in _PART.findall(plain) if word.isascii()})


@functools.cache
def _generic(table: Language) -> frozenset[str]:
    return frozenset(_root(word, table) for word in table.rule_words.split())


def _root(word: str, table: Language) -> str:
    if table.code == "ko" and not word.isascii():
        return word[:_KOREAN_ROOT]
    stems = table.name and (word.isalpha() or not word.isascii())
    return stems_of(word, table.name)[0] if stems else word


def _all_in(names: Iterable[str], text: str) -> bool:
    return all(name in text for name in names)
