"""Counts the pages of a PDF, without understanding it."""

from __future__ import annotations

import re
import zlib

_PAGE = re.compile(rb"/Type\s*/Page(?![A-Za-z])")
_TREE = re.compile(rb"/Type\s*/Pages(?![A-Za-z])")
_COUNT = re.compile(rb"/Count\s+(\d{1,7})")
_PACKED = re.compile(rb"/Type\s*/ObjStm.{0,400}?stream\r?\n", re.DOTALL)
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
    parts = [content, *_unpacked(content)]
    pages = sum(len(_PAGE.findall(part)) for part in parts)
    trees = [part for part in parts if _TREE.search(part)]
    counts = [int(found) for part in trees for found in _COUNT.findall(part)]
    return min(pages, max(counts, default=0))


def _unpacked(content: bytes) -> list[bytes]:
    """Return the objects that are packed into compressed streams, as PDFs from 1.5 on have them."""
    parts: list[bytes] = []
    room = _MOST_BYTES
    for number, found in enumerate(_PACKED.finditer(content)):
        if number >= _MOST_STREAMS or room <= 0:
            break
        try:
            part = zlib.decompressobj().decompress(content[found.end() :], room)
        except zlib.error:
            continue
        room -= len(part)
        parts.append(part)
    return parts
