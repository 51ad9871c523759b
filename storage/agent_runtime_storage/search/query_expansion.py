"""The other forms of English words.

"When did she adopt the puppies" looks for `adopt`, `adopts`, `adopted`, `adopting`, `puppies` and
`puppy`.  The index holds every English word as it was written; only queries are expanded.  Words of
other languages get forms too where the query may be English, but those do not occur.
"""

from __future__ import annotations

import functools
from typing import Any, cast

MAX_EXPANDED_WORDS = 24
"""The first words of a query that are expanded; each form is one more term to look up."""
_SHORTEST = 3
_VOWELS = tuple("aeiou")
_HISSING = ("s", "x", "z", "ch", "sh", "o")
_IRREGULAR = """
become became | begin began begun | bite bit bitten | blow blew blown | break broke broken |
bring brought | build built | buy bought | catch caught | child children | choose chose chosen |
come came | deal dealt | dig dug | draw drew drawn | drink drank drunk | drive drove driven |
eat ate eaten | fall fell fallen | feed fed | feel felt | fight fought | find found |
fly flew flown | foot feet | forget forgot forgotten | freeze froze frozen | get got gotten |
give gave given | go goes went gone | grow grew grown | hang hung | hear heard | hide hid hidden |
hold held | keep kept | know knew known | lead led | leave left | lend lent | lie lay lain |
life lives | lose lost | make made | man men | mean meant | meet met | mouse mice | pay paid |
ride rode ridden | ring rang rung | rise rose risen | run ran | say said | see saw seen |
sell sold | send sent | shake shook shaken | shoot shot | show shown | shrink shrank shrunk |
sing sang sung | sink sank sunk | sit sat | sleep slept | speak spoke spoken | spend spent |
stand stood | steal stole stolen | stick stuck | strike struck | swear swore sworn |
swim swam swum | take took taken | teach taught | tear tore torn | tell told | think thought |
throw threw thrown | tooth teeth | understand understood | wake woke woken | wear wore worn |
wife wives | win won | woman women | write wrote written
"""


@functools.lru_cache(maxsize=4_096)
def forms_of(word: str) -> tuple[str, ...]:
    """Return a word and its other English forms."""
    groups = _irregular()
    # Identifiers, numbers and words of other scripts are not inflected.
    if word not in groups and (len(word) < _SHORTEST or not (word.isascii() and word.isalpha())):
        return (word,)
    group = groups.get(word)
    regular = _regular(group[0] if group else word)
    if group is None:
        # A regular form of an irregular word, such as "buying": "bought" is a form of it, too.
        group = next((groups[form] for form in regular if groups.get(form, " ")[0] == form), ())
    return tuple(dict.fromkeys((word, *regular, *group)))


def _regular(word: str) -> list[str]:
    """Return the regular forms of a word that share its stem."""
    stem = _stem(word)
    bases = {word, stem, word.removesuffix("s"), word.removesuffix("ed"), word.removesuffix("ing")}
    if stem.endswith("i"):
        bases.add(f"{stem[:-1]}y")
    elif not stem.endswith(_VOWELS):
        bases.add(f"{stem}e")
    if word.endswith("ies"):
        bases.add(f"{word[:-3]}y")
    forms = {form for base in bases if base for form in _inflected(base)}
    # Many of the guesses are no words or other words; those with another stem are dropped.
    return sorted(form for form in forms if _stem(form) == stem)


def _inflected(base: str) -> list[str]:
    """Return a word with the endings of nouns and verbs."""
    if base.endswith("e"):
        return [base, f"{base}s", f"{base}d", f"{base}r", f"{base[:-1]}ing"]
    if base.endswith("y") and base[-2:-1] not in _VOWELS:
        return [base, f"{base[:-1]}ies", f"{base[:-1]}ied", f"{base}ing"]
    plural = f"{base}es" if base.endswith(_HISSING) else f"{base}s"
    forms = [base, plural, f"{base}ed", f"{base}ing", f"{base}er"]
    # A consonant after a vowel may be doubled, as in "running"; whether it is depends on the
    # stress.
    if base[-1] not in _VOWELS and base[-2:-1] in _VOWELS:
        doubled = base + base[-1]
        forms += [f"{doubled}ed", f"{doubled}ing"]
    return forms


@functools.lru_cache(maxsize=8_192)
def _stem(word: str) -> str:
    # Not above: the package imports all its languages, and most runs never search.
    from snowballstemmer.english_stemmer import (  # pyright: ignore[reportMissingTypeStubs]
        EnglishStemmer,
    )

    return cast("str", cast("Any", EnglishStemmer()).stemWord(word))


@functools.cache
def _irregular() -> dict[str, tuple[str, ...]]:
    """Return the groups of irregular forms, by each of their words."""
    groups = [tuple(group.split()) for group in _IRREGULAR.split("|")]
    return {word: group for group in groups for word in group}
