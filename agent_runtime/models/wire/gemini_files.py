"""Files as parts of Gemini's messages; those that it does not take are only named."""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass

from agent_runtime.messages import FileKind
from agent_runtime.models.base import FilePart, Json
from agent_runtime.models.tokens import placeholder

_IMAGES = ("image/png", "image/jpeg", "image/webp", "image/heic", "image/heif")
_AUDIO = {
    "audio/aac": "audio/aac",
    "audio/aiff": "audio/aiff",
    "audio/flac": "audio/flac",
    "audio/mpeg": "audio/mp3",
    "audio/ogg": "audio/ogg",
    "audio/wav": "audio/wav",
}
_IN_RESULTS = ("image/png", "image/jpeg", "image/webp", "application/pdf")


@dataclass(frozen=True, slots=True)
class TakenFiles:
    """Which files a model takes.

    Attributes:
        kinds: the kinds of files.
        resolutions: whether it takes a resolution for each image.
    """

    kinds: Set[FileKind] = frozenset()
    resolutions: bool = False


def split(text: str, files: Iterable[FilePart], takes: TakenFiles) -> tuple[list[Json], str]:
    """Return the files that the model takes as parts, and the text with the names of the others.

    The content of a text document follows its name.
    """
    parts: list[Json] = []
    lines = [text] if text else []
    for one in files:
        if (part := _part(one, takes)) is not None:
            parts.append(part)
            continue
        lines.append(placeholder(one.file, one.problem))
        if one.text and not one.problem:
            lines += [one.text, "[end of file]"]
    return parts, "\n".join(lines)


def fits_result(part: Json) -> bool:
    """Return whether a file may be inside of a result."""
    return part["inlineData"]["mimeType"] in _IN_RESULTS


def _part(shown: FilePart, takes: TakenFiles) -> Json | None:
    """Return a file as a part; None if it is only named, or is text."""
    file, data = shown.file, shown.data
    media_type = file.media_type
    if shown.problem or shown.text or file.kind not in takes.kinds:
        return None
    if not data and file.uri.startswith("data:image/"):
        head, _, data = file.uri.removeprefix("data:").partition(",")
        media_type, _, coding = head.partition(";")
        data = data if coding.endswith("base64") else ""
    if file.kind == "audio":
        media_type = _AUDIO.get(media_type, "")
    taken = {
        "image": media_type in _IMAGES,
        "document": media_type == "application/pdf",
    }.get(file.kind, bool(media_type))
    if not data or not taken:
        return None
    part: Json = {"inlineData": {"mimeType": media_type, "data": data}}
    if takes.resolutions and file.kind == "image" and shown.detail != "auto":
        part["mediaResolution"] = {"level": f"MEDIA_RESOLUTION_{shown.detail.upper()}"}
    return part
