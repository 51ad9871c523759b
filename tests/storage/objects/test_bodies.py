"""Small bodies are compressed in their rows, and read as they were written."""

from __future__ import annotations

import os

import pytest
import zstandard

from agent_runtime_storage.contract.errors import CorruptThread
from agent_runtime_storage.objects.bodies import (
    COMPRESSED_BYTES,
    INLINE_BYTES,
    BodyWriter,
    unpack_body,
)

FRAME = zstandard.ZstdCompressor().compress(b"inner")


def stored(body: bytes) -> bytes:
    return BodyWriter("", "user", "thread").get(body).inline


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"x" * (COMPRESSED_BYTES - 1),
        b"x" * COMPRESSED_BYTES,
        os.urandom(COMPRESSED_BYTES),
        FRAME,
        FRAME[:4],
        FRAME[:4] + b"x" * COMPRESSED_BYTES,
    ],
    ids=["empty", "short", "long", "random", "frame", "begin of a frame", "nearly a frame"],
)
def test_a_body_is_read_as_it_was_written(body: bytes) -> None:
    assert unpack_body(stored(body), "", None, {}) == body


def test_a_body_is_never_stored_longer_and_a_long_one_shorter() -> None:
    random = os.urandom(COMPRESSED_BYTES)
    assert stored(random) == random
    assert len(stored(b"some words " * 100)) < 100


def test_a_row_that_was_written_uncompressed_is_read() -> None:
    body = b'{"text":"' + b"some words " * 100 + b'"}'
    assert unpack_body(body, "", None, {}) == body


@pytest.mark.parametrize(
    "damaged",
    [stored(b"some words " * 100)[:-3], FRAME[:4], zstandard.compress(bytes(INLINE_BYTES + 1))],
    ids=["cut off", "begin", "too large"],
)
def test_a_damaged_row_is_named(damaged: bytes) -> None:
    with pytest.raises(CorruptThread, match="node 7"):
        unpack_body(damaged, "", None, {"node": 7})
