"""`Model`: the protocol between the runtime and a language model, and its data types."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

from agent_runtime.files.references import Detail
from agent_runtime.messages import FileKind, FileRef, Opaque, PromptMessage, ToolSpec
from agent_runtime.models.file_limits.admission import NO_FILE_LIMITS, FileLimits
from agent_runtime.models.pricing.price import Price
from agent_runtime.models.pricing.usage import TokenUsage
from agent_runtime_config.request_settings import NO_SETTINGS, ModelSettings

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
wants another request to continue, `malformed`: a call was not valid, `broken`: the provider failed.
"""


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """Facts of a model.

    Attributes:
        window: the context window in tokens (prompt and answer together).
        max_output: the most tokens that one answer may have.
        file_limits: how many files, and how large ones, are taken in one request.
        output_known: whether that is known, and not only assumed because nothing is.
        price: None if unknown.
        start_ratio: the provider's tokens per one of ours until its usage is known; set safely
            high.
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
    output_known: bool = True
    file_limits: FileLimits = NO_FILE_LIMITS


@dataclass(frozen=True, slots=True)
class FilePart:
    """A file of a message in the form for a model.

    Attributes:
        data: its content in base64; empty for a URL, and for a file that is only named.
        text: the text of a text document, for every model.
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
        max_output: the most tokens of the answer.
        session: the same for all calls of a thread; some providers route by it.
        run: the run at the root of the tree; runs take turns where a rate limit makes them wait.
        prompt_tokens: an estimate of the prompt's tokens; 0 if there is none.
        files: by index of the message, its files in the form for the model; a file that is missing
            here can only be named, or sent by its URL.
    """

    messages: tuple[PromptMessage, ...]
    tools: tuple[ToolSpec, ...] = ()
    max_output: int = 4096
    marks: tuple[int, ...] = ()
    session: str = ""
    run: str = ""
    prompt_tokens: int = 0
    settings: ModelSettings = NO_SETTINGS
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
    """The call failed and will be retried after `wait` seconds; its deltas so far are void.

    Attributes:
        lost: how many attempts so far may have been billed without reported usage.
    """

    reason: str
    attempt: int
    wait: float
    lost: int = 0


@dataclass(frozen=True, slots=True)
class Waiting:
    """The call waits until the provider's rate limit lets it through.

    Attributes:
        wait: seconds until the limit resets, as far as is known; others may go first then.
    """

    reason: str
    wait: float


@dataclass(frozen=True, slots=True)
class SettingIgnored:
    """A setting was left out of the request, because the model does not take it."""

    name: str


@dataclass(frozen=True, slots=True)
class RawCall:
    """A tool call as the model wrote it; `arguments` may be any text."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """The end of a stream: the whole answer.

    Attributes:
        word: the provider's own finish reason, if known.
        usage: None if the provider reported none.
        cost: nanodollars, by the reported usage; None if the price is unknown.
        files: files that the model made, as `data:` URLs; the log stores them.
        lost: how many earlier attempts of this call may have been billed without reported usage.
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


LiveEvent: TypeAlias = TextDelta | ReasoningDelta | Retrying | Waiting | SettingIgnored
ModelEvent: TypeAlias = LiveEvent | ModelAnswer


class Model(Protocol):
    """A language model.

    `stream` gives an async context manager whose iterator yields deltas and then exactly one
    `ModelAnswer`.  Leaving the context closes the connection, also when cancelled.

    Raises (from the iterator) `ModelError` and its subclasses only; see `agent_runtime.errors`.
    """

    @property
    def name(self) -> str:
        """The name under which usage and calibration are stored."""
        ...

    async def info(self) -> ModelInfo:
        """Return window, output limit and price; may load a library on first use."""
        ...

    def stream(
        self, request: ModelRequest
    ) -> AbstractAsyncContextManager[AsyncIterator[ModelEvent]]:
        """Call the model once; it retries failures that may pass."""
        ...


@runtime_checkable
class Checkable(Protocol):
    """A model or embedder that can be checked before it is called; `check` is optional."""

    async def check(self) -> None:
        """Check whether calls are possible, without making one; may load a library.

        Raises `ModelError` and its subclasses only.
        """
        ...


DEFAULT_RESERVE = 8192
"""Tokens reserved for the answer, unless the window is small."""


def default_reserve(window: int) -> int:
    """Return how many tokens of a window are reserved for the answer by default."""
    return min(DEFAULT_RESERVE, window // 4)
