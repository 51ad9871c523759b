"""What prompts are made from: a thread's branch under its newest activation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from agent_runtime.messages import LoggedMessage, PromptMessage, ToolResult, ToolSpec, call_id
from agent_runtime.prompt.constraints import Constraints
from agent_runtime.prompt.observation import Observation

ActivationCause = Literal[
    "start", "agent", "messages", "tokens", "overflow", "note", "observed", "price", "late", "idle"
]
"""Why prompts begin anew."""


@dataclass(frozen=True, slots=True)
class Truncation:
    """How a result is shown that was cut when prompts began anew.

    Attributes:
        chars: how many characters of it are shown.
        also: identifiers that it had and that are not among them, with blanks between.
    """

    chars: int
    also: str = ""


@dataclass(frozen=True, slots=True)
class Gap:
    """A stretch of the branch that no observation stands for, though its nodes have left.

    Attributes:
        parent_id: the node before the first; None if that is the root.
        size: how many messages it has.
    """

    parent_id: int | None
    first: int
    last: int
    size: int


@dataclass(frozen=True, slots=True)
class ActivationContent:
    """How prompts begin from an activation on: the content of its row.

    Attributes:
        first: the first raw node; None where the branch is raw from its root.
        task: the node of the run's task, shown in front while it lies before `first`.
        left_out: how many messages before `first` are not shown.
        cuts: call id to how its result is shown.
        model: the model whose opaque parts may be sent.
        nonce: marks what the runtime itself says, so that no tool output can pass for it; see
            `marks`.
        shrunk: whether the guaranteed recent messages are not all there as they were: the window
            could not hold them, or they had left when fewer were wanted.
        repeat_system: whether the system prompt is repeated as the first user message.
        last_messages: how many recent messages stay; what already left does not come back when a
            later run wants more.
        remembers: whether observations stand for what leaves; the system prompt explains them then.
        observed: the observations that stand for what is left out, in order.
        gaps: what is left out and not observed yet, in order; without `remembers` that is not kept.
        state: what is current of the task, the plan and the rest, beside the task itself.
        constraints: what the user requires, as far as the branch was read.
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


@dataclass(frozen=True, slots=True)
class PromptPrefix:
    """What stands before everything else: the system prompt and the tool schemas."""

    system: str
    tools: tuple[ToolSpec, ...] = ()


@dataclass(frozen=True, slots=True)
class Entry:
    """A node of the branch, as the prompt shows it.

    Attributes:
        shown: for each result, how many characters prompts show by its exchange's cap.
        prompt: what the model is sent for it; empty for a note that rides in a tool result.
        tokens: our own count of that.
        at: when it was appended, in seconds since the epoch.
    """

    seq: int
    parent_id: int | None
    message: LoggedMessage
    results: tuple[ToolResult, ...] = ()
    shown: tuple[int | None, ...] = ()
    prompt: tuple[PromptMessage, ...] = ()
    tokens: int = 0
    at: float = field(default=0.0, compare=False)

    @property
    def size(self) -> int:
        """How many messages it stands for: itself and its results."""
        return 1 + len(self.results)


@dataclass(frozen=True, slots=True)
class View:
    """A branch as prompts see it, under one activation.

    Attributes:
        activation_id: 0 before a thread's first activation.
        anchor: the node at which the activation was made.
        front: the messages before the raw nodes.
        front_tokens: our count of them and of the tool schemas.
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

    @property
    def tokens(self) -> int:
        """Our own count of the prompt, uncalibrated."""
        return self.front_tokens + sum(entry.tokens for entry in self.entries)


@dataclass(frozen=True, slots=True)
class Prompt:
    """What one model call is sent.

    Attributes:
        counted: our own count of its tokens, uncalibrated.
        marks: indices of the messages after which a provider may cache.
    """

    activation_id: int
    messages: tuple[PromptMessage, ...]
    tools: tuple[ToolSpec, ...]
    marks: tuple[int, ...]
    counted: int


def handles(entry: Entry) -> list[str]:
    """Return the handles by which the results of an exchange are recalled."""
    return [handle_of(entry, index) for index in range(len(entry.results))]


def handle_of(entry: Entry, index: int) -> str:
    """Return the handle by which a result of this exchange is recalled."""
    return call_id(entry.seq, index)
