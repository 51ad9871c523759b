"""What a turn consists of, for all protocols alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from agent_runtime.events import Event
from agent_runtime.human.questions import Question
from agent_runtime.messages import Plan, ToolCall, ToolResult
from agent_runtime_storage.contract.records.log import RunStatus, StopReason
from agent_runtime_storage.contract.records.usage import UsageTotal


@dataclass(frozen=True, slots=True)
class Begun:
    """The run began, or was resumed."""

    run_id: str
    thread_id: str
    resumed: bool


@dataclass(frozen=True, slots=True)
class StepBegun:
    """A step began: a model call, and then its tool calls."""

    step: int


@dataclass(frozen=True, slots=True)
class StepEnded:
    """The step is over."""

    step: int


@dataclass(frozen=True, slots=True)
class TextPiece:
    """A piece of a message's text, or of the reasoning before it; the first one begins it."""

    message: str
    text: str
    reasoning: bool = False


@dataclass(frozen=True, slots=True)
class Ended:
    """The text of a message, or its reasoning, is complete.

    Attributes:
        void: whether the call failed after these pieces; the text comes again as another message.
    """

    message: str
    reasoning: bool = False
    void: bool = False


@dataclass(frozen=True, slots=True)
class Called:
    """The model calls a tool, which the runtime runs."""

    message: str
    call: ToolCall


@dataclass(frozen=True, slots=True)
class Progressed:
    """A tool reports how far a call is."""

    call_id: str
    done: float
    total: float | None
    message: str


@dataclass(frozen=True, slots=True)
class Returned:
    """A call has its result."""

    call_id: str
    tool: str
    result: ToolResult


@dataclass(frozen=True, slots=True)
class Planned:
    """The plan changed."""

    plan: Plan


@dataclass(frozen=True, slots=True)
class ChildBegun:
    """A sub-agent began to work.

    Attributes:
        parent: the run that delegated to it; empty for the turn's own run.
        call_id: the call that delegated to it; empty if it is not known.
    """

    run_id: str
    name: str
    task_key: str
    parent: str
    call_id: str


@dataclass(frozen=True, slots=True)
class ChildEnded:
    """A sub-agent's run is over, or suspended."""

    run_id: str
    status: RunStatus
    detail: str


@dataclass(frozen=True, slots=True)
class Asked:
    """A sub-agent, or a background task of the thread, asks a person; the turn goes on."""

    question: Question


@dataclass(frozen=True, slots=True)
class Other:
    """What only some protocols can tell: memory, notes, retries, waits."""

    event: Event


@dataclass(frozen=True, slots=True)
class Suspended:
    """The turn ends here: the run waits for a person, or was stopped and can be resumed.

    Attributes:
        questions: whose answers the run waits for, also those of sub-agents.
        apart: what background tasks of the thread ask, for which the run does not wait.
    """

    stop_reason: StopReason
    detail: str
    questions: tuple[Question, ...]
    usage: UsageTotal
    apart: tuple[Question, ...] = ()


@dataclass(frozen=True, slots=True)
class Over:
    """The turn ends here: the run is over.

    Attributes:
        apart: what background tasks of the thread ask a person.
    """

    status: RunStatus
    stop_reason: StopReason
    detail: str
    output: object
    usage: UsageTotal
    apart: tuple[Question, ...] = ()


Part: TypeAlias = (
    Begun
    | StepBegun
    | StepEnded
    | TextPiece
    | Ended
    | Called
    | Progressed
    | Returned
    | Planned
    | ChildBegun
    | ChildEnded
    | Asked
    | Other
    | Suspended
    | Over
)


def news_of(part: Part) -> str:
    """Return what a part says of the progress, in a line; empty if it says nothing."""
    match part:
        case StepBegun():
            return "the model works"
        case Called(_, call):
            return f"calls {call.name}"
        case Progressed(_, done, total, message):
            return f"{message} ({done:g}{f' of {total:g}' if total else ''})".strip()
        case Planned(plan):
            done = plan.counts.get("completed", 0)
            return f"{done} of {len(plan.items)} items of the plan are done"
        case Asked(question):
            return f"a sub-agent asks: {question.text or f'allow the call of {question.tool}?'}"
        case ChildBegun(_, name, key):
            return f"sub-agent {name} works {f'on {key}' if key else ''}".strip()
        case _:
            return ""
