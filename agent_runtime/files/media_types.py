"""Media types: what a file is, by its content and by its name."""

from __future__ import annotations

import mimetypes

from agent_runtime.messages import FileKind

PDF = "application/pdf"
IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")
"""The images that every provider of models takes which takes images."""

_TEXTS = frozenset({"json", "xml", "yaml", "x-yaml", "toml", "javascript", "sql", "x-sh", "x-tex"})
_DOCUMENTS = (PDF, "application/msword", "application/rtf", "application/vnd.")
# What content begins with says more than a name does, and providers refuse a whole request for an
# image that is not what it is said to be.
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
    """Return the media type that content begins like; empty if that is not known."""
    for offset, signature, media_type in _SIGNATURES:
        if content.startswith(signature, offset):
            return media_type
    return ""


def is_text(media_type: str) -> bool:
    """Return whether content of a media type can be read as text."""
    kind, _, subtype = media_type.partition("/")
    return kind == "text" or subtype in _TEXTS or subtype.endswith(("+json", "+xml"))


def kind_of(media_type: str) -> FileKind:
    """Return the kind of file that a media type means."""
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
    """Return the media type that a file's name means, as far as the content allows it."""
    guessed = mimetypes.guess_type(name, strict=False)[0] or ""
    if not content:
        return guessed
    if b"\0" in content[:4096]:
        return guessed or "application/octet-stream"
    try:
        content[:4096].decode()
    except UnicodeDecodeError as error:
        # A character that is cut at the end is none that is broken.
        if error.start < len(content[:4096]) - 3:
            return guessed or "application/octet-stream"
    # An ending such as `.ts` means a video elsewhere.
    text = is_text(guessed) or guessed.startswith(("image/", *_DOCUMENTS))
    return guessed if text else "text/plain"
