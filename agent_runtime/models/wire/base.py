"""What all wires share: a request as bytes, the pieces of a prompt, and the reading of a stream.

A wire encodes each message of a prompt once.  `Piece`s are kept while their messages stay in the
prompt, so that a request is a concatenation, and equal messages are equal bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, cast, runtime_checkable

import orjson

from agent_runtime.messages import FileKind, PromptMessage
from agent_runtime.models.base import FilePart, Json, ModelAnswer, ModelEvent, ModelRequest


@dataclass(frozen=True, slots=True)
class Target:
    """A model as a wire addresses it.

    Attributes:
        name: our name of it; opaque data goes back to the model of the same name.
        provider: litellm's name of its provider.
        model: the name that the provider is sent.
        base_url: where its API is, without a slash at the end.
        key: empty where the server needs none.
        own_host: whether `base_url` is the provider's own, not one that the user gave.
        takes: the kinds of files that the model takes.
        marks: whether cache breakpoints may be sent.
        max_output: the most tokens of one answer.
        entry: the model's entry in the table of models; empty if it has none.
    """

    name: str
    provider: str
    model: str
    base_url: str
    key: str = field(default="", repr=False)
    own_host: bool = True
    takes: frozenset[FileKind] = frozenset()
    marks: bool = False
    max_output: int = 0
    entry: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)


@dataclass(frozen=True, slots=True)
class Piece:
    """A message of a prompt in a wire's form.

    Attributes:
        role: in the wire's terms; a wire may merge neighbours of the same role into one message.
        data: its JSON values, separated by commas.
        following: values that come after the last of its neighbours of the same role.
    """

    role: str
    data: bytes
    following: bytes = b""


@dataclass(frozen=True, slots=True)
class WireRequest:
    """An HTTP request: a POST of JSON that is answered by a stream of events.

    Attributes:
        ignored: names of settings that were left out, because the model does not take them.
    """

    url: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)
    ignored: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event of a stream of server-sent events: its name, which may be empty, and its data."""

    name: str
    data: bytes


class StreamFailedError(Exception):
    """The provider reports a failure inside of a stream; it never leaves the transport.

    Attributes:
        body: the provider's error, as in the body of an error response.
    """

    def __init__(self, body: Json) -> None:
        super().__init__("the stream reports a failure")
        self.body = body


class Decoder(Protocol):
    """Reads the stream of one answer."""

    @property
    def finished(self) -> bool:
        """Whether the answer is whole, so that nothing more needs to be read."""
        ...

    def feed(self, event: ServerEvent) -> Iterator[ModelEvent]:
        """Read an event; yield its deltas.

        Raises:
            StreamFailedError: the provider reports a failure.
            ValueError: the event is not what the provider's API defines.
        """
        ...

    def answer(self) -> ModelAnswer:
        """Return the whole answer, without its cost.

        Raises:
            ModelProtocolError: the stream broke off, or the answer is empty.
        """
        ...


@runtime_checkable
class HoppingDecoder(Decoder, Protocol):
    """A decoder of answers that may be spread over the streams of several requests."""

    def next_request(self, sent: WireRequest) -> WireRequest | None:
        """Return the request whose stream continues the answer; None if nothing does.

        It is asked for at the end of each stream, also of a broken one.  The deltas of the next
        stream continue those before.

        Args:
            sent: the answer's first request.
        """
        ...


class Wire(Protocol):
    """A provider's API: to the wire and from the stream, for one model."""

    def piece(self, message: PromptMessage, files: Sequence[FilePart], *, mark: bool) -> Piece:
        """Encode a message.

        Args:
            files: its files, in the form for the model.
            mark: whether the provider may cache the prompt up to its end.
        """
        ...

    def request(self, request: ModelRequest, pieces: Sequence[Piece], tools: bytes) -> WireRequest:
        """Return the request.

        Args:
            pieces: those of the request's messages, in order.
            tools: the request's tools, as `tools` encoded them.
        """
        ...

    def tools(self, request: ModelRequest) -> bytes:
        """Encode the request's tools, as one JSON value; they stay the same for many requests."""
        ...

    def decoder(self) -> Decoder:
        """Return a decoder for one answer."""
        ...


def join(pieces: Sequence[Piece]) -> orjson.Fragment:
    """Return a JSON array of the values of all pieces."""
    return orjson.Fragment(b"[" + b",".join(piece.data for piece in pieces) + b"]")


def merged(pieces: Sequence[Piece]) -> Iterator[tuple[str, orjson.Fragment]]:
    """Yield a role and a JSON array for each run of neighbours of the same role."""
    start = 0
    for end in range(1, len(pieces) + 1):
        if end == len(pieces) or pieces[end].role != pieces[start].role:
            yield pieces[start].role, join(pieces[start:end])
            start = end


def load(data: bytes) -> Any:
    """Return the JSON value of an event.

    Raises:
        ValueError: it is no valid JSON.
    """
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        # orjson refuses half of a surrogate pair, with which a delta may end.
        if b"\\u" not in data:
            raise
    try:
        return json.loads(data)
    # orjson has a limit of its own for depth; the standard library has Python's.
    except RecursionError:
        raise ValueError("JSON that is nested too deeply") from None


def load_object(data: bytes) -> Json:
    """Return the JSON object of an event.

    Raises:
        ValueError: it is none.
    """
    value = load(data)
    if not isinstance(value, dict):
        raise ValueError("an event that is no JSON object")
    return cast("Json", value)


def merge(body: Json, extra: Mapping[str, Any]) -> Json:
    """Return a body in which the values of `extra` win; objects are merged, not replaced."""
    merged_body = dict(body)
    for key, value in extra.items():
        old = merged_body.get(key)
        if isinstance(old, dict) and isinstance(value, Mapping):
            value = merge(cast("Json", old), cast("Mapping[str, Any]", value))
        merged_body[key] = value
    return merged_body


def items(*values: Any) -> bytes:
    """Return JSON values separated by commas, as a `Piece` holds them."""
    return b",".join(map(orjson.dumps, values))
