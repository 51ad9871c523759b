"""Find the place in a text that is most like another text."""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

LIKE = 0.7
"""How alike a place must be to be named: the share of characters that both have, in order."""
SECONDS = 2.0
"""How long places are compared; the best so far is then taken."""
_CANDIDATES = 12
_MOST_CHARS = 4 << 20
"""In longer texts no place is looked for, unless it differs in blanks only."""
_COMPARED_CHARS = 2000
_TELLING_CHARS = 3
"""A part of a line with fewer characters says nothing of where it was meant."""


@dataclass(frozen=True, slots=True)
class Place:
    """Lines of a text.

    Attributes:
        first: the number of the first, from 1.
        like: how alike they are, from 0 to 1; 1 if only blanks at the ends of lines differ, and
            0.99 if only blanks differ.
    """

    first: int
    lines: tuple[str, ...]
    like: float

    @property
    def last(self) -> int:
        """The number of the last line."""
        return self.first + len(self.lines) - 1


def nearest(text: str, wanted: str) -> Place | None:
    """Return the lines that are most like the wanted ones; None if none are like them.

    Lines are compared without the blanks at their ends.
    """
    lines, sought = text.split("\n"), wanted.strip("\n").split("\n")
    plain, target = [line.strip() for line in lines], [line.strip() for line in sought]
    if not any(target):
        return None
    height = len(target)
    if (same := _same(plain, target)) is not None:
        return Place(same + 1, tuple(lines[same : same + height]), 1.0)
    if len(text) > _MOST_CHARS:
        return None
    if (same := _same_but_blanks(plain, target)) is not None:
        return Place(same + 1, tuple(lines[same : same + height]), 0.99)
    best, found = 0.0, -1
    deadline = time.monotonic() + SECONDS
    for start in _candidates(plain, target):
        like = _likeness(target, plain[start : start + height])
        # Of equal ones the better guess, which comes first.
        if like > best:
            best, found = like, start
        if time.monotonic() > deadline:
            break
    if best < LIKE:
        return None
    return Place(found + 1, tuple(lines[found : found + height]), best)


def _same(lines: Sequence[str], target: Sequence[str]) -> int | None:
    """Return where the lines are the same."""
    height, first = len(target), target[0]
    for start in range(len(lines) - height + 1):
        if lines[start] == first and list(lines[start : start + height]) == list(target):
            return start
    return None


def _same_but_blanks(lines: Sequence[str], target: Sequence[str]) -> int | None:
    """Return where the lines are the same without any blanks; a single line may be a part."""
    bare = ["".join(line.split()) for line in lines]
    sought = ["".join(line.split()) for line in target]
    if len(sought) > 1:
        return _same(bare, sought)
    if len(sought[0]) < _TELLING_CHARS:
        return None
    return next((at for at, line in enumerate(bare) if sought[0] in line), None)


def _candidates(lines: Sequence[str], target: Sequence[str]) -> list[int]:
    """Return where comparing is worth while, the best guess first."""
    # By pieces of three characters, which takes time in proportion to the text.
    pieces = {piece for line in target for piece in _pieces(line)}
    common = [sum(piece in pieces for piece in _pieces(line)) for line in lines]
    hits = list(itertools.accumulate(common, initial=0))
    sizes = list(itertools.accumulate((len(line) + 1 for line in lines), initial=0))
    height, size = len(target), sum(len(line) + 1 for line in target)
    alone = height == 1

    def score(start: int) -> float:
        end = min(start + height, len(lines))
        both = hits[end] - hits[start]
        # A part of a line is sought in lines that may be much longer.
        return both if alone else 2 * both / (size + sizes[end] - sizes[start])

    starts = [at for at in range(max(1, len(lines) - height + 1)) if hits[at + 1] > hits[at]]
    return heapq.nlargest(_CANDIDATES, starts or [0], key=score)


def _pieces(line: str) -> list[str]:
    padded = f"\n{line}\n"
    return [padded[at : at + 3] for at in range(len(padded) - 2)] if line else []


def _likeness(target: Sequence[str], lines: Sequence[str]) -> float:
    """Return the share of characters that two blocks of lines have in common, in order."""
    if len(target) == 1 and lines:
        return _within(target[0], lines[0])
    total = sum(map(len, target)) + sum(map(len, lines))
    both = 0
    # By lines first: comparing thousands of characters takes seconds.
    for kind, a, b, c, d in SequenceMatcher(None, target, lines, autojunk=False).get_opcodes():
        if kind == "equal":
            both += sum(map(len, target[a:b]))
        elif kind == "replace":
            both += _common("\n".join(target[a:b]), "\n".join(lines[c:d]))
    return min(1.0, 2 * both / total) if total else 0.0


def _common(one: str, other: str) -> int:
    one, other = one[:_COMPARED_CHARS], other[:_COMPARED_CHARS]
    blocks = SequenceMatcher(None, one, other, autojunk=False).get_matching_blocks()
    return sum(block.size for block in blocks)


def _within(part: str, line: str) -> float:
    """Return how alike a text is to the part of a line that is most like it."""
    part, line = part[:_COMPARED_CHARS], line[:_COMPARED_CHARS]
    matcher = SequenceMatcher(None, part, line, autojunk=False)
    blocks = [block for block in matcher.get_matching_blocks() if block.size > 1]
    if not blocks:
        return 0.0
    both = sum(block.size for block in blocks)
    length = blocks[-1].b + blocks[-1].size - blocks[0].b
    return 2 * both / (len(part) + max(length, both))
