"""The message types of the log and of prompts.

The log holds `UserMessage`, `AssistantMessage` and `Note`, and exchanges (an `AssistantMessage`
with calls, and its `ToolResult`s).  A model gets `PromptMessage`s, which `agent_runtime.prompt`
makes from these.  A `Plan`, which notes show and events carry, is a value like them.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast, get_args

from agent_runtime_storage.contract.records.files import FileKind
from agent_runtime_storage.contract.records.log import CallOutcome

if TYPE_CHECKING:
    from pydantic import TypeAdapter

ASK_USER = "ask_user"
"""The tool whose results are the user's own words; no other tool may have its name."""
DATE: Literal["date"] = "date"
"""The source of notes that the day has changed."""
NoteSource = Literal[
    "runtime",
    "steer",
    "recall",
    "background",
    "plan",
    "guard",
    "limits",
    "limits_raised",
    "cut",
    "malformed",
    "date",
    "context",
    "context_ended",
]


@dataclass(frozen=True, slots=True)
class FileRef:
    """A file by reference; its bytes are never in the log.

    Attributes:
        uri: `upload:ID` or `tool:ID` of a stored file, or a URL.
        size: in bytes; 0 if unknown.
        pixels: of an image, its width times its height; 0 if unknown.
    """

    kind: FileKind
    uri: str
    media_type: str = ""
    name: str = ""
    size: int = 0
    pixels: int = 0


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A model's call of a tool.

    Attributes:
        id: ours, the same for every provider, unique in its thread; also the handle by which
            `recall` opens the result.
        arguments: always a JSON object.
        raw: the model's text, if that was not a JSON object; the call then fails.
        cut: the text of its result, if the answer was cut off inside it; the call is not made.
    """

    id: str
    name: str
    arguments: dict[str, Any]
    raw: str | None = None
    cut: str | None = None


@dataclass(frozen=True, slots=True)
class Opaque:
    """Data that a provider needs back unchanged: reasoning blocks, signatures, its call ids.

    Sent only to the model that made it, and to models that check the messages before it only until
    the next activation (see `agent_runtime.models.reasoning_replay`).
    """

    model: str
    data: dict[str, Any]


@dataclass(frozen=True, slots=True)
class UserMessage:
    """A message of a user."""

    text: str
    files: tuple[FileRef, ...] = ()
    type: Literal["user"] = "user"


@dataclass(frozen=True, slots=True)
class AssistantMessage:
    """A model's answer: text, calls, files that it made, or several of these."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    reasoning: str = ""
    opaque: Opaque | None = None
    type: Literal["assistant"] = "assistant"
    files: tuple[FileRef, ...] = ()


