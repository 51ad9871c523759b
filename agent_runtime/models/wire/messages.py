"""Anthropic's Messages API, which servers of other providers speak too.

A prompt is a list of messages whose roles alternate, beginning with the user's.  Each has a list of
blocks; tool results are blocks of a user's message.  An answer streams its blocks one by one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import orjson

from agent_runtime.messages import PromptMessage, encodable
from agent_runtime.models.answer import AnswerBuilder
from agent_runtime.models.base import (
    FilePart,
    Json,
    ModelAnswer,
    ModelEvent,
    ModelRequest,
    RawCall,
    TokenUsage,
)
from agent_runtime.models.file_parts import part_of
from agent_runtime.models.finish_reasons import reason_of
from agent_runtime.models.tokens import placeholder
from agent_runtime.models.wire.base import (
    Piece,
    ServerEvent,
    StreamFailedError,
    Target,
    WireRequest,
    items,
    load_object,
    merge,
    merged,
)
from agent_runtime.models.wire.messages_settings import Abilities, fields_of

# The next version refuses `temperature`, and servers of other providers may not know it.
_VERSION = "2023-06-01"
_API_KEY = "sk-ant-"
_OAUTH_KEY = "sk-ant-oat"
_OAUTH_BETA = "oauth-2025-04-20"
_MARKS = 4
"""The most cache breakpoints of a request."""
_MARK = b',"cache_control":{"type":"ephemeral"}}'
_HOUR_MARK = b',"cache_control":{"type":"ephemeral","ttl":"1h"}}'
_THINKING = ("thinking", "redacted_thinking")
_MEDIA_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf")
_BASE_VERSION = re.compile(r"/v\d+$")
_EMPTY = "[empty]"
"""Replaces a text where one is needed; blank texts are refused."""
_CONTINUES = Piece("user", items({"type": "text", "text": "[The conversation continues here.]"}))
_UNSUPPORTED_SCHEMA = ("oneOf", "allOf", "anyOf")


class MessagesWire:
    """The API, for one model."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._can = Abilities.of(target.model)

    # To the wire

    def piece(self, message: PromptMessage, files: Sequence[FilePart], *, mark: bool) -> Piece:
        """Encode a message; one of the system or the model without content is an empty piece."""
        files = files or [FilePart(file) for file in message.files]
        if message.role == "assistant":
            blocks = self._answer(message, files)
        elif message.role == "tool":
            blocks = [self._result(message, files)]
        else:
            blocks = self._content(message.text, files)
        if message.role == "user" and not blocks:
            blocks = [_text(_EMPTY)]
        data = items(*blocks)
        # The last block is never one of thinking, which takes no mark.
        if mark and data:
            data = data[:-1] + _MARK
        return Piece("user" if message.role == "tool" else message.role, data)

    def tools(self, request: ModelRequest) -> bytes:
        """Encode the request's tools."""
        return orjson.dumps(
            [
                {
                    "name": tool.name,
                    "description": encodable(tool.description),
                    "input_schema": _schema(tool.parameters),
                }
                for tool in request.tools
            ]
        )

    def request(self, request: ModelRequest, pieces: Sequence[Piece], tools: bytes) -> WireRequest:
        """Return the request."""
        target, settings = self._target, request.settings
        sent = [piece for piece in _marked(request, pieces) if piece.data]
        turns = [piece for piece in sent if piece.role != "system"]
        # The first message has to be the user's; after an activation it may be an answer.
        if not turns or turns[0].role != "user":
            turns.insert(0, _CONTINUES)
        body: Json = {
            "model": target.model,
            "max_tokens": min(request.max_output, target.max_output or request.max_output),
            "stream": True,
            "messages": [{"role": role, "content": content} for role, content in merged(turns)],
        }
        for _, content in merged([piece for piece in sent if piece.role == "system"]):
            body["system"] = content
        if request.tools:
            body["tools"] = orjson.Fragment(tools)
        fields, ignored = fields_of(request, target, self._can, body["max_tokens"])
        return WireRequest(
            url=_url(target.base_url),
            headers=self._headers() | _lower(settings.extra_headers),
            body=orjson.dumps(merge(body | fields, settings.extra_body)),
            ignored=ignored,
        )

    def decoder(self) -> MessagesDecoder:
        """Return a decoder for one answer."""
        return MessagesDecoder(self._target.name)

    def _content(self, text: str, files: Sequence[FilePart]) -> list[Json]:
        """Return a text and the files that the model takes as blocks, without a blank text."""
        text = self._with_names(text, files, inside=True)
        blocks = [_text(text)] if text.strip() else []
        return blocks + [block for one in files if (block := self._file(one)) is not None]

    def _with_names(self, text: str, files: Sequence[FilePart], *, inside: bool) -> str:
        """Return a text with the names of files that are not sent, and with text documents.

        Args:
            inside: whether files can be sent with the text.
        """
        lines = [text] if text else []
        for one in files:
            if inside and self._file(one) is not None:
                continue
            lines.append(placeholder(one.file, one.problem))
            if one.text and not one.problem:
                lines += [one.text, "[end of file]"]
        return "\n".join(lines)

    def _file(self, shown: FilePart) -> Json | None:
        """Return a file as a block; None if it is only named, or is text."""
        part = part_of(shown, self._target.provider, self._target.takes) or {}
        if part.get("type") == "image_url":
            kind, source = "image", _source(part["image_url"]["url"])
        elif part.get("type") == "file":
            kind, source = "document", _source(part["file"]["file_data"])
        else:
            return None
        return None if source is None else {"type": kind, "source": source}

    def _result(self, message: PromptMessage, files: Sequence[FilePart]) -> Json:
        result: Json = {"type": "tool_result", "tool_use_id": message.call_id}
        content = self._content(message.text, files)
        # A failed result has to have content, and texts only.
        if message.outcome != "ok" and all(block["type"] == "text" for block in content):
            result["is_error"] = True
            content = content or [_text(_EMPTY)]
        if content:
            alone = len(content) == 1 and content[0]["type"] == "text"
            result["content"] = content[0]["text"] if alone else content
        return result

    def _answer(self, message: PromptMessage, files: Sequence[FilePart]) -> list[Json]:
        """Return an answer's blocks, in their original order if this model made them."""
        text = self._with_names(message.text, files, inside=False)
        data: Json = {}
        # Signatures are checked: those of another model are refused.
        if message.opaque is not None and message.opaque.model == self._target.name:
            data = message.opaque.data
        thinking = cast("list[Json]", data.get("thinking_blocks") or [])
        order = cast("list[tuple[str, Any]]", data.get("order") or [])
        if not order or "".join(said for kind, said in order if kind == "text") != text:
            # The order is the usual one, or the text is not the model's own any more.
            order = _usual(len(thinking), text, len(message.calls))
        blocks: list[Json] = []
        for kind, which in order:
            if kind == "thinking":
                blocks.append(thinking[int(which)])
            elif kind == "call":
                call = message.calls[int(which)]
                used: Json = {"id": call.id, "name": call.name, "input": call.arguments}
                blocks.append({"type": "tool_use", **used})
            elif which.strip():
                blocks.append(_text(which))
        # An answer that was cut off while thinking: no message may end with thinking.
        while blocks and blocks[-1].get("type") in _THINKING:
            blocks.pop()
        return blocks

    def _headers(self) -> dict[str, str]:
        headers = {"content-type": "application/json", "anthropic-version": _VERSION}
        key = self._target.key
        if key.startswith(_OAUTH_KEY):
            headers |= {"authorization": f"Bearer {key}", "anthropic-beta": _OAUTH_BETA}
            return headers
        own = key.startswith(_API_KEY)
        # Other servers look for the one or the other.
        if own or (key and not self._target.own_host):
            headers["x-api-key"] = key
        if key and not own:
            headers["authorization"] = f"Bearer {key}"
        return headers


