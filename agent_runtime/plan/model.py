"""The changes of plans, as pure functions.

A plan has a goal, a current phase, an iteration (one more each time its phases start over), and
items with a status each, after n8n's plan tool.  A change makes a new plan or is refused whole.
The model's steps are called items here, because a step of a run is a model call.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from graphlib import CycleError, TopologicalSorter
from typing import Annotated, Any, cast

import orjson
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError

from agent_runtime.errors import InvalidPlan
from agent_runtime.messages import SETTLED, ItemStatus, Plan, PlanItem, encodable
from agent_runtime_config.counted import counted

FAILED = ("error", "refused", "interrupted")
"""Outcomes of failed calls; a cancelled call has not run."""
PHASES = ("plan", "execute", "inspect", "evaluate", "debug")
"""The default phases."""

MOST_ITEMS = 500
GOAL_CHARS = 2000
DESCRIPTION_CHARS = 1000
RESULT_CHARS = 2000
"""Limits of a plan; longer texts belong in a file or the log."""
MOST_PROBLEMS = 10
"""The most problems that one refusal names."""
_ID = re.compile(r"[^\s,]{1,64}")


Text = Annotated[str, BeforeValidator(lambda value: _text(value))]
Identity = Annotated[str, BeforeValidator(lambda value: _identity(value))]


def _without_description(schema: dict[str, Any]) -> None:
    schema.pop("description", None)


class Step(BaseModel):
    """A new step, or the changes of an existing one."""

    # Its docstring is for programmers; a model needs none.
    model_config = ConfigDict(extra="forbid", json_schema_extra=_without_description)

    id: Identity | None = None
    description: Text | None = None
    phase: str | None = None
    status: ItemStatus | None = None
    result: Text | None = None
    depends_on: list[Identity] | None = None
    follow: Annotated[
        bool,
        Field(description="Status from the answer's other calls."),
    ] = False


# Changes


def create_plan(
    goal: str, steps: Sequence[Step], *, phase: str | None, phases: Sequence[str]
) -> Plan:
    """Return a new plan.

    Args:
        phase: None for the first phase.

    Raises:
        InvalidPlan: names all problems, and what is allowed.
    """
    problems: list[str] = []
    goal = encodable(goal).strip()
    if not goal:
        problems.append("the plan has no goal")
    if not steps:
        problems.append("the plan has no steps")
    phase = phase or phases[0]
    plan = Plan(goal, phase, _added((), steps, phase, problems))
    _check(plan, phases, problems, phase_changed=True, changed={one.id for one in plan.items})
    return plan


def update_plan(
    plan: Plan,
    *,
    goal: str | None = None,
    phase: str | None = None,
    steps: Sequence[Step] = (),
    add: Sequence[Step] = (),
    phases: Sequence[str],
    others: int = 0,
) -> Plan:
    """Return the changed plan; a change is made whole or refused.

    Args:
        steps: changes of existing items, by their ids.
        add: new items, appended.
        others: the number of other calls in the message, which items may follow.

    Raises:
        InvalidPlan: names all problems, and what is allowed.
    """
    problems: list[str] = []
    if not steps and not add and goal is None and phase is None:
        problems.append("nothing is changed: give `steps`, `add`, `phase` or `goal`")
    changed = _by_id(plan, steps, problems)
    if any(step.follow for step in steps) and not others:
        problems.append("`follow` needs another call in the same message, to follow")
    kept = tuple(_changed(one, changed.get(one.id)) for one in plan.items)
    items = _added(kept, add, phase or plan.phase, problems)
    order = list(phases)
    # An agent may name other phases than the stored plan has; those have no order.
    back = phase in order and plan.phase in order and order.index(phase) < order.index(plan.phase)
    new = replace(
        plan,
        goal=plan.goal if goal is None else encodable(goal).strip() or plan.goal,
        phase=phase or plan.phase,
        iteration=plan.iteration + back,
        items=items,
    )
    # Only what this call touches is checked, so that an old plan can be repaired bit by bit.
    known = {one.id for one in plan.items}
    touched = {*changed, *(one.id for one in items if one.id not in known)}
    _check(new, phases, problems, phase_changed=phase is not None, changed=touched)
    return new


def mark_item(plan: Plan, identity: str, status: ItemStatus, result: str = "") -> Plan:
    """Return the plan with an item's observed status, whatever the item depends on.

    A result that is too long is truncated.  A plan without the item is returned unchanged.
    """
    if plan.item(identity) is None:
        return plan
    result = _cut(" ".join(encodable(result).split()))
    return replace(
        plan,
        items=tuple(
            replace(one, status=status, result=result or one.result, follows=False)
            if one.id == identity
            else one
            for one in plan.items
        ),
    )


@dataclass(frozen=True, slots=True)
class Followed:
    """A call that items follow; `outcome` is None until it has ended."""

    tool: str
    outcome: str | None
    error: str = ""


def update_following(plan: Plan, calls: Sequence[Followed]) -> Plan:
    """Return the plan with the status of its following items set by these calls."""
    if not any(one.follows for one in plan.items):
        return plan
    # A failure counts at once; all others have to end first.
    failed = next((one for one in calls if one.outcome in FAILED), None)
    status: ItemStatus = "in_progress"
    if failed is not None:
        status = "failed"
    elif any(one.outcome == "cancelled" for one in calls):
        status = "pending"
    elif all(one.outcome == "ok" for one in calls):
        status = "completed"
    error = _cut(f"{failed.tool}: {' '.join(failed.error.split())}") if failed else ""
    return replace(
        plan,
        items=tuple(
            replace(one, status=status, result=error or one.result) if one.follows else one
            for one in plan.items
        ),
    )


def stop_following(plan: Plan) -> Plan:
    """Return the plan with every status fixed, for the next version."""
    return replace(plan, items=tuple(replace(one, follows=False) for one in plan.items))


# Parts of a change


def _text(value: object) -> object:
    return encodable(value).strip() if isinstance(value, str) else value


def _identity(value: object) -> object:
    # Models number their steps, with or without quotes.
    number = isinstance(value, int) and not isinstance(value, bool)
    return str(value) if number else _text(value)


def _by_id(plan: Plan, steps: Sequence[Step], problems: list[str]) -> dict[str, Step]:
    known = [one.id for one in plan.items]
    found: dict[str, Step] = {}
    for step in steps:
        if step.id is None:
            problems.append("a step to change has no `id`; new steps go into `add`")
        elif step.id not in known:
            problems.append(
                f"there is no step {step.id!r}; there are: {list_ids(known)}; "
                "new steps go into `add`"
            )
        elif step.id in found:
            problems.append(f"step {step.id!r} is changed twice")
        elif step.follow and step.status is not None:
            problems.append(f"step {step.id!r} has both `status` and `follow`; give one")
        else:
            found[step.id] = step
    return found


def _changed(item: PlanItem, step: Step | None) -> PlanItem:
    if step is None:
        return item
    return replace(
        item,
        description=item.description if step.description is None else step.description,
        phase=step.phase or item.phase,
        # What it is stored with; readers compute the present status from the calls.
        status="in_progress" if step.follow else step.status or item.status,
        result=item.result if step.result is None else step.result,
        depends_on=item.depends_on if step.depends_on is None else tuple(step.depends_on),
        follows=step.follow,
    )


def _added(
    kept: tuple[PlanItem, ...], steps: Sequence[Step], phase: str, problems: list[str]
) -> tuple[PlanItem, ...]:
    # Including the ids that later steps of this call bring.
    taken = {one.id for one in kept} | {step.id for step in steps if step.id}
    items = list(kept)
    number = len(kept)
    for step in steps:
        identity = step.id
        if identity is None:
            number += 1
            while str(number) in taken:
                number += 1
            identity = str(number)
            taken.add(identity)
        if step.follow:
            problems.append(f"step {identity!r} is new; `follow` is for steps that are there")
        item = PlanItem(
            id=identity,
            description=step.description or "",
            phase=step.phase or phase,
            status=step.status or "pending",
            result=step.result or "",
            depends_on=tuple(step.depends_on or ()),
        )
        items.append(item)
    return tuple(items)


def _check(
    plan: Plan,
    phases: Sequence[str],
    problems: list[str],
    *,
    phase_changed: bool,
    changed: Collection[str],
) -> None:
    """Raise `InvalidPlan` for a plan that is not valid; unchanged items are not checked."""
    if phase_changed and plan.phase not in phases:
        problems.append(f"there is no phase {plan.phase!r}; the phases are: {', '.join(phases)}")
    if len(plan.goal) > GOAL_CHARS:
        problems.append(f"the goal is longer than {GOAL_CHARS:,} characters")
    if len(plan.items) > MOST_ITEMS:
        problems.append(
            f"a plan has at most {MOST_ITEMS} steps, not {len(plan.items)}; make fewer, larger ones"
        )
    ids = Counter(one.id for one in plan.items)
    problems += [f"two steps have the id {one!r}" for one, times in ids.items() if times > 1]
    by_id = {one.id: one for one in plan.items}
    for one in plan.items:
        if one.id in changed:
            problems += _problems(one, by_id, phases)
    if circle := _circle(by_id):
        problems.append(f"steps depend on each other in a circle: {' → '.join(circle)}")
    if problems:
        more = len(problems) - MOST_PROBLEMS
        named = [
            *problems[:MOST_PROBLEMS],
            *([f"and {counted(more, 'more problem')}"] if more > 0 else []),
        ]
        raise InvalidPlan(
            "The plan was not changed:\n" + "\n".join(f"- {one}" for one in named) + ".\n",
            cure="Correct it and call the tool again.",
        )


def _problems(
    item: PlanItem, by_id: Mapping[str, PlanItem], phases: Sequence[str]
) -> Iterable[str]:
    name = f"step {item.id!r}"
    if not _ID.fullmatch(item.id):
        yield f"{name}: an id has 1 to 64 characters, without spaces and commas"
    if not item.description:
        yield f"{name} has no description"
    if len(item.description) > DESCRIPTION_CHARS:
        yield f"{name}: its description is longer than {DESCRIPTION_CHARS:,} characters"
    if len(item.result) > RESULT_CHARS:
        yield f"{name}: its result is longer than {RESULT_CHARS:,} characters; sum it up"
    if item.phase not in phases:
        yield f"{name}: there is no phase {item.phase!r}; the phases are: {', '.join(phases)}"
    missing = [one for one in item.depends_on if one not in by_id]
    if missing:
        yield f"{name} depends on {list_ids(missing)}, which the plan does not have"
    waits = [
        f"{one!r} ({by_id[one].status})"
        for one in item.depends_on
        if one in by_id and by_id[one].status not in SETTLED
    ]
    if waits and (item.status == "completed" or item.follows):
        yield (
            f"{name} cannot be completed before what it depends on is completed or skipped: "
            f"{', '.join(waits)}"
        )


def _circle(by_id: Mapping[str, PlanItem]) -> list[str]:
    """Return the ids of a dependency circle, the first id again at the end; [] for none."""
    try:
        TopologicalSorter({one.id: one.depends_on for one in by_id.values()}).prepare()
    except CycleError as error:
        return cast("list[str]", error.args[1])
    return []


def list_ids(ids: Sequence[str], most: int = 20) -> str:
    """Return ids as text, at most `most` of them by name."""
    more = f" and {len(ids) - most} more" if len(ids) > most else ""
    return ", ".join(ids[:most]) + more


def _cut(text: str) -> str:
    return text if len(text) <= RESULT_CHARS else text[: RESULT_CHARS - 1] + "…"


# Stored form


def encode_plan(plan: Plan) -> bytes:
    """Return a plan as the body of its row."""
    own = {"version", "node_id", "created_at"}
    return orjson.dumps({key: value for key, value in asdict(plan).items() if key not in own})


def decode_plan(body: bytes, *, version: int, node_id: int, created_at: float) -> Plan:
    """Return the plan of a row. Raises `ValueError` if the body is no plan."""
    try:
        plan = _PLANS.validate_json(body)
    except ValidationError as error:
        raise ValueError("it is no plan") from error
    return replace(plan, version=version, node_id=node_id, created_at=created_at)


# At the end: it resolves the types above.
_PLANS = TypeAdapter(Plan)