@dataclass(frozen=True, slots=True)
class Note:
    """A message of the runtime, appended when its content changes.

    Attributes:
        topic: of a `context` note, what it is about.  Prompts keep the newest note of each topic,
            until a note from `context_ended` ends the topic.
    """

    text: str
    source: NoteSource = "runtime"
    type: Literal["note"] = "note"
    topic: str | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of a check, such as a test run or a build; it replaces the check's earlier ones.

    Attributes:
        check: names the check, such as its command.
        failing: names of what failed, such as tests.
        detail: the line that says most about the outcome.
    """

    check: str
    passed: bool
    failing: tuple[str, ...] = ()
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Change:
    """A change that a call made.

    Attributes:
        target: what was changed, such as a path.
        what: the change on one line, such as `old -> new`.
    """

    target: str
    what: str


Observed: TypeAlias = Verdict | Change
"""What a call shows that memory keeps as a slot."""


@dataclass(frozen=True, slots=True)
class SeenFile:
    """A version of a file that a call has shown or written.

    Attributes:
        path: absolute, with its links resolved.
        digest: of all its bytes.
        step: of the run.
        first, last: the numbers of the lines that the result shows whole; none if `last < first`.
    """

    path: str
    digest: str
    step: int
    first: int = 1
    last: int = 0


@dataclass(frozen=True, slots=True)
class ToolResult:
    """A tool's answer, whole.

    Attributes:
        outcome: `ok`; `error` (the tool failed, or its arguments were invalid); `refused` (not
            allowed); `interrupted` (started, without a recorded end); `cancelled`.
        observed: what the call shows, as its tool tells; models do not see it.
        data: what programs get with it, such as a command's `exit_code`; small, as JSON.
            Models do not see it, and the event of the call's end has it.
        seen: the versions of files that the run knows by it; models do not see it.
    """

    text: str
    outcome: CallOutcome = "ok"
    files: tuple[FileRef, ...] = ()
    observed: tuple[Observed, ...] = ()
    data: dict[str, Any] = field(default_factory=dict[str, Any])
    seen: tuple[SeenFile, ...] = ()


LoggedMessage: TypeAlias = UserMessage | AssistantMessage | Note


@dataclass(frozen=True, slots=True)
class PromptMessage:
    """One message of a prompt, before it takes the provider's format."""

    role: Literal["system", "user", "assistant", "tool"]
    text: str
    calls: tuple[ToolCall, ...] = ()
    call_id: str = ""
    """For role `tool`, the call that it answers."""
    name: str = ""
    """For role `tool`, the tool."""
    files: tuple[FileRef, ...] = ()
    opaque: Opaque | None = None
    outcome: CallOutcome = "ok"
    """For role `tool`, how the call ended; only some providers are sent it."""


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as a model sees it; `parameters` is a JSON schema of type object."""

    name: str
    description: str
    parameters: dict[str, Any] = field(default_factory=dict[str, Any])


_REPEATED: tuple[NoteSource, ...] = ("recall", "context", "context_ended")
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


def call_id(node_id: int, index: int) -> str:
    """Return the id of a call, made of its place in the log.

    It has nine lower-case letters and digits: Mistral demands nine, the others take them.
    """
    digits = ""
    # Two of the eight digits (36 * 36) are for the index, six for the node.
    number = node_id * 1296 + index
    while number:
        number, rest = divmod(number, 36)
        digits = _DIGITS[rest] + digits
    return "c" + digits.rjust(8, "0")


def call_place(handle: str) -> tuple[int, int]:
    """Return the (node, index) of a call's id.

    Raises:
        ValueError: it is not the id of a call.
    """
    # `int` by itself would also take signs, underscores and digits of other scripts.
    if len(handle) != 9 or handle[0] != "c" or not handle.isascii() or not handle.isalnum():
        raise ValueError(f"{handle!r} is not the handle of a tool call")
    return divmod(int(handle[1:], 36), 1296)


def encodable(text: str) -> str:
    """Return a text that can be encoded: surrogate pairs are joined, lone ones replaced."""
    # Python's JSON decoder, among others, makes lone surrogates of `\ud83d`.
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def encodable_files(files: Iterable[FileRef]) -> tuple[FileRef, ...]:
    """Return the references with texts that can be encoded."""
    return tuple(
        replace(
            file,
            uri=encodable(file.uri),
            media_type=encodable(file.media_type),
            name=encodable(file.name),
        )
        for file in files
    )


# Made when they are first used, so that importing this module does not import pydantic.
@functools.cache
def _logged() -> TypeAdapter[LoggedMessage]:
    from pydantic import TypeAdapter

    return TypeAdapter(LoggedMessage)


@functools.cache
def _result() -> TypeAdapter[ToolResult]:
    from pydantic import TypeAdapter

    return TypeAdapter(ToolResult)


def encode_message(message: LoggedMessage) -> bytes:
    """Return the message as the log stores it: JSON without nulls."""
    return _logged().dump_json(message, exclude_defaults=False, exclude_none=True)


def decode_message(body: bytes) -> LoggedMessage:
    """Return the message that `encode_message` wrote."""
    return _logged().validate_json(body)


def encode_result(result: ToolResult) -> bytes:
    """Return the result as the log stores it: JSON without nulls."""
    return _result().dump_json(result, exclude_none=True)


def decode_result(body: bytes) -> ToolResult:
    """Return the result that `encode_result` wrote."""
    return _result().validate_json(body)


def repeats(message: LoggedMessage | ToolResult, tool: str = "") -> bool:
    """Return whether a message or a result shows what can be read elsewhere.

    The log has the text of what was recalled, and prompts keep notes of the context.
    """
    return tool == "recall" or (isinstance(message, Note) and message.source in _REPEATED)


def searchable(message: LoggedMessage | ToolResult, tool: str = "") -> str:
    """Return the text that search indexes for a message or a tool's result.

    A call is indexed by its tool's name and its arguments.  Reasoning is left out, and so is what
    only repeats.
    """
    if repeats(message, tool):
        return ""
    texts = [message.text]
    if isinstance(message, AssistantMessage):
        for call in message.calls:
            texts.append(call.name)
            texts += _leaves(call.arguments)
            if call.raw is not None:
                texts.append(call.raw)
    if not isinstance(message, Note):
        texts += [file.name for file in message.files]
    return "\n".join(filter(None, texts))


def searchable_body(kind: Literal["node", "call"], body: bytes) -> str:
    """Return the text that search indexes for the stored body of a node or a call's result."""
    return searchable(decode_message(body) if kind == "node" else decode_result(body))