# From the stream


@dataclass(slots=True)
class _Block:
    """A block of an answer.

    Attributes:
        begun: as it began.
        pieces: of its text, its thinking, or the text of its arguments.
        closed: whether it has ended.
    """

    kind: str
    begun: Json
    pieces: list[str] = field(default_factory=list[str])
    signature: str = ""
    closed: bool = False

    @property
    def text(self) -> str:
        return encodable("".join(self.pieces))


class MessagesDecoder:
    """Reads the stream of one answer.

    Attributes:
        finished: whether the answer is whole.
    """

    def __init__(self, model: str) -> None:
        self.finished = False
        self._builder = AnswerBuilder(model)
        self._blocks: list[_Block] = []
        self._open: dict[int, _Block] = {}
        self._counts: dict[str, int] = {}
        self._factors: dict[str, str] = {}

    def feed(self, event: ServerEvent) -> Iterator[ModelEvent]:
        """Read an event; return its deltas.

        Raises:
            StreamFailedError: the provider reports a failure.
            ValueError: the event is not what the API defines.
        """
        sent = load_object(event.data)
        kind = sent.get("type") or event.name
        try:
            # First, because nearly all events are deltas.
            if kind == "content_block_delta":
                return self._delta(sent["index"], sent["delta"])
            if kind == "content_block_start":
                return self._begin(sent["index"], sent["content_block"])
            if kind == "content_block_stop" and (block := self._open.pop(sent["index"], None)):
                block.closed = True
            elif kind == "message_start":
                self._builder.reported_model = str(sent["message"].get("model") or "")
                self._count(sent["message"].get("usage"))
            elif kind == "message_delta":
                self._end(sent.get("delta") or {})
                self._count(sent.get("usage"))
            elif kind == "message_stop":
                self.finished = True
            elif kind == "message" and "content" in sent:
                return iter(self._whole(sent))
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"a malformed event {kind!r}") from error
        if kind == "error" or (kind in ("", "message") and "error" in sent):
            raise StreamFailedError(sent)
        return iter(())

    def answer(self) -> ModelAnswer:
        """Return the whole answer, without its cost.

        Raises:
            ModelProtocolError: the stream broke off, or the answer is empty.
        """
        builder = self._builder
        if not self.finished:
            # A reason for the end may have arrived before the connection broke.
            builder.word = ""
            return builder.answer()
        cut = reason_of(builder.word) in ("length", "window")
        thinking: list[Json] = []
        order: list[list[Any]] = []
        builder.calls.clear()
        for block in self._blocks:
            if block.kind == "text" and (text := block.text):
                order.append(["text", text])
            elif block.kind == "tool_use":
                order.append(["call", len(builder.calls)])
                builder.calls.append(_call(block, cut=cut))
            elif block.kind in _THINKING:
                order.append(["thinking", len(thinking)])
                thinking.append(_thought(block))
        if cut and order and order[-1][0] == "thinking" and _is_unsigned(thinking[-1]):
            # No provider takes back thinking that was cut off before its signature.
            order.pop()
            thinking.pop()
        if thinking:
            builder.data["thinking_blocks"] = thinking
            if not _is_usual([kind for kind, _ in order]):
                builder.data["order"] = order
        builder.usage = self._usage()
        return builder.answer()

    def _whole(self, message: Json) -> list[ModelEvent]:
        """Read an answer that was not streamed."""
        deltas: list[ModelEvent] = []
        for index, block in enumerate(message["content"]):
            deltas += self._begin(index, block)
        self._builder.reported_model = str(message.get("model") or "")
        self._count(message.get("usage"))
        self._end(message)
        self.finished = True
        return deltas

    def _begin(self, index: int, begun: Json) -> Iterator[ModelEvent]:
        block = _Block(begun["type"], begun)
        self._blocks.append(block)
        self._open[index] = block
        # Compatible servers may send a text with the beginning of its block.
        if block.kind == "text" and (text := _string(begun.get("text"))):
            block.pieces.append(text)
            return self._builder.say(text)
        if block.kind == "thinking":
            block.signature = _string(begun.get("signature"))
            if text := _string(begun.get("thinking")):
                block.pieces.append(text)
                return self._builder.think(text)
        return iter(())

    def _delta(self, index: int, delta: Json) -> Iterator[ModelEvent]:
        block, kind = self._open[index], delta["type"]
        if kind == "text_delta" and block.kind == "text":
            text = _string(delta["text"])
            block.pieces.append(text)
            return self._builder.say(text)
        if kind == "thinking_delta" and block.kind == "thinking":
            text = _string(delta["thinking"])
            block.pieces.append(text)
            return self._builder.think(text)
        if kind == "signature_delta":
            block.signature = _string(delta["signature"])
        elif kind == "input_json_delta" and block.kind not in ("text", "thinking"):
            block.pieces.append(_string(delta["partial_json"]))
        elif kind in ("text_delta", "thinking_delta", "input_json_delta"):
            raise ValueError(f"a {kind} inside a block {block.kind!r}")
        return iter(())

    def _end(self, delta: Json) -> None:
        if word := delta.get("stop_reason"):
            self._builder.word = str(word)
            details = cast("Json", delta.get("stop_details") or {})
            if word == "refusal":
                self._builder.refusal = _string(details.get("explanation"))

    def _count(self, usage: object) -> None:
        """Read usage.  Counts are totals, which only grow; some servers send 0 in the last one."""
        if not isinstance(usage, dict):
            return
        for name, count in cast("Json", usage).items():
            if isinstance(count, int):
                self._counts[name] = max(count, self._counts.get(name, 0))
            elif name == "cache_creation":
                self._count(count)
            elif name in ("inference_geo", "speed") and isinstance(count, str):
                self._factors[name] = count.lower()

    def _usage(self) -> TokenUsage | None:
        counts = self._counts
        if "input_tokens" not in counts and "output_tokens" not in counts:
            return None
        # `input_tokens` leaves out what was read from the cache and written to it.
        read = counts.get("cache_read_input_tokens", 0)
        hour = counts.get("ephemeral_1h_input_tokens", 0)
        written = hour + counts.get("ephemeral_5m_input_tokens", 0)
        written = max(written, counts.get("cache_creation_input_tokens", 0))
        return TokenUsage(
            prompt=counts.get("input_tokens", 0) + read + written,
            completion=counts.get("output_tokens", 0),
            cached=read,
            cache_write=written,
            cache_write_hour=hour,
            factors=tuple(self._factors.values()),
        )


