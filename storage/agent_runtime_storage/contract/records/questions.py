"""Records of questions to people, and of the approvals that people grant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

QuestionKind = Literal["single", "multiple", "text", "approval", "continue", "interrupted"]
QuestionStatus = Literal["open", "answered", "expired", "withdrawn"]


@dataclass(frozen=True, slots=True)
class NewQuestion:
    """A question to ask in the commit that suspends its run.

    Attributes:
        node_id: the exchange that asks.
        position: the index of the call that asks; None if the run itself asks.
        seconds: the time until it expires.
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
        status: `expired` if it was still open at `expires_at`; `withdrawn` if its run ended first.
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
    """An approval for the rest of a thread: of calls of a tool whose arguments match.

    Attributes:
        arguments: the pattern for each argument's value; without patterns every call matches.
        thread_id: None for the thread of the question that is answered.
        binding: a digest of the tool and its agent; another tool of the same name is not approved.
        agent: whom it was given to; for display.
    """

    id: str
    tool: str
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    thread_id: str | None = None
    binding: str = ""
    agent: str = ""


@dataclass(frozen=True, slots=True)
class ApprovalRow:
    """An approval of calls on a thread.

    Attributes:
        binding: a digest of the tool and its agent; empty if an older version wrote the row.
        agent: whom it was given to; empty likewise.
    """

    thread_id: str
    id: str
    tool: str
    arguments: Mapping[str, Any]
    created_at: float
    binding: str = ""
    agent: str = ""