def searchable_if_readable(kind: Literal["node", "call"], body: bytes) -> str:
    """Return what `searchable_body` does; empty for a body that cannot be read."""
    try:
        return searchable_body(kind, body)
    except (ValueError, KeyError, TypeError):
        return ""


def _leaves(value: Any) -> Iterator[str]:
    """Yield all keys and values of nested JSON as texts."""
    # With a stack of its own: a model's JSON may be nested deeper than Python recurses.
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


# Plans

ItemStatus: TypeAlias = Literal["pending", "in_progress", "completed", "failed", "skipped"]
STATUSES: tuple[ItemStatus, ...] = get_args(ItemStatus)
SETTLED: tuple[ItemStatus, ...] = ("completed", "skipped")
"""Statuses with which an item's dependents may be completed."""


@dataclass(frozen=True, slots=True)
class PlanItem:
    """A part of a plan.

    Attributes:
        depends_on: ids of the items that must be completed or skipped before this one is completed.
        follows: whether its status is that of the other calls of the exchange that made this
            version, so that no crash leaves it wrong; `update_following` sets it.
    """

    id: str
    description: str
    phase: str
    status: ItemStatus = "pending"
    result: str = ""
    depends_on: tuple[str, ...] = ()
    follows: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """A version of a plan.

    Attributes:
        iteration: from 1; one more each time the phase returns to an earlier one.
        version: counts up within the thread, over all its branches; 0 before it is stored.
        node_id: the exchange whose call made this version.
        created_at: when, in seconds since the epoch.
    """

    goal: str
    phase: str
    items: tuple[PlanItem, ...]
    iteration: int = 1
    version: int = 0
    node_id: int = 0
    created_at: float = 0.0

    def item(self, identity: str) -> PlanItem | None:
        """Return the item with this id, or None."""
        return next((one for one in self.items if one.id == identity), None)

    @property
    def counts(self) -> dict[ItemStatus, int]:
        """The number of items by status."""
        counted = Counter(one.status for one in self.items)
        return {status: counted[status] for status in STATUSES}

    @property
    def settled(self) -> int:
        """The number of items that are completed or skipped."""
        return sum(one.status in SETTLED for one in self.items)

    @property
    def ready(self) -> tuple[PlanItem, ...]:
        """The pending items whose dependencies are all settled."""
        settled = {one.id for one in self.items if one.status in SETTLED}
        return tuple(
            one
            for one in self.items
            if one.status == "pending" and settled.issuperset(one.depends_on)
        )

    @property
    def open(self) -> tuple[PlanItem, ...]:
        """The items that are pending or in progress."""
        return tuple(one for one in self.items if one.status in ("pending", "in_progress"))

    def to_json(self) -> dict[str, Any]:
        """Return the plan as plain values."""
        return asdict(self)
