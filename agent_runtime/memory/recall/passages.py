"""Passages: the parts of a branch that are embedded, of about equal size.

A long message is split at the ends of paragraphs, sentences or words, so that embedders read all of
it and no vector covers several subjects.  A short one is embedded alone: the search counts its
neighbours (see `search`), so what follows a message never changes its vectors.  Pure: equal nodes
give equal passages.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agent_runtime.messages import AssistantMessage, encodable, searchable
from agent_runtime.prompt.view import Entry

MESSAGE, RESULT = "message", "result"
SOURCES = (MESSAGE, RESULT)
"""The sources of vectors that retrieval searches."""
SIZE = 800
"""About the most bytes of UTF-8 in a passage: some 200 tokens, in any script."""
CALLS = 1296
"""Source ids per node, as many as its results can have handles."""
MOST_OF_MESSAGE = 100_000
"""How many characters of a message are embedded: as many as full-text search reads."""
MOST_OF_RESULT = 8_000
"""How many characters of a result are embedded; results are long and mostly irrelevant."""

_ENDS = tuple(re.compile(end) for end in (r"\n+", r"(?<=[.!?:;])\s", r"\s"))
# A piece may end this much before the wanted place, if a sentence or a paragraph ends there.
_LEAST = 0.6


@dataclass(frozen=True, slots=True)
class Passage:
    """A text to embed, and the key of its vector (see `VectorKey`).

    Attributes:
        source: `message`, or `result` for a call's result.
        source_id: the node's number; of a result, `CALLS` times that plus the call's index.
        part: its index among the passages of its source.
        digest: by which a vector of the same text is found.
    """

    source: str
    source_id: int
    part: int
    text: str
    digest: str


def text_digest(text: str) -> str:
    """Return a text's 128-bit digest."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def passages(entries: Sequence[Entry]) -> list[Passage]:
    """Return the passages of nodes, in their order."""
    return [passage for entry in entries for passage in _of(entry)]


def node_and_call_of(source: str, source_id: int) -> tuple[int, int | None]:
    """Return the node of a vector's key, and for a result its call's index."""
    return divmod(source_id, CALLS) if source == RESULT else (source_id, None)


def _of(entry: Entry) -> Iterator[Passage]:
    yield from _split(MESSAGE, entry.seq, searchable(entry.message)[:MOST_OF_MESSAGE])
    calls = entry.message.calls if isinstance(entry.message, AssistantMessage) else ()
    for index, (call, result) in enumerate(zip(calls, entry.results, strict=False)):
        number = entry.seq * CALLS + index
        yield from _split(RESULT, number, searchable(result, call.name)[:MOST_OF_RESULT])


def _split(source: str, source_id: int, text: str) -> Iterator[Passage]:
    for part, piece in enumerate(split(text)):
        yield Passage(source, source_id, part, piece, text_digest(piece))


def split(text: str) -> list[str]:
    """Split a text into pieces of about equal size, at most about `SIZE`; none is blank."""
    text = encodable(text).strip()
    size = len(text.encode())
    if size <= SIZE:
        return [text] if text else []
    # In characters of this text: one takes one to four bytes, depending on the script.
    most = max(SIZE * len(text) // size, 1)
    pieces: list[str] = []
    while text:
        # Divided again for each piece, so that the last one is not a small rest.
        left = -(-len(text) // most)
        end = _end(text, -(-len(text) // left), most) if left > 1 else len(text)
        if piece := text[:end].strip():
            pieces.append(piece)
        text = text[end:].strip()
    return pieces


def _end(text: str, wanted: int, most: int) -> int:
    """Return where to end a piece of about `wanted` characters: at the best kind of end."""
    for end in _ENDS:
        places = [match.end() for match in end.finditer(text[:most])]
        if near := [place for place in places if place >= wanted * _LEAST]:
            return min(near, key=lambda place: abs(place - wanted))
    return most
