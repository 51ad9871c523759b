"""Plans as text for the model: whole, in a line, or within a number of tokens."""

from __future__ import annotations

from collections.abc import Sequence

from agent_runtime.messages import SETTLED, ItemStatus, Plan, PlanItem
from agent_runtime.models.tokens import count_text
from agent_runtime.plan.model import MOST_ITEMS, list_ids

NOTE_TOKENS = 800
"""Tokens of a plan in the state note, by our count."""
_SHORT = 100
"""Characters shown of a description, and of a result, where there is little room."""
_GOAL = 400
_AFTER, _LISTED, _NAMED = 6, 12, 3

MARKS: dict[ItemStatus, str] = {
    "pending": "[ ]",
    "in_progress": "[>]",
    "completed": "[x]",
    "failed": "[!]",
    "skipped": "[-]",
}


def head_line(plan: Plan) -> str:
    """Return the version and progress of a plan, on one line."""
    return (
        f"Plan version {plan.version}: {plan.settled} of {len(plan.items)} done, "
        f"phase {plan.phase}, iteration {plan.iteration}."
    )


def item_line(item: PlanItem, most: int | None = None) -> str:
    """Return an item on one line, each of its texts truncated to `most` characters."""
    line = f"{MARKS[item.status]} {item.id} ({item.phase}) {_short(item.description, most)}"
    if item.depends_on and item.status not in SETTLED:
        line += f" (after {list_ids(item.depends_on, _AFTER if most else MOST_ITEMS)})"
    if item.result:
        line += f" → {_short(item.result, most)}"
    return line


def render_whole_plan(plan: Plan) -> str:
    """Return the whole plan."""
    lines = [head_line(plan), f"Goal: {_short(plan.goal, None)}", *map(item_line, plan.items)]
    return "\n".join(lines)


def summarise_plan(plan: Plan) -> str:
    """Return the progress of a plan and what comes next, on one line."""
    doing = [one.id for one in plan.items if one.status == "in_progress"]
    failed = [one.id for one in plan.items if one.status == "failed"]
    ready = [one.id for one in plan.ready]
    parts = [head_line(plan)]
    parts += [f"In progress: {list_ids(doing, _LISTED)}."] if doing else []
    parts += [f"Failed: {list_ids(failed, _LISTED)}."] if failed else []
    parts += [f"Can be begun: {list_ids(ready, _LISTED)}."] if ready else []
    return " ".join(parts)


def render_plan_note(plan: Plan, tokens: int = NOTE_TOKENS) -> str:
    """Return a plan within a number of tokens.

    A plan that is too long is shown as a line about the items done, then the failed ones and those
    in progress, then as many pending ones as there is room for.
    """
    text = render_whole_plan(plan)
    # A token has hardly ever 20 characters, so a longer text need not be counted.
    if len(text) <= tokens * 20 and count_text(text) <= tokens:
        return text
    waiting = [one for one in plan.items if one.status not in SETTLED]
    done = [one for one in plan.items if one.status in SETTLED]
    # The sort is stable: failed items and those in progress come first, each in the plan's order.
    waiting.sort(key=lambda one: one.status == "pending")
    head = [head_line(plan), f"Goal: {_short(plan.goal, _GOAL)}"]
    if done:
        last = list_ids([one.id for one in done[-8:]])
        head.append(f"{MARKS['completed']} {len(done)} done or skipped, the last: {last}")
    more = "… and {} more that are not done; the action `review` shows all."
    # One for each line's end; the last line has its room whether it is needed or not.
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
    """Return the ids and descriptions of the first few items."""
    more = f" and {len(items) - _NAMED} more" if len(items) > _NAMED else ""
    return (
        "; ".join(f"{one.id} ({_short(one.description, _SHORT)})" for one in items[:_NAMED]) + more
    )


def _short(text: str, most: int | None) -> str:
    line = " ".join(text.split())
    return line if most is None or len(line) <= most else line[: most - 1] + "…"
