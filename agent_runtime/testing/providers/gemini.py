"""Gemini's `streamGenerateContent`: what it streams, and what it refuses."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

import orjson

from agent_runtime.testing.loopback import Json, halves
from agent_runtime.testing.providers.gemini_settings import camel, check_config, check_tools
from agent_runtime.testing.providers.server import Call, Provider, Say, Think, Turn, refuse_if

SKIP = base64.b64encode(b"skip_thought_signature_validator").decode()
"""What it takes for the signature of a call that another model made."""
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


class Gemini(Provider):
    """The provider, with a model that signs the first call of each step, and the end of a text.

    Attributes:
        model: which generation it plays.
        signatures: by the calls of a step, or by a text, what it signed.
    """

    def __init__(self, model: str = "gemini-3-pro-preview") -> None:
        self.model = model
        self.signatures: dict[bytes, str] = {}

    def refusal(self, text: str) -> Json:
        """Return the body of a refusal."""
        return {"error": {"code": 400, "message": text, "status": "INVALID_ARGUMENT"}}

    def prompt(self, body: Json) -> Sequence[object]:
        """Return what the prompt consists of, in order."""
        system = body.get("systemInstruction") or body.get("system_instruction")
        return [body.get("tools"), system, *body["contents"]]

    # What it refuses

    def check(self, body: Json, headers: Mapping[str, str]) -> None:
        """Look at a request."""
        refuse_if(not headers.get("x-goog-api-key"), "Method doesn't allow unregistered callers")
        body = camel(body)
        for name in body.keys() - _FIELDS:
            refuse_if(True, f'Invalid JSON payload received. Unknown name "{name}"')
        check_config(self.model, body.get("generationConfig") or {})
        check_tools(body)
        if "systemInstruction" in body:
            for part in body["systemInstruction"]["parts"]:
                refuse_if(set(part) != {"text"} or not part["text"], "system_instruction: text")
        self._check_contents([camel(one) for one in body["contents"]])

    def _check_contents(self, given: list[Json]) -> None:
        contents: list[Json] = [
            {**one, "parts": [camel(part) for part in one["parts"]]} for one in given
        ]
        refuse_if(not contents or contents[0]["role"] != "user", "contents: first must be user")
        for n, content in enumerate(contents):
            role = content["role"]
            refuse_if(role not in ("user", "model"), "Please use a valid role: user, model.")
            refuse_if(not content["parts"], f"contents[{n}].parts: must not be empty")
            for part in content["parts"]:
                _check_part(f"contents[{n}]", role, part)
            self._check_turns(n, content, contents[n + 1] if n + 1 < len(contents) else None)
        refuse_if(contents[-1]["role"] != "user", "the last content must be a user's")
        if self.model.startswith("gemini-2"):
            return
        self._check_signatures(contents)
        self._check_texts(contents)

    def _check_turns(self, n: int, content: Json, after: Json | None) -> None:
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
        old = self.model.startswith("gemini-2")
        refuse_if(inside and old, "Multimodal function responses are not supported.")

    def _check_signatures(self, contents: list[Json]) -> None:
        """Refuse a turn under way of which a step lost its signature; it begins with a text."""
        texts = [n for n, one in enumerate(contents) if _is_said_by_user(one)]
        for n, content in enumerate(contents):
            parts = [part for part in content["parts"] if "functionCall" in part]
            if not parts:
                continue
            name = parts[0]["functionCall"]["name"]
            signature = parts[0].get("thoughtSignature")
            refuse_if(
                n > texts[-1] and signature is None,
                f"Function call is missing a thought_signature in functionCall parts. Function "
                f"call `default_api:{name}`, position {n}.",
            )
            own = self.signatures.get(_known(parts), SKIP if self.foreign else None)
            refuse_if(
                signature is not None and signature != own,
                f"Corrupted thought signature. ({n})",
            )
            more = any("thoughtSignature" in part for part in parts[1:])
            refuse_if(more, f"contents[{n}]: only the first call of a step is signed")

    def _check_texts(self, contents: list[Json]) -> None:
        """Refuse a signature on a text that it did not sign, or that another was merged into."""
        for n, content in enumerate(contents):
            for part in content["parts"]:
                if "text" in part and "thoughtSignature" in part:
                    own = self.signatures.get(part["text"].encode())
                    wrong = part["thoughtSignature"] != own
                    refuse_if(wrong, f"Corrupted thought signature. ({n})")

    # What it streams

    def stream(self, turn: Turn, n: int) -> list[bytes]:
        """Return the events of an answer."""
        parts: list[Json] = [
            {"text": part.text, "thought": True} for part in turn if isinstance(part, Think)
        ]
        parts += [
            {"text": piece} for part in turn if isinstance(part, Say) for piece in halves(part.text)
        ]
        calls: list[Json] = [
            {"functionCall": {"name": one.name, "args": dict(one.arguments), "id": f"fc{n}_{i}"}}
            for i, one in enumerate(part for part in turn if isinstance(part, Call))
        ]
        signature = base64.b64encode(f"signature of step {n} ".encode() * 3).decode()
        if calls:
            self.signatures[_known(calls)] = signature
            calls[0]["thoughtSignature"] = signature
        else:
            self.signatures[b""] = signature
            parts.append({"text": "", "thoughtSignature": signature})
        chunks: list[Json] = [
            {
                "candidates": [{"content": {"parts": [part], "role": "model"}, "index": 0}],
                "usageMetadata": {"promptTokenCount": 9, "totalTokenCount": 9},
                "modelVersion": self.model,
                "responseId": f"r{n}",
            }
            for part in (*parts, *calls)
        ]
        chunks[-1]["candidates"][0]["finishReason"] = "STOP"
        usage = {"promptTokenCount": 9, "candidatesTokenCount": 7, "thoughtsTokenCount": 3}
        chunks[-1]["usageMetadata"] = {**usage, "totalTokenCount": 19}
        return [b"data: %s\r\n\r\n" % orjson.dumps(chunk) for chunk in chunks]


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


def _known(parts: Sequence[Json]) -> bytes:
    calls = [part["functionCall"] for part in parts]
    known = [(one["name"], one["args"]) for one in calls]
    return orjson.dumps(known, option=orjson.OPT_SORT_KEYS)
