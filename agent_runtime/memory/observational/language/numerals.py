"""The numbers of a text: digits of any script, numerals in words, months, times of day."""

from __future__ import annotations

import functools
import re

from agent_runtime.memory.observational.language.base import Language, fold

_WORD = re.compile(r"[^\W\d_]+(?:[\u0900-\u0963\u064b-\u0652]+[^\W\d_]*)*")
_DIGITS = re.compile(r"\d+(?:[.,:٫٬]\d+)*")
_GROUPED = re.compile(r"\d{1,3}(?:[.,٬]\d{3})+")
_CLOCK = re.compile(r"(\d{1,2})[:.](\d{2})")
_HAN = re.compile("[一二三四五六七八九十百千万萬零〇两兩]+")
_HAN_DIGITS = {char: place % 10 for place, char in enumerate("〇一二三四五六七八九")} | {
    "零": 0,
    "两": 2,
    "兩": 2,
}
_HAN_UNITS = {"十": 10, "百": 100, "千": 1000, "万": 10_000, "萬": 10_000}
_NOON = {"正午": 12, "中午": 12}
_JOINERS = frozenset(fold("und en et y e and и ed و").split())
# Hours by which the two halves of a day differ on a clock of twelve.
_MORNING = 12
_ONE = "one"


def numbers_of(text: str, languages: tuple[Language, ...]) -> frozenset[str]:
    """Return the numbers of a text as digits; a month as `m1`, a time as hour and minute."""
    found: set[str] = set()
    for match in _DIGITS.finditer(text):
        found.update(_digits(match[0]))
    folded = fold(text)
    for table in languages:
        if table.code in ("zh", "ja"):
            found.update(_han(text))
        if table.numerals or table.months:
            found.update(_words(folded, table))
    return frozenset(found)


def has_numbers(wanted: frozenset[str], having: frozenset[str]) -> bool:
    """Return whether each number is among others; hours count by 12 or 24 alike."""
    # `20.1.` may be a day and a month.
    parts = {part for one in having if "." in one for part in one.split(".")}
    return all(_in(one, having | parts) for one in wanted)


def _in(one: str, having: frozenset[str]) -> bool:
    if one in having:
        return True
    if one.startswith("m"):
        # A month may be named or numbered.
        return one[1:] in having
    if one == _ONE:
        # In most languages it is an article, too.
        return True
    if not one.isdecimal():
        return False
    value = int(one)
    # `16:00` and "four in the afternoon".
    if value in (1, 1 + _MORNING) and _ONE in having:
        return True
    hours = (value - _MORNING, value + _MORNING) if value <= 24 else ()
    return any(str(hour) in having for hour in hours if 0 < hour <= 24)


def _digits(text: str) -> tuple[str, ...]:
    plain = "".join(str(int(char)) if char.isdecimal() else char for char in text)
    plain = plain.replace("٫", ".").replace("٬", ",")
    if _GROUPED.fullmatch(plain):
        return (re.sub(r"\D", "", plain),)
    if (clock := _CLOCK.fullmatch(plain)) and int(clock[1]) < 25 and int(clock[2]) < 60:
        # "16:00" and "at four": minutes of zero are not said.
        return tuple(str(int(part)) for part in clock.groups() if int(part) or part is clock[1])
    parts = re.split(r"[.,:]", plain)
    if len(parts) == 1:
        # A day may be written as `03`, but `007` is a name.
        return (str(int(plain)) if len(plain) < 3 else plain,)
    return (".".join(parts),)


def _han(text: str) -> set[str]:
    found = {str(value) for word, value in _NOON.items() if word in text}
    for match in _HAN.finditer(text):
        # A single one is a part of many words.
        if (value := _han_value(match[0])) is not None and match[0] not in ("一", "万", "千"):
            found.add(str(value))
    return found


def _han_value(text: str) -> int | None:
    if all(char in _HAN_DIGITS for char in text):
        return int("".join(str(_HAN_DIGITS[char]) for char in text))
    total = section = digit = 0
    for char in text:
        if char in _HAN_DIGITS:
            digit = _HAN_DIGITS[char]
        elif (unit := _HAN_UNITS[char]) == 10_000:
            total += max(section + digit, 1) * unit
            section = digit = 0
        else:
            section += max(digit, 1) * unit
            digit = 0
    return total + section + digit


def _words(folded: str, table: Language) -> set[str]:
    exact, prefixes = _numerals(table)
    found: set[str] = set()
    last: int | None = None
    for match in _WORD.finditer(folded):
        word = match[0]
        value = _value(word, exact, prefixes)
        if value is None:
            last = None if word not in _JOINERS else last
            continue
        if isinstance(value, str):
            found.add(value)
            last = None
        elif last is not None and value in (100, 1000, 1_000_000) and last < value:
            # As in "five hundred": the parts are no numbers of their own.
            found.discard(str(last))
            last *= value
            found.add(str(last))
        elif last is not None and _adds(last, value):
            found -= {str(last), str(value)}
            last += value
            found.add(str(last))
        else:
            found.add(str(value) if value > 1 else _ONE)
            last = value
    return found


def _adds(last: int, value: int) -> bool:
    # "twenty five", and in Arabic and German "five and twenty".
    tens, units = max(last, value), min(last, value)
    return 20 <= tens < 100 and tens % 10 == 0 and units < 10


def _value(
    word: str, exact: dict[str, int | str], prefixes: tuple[tuple[str, int | str], ...]
) -> int | str | None:
    if word in exact:
        return exact[word]
    for start, value in prefixes:
        if word.startswith(start):
            return value
    # German and Dutch write "fünfundzwanzig" in one word.
    for joiner in ("und", "en"):
        unit, _, tens = word.partition(joiner)
        one, ten = exact.get(unit), exact.get(tens)
        if isinstance(one, int) and isinstance(ten, int) and _adds(ten, one):
            return ten + one
    return None


@functools.cache
def _numerals(
    table: Language,
) -> tuple[dict[str, int | str], tuple[tuple[str, int | str], ...]]:
    exact: dict[str, int | str] = {}
    prefixes: list[tuple[str, int | str]] = []
    entries: list[tuple[str, int | str]] = []
    for line in table.numerals.splitlines():
        if line.strip():
            number, *words = line.split()
            entries += [(word, int(number)) for word in words]
    for place, names in enumerate(table.months.split(), 1):
        entries += [(name, f"m{place}") for name in names.split("/")]
    for word, value in entries:
        plain = fold(word.rstrip("*"))
        if word.endswith("*"):
            prefixes.append((plain, value))
            exact.setdefault(plain, value)
        else:
            exact[plain] = value
    # The longest first: "sixteen" begins with "six".
    return exact, tuple(sorted(prefixes, key=lambda one: -len(one[0])))
