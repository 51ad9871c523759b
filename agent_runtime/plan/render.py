"""How a plan is told: to the model, whole or within a bound of tokens, and as a checklist."""

from __future__ import annotations

from collections.abc import Sequence

from agent_runtime.models.tokens import count_text
from agent_runtime.plan.model import MOST_ITEMS, SETTLED, ItemStatus, Plan, PlanItem

NOTE_TOKENS = 800
"""How much of a prompt the plan may have when it is restated, in our count."""
_SHORT = 100
"""So many characters of a description, and of a result, are told where there is little room."""
_GOAL = 400
_AFTER = 6
_NAMED = 3

MARKS: dict[ItemStatus, str] = {
    "pending": "[ ]",
    "in_progress": "[>]",
    "completed": "[x]",
    "failed": "[!]",
    "skipped": "[-]",
}


def head_line(plan: Plan) -> str:
    """Return where a plan stands, on one line."""
    return (
        f"Plan version {plan.version}: {plan.settled} of {len(plan.items)} done, "
        f"phase {plan.phase}, iteration {plan.iteration}."
    )


def item_line(item: PlanItem, most: int | None = None) -> str:
    """Return an item on one line; with `most`, so many characters of each of its texts."""
    line = f"{MARKS[item.status]} {item.id} ({item.phase}) {_short(item.description, most)}"
    if item.depends_on and item.status not in SETTLED:
        line += f" (after {_ids(item.depends_on, _AFTER if most else MOST_ITEMS)})"
    if item.result:
        line += f" → {_short(item.result, most)}"
    return line


def render_whole_plan(plan: Plan) -> str:
    """Return all of a plan."""
    lines = [head_line(plan), f"Goal: {_short(plan.goal, None)}", *map(item_line, plan.items)]
    return "\n".join(lines)


def summarise_plan(plan: Plan) -> str:
    """Return where a plan stands and what comes next, in a few lines."""
    doing = [one.id for one in plan.items if one.status == "in_progress"]
    failed = [one.id for one in plan.items if one.status == "failed"]
    ready = [one.id for one in plan.ready]
    parts = [head_line(plan)]
    parts += [f"In progress: {_ids(doing)}."] if doing else []
    parts += [f"Failed: {_ids(failed)}."] if failed else []
    parts += [f"Can be begun: {_ids(ready)}."] if ready else []
    return " ".join(parts)


def render_plan_note(plan: Plan, tokens: int = NOTE_TOKENS) -> str:
    """Return a plan within a bound of tokens: what is done is summed up first, then what waits.

    What is in progress or failed is told before all else.
    """
    text = render_whole_plan(plan)
    if len(text) <= tokens * 20 and count_text(text) <= tokens:
        return text
    waiting = [one for one in plan.items if one.status not in SETTLED]
    done = [one for one in plan.items if one.status in SETTLED]
    waiting.sort(key=lambda one: one.status == "pending")
    head = [head_line(plan), f"Goal: {_short(plan.goal, _GOAL)}"]
    if done:
        head.append(f"{MARKS['completed']} {len(done)} done or skipped, the last: {_last(done)}")
    more = "… and {} more that are not done; the action `review` shows all."
    left = tokens - sum(count_text(line) + 1 for line in [*head, more])
    lines: list[str] = []
    for one in waiting:
        line = item_line(one, _SHORT)
        left -= count_text(line) + 1
        if left < 0:
            break
        lines.append(line)
    if len(lines) < len(waiting):
        lines.append(more.format(len(waiting) - len(lines)))
    return "\n".join([*head, *lines])


def name_items(items: Sequence[PlanItem]) -> str:
    """Return the ids of items with what each is about, of a few of them."""
    more = f" and {len(items) - _NAMED} more" if len(items) > _NAMED else ""
    return (
        "; ".join(f"{one.id} ({_short(one.description, _SHORT)})" for one in items[:_NAMED]) + more
    )


def _last(done: Sequence[PlanItem]) -> str:
    return _ids([one.id for one in done[-8:]])


def _ids(ids: Sequence[str], most: int = 12) -> str:
    more = f" and {len(ids) - most} more" if len(ids) > most else ""
    return ", ".join(ids[:most]) + more


def _short(text: str, most: int | None) -> str:
    line = " ".join(text.split())
    return line if most is None or len(line) <= most else line[: most - 1] + "…"
