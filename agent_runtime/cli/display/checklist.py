"""A run's plan as a checklist, updated by its events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent_runtime.cli.terminal import shorten
from agent_runtime_config.counted import counted

if TYPE_CHECKING:
    from agent_runtime.events import Event
    from agent_runtime.messages import Plan, PlanItem
    from agent_runtime.plan.model import Followed

ITEM_WIDTH = 100
"""Most characters of an item."""
MOST_CHANGED = 20
"""Most changed items to show at once."""
MOST_SHOWN = 12
"""Most lines of the checklist below the progress."""


class Checklist:
    """The plan of one run, as its events report it."""

    def __init__(self) -> None:
        self._plan: Plan | None = None
        self._followed: tuple[str, ...] = ()
        self._node: int | None = None
        self._outcomes: dict[str, Followed] = {}
        self._shown: dict[str, str] = {}

    def update(self, event: Event) -> bool:
        """Apply an event; return whether it may have changed the plan."""
        data: dict[str, Any] = dict(event.data)
        if event.kind not in ("plan", "tool-finish"):
            return False
        # Items that follow the calls of an exchange are final when the next exchange begins.
        if event.node_id != self._node:
            self._settle()
            self._node = event.node_id
        if event.kind == "tool-finish":
            from agent_runtime.plan.model import Followed

            # Calls may end before the plan that follows them arrives.
            outcome = data["outcome"]
            self._outcomes[data["call_id"]] = Followed(data["tool"], outcome, outcome)
            return data["call_id"] in self._followed
        if "plan" in data:
            self._plan, self._followed = data["plan"], tuple(data["followed"])
        return True

    def take(self, plan: Plan | None) -> None:
        """Take the stored plan, unless it was complete before the run."""
        from agent_runtime.plan.model import stop_following

        if plan is not None and (self._plan is not None or plan.settled < len(plan.items)):
            self._plan, self._followed = stop_following(plan), ()

    def progress(self) -> str:
        """Return how many items are over: `plan 3/8`; empty without a plan."""
        plan = self._resolved()
        return f"plan {plan.settled}/{len(plan.items)}" if plan and plan.items else ""

    def changed(self) -> list[str]:
        """Return the lines of the items that changed since the last call."""
        lines: list[str] = []
        for identity, line in self._lines().items():
            if self._shown.get(identity) != line:
                lines.append(line)
                self._shown[identity] = line
        more = len(lines) - MOST_CHANGED
        return (
            lines if more <= 0 else [*lines[:MOST_CHANGED], f"… and {counted(more, 'more item')}"]
        )

    def shown(self, most: int = MOST_SHOWN) -> list[str]:
        """Return at most this many lines of the checklist, around the items in progress."""
        lines = list(self._lines().values())
        if len(lines) <= most:
            return lines
        plan = self._resolved()
        items = plan.items if plan else ()
        at = next((place for place, one in enumerate(items) if not _over(one)), len(items))
        # Two lines are for the counts before and after; a third of the others shows done items.
        first = max(0, min(at - most // 3, len(lines) - (most - 2)))
        last = first + most - 2
        head = [f"… {counted(first, 'item')} before"] if first else []
        tail = [f"… {counted(len(lines) - last, 'item')} after"] if last < len(lines) else []
        return [*head, *lines[first:last], *tail]

    def _settle(self) -> None:
        """Fix the status of the items that followed the calls of an exchange."""
        from agent_runtime.plan.model import stop_following

        plan = self._resolved()
        self._plan = plan and stop_following(plan)
        self._followed, self._outcomes = (), {}

    def _resolved(self) -> Plan | None:
        from agent_runtime.plan.model import Followed, update_following

        calls = [self._outcomes.get(one) or Followed("", None) for one in self._followed]
        return self._plan and update_following(self._plan, calls)

    def _lines(self) -> dict[str, str]:
        from agent_runtime.plan.render import item_line

        plan = self._resolved()
        items = plan.items if plan else ()
        return {one.id: shorten(item_line(one), ITEM_WIDTH) for one in items}


def _over(item: PlanItem) -> bool:
    return item.status not in ("pending", "in_progress")
