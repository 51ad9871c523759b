"""What runs ask people, and what people allow, as the store takes and gives it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

QuestionKind = Literal["single", "multiple", "text", "approval", "continue"]
QuestionStatus = Literal["open", "answered", "expired", "withdrawn"]


@dataclass(frozen=True, slots=True)
class NewQuestion:
    """A question to be asked in the commit that suspends its run.

    Attributes:
        node_id: the exchange that asks.
        position: which of its calls does; None where it is the run itself.
        seconds: how long it can be answered.
    """

    id: str
    node_id: int
    position: int | None
    kind: QuestionKind
    body: Mapping[str, Any]
    seconds: float


@dataclass(frozen=True, slots=True)
class QuestionRow:
    """A question, and its answer if there is one.

    Attributes:
        status: `expired` from `expires_at` on, if it was open until then; `withdrawn` if its run
            ended first.
    """

    id: str
    thread_id: str
    run_id: str
    node_id: int
    position: int | None
    kind: QuestionKind
    body: Mapping[str, Any]
    status: QuestionStatus
    answer: Mapping[str, Any]
    asked_at: float
    expires_at: float
    answered_at: float | None


@dataclass(frozen=True, slots=True)
class NewApproval:
    """What is allowed for the rest of a thread: calls of a tool whose arguments match.

    Attributes:
        arguments: by argument, the pattern that its value has to match; none matches every call.
        thread_id: None for the thread of the question that is answered.
        binding: a digest of the tool; no other tool of its name is meant.
    """

    id: str
    tool: str
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    thread_id: str | None = None
    binding: str = ""


@dataclass(frozen=True, slots=True)
class ApprovalRow:
    """Calls that are allowed on a thread.

    Attributes:
        binding: a digest of the tool; empty for one that an older version allowed.
    """

    thread_id: str
    id: str
    tool: str
    arguments: Mapping[str, Any]
    created_at: float
    binding: str = ""
