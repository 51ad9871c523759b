"""Media types, by a file's content and name."""

from __future__ import annotations

import mimetypes

from agent_runtime.messages import FileKind

PDF = "application/pdf"
IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")
"""The image types that every provider with image input accepts."""

_TEXTS = frozenset({"json", "xml", "yaml", "x-yaml", "toml", "javascript", "sql", "x-sh", "x-tex"})
_DOCUMENTS = (PDF, "application/msword", "application/rtf", "application/vnd.")
# Checked before the name, because providers refuse a whole request if an image does not have the
# type that it is declared to have.
_SIGNATURES = (
    (0, b"\x89PNG\r\n\x1a\n", "image/png"),
    (0, b"\xff\xd8\xff", "image/jpeg"),
    (0, b"GIF87a", "image/gif"),
    (0, b"GIF89a", "image/gif"),
    (8, b"WEBP", "image/webp"),
    (8, b"WAVE", "audio/wav"),
    (0, b"ID3", "audio/mpeg"),
    (0, b"%PDF-", PDF),
)


def sniff(content: bytes) -> str:
    """Return the media type of the content's first bytes; empty if unknown."""
    for offset, signature, media_type in _SIGNATURES:
        if content.startswith(signature, offset):
            return media_type
    return ""


def is_text(media_type: str) -> bool:
    """Return whether content of a media type can be read as text."""
    kind, _, subtype = media_type.partition("/")
    return kind == "text" or subtype in _TEXTS or subtype.endswith(("+json", "+xml"))


def kind_of(media_type: str) -> FileKind:
    """Return the kind of files with a media type."""
    match media_type.partition("/")[0]:
        case "image":
            return "image"
        case "audio":
            return "audio"
        case "video":
            return "video"
        case _:
            known = is_text(media_type) or media_type.startswith(_DOCUMENTS)
            return "document" if known else "custom"


def guess(name: str, content: bytes = b"") -> str:
    """Return the media type of a file's name, if the content does not contradict it."""
    guessed = mimetypes.guess_type(name, strict=False)[0] or ""
    if not content:
        return guessed
    # No text in UTF-8 has one.
    if b"\0" in content[:4096]:
        return guessed or "application/octet-stream"
    try:
        content[:4096].decode()
    except UnicodeDecodeError as error:
        # A character may be cut at the end of the sample.
        if error.start < len(content[:4096]) - 3:
            return guessed or "application/octet-stream"
    # Text whose ending means something else, such as `.ts`, a video format.
    text = is_text(guessed) or guessed.startswith(("image/", *_DOCUMENTS))
    return guessed if text else "text/plain"
