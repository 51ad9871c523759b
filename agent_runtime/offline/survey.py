"""The state of a survey, which the offline model carries from answer to answer, and its plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from agent_runtime.models.base import RawCall
from agent_runtime.models.scripted import raw_call
from agent_runtime.offline.reader import FolderPart
from agent_runtime.plan.planner import PLAN

Phase: TypeAlias = Literal["look", "write", "read", "delegate", "outcome", "ending", "check"]


@dataclass(slots=True)
class Survey:
    """The survey so far, carried from answer to answer.

    Attributes:
        phase: what the calls of this answer are for.
        planned, delegated: whether the survey has a plan, and whether sub-agents read.
        total: entries of the folder before the report was written.
        listing: the handle of the listing that says so.
        steps: steps of a first attempt.
        size: bytes of the report after the last write.
        parts: the parts of the folder by their ids, which are those of the plan's steps.
        outcomes: parts whose outcomes are not noted yet, and the handles to recall these.
        counts: what was found of all parts, as a part counts it.
    """

    phase: Phase
    folder: str
    report: str
    planned: bool = False
    delegated: bool = False
    total: int = 0
    listing: str = ""
    steps: int = 0
    size: int = 0
    parts: dict[str, FolderPart] = field(default_factory=dict[str, FolderPart])
    outcomes: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    counts: Counter[str] = field(default_factory=Counter[str])


def create_plan(survey: Survey, listed: str) -> Sequence[RawCall]:
    """Return the call that makes the plan; none without the tool `plan`."""
    if not survey.planned:
        return ()
    steps: dict[str, str] = {"look": f"List and search `{survey.folder}`"}
    for name, part in survey.parts.items():
        steps[name] = f"Read entries {part.offset + 1:,} to {part.end:,}"
    steps["figures"] = f"Write the figures into {survey.report}"
    steps["check"] = f"Read {survey.report} back"
    if survey.delegated:
        steps["recall"] = "Recall what was listed first"
    given = [{"id": step, "description": words} for step, words in steps.items()]
    given[0] |= {"status": "completed", "result": listed}
    goal = f"A true report of `{survey.folder}` in {survey.report}"
    return (raw_call(PLAN, action="create", goal=goal, steps=given),)


def update_plan(survey: Survey, *done: str, follows: Sequence[str] = ()) -> Sequence[RawCall]:
    """Return the call that completes steps; the other calls complete those in `follows`."""
    if not survey.planned:
        return ()
    steps: list[dict[str, Any]] = [{"id": step, "status": "completed"} for step in done]
    steps += [{"id": step, "follow": True} for step in follows]
    return (raw_call(PLAN, action="update", steps=steps),)
