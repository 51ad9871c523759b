"""The number of pages of a PDF."""

from __future__ import annotations

import time
import zlib

import pytest

from agent_runtime.files.pdf_pages import pages_of

PAGE = b"3 0 obj << /Type /Page /Parent 2 0 R >> endobj\n"


def tree(count: int) -> bytes:
    """Return the tree of this many pages."""
    return b"2 0 obj << /Type /Pages /Kids [] /Count %d >> endobj\n" % count


def packed(content: bytes) -> bytes:
    """Return objects as PDFs from 1.5 on have them."""
    data = zlib.compress(content)
    head = b"9 0 obj << /Type /ObjStm /Filter /FlateDecode /Length %d >>\n" % len(data)
    return head + b"stream\r\n" + data + b"\nendstream endobj\n"


@pytest.mark.parametrize(
    ("content", "pages"),
    [
        (tree(3) + PAGE * 3, 3),
        (packed(tree(2) + PAGE * 2), 2),
        (tree(2) + packed(PAGE) + PAGE, 2),
        # Changed twice: the file still has the pages of its older versions.
        (tree(1) + PAGE * 3, 1),
        (tree(9) + PAGE, 1),
        (b"<< /Encrypt 5 0 R >>" + tree(3) + PAGE * 3, 0),
        (packed(PAGE)[:90], 0),
        (b"", 0),
    ],
)
def test_pages(content: bytes, pages: int) -> None:
    assert pages_of(b"%PDF-1.7\n" + content) == pages


def test_a_stream_that_unpacks_to_any_size_is_cut() -> None:
    bomb = packed(bytes(100_000_000))
    assert len(bomb) < 200_000
    assert pages_of(b"%PDF-1.7\n" + tree(1) + PAGE + bomb * 3) == 1


def test_streams_that_end_nowhere_are_not_read_again_and_again() -> None:
    # Each of them would otherwise be all that follows.
    begin = b"<< /Type /ObjStm >> stream\n" + zlib.compress(PAGE)
    begun = time.thread_time()
    assert pages_of(b"%PDF-1.7\n" + tree(1) + PAGE + begin * 2000 + bytes(6_000_000)) == 1
    assert time.thread_time() - begun < 0.3


def test_names_of_streams_without_streams_are_searched_once() -> None:
    begun = time.thread_time()
    assert pages_of(b"%PDF-1.7\n" + tree(1) + PAGE + b"/Type /ObjStm" * 200_000) == 1
    assert time.thread_time() - begun < 0.3
