"""Fold letters that writers leave out or replace, and list the forms of Han characters and kana."""

from __future__ import annotations

import functools
import itertools
import re
import unicodedata
from collections.abc import Iterator, Mapping
from importlib import resources

from agent_runtime_storage.search import data

_LETTERS = str.maketrans(
    {
        "ł": "l",
        "ø": "o",
        "đ": "d",
        "ð": "d",
        "þ": "th",
        "æ": "ae",
        "œ": "oe",
        "ı": "i",
        "ħ": "h",
        "ŧ": "t",
        "ŋ": "n",
        # Arabic: hamza and its seats, alif maqsura, ta marbuta, tatweel; Persian letters.
        "\u0623": "\u0627",
        "\u0625": "\u0627",
        "\u0622": "\u0627",
        "\u0671": "\u0627",
        "\u0624": "\u0648",
        "\u0626": "\u064a",
        "\u0649": "\u064a",
        "\u06cc": "\u064a",
        "\u06a9": "\u0643",
        "\u0629": "\u0647",
        "\u0621": "",
        "\u0640": "",
        # Devanagari: anusvara for chandrabindu; without nukta.
        "\u0901": "\u0902",
        "\u093c": "",
        # Joiners.
        "\u200c": "",
        "\u200d": "",
    }
)
SPECIAL_LETTERS = re.compile("[łøđðþæœıħŧŋ]")
"""Latin letters that are no letter with an accent, so decomposition leaves them."""
_ACCENTS = re.compile("[\u0300-\u036f]+")
_MARKS = re.compile("[\u0300-\u036f\u064b-\u065f\u0670]+")
# Both kana have the same 86 letters in the same order.
_TO_HIRAGANA = {ord("ァ") + place: ord("ぁ") + place for place in range(86)}
_TO_KATAKANA = {hiragana: katakana for katakana, hiragana in _TO_HIRAGANA.items()}
# Each form is one more term to look up, and a word of several such characters has the product of
# their forms.
_MOST_VARIANTS = 16


def without_accents(text: str) -> str:
    """Return a text without accents of European scripts, its characters in one form."""
    if text.isascii():
        return text
    # Decomposed, accents are characters of their own.  Marks of other scripts belong to the letter
    # and are composed with it again.
    bare = _ACCENTS.sub("", unicodedata.normalize("NFKD", text))
    return unicodedata.normalize("NFC", bare)


def in_lower_case(text: str) -> str:
    """Return a text in lower case with its accents, as stemmers expect it."""
    if text.isascii():
        return text.lower()
    # In lower case, the Turkish capital İ keeps its dot as a character of its own.
    return unicodedata.normalize("NFC", text).casefold().replace("i\u0307", "i")


def fold_word(word: str) -> str:
    """Return a word in lower case, without accents, its letters replaced by the plainest ones."""
    folded = word.casefold()
    if folded.isascii():
        return folded
    # Twice: decomposition yields letters of the table, such as a Devanagari nukta.
    folded = unicodedata.normalize("NFKD", folded.translate(_LETTERS)).translate(_LETTERS)
    return unicodedata.normalize("NFC", _MARKS.sub("", folded))


def variants_of(text: str) -> set[str]:
    """Return a short text in simplified, traditional and Japanese characters, and in both kana."""
    forms = [_han_variants().get(character, character) for character in text]
    found = set(map("".join, itertools.islice(itertools.product(*forms), _MOST_VARIANTS)))
    return found | {text, text.translate(_TO_HIRAGANA), text.translate(_TO_KATAKANA)}


@functools.cache
def _han_variants() -> Mapping[str, str]:
    """Return the forms of each Han character that has several."""
    return {character: group for group in _groups() for character in group}


def _groups() -> Iterator[str]:
    text = resources.files(data).joinpath("han_variants.txt").read_text("utf-8")
    for line in text.splitlines():
        if not line.startswith("#"):
            yield from line.split()
