"""Read why an answer ended, in each provider's own words.

litellm maps several of these words to `stop`, and invents one if a stream breaks off.  So they are
read here, from the chunks as the provider sent them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from agent_runtime.models.base import FinishReason

_FINISH: dict[FinishReason, tuple[str, ...]] = {
    "stop": ("stop", "end_turn", "stop_sequence", "complete", "completed", "eos", "eos_token"),
    "tool_calls": ("tool_calls", "tool_call", "tool_use", "function_call"),
    "length": ("length", "max_tokens", "max_output_tokens", "model_length", "continuation"),
    "window": ("model_context_window_exceeded",),
    "refusal": ("refusal",),
    "content_filter": (
        "content_filter",
        "content_filtered",
        "guardrail_intervened",
        "sensitive",
        "error_toxic",
        "safety",
        "recitation",
        "blocklist",
        "prohibited_content",
        "spii",
        "escalation",
        "model_armor",
        "image_safety",
        "image_prohibited_content",
        "image_recitation",
    ),
    "pause": ("pause_turn",),
    "malformed": (
        "malformed_function_call",
        "malformed_response",
        "malformed_model_output",
        "malformed_tool_use",
        "unexpected_tool_call",
        "too_many_tool_calls",
        "missing_thought_signature",
    ),
    "broken": (
        "error",
        "network_error",
        "abort",
        "load",
        "unload",
        "insufficient_system_resource",
    ),
}
_FILTERED = "content_filter: "
"""Precedes a provider's reason for a blocked prompt, which is not a finish reason."""
_EVENTS = ("message_start", "message_delta", "response.")
_REASONS: dict[str, FinishReason] = {
    word: reason for reason, words in _FINISH.items() for word in words
}


def reason_of(word: str) -> FinishReason:
    """Return the meaning of a provider's finish reason; `unknown` for a new one."""
    if word.startswith(_FILTERED):
        return "content_filter"
    return _REASONS.get(word.lower(), "unknown")


@dataclass(slots=True)
class FinishReader:
    """Reads the end of one answer from the provider's chunks.

    Attributes:
        word: the finish reason; empty until the answer ends.
        refusal: the text marked as a refusal.
        read: whether any chunk had a known form; then an empty word means that it broke off.
    """

    word: str = ""
    refusal: str = ""
    read: bool = False

    def listen(self, stream: Any) -> None:
        """Observe the chunks of a litellm stream that has not begun yet."""
        if stream.completion_stream is not None:
            stream.completion_stream = self.overhear(stream.completion_stream)
        elif stream.make_call is not None:
            stream.make_call = _Call(stream.make_call, self)

    def overhear(self, source: Any) -> Any:
        """Return a source of chunks for litellm that this reader observes."""
        parse = getattr(source, "chunk_parser", None)
        if parse is None:
            return _Items(source, self) if hasattr(source, "__anext__") else source

        def overheard(chunk: Any) -> Any:
            self.read_chunk(chunk)
            return parse(chunk)

        source.chunk_parser = overheard
        return source

    def of(self, stream: Any) -> str:
        """Return the word at the end of a stream; empty if the stream broke off.

        litellm's own word counts if the provider's chunks cannot be observed.
        """
        if self.word or self.read:
            return self.word
        received = getattr(stream, "received_finish_reason", None)
        return received or getattr(stream, "intermittent_finish_reason", None) or ""

    def read_chunk(self, chunk: Any) -> None:
        """Read one chunk as its provider sent it."""
        if not isinstance(chunk, Mapping):
            return
        sent = cast("Mapping[str, Any]", chunk)
        kind = sent.get("type")
        if isinstance(kind, str):
            # Other providers have events too, which only litellm understands.
            self.read |= kind.startswith(_EVENTS)
            self._read_event(kind, sent)
        elif "candidates" in sent or "promptFeedback" in sent:
            self.read = True
            # Only one answer is asked for.
            for one in _objects(sent, "candidates")[:1]:
                self._ended(one.get("finishReason"))
            if blocked := _object(sent.get("promptFeedback")).get("blockReason"):
                self.word = f"{_FILTERED}{blocked}"
        elif "choices" in sent:
            self.read = True
            for one in _objects(sent, "choices")[:1]:
                self._ended(one.get("finish_reason"))
                self._said(_object(one.get("delta")).get("refusal"))
        elif "done" in sent:
            self.read = True
            if sent["done"]:
                self._ended(sent.get("done_reason") or "stop")

    def _read_event(self, kind: str, sent: Mapping[str, Any]) -> None:
        """Read an event of Anthropic's, of Cohere's, or of OpenAI's responses API."""
        if kind == "message_delta":
            self._ended(_object(sent.get("delta")).get("stop_reason"))
        elif kind == "message-end":
            self._ended(_object(sent.get("delta")).get("finish_reason"))
        elif kind == "response.refusal.delta":
            self._said(sent.get("delta"))
        elif kind in ("response.completed", "response.incomplete"):
            response = _object(sent.get("response"))
            details = _object(response.get("incomplete_details"))
            self._ended(details.get("reason") or kind.removeprefix("response."))
            if not self.refusal:
                self._said("".join(_refusals(response)))

    def _ended(self, word: object) -> None:
        if word:
            self.word = str(word)

    def _said(self, refusal: object) -> None:
        if refusal:
            self.refusal += str(refusal)


class _Items:
    """The chunks of OpenAI's own client, which litellm does not parse."""

    def __init__(self, source: Any, ending: FinishReader) -> None:
        self._source = source
        self._ending = ending

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    def __aiter__(self) -> _Items:
        # litellm calls this before each chunk.
        return self

    async def __anext__(self) -> Any:
        chunk = await anext(self._source)
        for choice in cast("list[Any]", getattr(chunk, "choices", None) or [])[:1]:
            delta = getattr(choice, "delta", None)
            said = {"refusal": getattr(delta, "refusal", None)}
            read = {"finish_reason": getattr(choice, "finish_reason", None), "delta": said}
            self._ending.read_chunk({"choices": [read]})
        return chunk


@dataclass(frozen=True, slots=True)
class _Call:
    """The function with which litellm begins a stream late."""

    call: Any
    ending: FinishReader

    async def __call__(self, **arguments: Any) -> Any:
        return self.ending.overhear(await self.call(**arguments))


def _refusals(response: Mapping[str, Any]) -> list[str]:
    """Return the refusals in a whole response."""
    parts = [part for item in _objects(response, "output") for part in _objects(item, "content")]
    return [str(part.get("refusal") or "") for part in parts if part.get("type") == "refusal"]


def _objects(value: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    return [_object(one) for one in cast("list[object]", value.get(name) or [])]


def _object(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}
