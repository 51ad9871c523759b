"""Reads the number of pixels from an image's header, without decoding the image."""

from __future__ import annotations

import struct

_SEGMENTS = 1000
"""The most segments of a JPEG that are searched, and the most fill bytes before each."""
# Start-of-frame markers; the three taken out are tables and an extension.
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


def pixels_of(content: bytes) -> int:
    """Return width times height of a PNG, JPEG, GIF or WebP; 0 if the header does not say."""
    width, height = sides_of(content)
    return width * height


def sides_of(content: bytes) -> tuple[int, int]:
    """Return width and height of a PNG, JPEG, GIF or WebP; 0 and 0 if the header does not say."""
    try:
        return _size(content)
    except (struct.error, IndexError):
        return 0, 0


def _size(content: bytes) -> tuple[int, int]:
    if content.startswith(b"\x89PNG\r\n\x1a\n") and content[12:16] == b"IHDR":
        return struct.unpack_from(">II", content, 16)
    if content.startswith((b"GIF87a", b"GIF89a")):
        return struct.unpack_from("<HH", content, 6)
    if content.startswith(b"RIFF") and content[8:12] == b"WEBP":
        return _webp(content)
    if content.startswith(b"\xff\xd8\xff"):
        return _jpeg(content)
    return 0, 0


def _webp(content: bytes) -> tuple[int, int]:
    match content[12:16]:
        case b"VP8 ":
            width, height = struct.unpack_from("<HH", content, 26)
            # 14 bits each; the other two are a scale for the display.
            return width & 0x3FFF, height & 0x3FFF
        case b"VP8L":
            (bits,) = struct.unpack_from("<I", content, 21)
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8X":
            # Three bytes each, one less than the size.
            width, height = content[24:27] + b"\0", content[27:30] + b"\0"
            return struct.unpack("<I", width)[0] + 1, struct.unpack("<I", height)[0] + 1
        case _:
            return 0, 0


def _jpeg(content: bytes) -> tuple[int, int]:
    place = 2
    # Limited, because the content may be made to keep a parser busy.
    for _ in range(_SEGMENTS):
        fill = len(run := content[place : place + _SEGMENTS]) - len(run.lstrip(b"\xff"))
        place += max(0, fill - 1)
        marker, length = struct.unpack_from(">xBH", content, place)
        if content[place] != 0xFF or length < 2:
            break
        if marker in _FRAMES:
            height, width = struct.unpack_from(">HH", content, place + 5)
            return width, height
        place += 2 + length
    return 0, 0
