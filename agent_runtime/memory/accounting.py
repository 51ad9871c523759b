"""How memory writes to its run's log: observations with what they cost, and what may be spent.

The loop and memory commit one after the other, since each takes the ids that come next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from agent_runtime.concurrency import run_shielded
from agent_runtime.errors import Conflict
from agent_runtime.log.run_log import RunLog
from agent_runtime.models.cost import add_amounts, negate_amount, spent_by, usage_data
from agent_runtime.prompt.observation import Observation, encode_body
from agent_runtime_storage.contract.records import (
    Amount,
    Commit,
    Job,
    LateObservation,
    NewEvent,
    NewObservation,
    Usage,
)


async def reserve_for_memory(log: RunLog, amount: Amount) -> None:
    """Reserve what memory is about to spend; nothing where that is nothing.

    Raises:
        BudgetExceeded: it does not fit; nothing was written.
    """
    # A run's own memory leaves what its sub-agents leave, too, and takes no steps.
    limits = replace(log.limits, steps=None, spare=True)
    await _spend(log, Commit(reserve=amount, limits=limits), amount)


async def release_as_unsettled(log: RunLog, held: Amount) -> None:
    """Count what was held as spent at its bound: what was billed of it is not known."""
    await _spend(log, Commit(release=held, unsettle=held), negate_amount(held))


async def record_failed_calls(
    log: RunLog, usage: Sequence[Usage], *, held: Amount, lost: bool
) -> None:
    """Record what calls of memory cost that came to nothing; see `commit_observation`."""
    settle, unsettle = spent_by(usage), held if lost else None
    commit = Commit(usage=tuple(usage), release=held, settle=settle, unsettle=unsettle)
    await _spend(log, commit, negate_amount(held))


async def _spend(log: RunLog, commit: Commit, amount: Amount) -> None:
    if amount == Amount() and not commit.usage:
        return
    async with log.writing:
        _, interrupted = await run_shielded(log.store.commit(log.lease, commit))
        log.held = add_amounts(log.held, amount)
    if interrupted is not None:
        raise interrupted


async def count_observations(log: RunLog) -> None:
    """Read how many observations the thread has: others may have written some before."""
    log.last_observation = await log.store.last_observation(log.lease.thread_id)


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
    """Commit an observation with the end of its job and what it cost; return it with its id.

    After the run's end the claim on the job is what allows it, and nothing is settled: what
    was held counts as spent already.

    Args:
        held: what `reserve_for_memory` reserved for it.
        lost: whether attempts may be billed of which nobody reported the usage; they count as
            spent at the bound that was held.

    Raises:
        Conflict: somebody else has the job, or ended it; nothing was written.
    """
    async with log.writing:
        try:
            return await _remember(log, written, job, usage, event, held, lost=lost)
        except Conflict:
            known = log.last_observation
            await count_observations(log)
            if log.last_observation == known:
                raise
        # What an earlier run was at when it ended came in between.
        return await _remember(log, written, job, usage, event, held, lost=lost)


async def _remember(
    log: RunLog,
    written: Observation,
    job: Job | None,
    usage: Sequence[Usage],
    event: NewEvent,
    held: Amount | None,
    *,
    lost: bool,
) -> Observation:
    kept = replace(written, id=log.last_observation + 1)
    new = NewObservation(
        id=kept.id,
        level=kept.level,
        parent_id=kept.parent_id,
        first=kept.first,
        last=kept.last,
        body=encode_body(kept),
        tokens=kept.tokens,
        parts=kept.parts,
        provisional=kept.provisional,
    )
    told = replace(event, data={**event.data, "id": kept.id, **usage_data(usage)})
    if log.ended and job is not None:
        late = LateObservation(new, job, tuple(usage), (told,))
        writing = log.store.commit_late(log.lease, late)
    else:
        commit = Commit(
            observation=new,
            job=job,
            usage=tuple(usage),
            release=held,
            settle=spent_by(usage),
            unsettle=held if lost else None,
            events=(told,),
        )
        writing = log.store.commit(log.lease, commit)
    last, interrupted = await run_shielded(writing)
    log.last_observation = kept.id
    if not log.ended:
        log.held = add_amounts(log.held, negate_amount(held or Amount()))
        # After the end whoever listened has left.
        log.tell(told, last)
    if interrupted is not None:
        raise interrupted
    return kept
