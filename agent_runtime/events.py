"""What happens in a run, as it happens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, NotRequired, TypeAlias, cast

# Pydantic takes the `TypedDict` of `typing` only from Python 3.12 on.
from typing_extensions import TypedDict, TypeVar

from agent_runtime.messages import Plan
from agent_runtime_storage.contract.records.log import CallOutcome, StopReason

EventKind = Literal[
    "run-queue", "run-start", "text-delta", "reasoning-delta", "model-retry", "model-wait",
    "model-fallback", "setting-ignored", "answer", "file", "tool-start", "tool-progress",
    "tool-finish", "note", "activation", "memory", "observation", "recall", "plan", "question",
    "run-suspend", "run-finish",
]  # fmt: skip
LIVE_KINDS: frozenset[EventKind] = frozenset((
    "run-queue", "text-delta", "reasoning-delta", "model-retry", "model-wait", "setting-ignored",
    "tool-progress", "memory",
))  # fmt: skip
"""Kinds that only listeners get: they are not recorded."""


class RunQueueData(TypedDict):
    """The process has as many runs at work as it admits, so the run waits. Its thread is not
    known yet, nor is its id unless it is resumed.

    Attributes:
        ahead: how many others wait before it.
    """

    ahead: int


class UsedTokens(TypedDict):
    """What a run used: tokens as reported; nanodollars, None if a price is unknown."""

    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    cost: int | None


class RunStartData(TypedDict):
    """A run begins, or is resumed.

    Attributes:
        agent: the agent's name.
        model: the model's name.
        window: the model's context window in tokens.
        max_steps: the step limit.
        resumed: whether it continues after an interruption.
        steps: steps made before a resume.
        used: of a run that is resumed and has no parent, what it and its child runs used so far.
        observe_at, reflect_at: the memory's thresholds in tokens.
        warnings: settings of the memory that cannot be used, and why.
        parent: for a child run, the run that began it.
        task_key: for a child run, the key of its task; empty if it was not delegated.
        task_chars: how many characters of the task prompts show; the whole is a file of the
            thread.
        turns_left_out: turns of a node's memory that did not fit.
        decided: by the id of an interrupted call, what the caller of the resume decided: `rerun`,
            `accept` or `fail`.
    """

    agent: str
    model: str
    max_steps: int
    resumed: bool
    steps: int
    window: NotRequired[int]
    used: NotRequired[UsedTokens]
    observe_at: NotRequired[int]
    reflect_at: NotRequired[int]
    warnings: NotRequired[Sequence[str]]
    parent: NotRequired[str]
    task_key: NotRequired[str]
    task_chars: NotRequired[int]
    turns_left_out: NotRequired[int]
    decided: NotRequired[Mapping[str, str]]


class TextDeltaData(TypedDict):
    """A piece of the answer's text.

    Attributes:
        text: the piece.
    """

    text: str


class ReasoningDeltaData(TypedDict):
    """A piece of the model's reasoning.

    Attributes:
        text: the piece.
    """

    text: str


class ModelRetryData(TypedDict):
    """A call failed and is tried again; in an outage, the step is.

    Attributes:
        reason: what failed.
        attempt: which attempt failed, from 1.
        wait: seconds until the next one.
        outage: only in an outage, True: the whole step is tried again.
    """

    reason: str
    attempt: int
    wait: float
    outage: NotRequired[bool]


class ModelWaitData(TypedDict):
    """A call waits until the provider's rate limit lets it through.

    Attributes:
        reason: which limit, and what is left of it.
        wait: seconds until it resets, as far as is known; others may go first then.
    """

    reason: str
    wait: float


_Fallback = TypedDict("_Fallback", {"from": str, "to": str})  # `from` is a keyword.


class ModelFallbackData(_Fallback):
    """Of several models, another one is in use; deltas of the answer so far are void.

    Attributes:
        from, to: the names of the models.
        why: what failed: `unavailable`, `stalled`, `protocol`, `key` or `unknown`; or
            `cool-down`, if none failed now.
        reason: the same as a sentence.
        warning: what a person has to mend; only once until it is.
    """

    why: str
    reason: str
    warning: NotRequired[str]


class SettingIgnoredData(TypedDict):
    """A setting was not sent, because the model does not take it.

    Attributes:
        setting: its name in `ModelSettings`.
    """

    setting: str


class AnswerData(TypedDict):
    """The model's answer is recorded; the event's node holds it.

    Attributes:
        step: which step of the run, from 1.
        calls: how many tools it calls.
        prompt_tokens, cached_tokens, completion_tokens: usage as the provider reported it.
        cost: nanodollars; None where the price is unknown.
        model: which of several models answered.
        raw_tokens, observed_tokens: the prompt's messages and observations.
        began_at, first_token_at: when the first call for it began, and when the one that gave it
            had its first token, in seconds since the epoch.
        seconds: from the first call's beginning to the answer.
        retries, retry_causes: how many calls for it failed, and why, of the last ones.
    """

    step: int
    calls: int
    prompt_tokens: int | None
    cached_tokens: int | None
    completion_tokens: int | None
    cost: int | None
    model: NotRequired[str]
    raw_tokens: NotRequired[int]
    observed_tokens: NotRequired[int]
    began_at: NotRequired[float]
    first_token_at: NotRequired[float]
    seconds: NotRequired[float]
    retries: NotRequired[int]
    retry_causes: NotRequired[list[str]]


class FileData(TypedDict):
    """The model is not shown a file; the prompt names it instead.

    Attributes:
        name, uri: the file.
        reason: why it is not shown.
    """

    name: str
    uri: str
    reason: str


class ToolStartData(TypedDict):
    """A call is about to run.

    Attributes:
        call_id: the call, also the handle for `recall`.
        tool: the tool's name.
        arguments: only live, what it is called with.
    """

    call_id: str
    tool: str
    arguments: NotRequired[Mapping[str, Any]]


class ToolProgressData(TypedDict):
    """A tool tells how far a call is.

    Attributes:
        call_id: the call.
        done: how far, in the tool's unit.
        total: the end, in the same unit.
        message: what it is doing.
    """

    call_id: str
    done: float
    total: NotRequired[float]
    message: NotRequired[str]


class ToolFinishData(TypedDict):
    """A call has its result.

    Attributes:
        call_id: the call.
        tool: the tool's name.
        outcome: `ok`, `error`, `refused`, `interrupted` or `cancelled`.
        chars: the result's length.
        cut: whether the prompt shows only a part of it.
        data: what the tool tells programs; of `bash` the `exit_code` (int, negative for a signal)
            of a command that ended.
        result: only live, its text.
        arguments: only live, and only of a call that never started, such as a refused one.
    """

    call_id: str
    tool: str
    outcome: CallOutcome
    chars: int
    cut: bool
    data: NotRequired[Mapping[str, Any]]
    result: NotRequired[str]
    arguments: NotRequired[Mapping[str, Any]]


class NoteData(TypedDict):
    """The runtime wrote a message into the log.

    Attributes:
        source: what it is about, such as `steer`, `background` or `recall`.
    """

    source: str


class ActivationData(TypedDict):
    """The prompt is rewritten.

    Attributes:
        cause: `start`, `agent` (it changed), `model` (another one of several is in use),
            `messages`, `tokens`, `overflow`, `note`, `observed`, `price`, `late` or `idle`.
        left_out: nodes that left the prompt.
        cut: results that were shortened.
        tokens: the prompt's size now, in our count.
        constraints_named: how many of the user's constraints are only named, because they do not
            fit their budget.
    """

    cause: str
    left_out: int
    cut: int
    tokens: int
    constraints_named: NotRequired[int]


class MemoryData(TypedDict):
    """The Observer or the Reflector begins to work.

    Attributes:
        purpose: `observe` or `reflect`.
        tokens: how much it reads.
        again: whether a model replaces what rules wrote.
    """

    purpose: Literal["observe", "reflect"]
    tokens: int
    again: bool


class ObservationData(TypedDict):
    """An observation is recorded.

    Attributes:
        id: its id.
        level: 0 for messages, 1 and more for condensed observations.
        first, last: the nodes that it stands for.
        tokens: its size.
        of: the size of what it stands for.
        origin: who wrote it: `model`, `rules` or `archive`.
        provisional: whether a model will write it again.
        again: whether it replaces a provisional one.
        why: why it differs from what was requested; empty if it does not.
        calls, prompt_tokens, cached_tokens, completion_tokens, cost: what it used, as in
            `answer`.
    """

    id: int
    level: int
    first: int
    last: int
    tokens: int
    of: int
    origin: Literal["model", "rules", "archive"]
    provisional: bool
    again: bool
    why: str
    calls: NotRequired[int | None]
    prompt_tokens: NotRequired[int | None]
    cached_tokens: NotRequired[int | None]
    completion_tokens: NotRequired[int | None]
    cost: NotRequired[int | None]


class FoundMessage(TypedDict):
    """A message that recall found: its thread, node, and the index of a call, if it is a result."""

    thread: str
    node: int
    call: int | None


class RecallData(TypedDict):
    """Earlier messages were searched before a turn.

    Attributes:
        found: the messages.
        query: the node whose text was searched for.
        mode: `text`, `vectors` or `hybrid`.
        tokens: the size of the note.
        why: what failed, or that nothing fits; empty otherwise.
    """

    found: Sequence[FoundMessage]
    query: NotRequired[int]
    mode: NotRequired[str]
    tokens: NotRequired[int]
    why: NotRequired[str]


class PlanData(TypedDict):
    """A new version of the plan is recorded.

    Attributes:
        version: its number on the thread.
        phase: the phase that it is in.
        iteration: which round of its phases.
        pending, in_progress, completed, failed, skipped: items of each status.
        plan: only live, the plan.
        followed: only live, the calls that its items may follow.
    """

    version: int
    phase: str
    iteration: int
    pending: int
    in_progress: int
    completed: int
    failed: int
    skipped: int
    plan: NotRequired[Plan]
    followed: NotRequired[Sequence[str]]


class QuestionData(TypedDict):
    """The run asks a person.

    Attributes:
        id: the question, for `Runtime.answer`.
        kind: `single`, `multiple`, `text`, `approval`, `continue` or `interrupted`.
        call_id, tool: the call that asks, or is to be approved.
        role, task_key: the sub-agent that asks.
    """

    id: str
    kind: str
    call_id: NotRequired[str]
    tool: NotRequired[str]
    role: NotRequired[str]
    task_key: NotRequired[str]


class RunSuspendData(TypedDict):
    """The run waits for a person, is paused, or its process is gone.

    Attributes:
        status: `suspended`.
        stop_reason: why, such as `awaiting_user`, `paused` or `interrupted`.
        detail: the same as a sentence.
    """

    status: Literal["suspended"]
    stop_reason: StopReason
    detail: str


class RunFinishData(TypedDict):
    """The run is over.

    Attributes:
        status: `succeeded`, `failed` or `cancelled`.
        stop_reason: why, such as `completed` or `budget`.
        detail: the same as a sentence; empty if there is nothing to add.
    """

    status: Literal["succeeded", "failed", "cancelled"]
    stop_reason: StopReason
    detail: str


Kind = TypeVar("Kind", bound=EventKind, default=EventKind, covariant=True)
Data = TypeVar("Data", bound=Mapping[str, Any], default=Mapping[str, Any], covariant=True)


@dataclass(frozen=True, slots=True)
class Event(Generic[Kind, Data]):
    """One event of a thread; a run's listener also gets those of its child runs' threads.

    An event refers to nodes of the log and does not repeat what they hold.  Listeners and streams
    get an `AnyEvent`: a comparison of `event.kind`, or `match event`, tells type checkers the
    fields of its `data`.  `Event` alone is an event of any kind, with fields of unknown types.

    Attributes:
        kind: what happened; those of `LIVE_KINDS` are not recorded.
        id: rises strictly within the thread, in commit order; 0 for events that are live only.
        node_id: the node that it is about; its content is read from the log.
        data: the fields of its kind; a field that does not apply is left out.
    """

    kind: Kind
    thread_id: str
    run_id: str
    id: int = 0
    node_id: int | None = None
    data: Data = field(default_factory=cast(Any, dict))


AnyEvent: TypeAlias = (
    Event[Literal["run-queue"], RunQueueData]
    | Event[Literal["run-start"], RunStartData]
    | Event[Literal["text-delta"], TextDeltaData]
    | Event[Literal["reasoning-delta"], ReasoningDeltaData]
    | Event[Literal["model-retry"], ModelRetryData]
    | Event[Literal["model-wait"], ModelWaitData]
    | Event[Literal["model-fallback"], ModelFallbackData]
    | Event[Literal["setting-ignored"], SettingIgnoredData]
    | Event[Literal["answer"], AnswerData]
    | Event[Literal["file"], FileData]
    | Event[Literal["tool-start"], ToolStartData]
    | Event[Literal["tool-progress"], ToolProgressData]
    | Event[Literal["tool-finish"], ToolFinishData]
    | Event[Literal["note"], NoteData]
    | Event[Literal["activation"], ActivationData]
    | Event[Literal["memory"], MemoryData]
    | Event[Literal["observation"], ObservationData]
    | Event[Literal["recall"], RecallData]
    | Event[Literal["plan"], PlanData]
    | Event[Literal["question"], QuestionData]
    | Event[Literal["run-suspend"], RunSuspendData]
    | Event[Literal["run-finish"], RunFinishData]
)
"""An event of one of all kinds."""
