"""Whom a run waits for: the person that it asks itself, or that a sub-agent below it asks.

A sub-agent whose call needs an approval is suspended by itself, as any run is; the call by which
its task was delegated stays under way, and suspends the run that made it, up to the root.  The
answer goes to the sub-agent's question; resuming the root runs the call again, which goes on with
the sub-agent.  A pause of the root is the same without a question.
"""

from __future__ import annotations

from dataclasses import dataclass

from agent_runtime.human.questions import Question
from agent_runtime.log.run_spec import delegation_record
from agent_runtime.messages import ToolResult
from agent_runtime_storage.contract.question_records import QuestionStatus
from agent_runtime_storage.contract.records import ACTIVE, Run
from agent_runtime_storage.contract.store import UserStore

MOST = 10_000


@dataclass(frozen=True, slots=True)
class AwaitingHuman(ToolResult):
    """What a call gives in place of its result while it waits; it is not recorded.

    Attributes:
        run_id: the sub-agent's run that stands still; empty if it has not begun.
        paused: whether that is because of a pause, and not of a question.
    """

    run_id: str = ""
    paused: bool = False


def is_waiting(run: Run) -> bool:
    """Return whether a run stands still until a person has answered, or ends a pause."""
    return run.status == "suspended" and run.stop_reason in ("awaiting_user", "paused")


async def may_wait(store: UserStore, run_id: str) -> bool:
    """Return whether a run may wait for a person: it is a root, or all above it wait with it."""
    run = await store.run(run_id)
    if run.parent_run_id is None:
        return True
    record = delegation_record(run)
    return record is not None and record.waits


async def questions_of(
    store: UserStore, run_id: str, status: QuestionStatus | None = "open"
) -> list[Question]:
    """Return what a run and those below it ask, the oldest question first."""
    found = [run_id]
    # It grows while it is read: each brings those below it.
    for one in found:
        found += [run.id for run in await _children(store, status, parent_run_id=one)]
    rows = [
        row for one in found for row in await store.questions(run_id=one, status=status, limit=MOST)
    ]
    return sorted(map(Question.of, rows), key=lambda one: (one.asked_at, one.id))


async def questions_on(
    store: UserStore, thread_id: str, status: QuestionStatus | None = "open"
) -> list[Question]:
    """Return what the runs of a thread and those below them ask, the oldest question first."""
    found = [thread_id]
    for one in found:
        found += [run.thread_id for run in await _children(store, status, parent_thread_id=one)]
    rows = [
        row
        for one in dict.fromkeys(found)
        for row in await store.questions(thread_id=one, status=status, limit=MOST)
    ]
    return sorted(map(Question.of, rows), key=lambda one: (one.asked_at, one.id))


async def waiting_below(store: UserStore, run_id: str) -> list[Run]:
    """Return the runs below a run that stand still until a person goes on with it."""
    return [run for run in await _below(store, run_id) if is_waiting(run)]


async def at_work_below(store: UserStore, run_id: str) -> list[Run]:
    """Return the runs below a run that are at work, and that it waits for."""
    return [run for run in await _below(store, run_id) if run.status == "running"]


async def _below(store: UserStore, run_id: str) -> list[Run]:
    found: list[Run] = []
    for run in await _children(store, "open", parent_run_id=run_id):
        found += [run, *await _below(store, run.id)]
    return found


async def _children(
    store: UserStore,
    status: QuestionStatus | None,
    *,
    parent_run_id: str | None = None,
    parent_thread_id: str | None = None,
) -> list[Run]:
    """Return the runs right below that can have questions of a status."""
    found = await store.runs(
        parent_run_id=parent_run_id,
        parent_thread_id=parent_thread_id,
        status=ACTIVE if status == "open" else None,
        limit=MOST,
    )
    return [run for run in found if (record := delegation_record(run)) is not None and record.waits]
