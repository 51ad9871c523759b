"""Short forms of text: one line, shortened in the middle, numbers as spans."""

from __future__ import annotations

import re
from collections.abc import Iterable

from agent_runtime.messages import encodable

_BOLD = re.compile(r"(?<![\w*/(,])\*\*(?=[^\s*/])([^*]{1,400}?)(?<=[^\s/(,])\*\*(?![\w*/])")
# A time or a name in brackets before a message, as chats put it.
_STAMP = re.compile(r"^\[[^\]\n]{1,40}\]\s?")
_BLANK = re.compile(r"[\s\x00-\x1f\x7f-\x9f\u2028\u2029]+")


def one_line(text: str) -> str:
    """Return a text on one line, without control characters, that can be encoded."""
    return _BLANK.sub(" ", encodable(text)).strip()


def shorten(text: str, chars: int, gap: str = " … ") -> str:
    """Return the beginning and end of a text, about `chars` characters in all."""
    if len(text) <= chars:
        return text
    tail = chars // 3
    head = text[: chars - tail].rstrip()
    return f"{head}{gap}{text[len(text) - tail :].lstrip() if tail else ''}".rstrip()


def without_emphasis(text: str) -> str:
    """Return a line without the asterisks of Markdown's bold; those of code stay.

    They stand outside of backticks, around words: `2**20`, `src/**/*.ts` and `f(**kwargs)` stay.
    """
    parts = text.split("`")
    # Every second part is code, unless a backtick has no counterpart.
    last = len(parts) - 1
    return "`".join(
        part if place % 2 and place < last else _BOLD.sub(r"\1", part)
        for place, part in enumerate(parts)
    )


def stamp_of(text: str) -> str:
    """Return the time or name in brackets that a chat puts before a message, if there is one."""
    return found[0] if (found := _STAMP.match(text)) else ""


def date_of(text: str) -> str:
    """Return such a stamp if it can be a date or a time, which has digits."""
    stamp = stamp_of(text)
    return stamp if any(map(str.isdigit, stamp)) else ""


def numbers(values: Iterable[int]) -> str:
    """Return whole numbers as spans: `3, 5-9`."""
    spans: list[list[int]] = []
    for value in sorted(set(values)):
        if spans and value == spans[-1][1] + 1:
            spans[-1][1] = value
        else:
            spans.append([value, value])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)
