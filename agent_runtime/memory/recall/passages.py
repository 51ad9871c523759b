"""What is embedded of a branch: passages of about equal size, each standing for a message.

A long message is split, at the ends of paragraphs, sentences or words, so that embedders read all
of it and no vector stands for several subjects.  A short one is embedded as it is: what its
neighbours say counts when it is searched for (see `retrieval`), so a message's vectors never change
by what follows it.  Pure: of the same nodes it always makes the same passages.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from agent_runtime.messages import (
    AssistantMessage,
    encodable,
    searchable,
)
from agent_runtime.prompt.view import Entry

REACH = 0
"""How many nodes before and after its own a passage has words of."""
MESSAGE, RESULT = "message", "result"
SOURCES = (MESSAGE, RESULT)
"""The sources of vectors that retrieval searches."""
SIZE = 800
"""About how many bytes of UTF-8 a passage has at most: some 200 tokens, in any script."""
CALLS = 1296
"""So many numbers belong to a node, as in the handles of its results."""
MOST_OF_MESSAGE = 100_000
"""How many characters of a message are embedded: as many as full text search reads."""
MOST_OF_RESULT = 8_000
"""How many of a result, which is long and says little to the point."""

_ENDS = tuple(re.compile(end) for end in (r"\n+", r"(?<=[.!?:;])\s", r"\s"))
_LEAST = 0.6


@dataclass(frozen=True, slots=True)
class Passage:
    """A text to be embedded, and what its vector is kept under (see `VectorKey`).

    Attributes:
        source: `message`, or `result` for a call's result.
        source_id: the node; of a result, the number that its handle is.
        part: which part of it, from 0.
    """

    source: str
    source_id: int
    part: int
    text: str


def passages(entries: Sequence[Entry], *, of: Collection[int] | None = None) -> list[Passage]:
    """Return the passages of consecutive nodes of a branch, oldest first.

    Args:
        of: the nodes whose passages are wanted, by default all; the others are their neighbours.
    """
    return [passage for entry in entries if of is None or entry.seq in of for passage in _of(entry)]


def node_and_call_of(source: str, source_id: int) -> tuple[int, int | None]:
    """Return the node, and of a result the call, that a vector's key stands for."""
    return divmod(source_id, CALLS) if source == RESULT else (source_id, None)


def _of(entry: Entry) -> Iterator[Passage]:
    yield from _split(MESSAGE, entry.seq, searchable(entry.message)[:MOST_OF_MESSAGE])
    calls = entry.message.calls if isinstance(entry.message, AssistantMessage) else ()
    for index, (call, result) in enumerate(zip(calls, entry.results, strict=False)):
        number = entry.seq * CALLS + index
        yield from _split(RESULT, number, searchable(result, call.name)[:MOST_OF_RESULT])


def _split(source: str, source_id: int, text: str) -> Iterator[Passage]:
    for part, piece in enumerate(split(text)):
        yield Passage(source, source_id, part, piece)


def split(text: str) -> list[str]:
    """Return a text in pieces of about equal size, at most about `SIZE`; none is blank."""
    text = encodable(text).strip()
    size = len(text.encode())
    if size <= SIZE:
        return [text] if text else []
    most = max(SIZE * len(text) // size, 1)
    pieces: list[str] = []
    while text:
        left = -(-len(text) // most)
        end = _end(text, -(-len(text) // left), most) if left > 1 else len(text)
        if piece := text[:end].strip():
            pieces.append(piece)
        text = text[end:].strip()
    return pieces


def _end(text: str, wanted: int, most: int) -> int:
    """Return where to end a piece near to so many characters: at the best kind of end there is."""
    for end in _ENDS:
        found = [
            match.end() for match in end.finditer(text[:most]) if match.end() >= wanted * _LEAST
        ]
        if found:
            return min(found, key=lambda at: abs(at - wanted))
    return most
