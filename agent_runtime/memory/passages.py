"""What is embedded of a branch: passages of about equal size, each standing for a message.

Pure: of the same nodes it always makes the same passages.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from agent_runtime.messages import (
    AssistantMessage,
    Note,
    searchable,
)
from agent_runtime.view import Entry

REACH = 1
"""How many nodes before and after its own a passage may have words of.

So the passages of the newest nodes change when others follow: embed these again, in their place.
"""
MESSAGE, RESULT = "message", "result"
SOURCES = (MESSAGE, RESULT)
"""The sources of vectors that retrieval searches."""
LIMIT = 800
"""How many characters a passage has at most: about 200 tokens, so that small embedders read it."""


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


def place_of(source: str, source_id: int) -> tuple[int, int | None]:
    """Return the node, and of a result the call, that a vector's key stands for."""
    return divmod(source_id, 1296) if source == RESULT else (source_id, None)


def _of(entry: Entry) -> Iterator[Passage]:
    if isinstance(entry.message, Note) and entry.message.source == "recall":
        return
    yield from _split(MESSAGE, entry.seq, searchable(entry.message))
    calls = entry.message.calls if isinstance(entry.message, AssistantMessage) else ()
    for index, (call, result) in enumerate(zip(calls, entry.results, strict=False)):
        if call.name != "recall":
            yield from _split(RESULT, entry.seq * 1296 + index, searchable(result))


def _split(source: str, source_id: int, text: str) -> Iterator[Passage]:
    for part, start in enumerate(range(0, len(text), LIMIT)):
        if text[start : start + LIMIT].strip():
            yield Passage(source, source_id, part, text[start : start + LIMIT])
