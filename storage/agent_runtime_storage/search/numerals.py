"""Write the numbers of a query in the digits of other scripts."""

from __future__ import annotations

import itertools
import re

_DIGITS = "一二三四五六七八九"
_PLACES = {"十": 10, "百": 100, "千": 1000}
_HAN_NUMBER = re.compile("[〇零一二三四五六七八九十百千]{1,8}")
# Arabic-Indic, its Persian form, and Devanagari: of the scripts whose words have stems.
_ZEROS = "\u0660\u06f0\u0966"
# The largest number that is written without 万.
_MOST = 9999


def in_other_digits(word: str) -> list[str]:
    """Return a number in ASCII digits, or in others, in the digits of each script."""
    plain = "".join([str(int(digit)) for digit in word])
    others = [plain.translate({ord("0") + n: ord(zero) + n for n in range(10)}) for zero in _ZEROS]
    return [plain, *others]


def han_pairs(number: str) -> list[str]:
    """Return the pairs of characters of a number in Han numerals, as they are counted in."""
    value = int(number)
    if not 10 <= value <= _MOST:
        return []
    return ["".join(pair) for pair in itertools.pairwise(_in_han(value))]


def han_numbers(text: str) -> list[str]:
    """Return the numbers from 10 on that a text has in Han numerals, in ASCII digits."""
    values = map(_value, _HAN_NUMBER.findall(text))
    return [str(value) for value in values if value >= 10]


def _in_han(value: int) -> str:
    text = ""
    for place, name in ((1000, "千"), (100, "百"), (10, "十"), (1, "")):
        digit = value // place % 10
        if digit:
            text += _DIGITS[digit - 1] + name
        elif text and not text.endswith("零") and value % place:
            text += "零"
    # Ten to nineteen are written without the leading one.
    return text.removeprefix("一") if 10 <= value < 20 else text


def _value(numerals: str) -> int:
    if not any(place in numerals for place in _PLACES):
        # Digit by digit, as years are written.
        return int("".join([str(_DIGITS.find(one) + 1) for one in numerals]))
    value = digit = 0
    for one in numerals:
        if one in _PLACES:
            value += (digit or 1) * _PLACES[one]
            digit = 0
        else:
            digit = _DIGITS.find(one) + 1
    return value + digit
