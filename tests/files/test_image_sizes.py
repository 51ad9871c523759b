"""Sizes of images, read from their headers, and their tokens in a prompt."""

from __future__ import annotations

import struct
from typing import Any, cast

import pytest

from agent_runtime import FileRef
from agent_runtime.files.image_sizes import pixels_of
from agent_runtime.models.tokens import IMAGE_TOKENS, LEAST_IMAGE_TOKENS, count_file


def png(width: int, height: int) -> bytes:
    """Return the header of a PNG."""
    return b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + struct.pack(">II", width, height) + b"\x08\x02"


def _jpeg(width: int, height: int) -> bytes:
    frame = b"\xff\xc2\x00\x11\x08" + struct.pack(">HH", height, width) + b"\x03"
    return b"\xff\xd8\xff\xe0\x00\x04ab" + b"\xff\xff\xdb\x00\x03x" + frame


def _webp(kind: bytes, rest: bytes) -> bytes:
    return b"RIFF\x00\x00\x00\x00WEBP" + kind + b"\x00\x00\x00\x00" + rest


IMAGES = {
    "png": png(640, 480),
    "gif": b"GIF89a" + struct.pack("<HH", 640, 480),
    "jpeg": _jpeg(640, 480),
    "webp, lossy": _webp(b"VP8 ", b"\0" * 6 + struct.pack("<HH", 640, 480)),
    "webp, lossless": _webp(b"VP8L", b"\x2f" + struct.pack("<I", 639 | 479 << 14)),
    "webp, extended": _webp(b"VP8X", b"\0" * 4 + b"\x7f\x02\x00" + b"\xdf\x01\x00"),
}


@pytest.mark.parametrize("kind", IMAGES)
def test_the_size_is_read_from_the_header(kind: str) -> None:
    assert pixels_of(IMAGES[kind]) == 640 * 480


@pytest.mark.parametrize("kind", IMAGES)
def test_a_truncated_header_has_no_size_and_is_no_error(kind: str) -> None:
    for end in range(len(IMAGES[kind])):
        assert pixels_of(IMAGES[kind][:end]) in (0, 640 * 480)


def test_other_content_has_no_size() -> None:
    for content in (b"", b"text", b"\xff\xd8\xff" + b"\xff" * 5000, b"RIFF\0\0\0\0WEBPVP8 "):
        assert pixels_of(content) == 0


def test_a_header_is_read_in_a_few_steps_for_any_content() -> None:
    class Counted(bytes):
        looks = 0

        def __getitem__(self, place: Any) -> Any:
            Counted.looks += 1
            return cast(Any, bytes).__getitem__(self, place)

    assert pixels_of(Counted(b"\xff\xd8\xff" + b"\xff" * 1_000_000)) == 0
    assert Counted.looks < 10_000


def test_an_images_tokens_depend_on_its_size() -> None:
    def tokens(width: int, height: int) -> int:
        return count_file(FileRef("image", "upload:a", pixels=width * height))

    assert tokens(1, 1) == LEAST_IMAGE_TOKENS
    assert tokens(1000, 750) == 1000
    assert tokens(100_000, 100_000) == IMAGE_TOKENS == count_file(FileRef("image", "upload:a"))
