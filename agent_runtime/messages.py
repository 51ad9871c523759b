"""The messages that everybody shares: what the log holds, and what a model is sent.

The log holds `UserMessage`, `AssistantMessage` and `Note`, and exchanges (an `AssistantMessage`
with calls, and its `ToolResult`s).  A model is sent `PromptMessage`s, made from these by
`agent_runtime.context`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from agent_runtime_storage.contract.records import CallOutcome, FileKind

if TYPE_CHECKING:
    from pydantic import TypeAdapter

NoteSource = Literal[
    "runtime", "steer", "recall", "background", "plan", "guard", "limits", "cut", "malformed"
]


@dataclass(frozen=True, slots=True)
class FileRef:
    """A file by reference; its bytes are never in the log.

    Attributes:
        uri: `upload:ID` or `tool:ID` for what `agent_runtime.files` keeps, or a URL.
        size: in bytes; 0 where it is not known.
        pixels: of an image, its width times its height; 0 where it is not known.
    """

    kind: FileKind
    uri: str
    media_type: str = ""
    name: str = ""
    size: int = 0
    pixels: int = 0


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A model's wish to call a tool.

    Attributes:
        id: ours, the same for every provider, unique in its thread; also the handle by which
            `recall` opens the result.
        arguments: always a JSON object.
        raw: what the model wrote instead, where that was no JSON object; the call then fails.
        cut: what its result says, where the answer was cut within it; the call is not made.
    """

    id: str
    name: str
    arguments: dict[str, Any]
    raw: str | None = None
    cut: str | None = None


@dataclass(frozen=True, slots=True)
class Opaque:
    """What a provider needs back unchanged (reasoning blocks, signatures, its own call ids).

    Sent only to the model that made it; where that checks what came before, only until the next
    activation (see `agent_runtime.models.returning`).
    """

    model: str
    data: dict[str, Any]


@dataclass(frozen=True, slots=True)
class UserMessage:
    """What a user said."""

    text: str
    files: tuple[FileRef, ...] = ()
    type: Literal["user"] = "user"


@dataclass(frozen=True, slots=True)
class AssistantMessage:
    """What a model answered: text, calls, files that it made, or several of these."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    reasoning: str = ""
    opaque: Opaque | None = None
    type: Literal["assistant"] = "assistant"
    files: tuple[FileRef, ...] = ()


@dataclass(frozen=True, slots=True)
class Note:
    """A message of the runtime's own, appended when what it tells changed."""

    text: str
    source: NoteSource = "runtime"
    type: Literal["note"] = "note"


@dataclass(frozen=True, slots=True)
class ToolResult:
    """A tool's answer, whole.

    Attributes:
        outcome: `ok`; `error` (the tool failed, or its arguments were invalid); `refused` (not
            allowed); `interrupted` (it was started and nobody saw it end); `cancelled`.
    """

    text: str
    outcome: CallOutcome = "ok"
    files: tuple[FileRef, ...] = ()


LoggedMessage: TypeAlias = UserMessage | AssistantMessage | Note


@dataclass(frozen=True, slots=True)
class PromptMessage:
    """One message as a model is sent it, before the provider's own format."""

    role: Literal["system", "user", "assistant", "tool"]
    text: str
    calls: tuple[ToolCall, ...] = ()
    call_id: str = ""
    """For role `tool`, the call that this answers."""
    name: str = ""
    """For role `tool`, the tool."""
    files: tuple[FileRef, ...] = ()
    opaque: Opaque | None = None
    outcome: CallOutcome = "ok"
    """For role `tool`, how the call ended; no provider is sent it."""


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as a model is told of it; `parameters` is a JSON schema of type object."""

    name: str
    description: str
    parameters: dict[str, Any] = field(default_factory=dict[str, Any])


_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


def call_id(node_id: int, index: int) -> str:
    """Return the id of a call by its place in the log.

    Nine lower-case letters and digits, which every provider takes (Mistral insists on nine).
    """
    digits = ""
    number = node_id * 1296 + index
    while number:
        number, rest = divmod(number, 36)
        digits = _DIGITS[rest] + digits
    return "c" + digits.rjust(8, "0")


def call_place(handle: str) -> tuple[int, int]:
    """Return the (node, index) that a call's id stands for.

    Raises:
        ValueError: it is no id of a call.
    """
    if len(handle) != 9 or handle[0] != "c" or not handle.isascii() or not handle.isalnum():
        raise ValueError(f"{handle!r} is no handle of a tool call")
    return divmod(int(handle[1:], 36), 1296)


def encodable(text: str) -> str:
    """Return the text as it can be stored and sent: surrogate pairs joined, lone ones replaced."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def encodable_files(files: Iterable[FileRef]) -> tuple[FileRef, ...]:
    """Return the references as they can be stored and sent."""
    return tuple(
        replace(
            one,
            uri=encodable(one.uri),
            media_type=encodable(one.media_type),
            name=encodable(one.name),
        )
        for one in files
    )


@functools.cache
def _logged() -> TypeAdapter[LoggedMessage]:
    from pydantic import TypeAdapter

    return TypeAdapter(LoggedMessage)


@functools.cache
def _result() -> TypeAdapter[ToolResult]:
    from pydantic import TypeAdapter

    return TypeAdapter(ToolResult)


def encode_message(message: LoggedMessage) -> bytes:
    """Return the message as the log keeps it: JSON, without what is empty."""
    return _logged().dump_json(message, exclude_defaults=False, exclude_none=True)


def decode_message(body: bytes) -> LoggedMessage:
    """Return the message that `encode_message` wrote."""
    return _logged().validate_json(body)


def encode_result(result: ToolResult) -> bytes:
    """Return the result as the log keeps it."""
    return _result().dump_json(result, exclude_none=True)


def decode_result(body: bytes) -> ToolResult:
    """Return the result that `encode_result` wrote."""
    return _result().validate_json(body)


def repeats(said: LoggedMessage | ToolResult, tool: str = "") -> bool:
    """Return whether a message or a result was recalled: what it says stands in the log already."""
    return tool == "recall" or (isinstance(said, Note) and said.source == "recall")


def searchable(said: LoggedMessage | ToolResult, tool: str = "") -> str:
    """Return the text by which search finds a message, or the result of a tool.

    Of calls it is the tools' names and what the arguments say; reasoning is not searched, nor is
    what was recalled, which is there already.
    """
    if repeats(said, tool):
        return ""
    texts = [said.text]
    if isinstance(said, AssistantMessage):
        for call in said.calls:
            texts.append(call.name)
            texts += _leaves(call.arguments)
            if call.raw is not None:
                texts.append(call.raw)
    if not isinstance(said, Note):
        texts += [file.name for file in said.files]
    return "\n".join(filter(None, texts))


def searchable_body(kind: Literal["node", "call"], body: bytes) -> str:
    """Return the text by which search finds what the log keeps of a node, or a call's result."""
    return searchable(decode_message(body) if kind == "node" else decode_result(body))


def _leaves(value: Any) -> Iterator[str]:
    """Yield the keys and values of JSON as plain texts, however deep they are nested."""
    stack = [value]
    while stack:
        one = stack.pop()
        if isinstance(one, dict):
            for key, inner in reversed(cast("dict[str, Any]", one).items()):
                stack += (inner, key)
        elif isinstance(one, list):
            stack += reversed(cast("list[Any]", one))
        elif isinstance(one, str | int | float) and not isinstance(one, bool):
            yield str(one)
