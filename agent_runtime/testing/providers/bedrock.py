"""Claude on Bedrock, by `invoke-with-response-stream`: signed requests, and binary frames."""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Mapping
from urllib.parse import unquote

import orjson

from agent_runtime.testing.loopback import Json
from agent_runtime.testing.providers.anthropic import Anthropic
from agent_runtime.testing.providers.server import Turn, refuse_if

_PATH = "/model/"
_ACTION = "/invoke-with-response-stream"
_SIGNED = "AWS4-HMAC-SHA256 Credential="
_STRING = 7
"""The type of a header whose value is text."""


class Bedrock(Anthropic):
    """Plays Claude on Bedrock: requests are signed, and name the model in the path."""

    def __init__(self, *, thinking: bool, bound: bool = False) -> None:
        super().__init__(thinking=thinking, bound=bound)
        self._model = ""

    @property
    def media_type(self) -> str:
        """The content type of answers."""
        return "application/vnd.amazon.eventstream"

    def refusal(self, text: str) -> Json:
        """Return the body of a refusal."""
        return {"message": text}

    def check_path(self, path: str) -> None:
        """Check the path of a request."""
        known = path.startswith(_PATH) and path.endswith(_ACTION)
        refuse_if(not known, f"Unknown path {path}")
        model = unquote(path.removeprefix(_PATH).removesuffix(_ACTION))
        # Bedrock adds a region, the vendor and a version to the model's name.
        self._model = model.rpartition("anthropic.")[2]

    def check(self, body: Json, headers: Mapping[str, str]) -> None:
        """Check a request."""
        signed = headers.get("authorization", "").startswith(_SIGNED) and "x-amz-date" in headers
        refuse_if(not signed, "Missing Authentication Token")
        version = body.get("anthropic_version")
        refuse_if(version != "bedrock-2023-05-31", f"anthropic_version: {version}")
        extra = body.keys() & {"model", "stream"}
        refuse_if(
            extra, f"Malformed input request: extraneous keys {sorted(extra)} are not permitted"
        )
        own = {key: value for key, value in body.items() if not key.startswith("anthropic_")}
        own["model"] = self._model
        super().check(own, {"x-api-key": "-", "anthropic-version": "2023-06-01"})

    def stream(self, turn: Turn, n: int) -> list[bytes]:
        """Return the frames of an answer."""
        events = [piece.partition(b"data: ")[2].strip() for piece in super().stream(turn, n)]
        return [frame(orjson.dumps({"bytes": base64.b64encode(one).decode()})) for one in events]


def frame(payload: bytes, kind: str = "chunk") -> bytes:
    """Return an event of AWS's binary stream: lengths, checksum, headers, payload, checksum."""
    headers = b"".join(
        _header(name, value)
        for name, value in (
            (":event-type", kind),
            (":content-type", "application/json"),
            (":message-type", "event"),
        )
    )
    lengths = struct.pack("!II", 16 + len(headers) + len(payload), len(headers))
    # 16 bytes of frame: two lengths and two checksums.
    begun = lengths + struct.pack("!I", binascii.crc32(lengths)) + headers + payload
    return begun + struct.pack("!I", binascii.crc32(begun))


def _header(name: str, value: str) -> bytes:
    named = struct.pack("!B", len(name)) + name.encode()
    return named + struct.pack("!BH", _STRING, len(value)) + value.encode()
