"""The second half of the loop guard: notice a plan that does not move while its run makes steps.

A plan moves when one of its items changes its status, its result or its text.  In recorded runs
that keep a plan, 99 of 100 changes come within 32 steps of the one before, and the longest stretch
without any had 56.  Everything is read from the log, so a resumed run counts as one that was never
stopped.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from agent_runtime.delegation.background import TASKS
from agent_runtime.log.run_log import RunLog
from agent_runtime.messages import AssistantMessage, Note, Plan, decode_message
from agent_runtime.plan.planner import last_moved
from agent_runtime.plan.render import name_items
from agent_runtime_storage.contract.records.log import Node

SOURCE = "plan"
NUDGE = (
    "In your last {count} answers no step of your plan has changed. {where} Bring the plan up to "
    "date with what you have done: complete what is done, write down as a result what you have "
    "found, split what is larger than it looked, skip what is no longer needed. If something "
    "blocks a step, set it to failed and say what; then continue with another one, or end the task "
    "and say what is missing."
)
WINDOW = 8
"""Nodes read back at most for each step of the limit."""


@dataclass(slots=True)
class PlanStall:
    """Watches a run for a plan that does not move.

    Attributes:
        limit: steps without progress after which the model gets a note; the run is stopped after
            half as many more, and again after each further half if a person lets it continue. 0 for
            never.
        reason: why the run has to stop now; empty if it need not.
    """

    log: RunLog
    limit: int
    reason: str = ""
    _due: int = field(init=False)
    """No count can reach a limit before this step of the run, so nothing is read until then."""

    def __post_init__(self) -> None:
        self._due = self.limit

    async def look(self) -> list[Note]:
        """Examine the open exchange and return the note for the model, if any; sets `reason`.

        Raises:
            CorruptThread: the plan cannot be read.
        """
        self.reason = ""
        if not self.limit:
            return []
        exchange = self.log.open_exchange()
        if _waits(exchange.message):
            # Steps that only wait do not count, so the earliest step moves back by one.
            self._due += 1
            return []
        if self.log.steps < self._due:
            return []
        lease, store = self.log.lease, self.log.store
        latest = await last_moved(store, lease.thread_id, exchange.seq)
        # Without an open item there is nothing to move.  It is looked at again after the next
        # step, because the plan may get one.
        if latest is None or not latest[0].open:
            self._due = self.log.steps + 1
            return []
        plan, moved = latest
        count, since = (0, None) if moved == exchange.seq else await self._count(moved)
        if since is None and count < self.limit:
            self._due = self.log.steps + self.limit - count
            return []
        half = (self.limit + 1) // 2
        # The next multiple of half the limit, counted from the note.
        self._due = self.log.steps + half - (since or 0) % half
        if since is None:
            return [Note(NUDGE.format(count=count, where=_where(plan)), source=SOURCE)]
        if since % half == 0:
            self.reason = f"In {count} steps no item of its plan has changed. {_where(plan)}"
        return []

    async def _count(self, moved: int) -> tuple[int, int | None]:
        """Return the number of steps since a node, and since the model got its note.

        Both include the open step; the second is None without a note.  A user's message restarts
        both counts.
        """
        lease = self.log.lease
        assert self.log.head is not None
        nodes = await self.log.store.log.branch(
            lease.thread_id, self.log.head, limit=WINDOW * self.limit
        )
        steps, since = 1, None
        for node in reversed(nodes):
            # After a message of the user the model may have to do something else first.
            if node.seq <= moved or node.role == "user":
                break
            message = decode_message(node.body)
            if isinstance(message, Note):
                if message.source == "steer":
                    break
                if message.source == SOURCE and since is None:
                    since = steps
            elif _is_step(node, lease.run_id) and not _waits(message):
                steps += 1
        return steps, since


def _is_step(node: Node, run_id: str) -> bool:
    return node.role == "assistant" and node.run_id == run_id


def _waits(message: object) -> bool:
    """Return whether a step only waits for background tasks."""
    return (
        isinstance(message, AssistantMessage)
        and bool(message.calls)
        and all(
            one.name == TASKS and one.arguments.get("action") == "wait" for one in message.calls
        )
    )


def _where(plan: Plan) -> str:
    doing = [one for one in plan.items if one.status == "in_progress"]
    if doing:
        return f"In progress: {name_items(doing)}."
    return f"None is in progress; next would be: {name_items(plan.ready or plan.open)}."
