"""The tool by which an agent makes a plan and keeps it true."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal, cast

from agent_runtime.errors import ConfigError, InvalidPlan
from agent_runtime.messages import ToolSpec
from agent_runtime.plan.model import PHASES, Plan, Step, create_plan, update_plan
from agent_runtime.plan.planner import PLAN, Planner
from agent_runtime.plan.render import render_plan_note, render_whole_plan, summarise_plan
from agent_runtime.tools.base import FunctionTool, Tool, ToolContext

NO_PLAN = "There is no plan yet."
CREATE = "Make one with the action `create_plan`."


class PlanTool(FunctionTool[..., Any]):
    """The tool `plan`, as `plan_tool` makes it."""


def plan_tool(*, phases: Sequence[str] = PHASES) -> Tool:
    """Return the tool `plan`, for an agent's `tools`; `Agent(planning=True)` gives the same.

    Args:
        phases: what the phases of its plans are called, in their order.

    Raises:
        ConfigError: there are no phases, or one is no word or named twice.
    """
    names = _names(phases)

    async def plan(
        context: ToolContext,
        action: Literal["create", "update", "review"],
        goal: str | None = None,
        phase: str | None = None,
        steps: list[Step] | None = None,
        add: list[Step] | None = None,
    ) -> str:
        """Keep a plan of a task that takes many steps: create it, update it as you work, review it.

        `create_plan` takes the goal and the steps in order. `update_plan` changes steps by their
        ids, and only what is given of each. Set a step to in_progress when you begin it and to
        completed only when it is done and checked; with `follow` it takes its status from the other
        calls of the same message. An invalid change is refused whole. Going back to an earlier
        phase begins a new iteration.

        Args:
            goal: what is to be reached.
            phase: the current phase.
            steps: with create the steps, each with a description; with update what changes.
            add: with update, new steps, which come last.
        """
        planner = _planner(context)
        if action == "review":
            found = await planner.current()
            return render_whole_plan(found) if found else f"{NO_PLAN} {CREATE}"

        def change(old: Plan | None, others: int) -> Plan:
            if action == "create":
                return create_plan(
                    goal or "", [*(steps or []), *(add or [])], phase=phase, phases=names
                )
            if old is None:
                raise InvalidPlan(NO_PLAN, cure=CREATE)
            return update_plan(
                old,
                goal=goal,
                phase=phase,
                steps=steps or [],
                add=add or [],
                phases=names,
                others=others,
            )

        made = await planner.change(context.call_id, change, anew=action == "create")
        assert made is not None
        return _told(made) if action == "create" else summarise_plan(made)

    made = PlanTool(plan, idempotent=True)
    made.spec = _with_phases(made.spec, names)
    return made


async def plan_note(context: ToolContext) -> str | None:
    """Say what the plan is, for the state note."""
    planner = context.service(Planner)
    found = None if planner is None else await planner.current()
    return found and render_plan_note(found)


def _told(plan: Plan) -> str:
    # What its steps say stands in the call itself.
    return f"{summarise_plan(plan)} Steps: {', '.join(one.id for one in plan.items)}."


def _names(phases: Sequence[str]) -> tuple[str, ...]:
    names = () if isinstance(phases, str) else tuple(phases)
    words = all(re.fullmatch(r"[\w-]{1,40}", one) for one in names)
    if not names or len(set(names)) < len(names) or not words:
        raise ConfigError(
            f"The phases {phases!r} of a plan are not usable.",
            cure="Give a list of words of letters, digits, `_` and `-`, each once.",
        )
    return names


def _planner(context: ToolContext) -> Planner:
    planner = context.service(Planner)
    if planner is None:
        raise InvalidPlan("There is no plan here: no agent's run calls this tool.")
    return planner


def _with_phases(spec: ToolSpec, phases: tuple[str, ...]) -> ToolSpec:
    """Return the tool's description with the phases as the only values that a phase can have."""
    schema: dict[str, Any] = spec.parameters
    for part in (schema, *schema["$defs"].values()):
        properties = cast("dict[str, Any]", part.get("properties", {}))
        if "phase" in properties:
            told = properties["phase"].get("description")
            properties["phase"] = {
                "anyOf": [{"enum": list(phases), "type": "string"}, {"type": "null"}],
                "default": None,
                **({"description": told} if told else {}),
            }
    return ToolSpec(PLAN, spec.description, schema)