def _string(value: object) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    raise ValueError(f"{type(value).__name__} instead of a text")


def _call(block: _Block, *, cut: bool) -> RawCall:
    text, whole = block.text, block.begun.get("input")
    if not text and whole:
        # Compatible servers may send the arguments with the beginning of the block.
        text = orjson.dumps(whole).decode()
    if not text and cut and not block.closed:
        # No arguments at all would be a valid call.
        text = "{"
    return RawCall(str(block.begun.get("name") or ""), text)


def _thought(block: _Block) -> Json:
    """Return a block of thinking as it has to come back."""
    thought = {key: value for key, value in block.begun.items() if value is not None}
    if block.kind == "thinking":
        thought["thinking"] = block.text
        if block.signature:
            thought["signature"] = encodable(block.signature)
    return thought


def _is_unsigned(thought: Json) -> bool:
    return thought["type"] == "thinking" and not thought.get("signature")


def _usual(thinking: int, text: str, calls: int) -> list[tuple[str, Any]]:
    """Return the order in which most answers come: thinking first, then one text, then calls."""
    order: list[tuple[str, Any]] = [("thinking", index) for index in range(thinking)]
    order.append(("text", text))
    return order + [("call", index) for index in range(calls)]


def _is_usual(kinds: Sequence[str]) -> bool:
    """Return whether the kinds of an answer's blocks are in that order."""
    usual = ("thinking", "text", "call")
    return list(kinds) == sorted(kinds, key=usual.index) and kinds.count("text") <= 1


