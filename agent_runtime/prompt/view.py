"""What prompts are made of: a thread's branch under its newest activation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from agent_runtime.messages import (
    LoggedMessage,
    PromptMessage,
    ToolResult,
    ToolSpec,
    call_id,
    call_place,
)
from agent_runtime.prompt.calendar import Today
from agent_runtime.prompt.constraints import Constraints
from agent_runtime.prompt.observation import Observation

ActivationCause = Literal[
    "start",
    "agent",
    "model",
    "messages",
    "tokens",
    "overflow",
    "note",
    "observed",
    "price",
    "late",
    "idle",
]
"""Why an activation was made."""


@dataclass(frozen=True, slots=True)
class Truncation:
    """How an activation truncates a result.

    Attributes:
        chars: how many characters are shown.
        also: the identifiers in the rest, separated by blanks.
    """

    chars: int
    also: str = ""


@dataclass(frozen=True, slots=True)
class Gap:
    """Nodes that have left the prompt although no observation stands for them.

    Attributes:
        parent_id: the node before the first; None if the first is the root.
        size: how many messages they are.
    """

    parent_id: int | None
    first: int
    last: int
    size: int


@dataclass(frozen=True, slots=True)
class ActivationContent:
    """How prompts begin from an activation on: the content of its row.

    Attributes:
        first: the first raw node; None if all nodes from the root on are raw.
        task: the node of the run's task, shown in front if it is before `first`.
        left_out: how many messages before `first` are not shown.
        cuts: call id to the truncation of its result.
        model: the model whose opaque parts may be sent.
        nonce: marks the runtime's own words, so that no tool output can pass for them; see
            `fences`.
        shrunk: whether recent messages are missing or truncated, because the window could not hold
            them or an earlier run kept fewer.
        repeat_system: whether the system prompt is repeated as the first user message.
        last_messages: how many recent messages stay; messages that have left do not return when a
            later run keeps more.
        remembers: whether observational memory is on; the system prompt explains it then.
        observed: the observations that stand for what is left out, in order.
        gaps: what is left out and not observed yet, in order; only with `remembers`.
        state: the current plan, running tasks and open questions.
        constraints: what the user requires, as far as the branch was read.
        today: the day of the activation, and the time zone of the times in prompts.
        context: the notes before `first` that prompts keep; see `context_notes`.
    """

    first: int | None = None
    task: int | None = None
    left_out: int = 0
    cuts: Mapping[str, Truncation] = field(default_factory=dict[str, Truncation])
    model: str = ""
    nonce: str = ""
    shrunk: bool = False
    repeat_system: bool = False
    last_messages: int = 0
    remembers: bool = False
    observed: tuple[int, ...] = ()
    gaps: tuple[Gap, ...] = ()
    state: str = ""
    constraints: Constraints = field(default_factory=Constraints)
    today: Today = field(default_factory=Today)
    context: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class PromptPrefix:
    """What comes first in prompts: the system prompt and the tool schemas."""

    system: str
    tools: tuple[ToolSpec, ...] = ()


@dataclass(frozen=True, slots=True)
class Entry:
    """A node of the branch, as the prompt shows it.

    Attributes:
        shown: for each result, the characters that its exchange's cap allows; None for all.
        prompt: its messages in the prompt; empty for a note inside of a tool result.
        tokens: our count of those.
        at: when it was appended, in seconds since the epoch.
    """

    seq: int
    parent_id: int | None
    message: LoggedMessage
    results: tuple[ToolResult, ...] = ()
    shown: tuple[int | None, ...] = ()
    prompt: tuple[PromptMessage, ...] = ()
    tokens: int = 0
    # Not compared: a reload has the database's clock, the view in memory that of this machine.
    at: float = field(default=0.0, compare=False)

    @property
    def size(self) -> int:
        """How many messages it has: itself and its results."""
        return 1 + len(self.results)


@dataclass(frozen=True, slots=True)
class View:
    """A branch under one activation.

    Attributes:
        activation_id: 0 before a thread's first activation.
        anchor: the node at which the activation was made.
        context: the notes that stand in front.
        front: the messages before the raw nodes.
        front_tokens: our count of the front and of the tool schemas.
    """

    activation_id: int
    anchor: int | None
    start: ActivationContent
    prefix: PromptPrefix
    task: Entry | None
    front: tuple[PromptMessage, ...]
    front_tokens: int
    entries: tuple[Entry, ...]
    observations: tuple[Observation, ...] = ()
    context: tuple[Entry, ...] = ()

    @property
    def tokens(self) -> int:
        """Our count of the prompt, uncalibrated."""
        return self.front_tokens + sum(entry.tokens for entry in self.entries)


@dataclass(frozen=True, slots=True)
class Prompt:
    """The input of one model call.

    Attributes:
        counted: our count of its tokens, uncalibrated.
        marks: indices of the messages after which a provider may cache.
    """

    activation_id: int
    messages: tuple[PromptMessage, ...]
    tools: tuple[ToolSpec, ...]
    marks: tuple[int, ...]
    counted: int


def handles(entry: Entry) -> list[str]:
    """Return the handles of an exchange's results."""
    return [handle_of(entry, index) for index in range(len(entry.results))]


def handle_of(entry: Entry, index: int) -> str:
    """Return the handle of a result, by which `recall` opens it."""
    return call_id(entry.seq, index)


def shows_whole(view: View, handle: str) -> bool:
    """Return whether prompts of the view show a call's result, and all of it."""
    node, index = call_place(handle)
    entry = next((one for one in reversed(view.entries) if one.seq == node), None)
    if entry is None or index >= len(entry.results) or handle in view.start.cuts:
        return False
    return index >= len(entry.shown) or entry.shown[index] is None
