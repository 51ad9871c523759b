"""Which of the user's constraints another one ends.

A user ends a rule in words of their own language ("no longer", "nicht mehr", "不再") and names what
it was about.  Names are compared by their stems, without the words that say only that something is
a rule, is forbidden or holds: the tables of the languages have these.

A rule that ends by mistake is lost, and one that stays too long only stands next to its successor.
So a sentence ends nothing if it hedges, if it only tells how things are ("the tests no longer
pass"), or if it leaves part of the rule standing.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from agent_runtime.memory.observational.language.base import (
    CODES,
    Language,
    fold,
    function_words,
    language,
    searched,
    word_list,
)
from agent_runtime.memory.observational.language.detect import languages_of
from agent_runtime.memory.observational.language.rules import asks
from agent_runtime.memory.observational.observer.sentences import words
from agent_runtime.memory.observational.reflector.retention import verbatim_terms
from agent_runtime_storage.search.stemming import stems_of

_FORGETS = r"\bforget (?:about|the rule|what I said about)\b"
_LETTER = r"[\w\u0900-\u0963]"
"""`\\w` does not know the vowel signs of Hindi."""
# "No longer" is not the only end of what is forbidden: it may be allowed from now on.
_PERMITS = "|".join(
    rf"(?<!{_LETTER})(?:{one.ending.permits})(?!{_LETTER})" if one.spaced else one.ending.permits
    for one in map(language, CODES)
)
_PERMITTED = re.compile(_PERMITS, re.IGNORECASE)
# Only as an order: "did you forget" and "never forget" end nothing.
_FORGET = re.compile(
    rf"^\W*(?:(?:please|so|and|ok|okay|now|just|you can|you may)[, ]+)*{_FORGETS}", re.IGNORECASE
)
_NO_LONGER = re.compile(
    # "Any more" before a noun counts things, and ends nothing.
    r"\bno longer\b|(?:\bnot? (.{0,30}))?\b(?:anymore|any more(?=\W*$| (?:in|on|at|for)\b))\b|"
    rf"{_FORGETS}|{_PERMITS}|"
    r"\bnicht mehr\b(?! als)|\bkein\w{0,2} (.{0,40})\bmehr\b(?! als)|\bya no\b|"
    r"\bn(?:e |['’])(.{1,30}?)(?<!pas)(?<!non) plus\b|\bnon (.{1,30}) più\b(?! d[i'’]| che)|"
    r"\bmais não\b|\bjá não\b|\bnão (.{1,40}) mais\b(?! d[eo]| que)|"
    r"\bбольше не\b|\bniet meer\b(?! dan)|\bgeen (.{1,40}) meer\b(?! dan)|"
    r"\bjuż nie\b|\bnie ((?:\w+ ){1,2})już\b|\bwięcej nie\b|"
    r"\b(?:ei|eivät|älä) (?:(.{1,30}) )?enää\b|\bartık\b|لم [يت]عد|"
    r"이제 (.{1,40})지 않아도|"
    r"अब (?!तक|भी)(.{0,40})नहीं|더 ?이상|不再|"
    r"もう(?!一|すぐ|少し|ちょっと|ひと)(?=.{0,40}(?:な[いくし]|ません|[いよ]い|大丈夫))",
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
# An order at the start of a clause; elsewhere "no longer" may tell only how things are.
_STOP = re.compile(
    r"^\W*(?:(?:please|and|so|ok|okay|then|also|now)[, ]+)*(?:do not|don['’]?t|no longer|stop)\b",
    re.IGNORECASE,
)
_AND = re.compile(
    r"[,;:!?。，；、]\s*|\.\s+|\s(?:and|or|und|oder|sowie|et|ou|y|o|e|ed|en|of|i|oraz|lub|и|или|"
    r"ja|tai|ve|veya|और|या|أو|او|및|또는)\s|\s(?=و)|和|或|(?<=[가-힣])(?:와|과)\s",
    re.IGNORECASE,
)
_NUMBERED = re.compile(r"\b(?:rule|point|item|regel|règle|regla|no\.?|nr\.?|#)\s*(\d+)\b")
_WORD = re.compile(r"[\w][\w./-]*[\w]|\w")
# With these verbs, what follows is no qualification: "keep the API in English".
_COMPLETED = re.compile(r"\b(?:keep|make|put|take|set|get|let|run|go)\b", re.IGNORECASE)
# Words that do not say what a rule is about: two rules that share only these are unrelated.
_GENERIC = words(
    "a an the this that these those it its is are be been being was were do does did done has "
    "have had i you we they he she my your our their me us them of to in on at by for from with "
    "without into up down out off over as and or but if then than so too also not no never always "
    "only any all each every must should shall will would can could may might now longer more "
    "anymore instead rather please need needed require required rule rules use used using keep "
    "make put take set get let run go apply thi doe ha wa don isn aren doesn won t s d ll ve re "
    "restriction constraint requirement ban forbidden forbid allowed allow avoid hold matter "
    "about applie valid necessary obsolete der die das den dem ein eine einen und oder ist sind "
    "nicht kein keine nie immer mehr ab jetzt ok okay yes fine sofort bitte nur le la les un une "
    "de du des et ou est el los las y es"
)

# Characters of scripts without spaces; what is in hiragana says how words belong together.
_DENSE = re.compile("[\u30a1-\u30fa\u30fc\u3400-\u4dbf\u4e00-\u9fff]+")
_UNSPACED = ("zh", "ja")
Reading = Callable[[str], frozenset[str]]
"""Returns what a text is about."""
_KOREAN_ROOT = 2
"""Characters of a Korean word that are compared: particles follow them."""
_PARTICLE = re.compile("(?<=.)(?:은|는|이|가|을|를|의|에|도|만|로|와|과|으로|에서)$")
_TURKISH_ROOT = 5
"""Characters of a Turkish word that are compared."""
_PART = re.compile(r"(?:[^\W_]|[\u0900-\u0963])+(?:[./_-]+[^\W_]+)*")
# Where a name in ASCII touches a word of a script without spaces, or a Korean particle.
_SEAM = re.compile(r"(?<=[a-z0-9])(?=[^\x00-\x7f])|(?<=[^\x00-\x7f])(?=[a-z0-9])")


def ends_something(text: str) -> bool:
    """Return whether a constraint may say that another one no longer holds."""
    return bool(_ENDS_SOMETHING.search(text))


def supersedes(new: str, old: str) -> bool:
    """Return whether a constraint says that an older one no longer holds.

    It has to say so ("no longer", "from now on … instead") and to name all that ends.  If it is not
    clear that it means the older one, both stay.
    """
    tables = languages_of(new)
    if _hedges(new, tables) or asks(new):
        return False
    # A sentence of a few words may be in several languages.
    readings: list[Reading] = [_content]
    readings += [functools.partial(_stems, table=one) for one in tables if one.code != "en"]
    forbids = _forbids(old)
    for ended, law in _ended(new, forbids, tables):
        if not _all_in(verbatim_terms(ended), old):
            continue
        for read in readings:
            named = read(ended)
            # What is forbidden in some case only is not allowed with all the rest.
            qualified = not forbids and _FORGET.search(new) is None
            if named and (
                named == read(old)
                or _names_rule(old, named, read, law=law)
                or (qualified and _names_what_is_qualified(old, named, read))
            ):
                return True
    if not _FROM_NOW_ON.search(new) or not _INSTEAD.search(new) or _INSTEAD_OF.search(new):
        return False
    ours, theirs = (_without_numbers(_content(text)) for text in (new, old))
    shared = ours & theirs
    alike = bool(_NEGATED.search(new)) == bool(_NEGATED.search(old))
    # What they share may be only the verb: "write the page instead" is not about written tests.
    return alike and bool(shared) and 2 * len(shared) > min(len(ours), len(theirs))


def _without_numbers(stems: frozenset[str]) -> frozenset[str]:
    return frozenset(stem for stem in stems if not stem.isdecimal())


def _ended(new: str, forbids: bool, tables: Sequence[Language]) -> Iterator[tuple[str, bool]]:
    """Yield the parts of a constraint that name what ends with it, and whether as a rule.

    Args:
        forbids: whether what may end forbids something.
    """
    for clause in _CLAUSE.split(new):
        if _NO_LONGER.search(clause) and _lifts(clause, forbids, tables):
            # The words in between name what ends, as in "not use tabs any more".
            yield _NO_LONGER.sub(_groups, clause), _is_law(clause, tables)
        if _content(clause):
            # What follows may be what somebody is to write, or believes.
            break
    if _FROM_NOW_ON.search(new) and not forbids and not _forbids(new):
        yield from ((match[1], False) for match in _INSTEAD_OF.finditer(new))


def _groups(said: re.Match[str]) -> str:
    return f" {' '.join(filter(None, said.groups()))} "


def _is_law(clause: str, tables: Sequence[Language]) -> bool:
    return any(_says(clause, one, one.ending.laws) for one in tables)


def _lifts(clause: str, forbids: bool, tables: Sequence[Language]) -> bool:
    """Return whether a clause with "no longer" is about a rule, and not about how things are."""
    if "forget" in clause.casefold():
        return _FORGET.search(clause) is not None
    if _is_law(clause, tables):
        return True
    if forbids:
        # "No longer allowed" forbids once more, and "I no longer push" tells what is kept to.
        banned = any(_says(clause, one, one.ending.bans) for one in tables)
        return banned or _permits(clause, tables)
    asked = any(_says(clause, one, one.ending.duties) for one in tables)
    return asked or _STOP.search(clause) is not None


def _permits(clause: str, tables: Sequence[Language]) -> bool:
    """Return whether a clause says that something is allowed now, and not that it may be left."""
    if not _PERMITTED.search(clause):
        return False
    rest = fold(_PERMITTED.sub(_groups, clause))
    return not any(searched(one, "negation", rest) for one in tables)


@functools.lru_cache(256)
def _hedges(new: str, tables: tuple[Language, ...]) -> bool:
    """Return whether a sentence holds in some case only, or perhaps."""
    return any(_says(new, one, one.ending.hedges) for one in tables)


@functools.lru_cache(8192)
def _forbids(text: str) -> bool:
    plain = fold(text)
    return any(
        searched(one, "forbids", plain)
        or searched(one, "negation", plain)
        or _says(text, one, one.ending.bans)
        for one in languages_of(text)
    )


def _says(text: str, table: Language, forms: str) -> bool:
    """Return whether a text has one of some words, which are separated by spaces."""
    compiled = _any_of(forms, table.code not in _UNSPACED)
    return compiled is not None and compiled.search(fold(text)) is not None


@functools.cache
def _any_of(forms: str, spaced: bool) -> re.Pattern[str] | None:
    escaped = [re.escape(fold(form)).replace("_", " ") for form in forms.split()]
    if not escaped:
        return None
    either = "|".join(escaped).replace(r"\*", rf"{_LETTER}*")
    return re.compile(f"(?<!{_LETTER})(?:{either})(?!{_LETTER})" if spaced else either)


def _names_rule(old: str, named: frozenset[str], read: Reading, *, law: bool) -> bool:
    """Return whether words name a rule by its number, or by its object if that has a name."""
    if not named <= read(old):
        return False
    if any(word.startswith("rule_") for word in named):
        return True
    # "Tests" alone would end "never delete tests" as well; a name or a number is one thing.
    literal = {stem for name in verbatim_terms(old) for stem in read(name)}
    return law and bool(literal) and literal <= named and _names_most(old, named, read)


def _names_what_is_qualified(old: str, named: frozenset[str], read: Reading) -> bool:
    """Return whether words name all that comes before a qualification, as in "tabs for code"."""
    if not _names_most(old, named, read):
        return False
    common = frozenset[str]().union(*(function_words(one.code) for one in languages_of(old)))
    heads = (old[: word.start()] for word in _WORD.finditer(old) if fold(word[0]) in common)
    return any(read(head) == named and not _COMPLETED.search(head) for head in heads)


def _names_most(old: str, named: frozenset[str], read: Reading) -> bool:
    """Return whether words name half of a constraint, and something of each part of it."""
    parts = [part for part in map(read, _AND.split(old)) if part]
    return 2 * len(named) >= len(read(old)) and all(part & named for part in parts)


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
    runs = _DENSE.findall(plain)
    pairs = {run[at : at + 2] for run in runs for at in range(len(run) - 1)}
    if table.code == "ja":
        # A verb is often one character with its ending in hiragana.
        pairs |= {run for run in runs if len(run) == 1}
    return frozenset(pairs | {word for word in _PART.findall(plain) if word.isascii()})


@functools.cache
def _generic(table: Language) -> frozenset[str]:
    return frozenset(_root(word, table) for word in table.rule_words.split())


def _root(word: str, table: Language) -> str:
    if table.code == "ko" and not word.isascii():
        return _PARTICLE.sub("", word)[:_KOREAN_ROOT]
    if table.code == "tr":
        # Endings follow each other: the first letters are what a word and its cases share.
        return fold(word)[:_TURKISH_ROOT]
    stems = table.name and (word.isalpha() or not word.isascii())
    return stems_of(word, table.name)[0] if stems else word


def _all_in(names: Iterable[str], text: str) -> bool:
    return all(name in text for name in names)
