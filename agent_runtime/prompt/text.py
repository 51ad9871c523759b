"""Short forms of text: one line, shortened in the middle, numbers as spans."""

from __future__ import annotations

import re
from collections.abc import Iterable

from agent_runtime.messages import encodable

_BLANK = re.compile(r"[\s\x00-\x1f\x7f\x85\u2028\u2029]+")


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


def numbers(values: Iterable[int]) -> str:
    """Return whole numbers as spans: `3, 5-9`."""
    spans: list[list[int]] = []
    for value in sorted(set(values)):
        if spans and value == spans[-1][1] + 1:
            spans[-1][1] = value
        else:
            spans.append([value, value])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)
