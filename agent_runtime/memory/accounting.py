"""What memory writes to its run's log: observations, their cost, and budget reservations.

The loop and memory commit in turn (`RunLog.writing`), because each takes the next ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from agent_runtime.concurrency import run_shielded
from agent_runtime.errors import Conflict
from agent_runtime.log.run_log import RunLog
from agent_runtime.models.cost import add_amounts, negate_amount, spent_by, usage_data
from agent_runtime.models.telemetry.commits import commit_counted
from agent_runtime.models.telemetry.tally import TALLY
from agent_runtime.prompt.observation import Observation, encode_body
from agent_runtime_storage.contract.records.log import (
    Amount,
    Commit,
    Job,
    LateObservation,
    NewEvent,
)
from agent_runtime_storage.contract.records.observations import NewObservation
from agent_runtime_storage.contract.records.usage import Usage


async def reserve_for_memory(log: RunLog, amount: Amount) -> None:
    """Reserve what memory is about to spend; an amount of zero writes nothing.

    Raises:
        BudgetExceeded: it does not fit; nothing was written.
    """
    # Like sub-agents, memory leaves the run's spare amount unspent; it takes no steps.
    limits = replace(log.limits, steps=None, spare=True)
    await _spend(log, Commit(reserve=amount, limits=limits), amount)


async def release_as_unsettled(log: RunLog, held: Amount) -> None:
    """Count the whole reservation as spent, because the billed part of it is unknown."""
    await _spend(log, Commit(release=held, unsettle=held), negate_amount(held))


async def record_failed_calls(
    log: RunLog, usage: Sequence[Usage], *, held: Amount, lost: bool
) -> None:
    """Record the cost of calls that gave no observation; see `commit_observation`."""
    settle, unsettle = spent_by(usage), held if lost else None
    commit = Commit(usage=tuple(usage), release=held, settle=settle, unsettle=unsettle)
    await _spend(log, commit, negate_amount(held))


async def _spend(log: RunLog, commit: Commit, amount: Amount) -> None:
    # Rules cost nothing; a commit per chunk would wait for the disk for no change.
    if amount == Amount() and not commit.usage:
        return
    async with log.writing:
        # Shielded: after a cancellation in between, nobody would know whether `held` includes it.
        _, interrupted = await run_shielded(commit_counted(log.store, log.lease, commit))
        log.held = add_amounts(log.held, amount)
    if interrupted is not None:
        raise interrupted


async def commit_observation(
    log: RunLog,
    written: Observation,
    job: Job | None,
    *,
    usage: Sequence[Usage],
    event: NewEvent,
    held: Amount | None = None,
    lost: bool = False,
) -> Observation:
    """Commit an observation, the end of its job and its cost; return it with its id.

    After the run's end the claim on the job is what permits the commit, and nothing is settled:
    the reservation counts as spent already.

    Args:
        held: what `reserve_for_memory` reserved for it.
        lost: whether attempts without reported usage may be billed; then the whole reservation
            counts as spent.

    Raises:
        Conflict: somebody else has the job or ended it; nothing was written.
    """
    async with log.writing:
        try:
            return await _write(log, written, job, usage, event, held, lost=lost)
        except Conflict:
            known = log.last_observation
            log.last_observation = await log.store.log.last_observation_id(log.lease.thread_id)
            if log.last_observation == known:
                raise
        # The id was taken: an earlier run committed an observation after its end.
        return await _write(log, written, job, usage, event, held, lost=lost)


async def _write(
    log: RunLog,
    written: Observation,
    job: Job | None,
    usage: Sequence[Usage],
    event: NewEvent,
    held: Amount | None,
    *,
    lost: bool,
) -> Observation:
    committed = replace(written, id=log.last_observation + 1)
    new = NewObservation(
        id=committed.id,
        level=committed.level,
        parent_id=committed.parent_id,
        first=committed.first,
        last=committed.last,
        body=encode_body(committed),
        tokens=committed.tokens,
        parts=committed.parts,
        provisional=committed.provisional,
    )
    event = replace(event, data={**event.data, "id": committed.id, **usage_data(usage)})
    late = None
    if log.ended and job is not None:
        late = LateObservation(new, job, tuple(usage), (event,))
        writing = log.store.runs.commit_late(log.lease, late)
    else:
        commit = Commit(
            observation=new,
            job=job,
            usage=tuple(usage),
            release=held,
            settle=spent_by(usage),
            unsettle=held if lost else None,
            events=(event,),
        )
        writing = commit_counted(log.store, log.lease, commit)
    # Shielded, so that the ids counted here follow what was committed.
    last, interrupted = await run_shielded(writing)
    log.last_observation = committed.id
    if late is not None:
        for one in usage:
            TALLY.spent(one)
    if not log.ended:
        log.held = add_amounts(log.held, negate_amount(held or Amount()))
        # After the end nobody listens any more.
        log.tell(event, last)
    if interrupted is not None:
        raise interrupted
    return committed