# Parts of requests


def _text(text: str) -> Json:
    return {"type": "text", "text": encodable(text)}


def _source(url: str) -> Json | None:
    """Return where a file's content is; None if the API does not take it from there."""
    if url.startswith("https://"):
        return {"type": "url", "url": url}
    about, _, data = url.partition(";base64,")
    media_type = about.removeprefix("data:")
    if media_type not in _MEDIA_TYPES:
        return None
    return {"type": "base64", "media_type": media_type, "data": data}


def _schema(parameters: Json) -> Json:
    """Return a tool's schema, which must be an object's and not an alternative at its top."""
    schema = {key: one for key, one in parameters.items() if key not in _UNSUPPORTED_SCHEMA}
    return {"properties": {}, **schema, "type": "object"}


def _marked(request: ModelRequest, pieces: Sequence[Piece]) -> Sequence[Piece]:
    """Return the pieces with the last marks only, which last as long as the settings say."""
    hour = request.settings.cache_ttl == "1h"
    extra = request.marks[:-_MARKS]
    if not hour and not extra:
        return pieces
    marked = list(pieces)
    for index in request.marks:
        piece = marked[index]
        if piece.data.endswith(_MARK):
            end = b"}" if index in extra else _HOUR_MARK if hour else _MARK
            marked[index] = Piece(piece.role, piece.data[: -len(_MARK)] + end)
    return marked


def _lower(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def _url(base: str) -> str:
    if base.endswith("/messages"):
        return base
    # Users give the base with and without the version, as for the provider's own client.
    return f"{base}/messages" if _BASE_VERSION.search(base) else f"{base}/v1/messages"
