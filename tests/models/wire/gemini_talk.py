"""How the tests of Gemini's wire build requests and read streams."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson

from agent_runtime.messages import FileKind, Opaque, PromptMessage, ToolCall, ToolSpec
from agent_runtime.models.base import (
    FilePart,
    Json,
    ModelAnswer,
    ModelEvent,
    ModelRequest,
    ModelSettings,
    ReasoningDelta,
    TextDelta,
)
from agent_runtime.models.wire.base import Decoder, Target, WireRequest
from agent_runtime.models.wire.gemini import GeminiWire
from agent_runtime.models.wire.sse import SseParser
from agent_runtime.testing.providers.gemini import Gemini

MODEL = "gemini-3-pro-preview"
NAME = f"gemini/{MODEL}"
SIGNED = "c2lnbmF0dXJl"
LOOK = ToolSpec("look", "Looks.", {"type": "object", "properties": {"at": {"type": "string"}}})
SYSTEM = PromptMessage("system", "Be brief.")
USER = PromptMessage("user", "Hello.")
ALL: frozenset[FileKind] = frozenset({"image", "audio", "video", "document"})


def wire(model: str = MODEL, **options: Any) -> GeminiWire:
    """Return the wire of a model."""
    options = {"key": "key", "takes": ALL} | options
    return GeminiWire(Target(f"gemini/{model}", "gemini", model, "https://host/v1beta", **options))


def asked(
    *messages: PromptMessage,
    of: GeminiWire | None = None,
    files: Mapping[int, Sequence[FilePart]] | None = None,
    tools: tuple[ToolSpec, ...] = (LOOK,),
    max_output: int = 4096,
    **settings: Any,
) -> WireRequest:
    """Return the request for messages, by default for short ones."""
    of = of or wire()
    messages = messages or (SYSTEM, USER)
    request = ModelRequest(
        messages, tools=tools, max_output=max_output, settings=ModelSettings(**settings)
    )
    kept = [
        of.piece(message, (files or {}).get(n, ()), mark=False)
        for n, message in enumerate(messages)
    ]
    return of.request(request, kept, of.tools(request))


def body(*messages: PromptMessage, model: str = MODEL, **options: Any) -> Json:
    """Return the body of a request that the strict provider takes."""
    entry = options.pop("entry", {})
    request = asked(*messages, of=wire(model, entry=entry), **options)
    return checked(request, Gemini(model))


def checked(request: WireRequest, provider: Gemini) -> Json:
    """Return the body of a request, after the provider looked at it."""
    parsed: Json = orjson.loads(request.body)
    provider.foreign = True
    provider.check(parsed, request.headers)
    return parsed


def call(n: int = 1, name: str = "look", **arguments: Any) -> ToolCall:
    """Return a call."""
    return ToolCall(f"c{n:08d}", name, arguments)


def result(text: str = "seen", n: int = 1, **options: Any) -> PromptMessage:
    """Return the result of a call."""
    return PromptMessage("tool", text, call_id=f"c{n:08d}", name="look", **options)


def answer(
    text: str, *calls: ToolCall, data: Json | None = None, model: str = NAME
) -> PromptMessage:
    """Return a model's answer."""
    opaque = None if data is None else Opaque(model, data)
    return PromptMessage("assistant", text, calls=calls, opaque=opaque)


# Streams


def chunk(*parts: Json, word: str = "", **fields: Any) -> bytes:
    """Return an event with parts."""
    candidate: Json = {"content": {"parts": [*parts], "role": "model"}, "index": 0}
    if word:
        candidate["finishReason"] = word
    candidate |= fields.pop("candidate", {})
    return event({"candidates": [candidate], "modelVersion": MODEL, **fields})


def event(value: Any) -> bytes:
    """Return an event as Google sends it."""
    return b"data: " + orjson.dumps(value) + b"\r\n\r\n"


def feed(decoder: Decoder, *chunks: bytes) -> list[ModelEvent]:
    """Return the deltas of a stream."""
    stream = SseParser()
    events = [one for data in chunks for one in stream.feed(data)]
    events += stream.close()
    return [delta for one in events for delta in decoder.feed(one)]


def read(*chunks: bytes) -> ModelAnswer:
    """Return the answer of a stream."""
    decoder = wire().decoder()
    feed(decoder, *chunks)
    return decoder.answer()


def text_of(events: Iterable[ModelEvent], kind: type[TextDelta] | type[ReasoningDelta]) -> str:
    """Return the text of all deltas of a kind."""
    return "".join(event.text for event in events if isinstance(event, kind))
