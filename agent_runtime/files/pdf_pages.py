"""Counts the pages of a PDF, without understanding it."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from itertools import chain

_PAGE = re.compile(rb"/Type\s*/Page(?![A-Za-z])")
_TREE = re.compile(rb"/Type\s*/Pages(?![A-Za-z])")
_COUNT = re.compile(rb"/Count\s+(\d{1,7})")
# Never past the next such word, so that a file full of them is searched once.
_PACKED = re.compile(rb"/Type\s*/ObjStm(?:(?!/ObjStm).){0,400}?stream\r?\n", re.DOTALL)
_END = b"endstream"
_MOST_STREAMS = 2_000
_MOST_BYTES = 64_000_000
"""Of unpacked streams together: a small file may unpack to any size."""


def pages_of(content: bytes) -> int:
    """Return the number of pages; 0 if it is not known, as of an encrypted file.

    Never more than the file says itself: a file that was changed may hold pages that it no longer
    has.
    """
    if b"/Encrypt" in content:
        return 0
    pages = most = 0
    for part in chain((content,), _unpacked(content)):
        # One by one: a file made for it has millions.
        pages += sum(1 for _ in _PAGE.finditer(part))
        if _TREE.search(part):
            most = max(most, max((int(found[1]) for found in _COUNT.finditer(part)), default=0))
    # Both may count too much: pages that an update replaced, and trees that hold others.
    return min(pages, most)


def _unpacked(content: bytes) -> Iterator[bytes]:
    """Yield the objects that are packed into compressed streams, as PDFs from 1.5 on have them."""
    room, at = _MOST_BYTES, 0
    for _ in range(_MOST_STREAMS):
        if room <= 0 or (found := _PACKED.search(content, at)) is None:
            return
        # Each byte belongs to one stream: otherwise each of them could be the rest of the file.
        at = content.find(_END, found.end())
        if at < 0:
            return
        try:
            part = zlib.decompressobj().decompress(content[found.end() : at], room)
        except zlib.error:
            continue
        room -= len(part)
        yield part
