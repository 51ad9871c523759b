"""Gemini's `streamGenerateContent`: how it streams, and which requests it refuses."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence

import orjson

from agent_runtime.models.wire.rules.gemini import check_request, contents_of, signs
from agent_runtime.testing.loopback import Json, halves
from agent_runtime.testing.providers.server import Call, Provider, Say, Think, Turn, refuse_if

SKIP = base64.b64encode(b"skip_thought_signature_validator").decode()
"""Accepted in place of the signature of a call that another model made."""


class Gemini(Provider):
    """Plays a Gemini model that signs the first call of each step, and the end of a text.

    Attributes:
        model: the name of the model; its generation decides the rules.
        signatures: the signatures that were sent, by the calls of a step or by a text.
    """

    def __init__(self, model: str = "gemini-3-pro-preview") -> None:
        self.model = model
        self.signatures: dict[bytes, str] = {}

    def refusal(self, text: str) -> Json:
        """Return the body of a refusal."""
        return {"error": {"code": 400, "message": text, "status": "INVALID_ARGUMENT"}}

    def prompt(self, body: Json) -> Sequence[object]:
        """Return the parts of the prompt, in order."""
        system = body.get("systemInstruction") or body.get("system_instruction")
        return [body.get("tools"), system, *body["contents"]]

    # What it refuses

    def check(self, body: Json, headers: Mapping[str, str]) -> None:
        """Check a request."""
        refuse_if(not headers.get("x-goog-api-key"), "Method doesn't allow unregistered callers")
        check_request(body, self.model)
        if signs(self.model):
            contents = contents_of(body)
            self._check_signatures(contents)
            self._check_texts(contents)

    def _check_signatures(self, contents: list[Json]) -> None:
        """Refuse a signature that belongs to other calls."""
        for n, content in enumerate(contents):
            parts = [part for part in content["parts"] if "functionCall" in part]
            if not parts or (signature := parts[0].get("thoughtSignature")) is None:
                continue
            own = self.signatures.get(_known(parts), SKIP if self.foreign else None)
            refuse_if(signature != own, f"Corrupted thought signature. ({n})")

    def _check_texts(self, contents: list[Json]) -> None:
        """Refuse a signature on any text but the one that it was sent with."""
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


def _known(parts: Sequence[Json]) -> bytes:
    calls = [part["functionCall"] for part in parts]
    known = [(one["name"], one["args"]) for one in calls]
    return orjson.dumps(known, option=orjson.OPT_SORT_KEYS)
