"""The queue as its users see it: who waits and why, retry, forget."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import TypeVar

from agent_runtime.errors import Conflict, NotFound, QuestionsOpen
from agent_runtime.human.waiting import questions_of
from agent_runtime.log.run_log import cancelled_finish, finish_event
from agent_runtime.run.queue.enqueue import limits_of
from agent_runtime.run.takeover import end_if_dead
from agent_runtime_config import Settings
from agent_runtime_storage import Store, UserStore
from agent_runtime_storage.contract.records.queue import QueueLimits, QueueRow, QueueState

MOST_WORKING = 100_000
"""How many runs at work are counted to say which limit a run waits at."""

T = TypeVar("T")


class RunQueue:
    """The queue of a database. Use `Runtime.queue`."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store = store
        self._user = settings.user
        self._limits = limits_of(settings)

    async def list(
        self, *, user: str | None = None, state: QueueState | None = None, limit: int = 100
    ) -> list[QueueRow]:
        """Return an owner's runs in the queue, in the order in which they are picked."""
        return await self._of(user).queue.list(state=state, limit=limit)

    async def list_all(
        self, *, state: QueueState | None = None, limit: int = 100
    ) -> list[QueueRow]:
        """Return the runs of all owners, for whoever operates the workers."""
        return await self._store.queue.list(state=state, limit=limit)

    async def reasons(self, rows: Sequence[QueueRow]) -> Sequence[str]:
        """Return for each of the rows why it is where it is, in a sentence.

        It names a limit that a row waits at, as these settings have it.
        """
        working = list[QueueRow]()
        if self._limits != QueueLimits() and any(row.state == "waiting" for row in rows):
            working = await self._store.queue.list(state="working", limit=MOST_WORKING)
        full = _Full.of(working, self._limits)
        return [full.reason(row) or why(row) for row in rows]

    async def retry(self, run_id: str, *, user: str | None = None) -> None:
        """Let a run wait for a worker that failed, was paused or was put off.

        Raises:
            NotFound: this owner has no such run in the queue.
            QuestionsOpen: it waits for answers.
            Conflict: it waits already, or works.
        """
        store = self._of(user)
        row = await self._row(store, run_id)
        if row.state == "parked" and (questions := await questions_of(store, run_id)):
            raise QuestionsOpen(
                f"Run {run_id} waits for answers.",
                questions=tuple(question.id for question in questions),
                cure=f"Answer (`agent-runtime answer {questions[0].id}`), or cancel the run.",
            )
        # The row may have changed since it was read, so the statement decides, not the row.
        if not await store.queue.wake(run_id, "It was retried."):
            row = await self._row(store, run_id)
            raise Conflict(
                f"Run {run_id} is not to be retried: {why(row)}", cure="Wait for it, or cancel it."
            )

    async def forget(self, run_id: str, *, user: str | None = None) -> None:
        """Take a run that failed out of the queue; the run and its thread stay.

        Raises:
            NotFound: this owner has no such run in the queue.
            Conflict: it has not failed.
        """
        store = self._of(user)
        row = await self._row(store, run_id)
        if not await store.queue.drop(run_id):
            raise Conflict(
                f"Run {run_id} has not failed: {why(row)}", cure="Cancel it to take it out."
            )

    def _of(self, user: str | None) -> UserStore:
        return self._store.of(user or self._user)

    async def _row(self, store: UserStore, run_id: str) -> QueueRow:
        rows = await store.queue.list(run_id=run_id, limit=1)
        if not rows:
            raise NotFound(
                f"Run {run_id} of this owner is not in the queue.",
                cure="Look at `agent-runtime queue list`.",
            )
        return rows[0]


@dataclass(frozen=True, slots=True)
class _Full:
    """Users, agents and models that are at their limits, and the limits."""

    users: Set[str]
    agents: Set[tuple[str, str]]
    models: Set[str]
    limits: QueueLimits

    @classmethod
    def of(cls, working: Sequence[QueueRow], limits: QueueLimits) -> _Full:
        return cls(
            _at(Counter(row.user_id for row in working), limits.per_user),
            _at(Counter((row.program, row.agent) for row in working), limits.per_agent),
            _at(Counter(row.model for row in working), limits.per_model),
            limits,
        )

    def reason(self, row: QueueRow) -> str:
        """Return at which limit a row waits; empty if at none."""
        if row.state != "waiting" or row.busy_with is not None:
            return ""
        if row.user_id in self.users:
            return f"Its user has {self.limits.per_user} runs at work, the most allowed."
        if (row.program, row.agent) in self.agents:
            return f"{row.agent} has {self.limits.per_agent} runs at work, the most allowed."
        if row.model in self.models:
            return f"{row.model} has {self.limits.per_model} runs at work, the most allowed."
        return ""


def _at(counts: Counter[T], limit: int | None) -> set[T]:
    return {one for one, count in counts.items() if limit is not None and count >= limit}


def why(row: QueueRow) -> str:
    """Return why a run is where it is, in a sentence."""
    match row.state:
        case "working":
            reason = f"It works on {row.host}." if row.host else "It works."
        case "delayed":
            reason = "It was put off."
        case "behind":
            reason = "Another run of its thread comes first."
        case "waiting" if row.busy_with is not None:
            reason = f"Run {row.busy_with} is active on its thread."
        case "waiting":
            version = f" in version {row.version}" if row.version else ""
            program = f" of {row.program}" if row.program else ""
            reason = f"It waits for a worker with {row.agent}{program}{version}, or for its turn."
        case "parked":
            reason = "It is suspended."
        case "dead":
            reason = "It failed."
    return f"{reason} {row.cause}".strip() if row.cause else reason


async def cancel_tree(store: UserStore, run_id: str) -> list[str]:
    """Cancel a run and all its descendants, in any process; return the ids of those reached."""
    # A run that has not begun holds no lease: one statement takes it out of the queue and ends
    # it.
    if await withdraw(store, run_id):
        return [run_id]
    reached = await store.runs.cancel(run_id)
    for one in reached:
        if await withdraw(store, one):
            continue
        # Nobody polls for the request on behalf of a dead process, or of a run that waits.  A
        # process that takes the run over first sees the request itself.
        await end_if_dead(store, await store.runs.get(one))
    return reached


async def withdraw(store: UserStore, run_id: str) -> bool:
    """Cancel a run that has not begun; return False if it has, or is none of the queue's."""
    finish = cancelled_finish()
    return await store.queue.withdraw(run_id, finish, finish_event(finish))
