"""Gemini's `streamGenerateContent`: what it streams, and what it refuses."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence

import orjson

from tests.support.providers.loopback import Json, halves
from tests.support.providers.server import Call, Provider, Say, Think, Turn, refuse_if

_SKIP = base64.b64encode(b"skip_thought_signature_validator").decode()
"""What it takes for the signature of a call that another model made."""
_SNAKE = {
    "function_call": "functionCall",
    "function_response": "functionResponse",
    "thought_signature": "thoughtSignature",
    "inline_data": "inlineData",
}


class Gemini(Provider):
    """The provider, with a model that signs the first call of each step."""

    def __init__(self) -> None:
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
        contents = [
            {**one, "parts": [_part(part) for part in one["parts"]]} for one in body["contents"]
        ]
        refuse_if(not contents or contents[0]["role"] != "user", "contents: first must be user")
        for n, content in enumerate(contents):
            role = content["role"]
            refuse_if(role not in ("user", "model"), "Please use a valid role: user, model.")
            refuse_if(not content["parts"], f"contents[{n}].parts: must not be empty")
            self._check_turns(n, content, contents[n + 1] if n + 1 < len(contents) else None)
        refuse_if(contents[-1]["role"] != "user", "the last content must be a user's")
        self._check_signatures(contents)

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
            own = self.signatures.get(_known(parts), _SKIP if self.foreign else None)
            refuse_if(
                signature is not None and signature != own,
                f"Corrupted thought signature. ({n})",
            )
            more = any("thoughtSignature" in part for part in parts[1:])
            refuse_if(more, f"contents[{n}]: only the first call of a step is signed")

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
        if calls:
            signature = base64.b64encode(f"signature of step {n} ".encode() * 3).decode()
            self.signatures[_known(calls)] = signature
            calls[0]["thoughtSignature"] = signature
        chunks: list[Json] = [
            {
                "candidates": [{"content": {"parts": [part], "role": "model"}, "index": 0}],
                "usageMetadata": {"promptTokenCount": 9, "totalTokenCount": 9},
                "modelVersion": "gemini-3-pro-preview",
                "responseId": f"r{n}",
            }
            for part in (*parts, *calls)
        ]
        chunks[-1]["candidates"][0]["finishReason"] = "STOP"
        usage = {"promptTokenCount": 9, "candidatesTokenCount": 7, "thoughtsTokenCount": 3}
        chunks[-1]["usageMetadata"] = {**usage, "totalTokenCount": 19}
        return [b"data: %s\r\n\r\n" % orjson.dumps(chunk) for chunk in chunks]


def _part(part: Json) -> Json:
    return {_SNAKE.get(key, key): value for key, value in part.items()}


def _is_said_by_user(content: Json) -> bool:
    return content["role"] == "user" and any("text" in part for part in content["parts"])


def _known(parts: Sequence[Json]) -> bytes:
    calls = [part["functionCall"] for part in parts]
    known = [(one["name"], one["args"]) for one in calls]
    return orjson.dumps(known, option=orjson.OPT_SORT_KEYS)
