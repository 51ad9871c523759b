"""The limits that providers document; one that is not in the table may take anything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from agent_runtime.models.file_limits.admission import NO_FILE_LIMITS, FileLimits

_MB = 1_000_000
_MIB = 1 << 20
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
