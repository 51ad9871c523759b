"""The plan that the offline model keeps of its survey, where it has the tool `plan`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from agent_runtime.messages import PromptMessage, ToolSpec
from agent_runtime.models.base import RawCall
from agent_runtime.offline.state import State
from agent_runtime.plan.planner import PLAN as NAME

PHASES = {
    "start": "plan",
    "list": "execute",
    "search": "execute",
    "figures": "execute",
    "read": "execute",
    "recall": "inspect",
    "check": "inspect",
}
"""The phase of each step, where the phases are those that a plan has by default."""


def can_plan(tools: Sequence[ToolSpec]) -> tuple[bool, bool]:
    """Return whether there is the tool `plan`, and whether it has the phases of `PHASES`."""
    tool = next((one for one in tools if one.name == NAME), None)
    told = orjson.dumps(tool.parameters).decode() if tool else ""
    return tool is not None, all(f'"{phase}"' in told for phase in PHASES.values())


def plan_call(state: State) -> Sequence[RawCall]:
    """Return the call that makes the plan; none without the tool."""
    if not state.planned:
        return ()
    steps = [
        {"id": "start", "description": f"Begin {state.report}", "status": "completed"},
        _after("start", "list", f"List everything in `{state.folder}`") | {"status": "in_progress"},
        _after("list", "search", "Search its files"),
        _after("search", "figures", f"Write the figures into {state.report}"),
        *_reading(state),
        _after("figures", "check", f"Read {state.report} back"),
    ]
    goal = f"A true report of `{state.folder}` in {state.report}"
    for step in steps if state.phased else ():
        step["phase"] = _phase(str(step["id"]))
    return (_call(action="create", goal=goal, steps=steps),)


def _reading(state: State) -> list[dict[str, Any]]:
    """Return the steps of reading: one, or one for each part and one that looks back."""
    if not state.delegated:
        words = "Read files, spread evenly, and note what they hold"
        return [_after("figures", "read", words)]
    parts = [
        _after("figures", one.id, f"Read entries {one.first + 1:,} to {one.end:,}")
        for one in state.parts
    ]
    return [*parts, _after("figures", "recall", "Look again at what was listed first")]


def reading(state: State, files: int) -> Sequence[RawCall]:
    """Return the call that tells how far the reading has come."""
    far = {"result": f"{files:,} files so far"} if files else {}
    return change(state, {"id": "read", "status": "in_progress", **far})


def completion_change(step: str, result: str) -> dict[str, Any]:
    """Return the change by which a step is completed."""
    return {"id": step, "status": "completed", "result": result}


def follow(state: State, step: str, *others: dict[str, Any]) -> Sequence[RawCall]:
    """Return the call by which a step is done when the calls beside it are."""
    return change(state, *others, {"id": step, "follow": True})


def change(state: State, *steps: dict[str, Any]) -> Sequence[RawCall]:
    """Return the call that changes steps."""
    if not state.planned:
        return ()
    phase = {"phase": _phase(steps[-1]["id"])} if state.phased else {}
    return (_call(action="update", steps=list(steps), **phase),)


def without(asked: PromptMessage, results: Sequence[str]) -> list[str]:
    """Return the results of an answer's calls without those of the plan's own."""
    names = [call.name for call in asked.calls]
    return [
        one
        for place, one in enumerate(results)
        if place >= len(names) or names[place] != NAME
    ]  # fmt: skip


def _phase(step: str) -> str:
    return PHASES.get(step, PHASES["read"])


def _after(before: str, step: str, description: str) -> dict[str, Any]:
    return {"id": step, "description": description, "depends_on": [before]}


def _call(**arguments: Any) -> RawCall:
    return RawCall(NAME, orjson.dumps(arguments).decode())
