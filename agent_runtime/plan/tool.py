"""The tool `plan`, by which an agent creates, updates and reviews its plan."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal

from agent_runtime.errors import ConfigError, InvalidPlan
from agent_runtime.messages import Plan, ToolSpec
from agent_runtime.plan.model import PHASES, Step, create_plan, update_plan
from agent_runtime.plan.planner import PLAN, Planner
from agent_runtime.plan.render import render_plan_note, render_whole_plan, summarise_plan
from agent_runtime.tools.base import Tool
from agent_runtime.tools.context import ToolContext
from agent_runtime.tools.function import FunctionTool

NO_PLAN = "There is no plan yet."
CREATE = "Make one with the action `create`."


class PlanTool(FunctionTool[..., Any]):
    """The tool `plan`, as `plan_tool` makes it."""


def plan_tool(*, phases: Sequence[str] = PHASES) -> Tool:
    """Return the tool `plan`, for an agent's `tools`; `Agent(planning=True)` gives the same.

    Args:
        phases: what the phases of its plans are called, in their order.

    Raises:
        ConfigError: there are no phases, one is not a word, or one is repeated.
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
        """Keep the plan of a long task, together with other calls.

        A step is completed only when checked.

        Args:
            steps: to create, all with descriptions; to update, what changes, by id.
            add: new steps.
        """
        planner = _planner(context)
        if action == "review":
            current = await planner.current()
            return render_whole_plan(current) if current else f"{NO_PLAN} {CREATE}"
        changes, new = steps or [], add or []

        def change(old: Plan | None, others: int) -> Plan:
            if action == "create":
                return create_plan(goal or "", [*changes, *new], phase=phase, phases=names)
            if old is None:
                raise InvalidPlan(NO_PLAN, cure=CREATE)
            fields = {"goal": goal, "phase": phase}
            return update_plan(old, **fields, steps=changes, add=new, phases=names, others=others)

        created = action == "create"
        plan = await planner.change(context.call_id, change, from_scratch=created)
        assert plan is not None
        # The ids only: the call itself has the descriptions.
        ids = f" Steps: {', '.join(one.id for one in plan.items)}." if created else ""
        return summarise_plan(plan) + ids

    # Idempotent, because a call that made a version returns it when it runs again.
    made = PlanTool(plan, idempotent=True)
    made.spec = _with_phases(made.spec, names)
    return made


async def plan_note(context: ToolContext) -> str | None:
    """Return the plan for the state note, if there is one."""
    planner = context.service(Planner)
    plan = None if planner is None else await planner.current()
    return plan and render_plan_note(plan)


def _names(phases: Sequence[str]) -> tuple[str, ...]:
    names = () if isinstance(phases, str) else tuple(phases)
    words = all(re.fullmatch(r"[\w-]{1,40}", one) for one in names)
    if not names or len(set(names)) < len(names) or not words:
        raise ConfigError(
            f"The phases {phases!r} of a plan are not usable.",
            cure="Give a list of different words of letters, digits, `_` and `-`.",
        )
    return names


def _planner(context: ToolContext) -> Planner:
    planner = context.service(Planner)
    if planner is None:
        raise InvalidPlan("There is no plan here: this tool works only in an agent's run.")
    return planner


def _with_phases(spec: ToolSpec, phases: tuple[str, ...]) -> ToolSpec:
    """Return the tool's spec with the phases as the only values of `phase`."""
    schema: dict[str, Any] = spec.parameters
    # The phases of steps are the same, which goes without saying.
    schema["properties"]["phase"]["enum"] = list(phases)
    return ToolSpec(PLAN, spec.description, schema)
