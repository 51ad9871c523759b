"""Find the questions that a run waits for: its own, and those of sub-agents below it.

A sub-agent whose call needs an approval is suspended, as any run is.  The call that delegated its
task stays in progress and suspends the run that made it, up to the root.  The answer is written to
the sub-agent's question; resuming the root makes the call again, which resumes the sub-agent.  A
pause of the root works the same way, without a question, and so does closing the runtime.  A
workflow waits so with the runs of its nodes.  A background run is suspended alone: nobody waits for
it, so it is resumed by itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from agent_runtime.human.questions import Question
from agent_runtime.log.run_spec import RunSpec, delegation_record
from agent_runtime.messages import ToolResult
from agent_runtime_storage.contract.records.log import ACTIVE, Run, StopReason
from agent_runtime_storage.contract.records.questions import QuestionRow, QuestionStatus
from agent_runtime_storage.contract.store import UserStore

# Rows of one query: far more than a run can have, so that no page is missed.
MOST = 10_000


AWAITING_CHILDREN: StopReason = "awaiting_children"
"""Of a run that other workers' runs below it have to wake."""


@dataclass(frozen=True, slots=True)
class AwaitingHuman(ToolResult):
    """Returned by a call that waits, instead of its result; it is not recorded.

    Attributes:
        run_id: the suspended run of the sub-agent; empty if it has not begun.
        stop_reason: what suspended it: `awaiting_user`, `paused`, or `interrupted` if the runtime
            closes; `awaiting_children` if it is one of the queue, which need not be suspended.
    """

    run_id: str = ""
    stop_reason: str = "awaiting_user"


def is_waiting(run: Run) -> bool:
    """Return whether a run is suspended until a person answers, or ends a pause."""
    return run.status == "suspended" and run.stop_reason in ("awaiting_user", "paused")


def is_suspended_below(run: Run) -> bool:
    """Return whether the call that waits for a sub-agent's run has to wait on, suspended too."""
    closed = run.status == "suspended" and run.stop_reason == "interrupted"
    return closed or is_waiting(run)


async def may_wait(store: UserStore, run_id: str) -> bool:
    """Return whether a run may wait for a person: it is a root, or all runs above it wait too."""
    run = await store.runs.get(run_id)
    while run.parent_run_id is not None:
        if (record := delegation_record(run)) is not None:
            return record.waits
        if not RunSpec.of(run).node:
            return False
        run = await store.runs.get(run.parent_run_id)
    return True


def _is_awaited(run: Run) -> bool:
    """Return whether the run above waits too while this one waits for a person."""
    record = delegation_record(run)
    if record is None:
        return bool(RunSpec.of(run).node)
    return record.waits and not record.background


def asks_apart(run: Run) -> bool:
    """Return whether a run is a suspended background run that waits, or has waited, for answers."""
    record = delegation_record(run)
    asked = run.status == "suspended" and run.stop_reason == "awaiting_user"
    return asked and record is not None and record.background


async def resumed_by_itself(store: UserStore, run: Run) -> Run:
    """Return the run that has to be resumed for a run to go on: its root, or a background run."""
    while run.parent_run_id is not None:
        record = delegation_record(run)
        if record is not None and record.background:
            break
        run = await store.runs.get(run.parent_run_id)
    return run


async def questions_of(
    store: UserStore,
    run_id: str,
    status: QuestionStatus | None = "open",
    *,
    apart: bool = False,
) -> list[Question]:
    """Return the questions of a run and of those below it, oldest first.

    Args:
        apart: whether with those of background runs, for which the run does not wait.
    """
    rows = await _rows_of(store, run_id, status, apart=apart)
    return sorted(map(Question.of, rows), key=lambda one: (one.asked_at, one.id))


async def closed_at(store: UserStore, run_id: str) -> float | None:
    """Return when the last question was closed that a run waited for; None while one is open."""
    rows = await _rows_of(store, run_id, None)
    if any(row.status == "open" for row in rows):
        return None
    closed = [row for row in rows if row.status != "withdrawn"]
    times = (row.expires_at if row.answered_at is None else row.answered_at for row in closed)
    return max(times, default=0.0)


async def _rows_of(
    store: UserStore, run_id: str, status: QuestionStatus | None, *, apart: bool = False
) -> list[QuestionRow]:
    ids = [run_id]
    # The list grows while it is read: each run adds its children.
    for one in ids:
        children = await _children(store, status, apart=apart, parent_run_id=one)
        ids += [run.id for run in children]
    return [
        row
        for one in ids
        for row in await store.questions.list(run_id=one, status=status, limit=MOST)
    ]


async def questions_on(
    store: UserStore, thread_id: str, status: QuestionStatus | None = "open"
) -> list[Question]:
    """Return the questions of a thread's runs and of all below them, oldest first."""
    ids = [thread_id]
    for one in ids:
        children = await _children(store, status, apart=True, parent_thread_id=one)
        ids += [run.thread_id for run in children]
    rows = [
        row
        for one in dict.fromkeys(ids)
        for row in await store.questions.list(thread_id=one, status=status, limit=MOST)
    ]
    return sorted(map(Question.of, rows), key=lambda one: (one.asked_at, one.id))


async def waiting_below(store: UserStore, run_id: str) -> list[Run]:
    """Return the runs below a run that wait for a person."""
    return [run for run in await _below(store, run_id) if is_waiting(run)]


async def at_work_below(store: UserStore, run_id: str) -> list[Run]:
    """Return the running runs below a run that it waits for."""
    return [run for run in await _below(store, run_id) if run.status == "running"]


async def _below(store: UserStore, run_id: str) -> list[Run]:
    runs: list[Run] = []
    for run in await _children(store, "open", parent_run_id=run_id):
        runs += [run, *await _below(store, run.id)]
    return runs


async def _children(
    store: UserStore,
    status: QuestionStatus | None,
    *,
    apart: bool = False,
    parent_run_id: str | None = None,
    parent_thread_id: str | None = None,
) -> list[Run]:
    """Return the direct child runs that can have questions of a status.

    Args:
        apart: whether with those in the background.
    """
    runs = await store.runs.list(
        parent_run_id=parent_run_id,
        parent_thread_id=parent_thread_id,
        # Only a run that is not over can have open questions; closed ones may be of any.
        status=ACTIVE if status == "open" else None,
        limit=MOST,
    )
    return [run for run in runs if _is_awaited(run) or (apart and _is_apart(run))]


def _is_apart(run: Run) -> bool:
    record = delegation_record(run)
    return record is not None and record.background
