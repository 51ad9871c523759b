"""What Gemini's `generateContent` refuses in a request.

Reference: https://ai.google.dev/api/generate-content; of signatures,
https://ai.google.dev/gemini-api/docs/thought-signatures
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Sequence
from typing import Any, cast

from agent_runtime.files.media_types import kind_of
from agent_runtime.models.base import Json
from agent_runtime.models.file_limits.admission import FileSize
from agent_runtime.models.file_limits.providers import file_limits_of
from agent_runtime.models.wire.rules.gemini_settings import camel, check_config, check_tools
from agent_runtime.models.wire.rules.refusal import refuse_files, refuse_if

_FIELDS = {
    "cachedContent",
    "contents",
    "continuationToken",
    "generationConfig",
    "safetySettings",
    "serviceTier",
    "systemInstruction",
    "toolConfig",
    "tools",
}
_KINDS = ("text", "functionCall", "functionResponse", "inlineData", "fileData")
_PART = {*_KINDS, "thought", "thoughtSignature", "mediaResolution", "videoMetadata"}
_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}")
_MEDIA = re.compile(
    r"image/(png|jpeg|webp|heic|heif)|audio/(wav|mp3|aiff|aac|ogg|flac)|application/pdf"
    r"|video/[a-z0-9.+-]+|text/plain"
)
_IN_RESULTS = ("image/png", "image/jpeg", "image/webp", "application/pdf", "text/plain")


def check_request(body: Json, model: str) -> None:
    """Check the body of a request for a model, whose keys may be in either form.

    Raises:
        RefusedError: the API would refuse it.
    """
    body = camel(body)
    for name in body.keys() - _FIELDS:
        refuse_if(True, f'Invalid JSON payload received. Unknown name "{name}"')
    check_config(model, body.get("generationConfig") or {})
    check_tools(body)
    if "systemInstruction" in body:
        for part in body["systemInstruction"]["parts"]:
            refuse_if(set(part) != {"text"} or not part["text"], "system_instruction: text")
    contents = contents_of(body)
    refuse_if(not contents or contents[0]["role"] != "user", "contents: first must be user")
    for n, content in enumerate(contents):
        role = content["role"]
        refuse_if(role not in ("user", "model"), "Please use a valid role: user, model.")
        refuse_if(not content["parts"], f"contents[{n}].parts: must not be empty")
        for part in content["parts"]:
            _check_part(f"contents[{n}]", role, part)
        _check_turns(n, content, contents[n + 1] if n + 1 < len(contents) else None, model)
    refuse_if(contents[-1]["role"] != "user", "the last content must be a user's")
    refuse_files(
        (size for one in contents for part in one["parts"] for size in _files(part)),
        file_limits_of("gemini", model, 1 << 30),
    )
    if signs(model):
        _check_signed(contents)


def signs(model: str) -> bool:
    """Return whether a model signs its calls, and demands the signatures back: from 3 on."""
    return model.startswith("gemini-") and not model.startswith(("gemini-1", "gemini-2"))


def contents_of(body: Json) -> list[Json]:
    """Return the contents of a request, with their keys in the form of the documentation."""
    given = [camel(one) for one in camel(body)["contents"]]
    return [{**one, "parts": [camel(part) for part in one["parts"]]} for one in given]


def _check_turns(n: int, content: Json, after: Json | None, model: str) -> None:
    calls = [part["functionCall"] for part in content["parts"] if "functionCall" in part]
    if content["role"] == "model":
        follows = after is None or after["role"] == "user"
        refuse_if(not follows, f"contents[{n + 1}]: two turns of the model")
    given = [part for part in (after or {"parts": []})["parts"] if "functionResponse" in part]
    responses = [part["functionResponse"] for part in given]
    refuse_if(
        len(calls) != len(responses),
        "Please ensure that the number of function response parts is equal to the number of "
        f"function call parts of the function call turn. ({n})",
    )
    names = [one["name"] for one in calls] == [one["name"] for one in responses]
    refuse_if(not names, f"contents[{n + 1}]: function response of another function")
    ids = [one.get("id") for one in calls] == [one.get("id") for one in responses]
    refuse_if(not ids, f"contents[{n + 1}]: function response of another call")
    alone = not responses or len(given) == len((after or content)["parts"])
    refuse_if(not alone, f"contents[{n + 1}]: function responses stand alone")
    inside = any("parts" in one for one in responses)
    refuse_if(inside and not signs(model), "Multimodal function responses are not supported.")


def _check_signed(contents: Sequence[Json]) -> None:
    """Check that each step of the turn under way has its signature; a text begins the turn."""
    texts = [n for n, one in enumerate(contents) if _is_said_by_user(one)]
    for n, content in enumerate(contents):
        parts = [part for part in content["parts"] if "functionCall" in part]
        if not parts:
            continue
        name = parts[0]["functionCall"]["name"]
        refuse_if(
            n > texts[-1] and parts[0].get("thoughtSignature") is None,
            f"Function call is missing a thought_signature in functionCall parts. Function "
            f"call `default_api:{name}`, position {n}.",
        )
        more = any("thoughtSignature" in part for part in parts[1:])
        refuse_if(more, f"contents[{n}]: only the first call of a step is signed")


def _check_part(where: str, role: str, part: Json) -> None:
    for name in part.keys() - _PART:
        refuse_if(True, f"Invalid JSON payload received. Unknown name \"{name}\" at '{where}'")
    kinds = [kind for kind in _KINDS if kind in part]
    refuse_if(len(kinds) != 1, f"{where}: required oneof field 'data' must have one initialized")
    empty = part.get("text") == "" and "thoughtSignature" not in part
    refuse_if(empty, "Unable to submit request because it must have a text parameter.")
    if "thoughtSignature" in part:
        refuse_if(role != "model", f"{where}: only the model's parts are signed")
        refuse_if(not _is_base64(part["thoughtSignature"]), f"{where}: Base64 decoding failed")
    if "inlineData" in part:
        _check_blob(where, camel(part["inlineData"]))
    if "functionCall" in part:
        refuse_if(role != "model", f"{where}: function calls are the model's")
        _check_fields(f"{where}.function_call", part["functionCall"], {"id", "name", "args"})
        refuse_if(not isinstance(part["functionCall"].get("args", {}), dict), f"{where}: args")
    if "functionResponse" in part:
        refuse_if(role != "user", f"{where}: function responses are the user's")
        _check_response(where, part["functionResponse"])


def _check_response(where: str, response: Json) -> None:
    _check_fields(f"{where}.function_response", response, {"id", "name", "response", "parts"})
    refuse_if(not isinstance(response["response"], dict), f"{where}: response must be an object")
    parts: list[Json] = response.get("parts") or []
    for one in parts:
        blob = camel(camel(one)["inlineData"])
        _check_blob(where, blob)
        refuse_if(blob["mimeType"] not in _IN_RESULTS, f"Unsupported MIME type {blob['mimeType']}")


def _files(part: Json) -> Iterator[FileSize]:
    """Yield the sizes of the files in a part."""
    for one in (part, *map(camel, part.get("functionResponse", {}).get("parts", ()))):
        if "inlineData" in one:
            blob = camel(one["inlineData"])
            yield FileSize(kind_of(blob["mimeType"]), blob["mimeType"], len(blob["data"]))


def _check_fields(where: str, used: Json, taken: set[str]) -> None:
    refuse_if(used.keys() - taken, f"Unknown name \"{used.keys() - taken}\" at '{where}'")
    refuse_if(not _NAME.fullmatch(used["name"]), f"{where}.name: Invalid function name")


def _check_blob(where: str, blob: Json) -> None:
    refuse_if(not _MEDIA.fullmatch(blob["mimeType"]), f"Unsupported MIME type: {blob['mimeType']}")
    refuse_if(not _is_base64(blob["data"]) or not blob["data"], f"{where}: Base64 decoding failed")


def _is_base64(text: Any) -> bool:
    try:
        return bool(base64.b64decode(cast(str, text), validate=True))
    except (binascii.Error, TypeError, ValueError):
        return False


def _is_said_by_user(content: Json) -> bool:
    return content["role"] == "user" and any("text" in part for part in content["parts"])
