"""Questions to a person that a call of a tool asks while it runs, and their answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from agent_runtime.messages import ToolResult


@dataclass(frozen=True, slots=True)
class ToolQuestion:
    """A question of a call.

    Attributes:
        choices: of `single`.
        state: JSON that comes back with the answer; people do not see it.
    """

    kind: Literal["single", "text"]
    text: str
    choices: tuple[str, ...] = ()
    state: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """The answer to a question of a call.

    Attributes:
        state: that of the question.
        text: the answer, or the choice; None if nobody answered in time.
    """

    state: Mapping[str, Any]
    text: str | None


@dataclass(frozen=True, slots=True)
class AwaitingAnswers(ToolResult):
    """Returned by a call that waits for a person, instead of its result; it is not recorded.

    The run is suspended until all questions are closed.  The call is then made again, with all
    answers so far in its context.  Where nobody can be asked, its text is the result.
    """

    questions: tuple[ToolQuestion, ...] = ()
