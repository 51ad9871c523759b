"""The one narrow protocol between the runtime and a language model."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

from agent_runtime.files.references import Detail
from agent_runtime.messages import FileKind, FileRef, Opaque, PromptMessage, ToolSpec

Json: TypeAlias = dict[str, Any]
FinishReason = Literal[
    "stop",
    "tool_calls",
    "length",
    "window",
    "refusal",
    "content_filter",
    "pause",
    "malformed",
    "broken",
    "unknown",
]
"""Why an answer ended.

`length`: at its output limit, `window`: at the end of the context window, `pause`: the provider
wants to be asked to go on, `malformed`: a call was no call, `broken`: the provider failed.
"""


@dataclass(frozen=True, slots=True)
class Price:
    """Nanodollars per token (a price of 3 $ per million tokens is 3000)."""

    input: int
    output: int
    cache_read: int
    cache_write: int


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What is known of a model.

    Attributes:
        window: the context window in tokens (prompt and answer together).
        max_output: the most tokens that one answer may have.
        price: None where it is unknown.
        start_ratio: how many of the provider's tokens one of ours is taken for until its usage
            has taught better; a safe high.
        cache_marks: how many cache breakpoints may be sent; 0 for none.
        takes: the kinds of files that can be sent.
    """

    name: str
    window: int
    max_output: int
    price: Price | None
    start_ratio: float = 1.3
    cache_marks: int = 0
    takes: frozenset[FileKind] = frozenset()


@dataclass(frozen=True, slots=True)
class FilePart:
    """A file of a message as a model is to be shown it.

    Attributes:
        data: its content in base64; empty for a URL, and for what is only named.
        text: what a text document says, for every model.
        problem: why it is only named; empty if it can be shown.
        detail: how closely to look at an image.
    """

    file: FileRef
    data: str = field(default="", repr=False)
    text: str = ""
    problem: str = ""
    detail: Detail = "auto"


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One call of a model.

    Attributes:
        marks: indices of `messages` after which a provider may cache, in rising order.
        max_output: the most tokens to answer with.
        session: stays the same over the calls of one thread; some providers route by it.
        files: of messages that have files, by their index, each file as it is to be shown; what is
            missing here can only be named, or sent by its URL.
    """

    messages: tuple[PromptMessage, ...]
    tools: tuple[ToolSpec, ...] = ()
    max_output: int = 4096
    marks: tuple[int, ...] = ()
    session: str = ""
    temperature: float | None = None
    files: Mapping[int, Sequence[FilePart]] = field(default_factory=dict[int, Sequence[FilePart]])


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the answer's text."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """A piece of the model's reasoning."""

    text: str


@dataclass(frozen=True, slots=True)
class Retrying:
    """The call failed and is tried again after a wait; what was streamed of it is void.

    Attributes:
        lost: how many attempts so far may have been billed without a report of their usage.
    """

    reason: str
    attempt: int
    wait: float
    lost: int = 0


@dataclass(frozen=True, slots=True)
class RawCall:
    """A tool call as the model wrote it; `arguments` is text that may be anything."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """What the provider reported of one call; `prompt` includes cached and cache-written."""

    prompt: int
    completion: int
    cached: int = 0
    cache_write: int = 0


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """The end of a stream: the answer, whole.

    Attributes:
        word: the provider's own word for why the answer ended, where it is known.
        usage: None where the provider reported none.
        cost: nanodollars by the provider's reported usage; None where the price is unknown.
        files: what the model made, as `data:` URLs; whoever records the answer keeps them.
        lost: usage of earlier attempts of this call that failed after they were billed, as upper
            bounds (number of attempts that died unreported).
    """

    text: str
    calls: tuple[RawCall, ...]
    finish: FinishReason
    model: str
    usage: TokenUsage | None = None
    cost: int | None = None
    reasoning: str = ""
    opaque: Opaque | None = None
    lost: int = 0
    extra: dict[str, Any] = field(default_factory=dict[str, Any])
    files: tuple[str, ...] = field(default=(), repr=False)
    word: str = ""


ModelEvent: TypeAlias = TextDelta | ReasoningDelta | Retrying | ModelAnswer


class Model(Protocol):
    """A language model.

    `stream` gives an async context manager whose iterator yields deltas and then exactly one
    `ModelAnswer`.  Leaving the context closes the connection, also when cancelled.

    Raises (from the iterator) `ModelError` and its subclasses only; see `agent_runtime.errors`.
    """

    @property
    def name(self) -> str:
        """The name by which usage and calibration are kept."""
        ...

    async def info(self) -> ModelInfo:
        """Return window, output limit and price; may load a library on first use."""
        ...

    def stream(
        self, request: ModelRequest
    ) -> AbstractAsyncContextManager[AsyncIterator[ModelEvent]]:
        """Call the model once, with the model's own retries of what is worth retrying."""
        ...


DEFAULT_RESERVE = 8192
"""Tokens kept free for the answer, where the window is not small."""


def default_reserve(window: int) -> int:
    """Return how many tokens of a window are kept free for the answer, unless it is said."""
    return min(DEFAULT_RESERVE, window // 4)
