"""Files as parts of a message, in OpenAI's form, which litellm converts for each provider.

Pure.  A file that the model or its provider does not take becomes no part; it is only named.
"""

from __future__ import annotations

from collections.abc import Collection

from agent_runtime.messages import FileKind, FileRef
from agent_runtime.models.base import FilePart, Json

# For other providers litellm downloads images on this machine: a URL could then reach what only
# this machine can. Anthropic takes https only.
_TAKE_URLS = ("openai", "azure", "openrouter", "xai", "groq", "together_ai")
_TAKE_SAFE_URLS = (*_TAKE_URLS, "anthropic")
_IN_RESULTS = ("anthropic", "gemini", "vertex_ai")
"""Providers that take images and documents inside a tool result."""
_AFTER_RESULTS = ("openai", "azure", "openrouter", "xai", "bedrock")
"""Providers that take a user message right after tool results."""
_IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")
_AUDIO = {"audio/wav": "wav", "audio/mpeg": "mp3"}
_GOOGLE = ("gemini", "vertex_ai")


def in_results(provider: str) -> bool:
    """Return whether a provider takes files inside a tool result."""
    return provider in _IN_RESULTS


def after_results(provider: str) -> bool:
    """Return whether a provider takes the files of tool results in a user message after them."""
    return provider in _AFTER_RESULTS


def part_of(shown: FilePart, provider: str, takes: Collection[FileKind]) -> Json | None:
    """Return a file as a part of a message; None if it is only named, or is text."""
    file = shown.file
    if shown.problem or shown.text or file.kind not in takes:
        return None
    if not shown.data:
        return _image(file.uri, shown) if _is_taken_url(file, provider) else None
    url = f"data:{file.media_type};base64,{shown.data}"
    if file.kind == "image" and file.media_type in _IMAGES:
        return _image(url, shown)
    if file.kind == "audio" and file.media_type in _AUDIO:
        audio = {"data": shown.data, "format": _AUDIO[file.media_type]}
        return {"type": "input_audio", "input_audio": audio}
    if file.kind == "document" and file.media_type == "application/pdf":
        return {"type": "file", "file": {"filename": file.name or "file.pdf", "file_data": url}}
    if file.kind == "video" and provider in _GOOGLE:
        return {"type": "file", "file": {"file_data": url, "format": file.media_type}}
    return None


def _is_taken_url(file: FileRef, provider: str) -> bool:
    if file.kind != "image":
        return False
    if file.uri.startswith("data:image/"):
        return True
    scheme = file.uri.partition("://")[0].lower()
    return provider in {"https": _TAKE_SAFE_URLS, "http": _TAKE_URLS}.get(scheme, ())


def _image(url: str, shown: FilePart) -> Json:
    image: Json = {"url": url}
    if shown.detail != "auto":
        image["detail"] = shown.detail
    return {"type": "image_url", "image_url": image}
