"""Numbers with what they count, in messages to people and models."""

from __future__ import annotations


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun: `1 file`, `2,000 files`.

    Args:
        plural: the noun for other numbers than 1; by default `noun` with an `s`.
    """
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
