"""The queue as its users see it: who waits and why, retry, forget."""

from __future__ import annotations

from agent_runtime.errors import Conflict, NotFound, QuestionsOpen
from agent_runtime.human.waiting import questions_of
from agent_runtime.log.run_log import cancelled_finish, finish_event
from agent_runtime_storage import Store, UserStore
from agent_runtime_storage.contract.records.queue import QueueRow, QueueState


class RunQueue:
    """The queue of a database. Use `Runtime.queue`.

    Args:
        user: whose runs are meant where no user is given.
    """

    def __init__(self, store: Store, user: str) -> None:
        self._store = store
        self._user = user

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


async def withdraw(store: UserStore, run_id: str) -> bool:
    """Cancel a run that has not begun; return False if it has, or is none of the queue's."""
    finish = cancelled_finish()
    return await store.queue.withdraw(run_id, finish, finish_event(finish))
