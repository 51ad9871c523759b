"""The state of a survey, which the offline model carries from answer to answer, and its plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from agent_runtime.models.base import RawCall
from agent_runtime.models.scripted import raw_call
from agent_runtime.offline.reader import Findings, Reader
from agent_runtime.plan.planner import PLAN

Phase: TypeAlias = Literal[
    "begin", "stub", "look", "write", "read", "delegate", "outcome", "recall", "ending", "check"
]


@dataclass(slots=True)
class FolderPart:
    """A part of the folder: what is left of it to read, and why attempts at it ended early."""

    id: str
    reader: Reader
    attempts: int = 0
    stops: list[str] = field(default_factory=list[str])
    done: bool = False


@dataclass(slots=True)
class Survey:
    """The survey so far, carried from answer to answer.

    Attributes:
        phase: what the calls of this answer are for.
        sure: whether the task named the folder as one.
        planned, delegated: whether the survey has a plan, and whether sub-agents read.
        total: entries of the folder.
        listing: the handle of the listing that says so.
        steps: steps of a first attempt.
        before, size: bytes of the report before and after the last write.
        verify: whether the last call checks if an interrupted write was done.
        outcomes: parts whose outcomes are not noted yet, and the handles to recall these.
        recalled, recalled_from: the listing as `recall` opened it at the end.
    """

    phase: Phase
    folder: str
    report: str
    sure: bool = True
    planned: bool = False
    delegated: bool = False
    total: int = 0
    listing: str = ""
    steps: int = 0
    before: int = 0
    size: int = 0
    verify: bool = False
    parts: list[FolderPart] = field(default_factory=list[FolderPart])
    outcomes: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    found: Findings = field(default_factory=Findings)
    recalled: str = ""
    recalled_from: str = ""

    @property
    def attempts(self) -> int:
        """How many attempts sub-agents made."""
        return sum(part.attempts for part in self.parts)


def create_plan(survey: Survey, listed: str) -> Sequence[RawCall]:
    """Return the call that makes the plan; none without the tool `plan`."""
    if not survey.planned:
        return ()
    steps: dict[str, str] = {"look": f"List and search `{survey.folder}`"}
    for part in survey.parts:
        steps[part.id] = f"Read entries {part.reader.offset + 1:,} to {part.reader.end:,}"
    if survey.delegated:
        steps["recall"] = "Recall what was listed first"
    steps |= {
        "figures": f"Write the figures into {survey.report}",
        "check": f"Read {survey.report} back",
    }
    given = [{"id": step, "description": words} for step, words in steps.items()]
    given[0] |= {"status": "completed", "result": listed}
    goal = f"A true report of `{survey.folder}` in {survey.report}"
    return (raw_call(PLAN, action="create", goal=goal, steps=given),)


def update_plan(survey: Survey, *done: str, follows: str = "") -> Sequence[RawCall]:
    """Return the call that completes steps; `follows` is completed by the other calls."""
    if not survey.planned:
        return ()
    steps: list[dict[str, Any]] = [{"id": step, "status": "completed"} for step in done]
    if follows:
        steps.append({"id": follows, "follow": True})
    return (raw_call(PLAN, action="update", steps=steps),)
