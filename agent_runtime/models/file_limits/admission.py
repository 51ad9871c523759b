"""Decide which files of a request are sent, by what its provider takes.

A provider refuses a whole request for one file that is too large, and does not always say which.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from agent_runtime.messages import FileKind

_MB = 1_000_000
# No limit, as a number that every count stays below.
_ANY = 1 << 62


@dataclass(frozen=True, slots=True)
class FileLimits:
    """The most of each that one request may have; sizes are characters of base64, as it is sent.

    Attributes:
        total: of all files together.
        images: how many images.
        image: of one image.
        side: the longest side of an image, in pixels.
        many: the number of images above which `many_side` is the limit of each one's side.
        documents: how many PDFs.
        document: of one PDF.
        pages: of all PDFs together.
        media_types: of images; None for any.
    """

    total: int = _ANY
    images: int = _ANY
    image: int = _ANY
    side: int = _ANY
    many: int = _ANY
    many_side: int = _ANY
    documents: int = _ANY
    document: int = _ANY
    pages: int = _ANY
    media_types: frozenset[str] | None = None


NO_FILE_LIMITS = FileLimits()


def strictest(limits: Sequence[FileLimits]) -> FileLimits:
    """Return limits within which each of these is kept."""
    numbers = [one.name for one in fields(FileLimits) if one.name != "media_types"]
    least = {name: min(getattr(one, name) for one in limits) for name in numbers}
    types: frozenset[str] | None = None
    for one in limits:
        if one.media_types is not None:
            types = one.media_types if types is None else types & one.media_types
    return FileLimits(**least, media_types=types)


@dataclass(frozen=True, slots=True)
class FileSize:
    """What of a file counts.

    Attributes:
        data: characters of its base64; 0 for a URL.
        side: the longest one of an image, in pixels; 0 if unknown.
        pages: of a PDF; 0 if unknown.
    """

    kind: FileKind
    media_type: str
    data: int = 0
    side: int = 0
    pages: int = 0


class FileAdmission:
    """Decides which of a request's files are sent, in their order: the first ones win.

    A file depends on those before it only, so that a prompt that grows at its end does not change
    what was shown in it before.
    """

    def __init__(self, limits: FileLimits) -> None:
        self._limits = limits
        self._total = self._images = self._documents = self._pages = 0
        self._longest = 0

    def problem(self, file: FileSize) -> str:
        """Count a file; return why it cannot be sent, without counting it, or an empty text."""
        limits = self._limits
        why = ""
        if file.kind == "image":
            why = self._image_problem(file)
        elif file.media_type == "application/pdf":
            why = self._document_problem(file)
        if not why and self._total + file.data > limits.total:
            why = f"all files of a request may have {_size(limits.total)}, as base64"
        if why:
            return f"too much for the model's provider: {why}"
        self._total += file.data
        if file.kind == "image":
            self._images += 1
            # With one image too many the smaller limit holds for all of them, also for earlier
            # ones.
            self._longest = max(self._longest, file.side)
        elif file.media_type == "application/pdf":
            self._documents += 1
            self._pages += file.pages
        return ""

    def _image_problem(self, file: FileSize) -> str:
        limits = self._limits
        types = limits.media_types
        if file.data and types is not None and file.media_type not in types:
            return f"it takes no {file.media_type}"
        if file.data > limits.image:
            return f"an image may have {_size(limits.image)} as base64, it has {_size(file.data)}"
        if file.side > limits.side:
            return f"an image may have {limits.side:,} pixels a side, it has {file.side:,}"
        if self._images >= limits.images:
            return f"a request may have {limits.images:,} images"
        if self._images >= limits.many and max(file.side, self._longest) > limits.many_side:
            return (
                f"with more than {limits.many} images in a request, each may have "
                f"{limits.many_side:,} pixels a side"
            )
        return ""

    def _document_problem(self, file: FileSize) -> str:
        limits = self._limits
        if file.data > limits.document:
            return f"a PDF may have {_size(limits.document)} as base64, it has {_size(file.data)}"
        if self._documents >= limits.documents:
            return f"a request may have {limits.documents} documents"
        if self._pages + file.pages > limits.pages:
            return f"all PDFs of a request may have {limits.pages:,} pages, it has {file.pages:,}"
        return ""


def _size(characters: int) -> str:
    return f"{characters / _MB:.1f} MB"
