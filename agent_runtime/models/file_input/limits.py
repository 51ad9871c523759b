"""How many files, and how large ones, a provider takes in one request.

A provider refuses a whole request for one file that is too large, and does not always say which.
The limits below are what the providers document; one that is not in the table may take anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace

from agent_runtime.messages import FileKind

_MB = 1_000_000
_MIB = 1 << 20
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
        media_types: of images; empty for any.
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
    media_types: frozenset[str] = frozenset()


NO_FILE_LIMITS = FileLimits()

# Room for everything of a request that is no file: a million tokens are about 4 MB.
_TEXT = 4 * _MB

# https://platform.claude.com/docs/en/build-with-claude/vision and …/pdf-support
_ANTHROPIC = FileLimits(
    total=32 * _MIB - _TEXT,
    images=600,
    image=10 * _MIB,
    side=8000,
    many=20,
    many_side=2000,
    pages=600,
)
_SMALL_WINDOW = 200_000
"""Anthropic's models with no larger window than this take a sixth of the images and pages."""

_LIMITS: Mapping[str, FileLimits] = {
    "anthropic": _ANTHROPIC,
    # The same page: 5 MB on clouds.
    "azure_ai": replace(_ANTHROPIC, image=5 * _MIB),
    # https://docs.aws.amazon.com/bedrock/latest/userguide/conversation-inference.html: 20 images of
    # 3.75 MB and 8000 pixels, 5 documents of 4.5 MB, before base64 makes them a third larger.
    "bedrock": FileLimits(
        images=20, image=5 * _MB, side=8000, documents=5, document=6 * _MB, pages=100
    ),
    # https://ai.google.dev/gemini-api/docs/document-processing and …/image-understanding
    "gemini": FileLimits(
        total=100 * _MB - _TEXT,
        images=3000,
        document=200 * _MB // 3,
        pages=1000,
        media_types=frozenset(
            {"image/png", "image/jpeg", "image/webp", "image/heic", "image/heif"}
        ),
    ),
    # https://console.groq.com/docs/vision
    "groq": FileLimits(total=4 * _MB, images=5),
    # https://docs.mistral.ai/capabilities/vision
    "mistral": FileLimits(images=8, image=40 * _MB // 3),
    # https://platform.openai.com/docs/guides/images-vision and …/guides/pdf-files: 50 MB a request.
    "openai": FileLimits(total=50 * _MB, images=500),
    "azure": FileLimits(total=50 * _MB, images=50),
    # https://docs.x.ai/docs/guides/image-understanding
    "xai": FileLimits(image=20 * _MIB * 4 // 3, media_types=frozenset({"image/png", "image/jpeg"})),
}


def file_limits_of(provider: str, model: str, window: int, *, own_host: bool = True) -> FileLimits:
    """Return the limits of a model; none where they are not known.

    Args:
        provider: litellm's name of it.
        own_host: whether the model is called at the provider's own address; at another, OpenAI's
            name means any compatible server.
    """
    if provider == "openai" and not own_host:
        return NO_FILE_LIMITS
    if provider == "vertex_ai":
        claude = "claude" in model.lower()
        found = replace(_ANTHROPIC, image=5 * _MIB) if claude else _LIMITS["gemini"]
    else:
        found = _LIMITS.get(provider, NO_FILE_LIMITS)
    if found.many == _ANTHROPIC.many and window <= _SMALL_WINDOW:
        return replace(found, images=found.images // 6, pages=found.pages // 6)
    return found


def strictest(limits: Sequence[FileLimits]) -> FileLimits:
    """Return limits within which each of these is kept."""
    numbers = [one.name for one in fields(FileLimits) if one.name != "media_types"]
    least = {name: min(getattr(one, name) for one in limits) for name in numbers}
    types: frozenset[str] | None = None
    for one in limits:
        if one.media_types:
            types = one.media_types if types is None else types & one.media_types
    return FileLimits(**least, media_types=types or frozenset())


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
            self._longest = max(self._longest, file.side)
        elif file.media_type == "application/pdf":
            self._documents += 1
            self._pages += file.pages
        return ""

    def _image_problem(self, file: FileSize) -> str:
        limits = self._limits
        if file.data and limits.media_types and file.media_type not in limits.media_types:
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
