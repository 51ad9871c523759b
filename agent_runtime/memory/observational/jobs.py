"""Durable jobs of memory, each claimed by one worker at a time, and what they may spend."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import anyio

from agent_runtime.concurrency import run_shielded
from agent_runtime.errors import StoreError
from agent_runtime.log.leases import claim_holder, is_claim_void
from agent_runtime.log.run_log import RunLog
from agent_runtime.memory.accounting import release_as_unsettled, reserve_for_memory
from agent_runtime.models.telemetry.conventions import CONVERSATION_ID, OPERATION
from agent_runtime.models.telemetry.spans import span
from agent_runtime_storage.contract.records.log import Amount, Job

RELEASE_SECONDS = 5.0
"""Timeout for giving a job back; after that its claim has to expire."""


@asynccontextmanager
async def claim_memory_job(
    log: RunLog, kind: str, key: str, *, seconds: float, retry_after: float
) -> AsyncGenerator[Job | None]:
    """Claim a job of the run's thread for a `with` that commits its end.

    Yields None if the job is done or another worker has it.  A worker that has died does not have
    it any more.  An error or a cancellation inside the `with` gives the job back, so that the next
    run can take it at once.

    Args:
        seconds: how long the claim lasts.
        retry_after: seconds before it may be claimed again after an error.
    """
    store, thread_id = log.store, log.lease.thread_id
    await store.jobs.enqueue(thread_id, kind, key, b"")
    # Shielded: a claim whose answer a cancellation discards would block the job until it expires.
    job, interrupted = await run_shielded(_claim(log, kind, key, seconds))
    if job is None:
        if interrupted is not None:
            raise interrupted
        yield None
        return
    try:
        if interrupted is not None:
            raise interrupted
        with span(kind, {OPERATION: kind, CONVERSATION_ID: thread_id}):
            yield job
    except BaseException as error:
        # A cancellation says nothing against the job: the next run takes it at once.
        wait = retry_after if isinstance(error, Exception) else 0.0
        with anyio.move_on_after(RELEASE_SECONDS, shield=True), suppress(StoreError):
            await store.jobs.fail(job, retry_after=wait, detail=type(error).__name__)
        raise


async def _claim(log: RunLog, kind: str, key: str, seconds: float) -> Job | None:
    jobs, thread_id = log.store.jobs, log.lease.thread_id
    void = ""
    for standing in await jobs.standing(thread_id, kind):
        # Chunks grow with what waits: another worker may have a shorter one that begins here.
        if standing.key.partition("-")[0] != key.partition("-")[0]:
            continue
        # After a kill nobody would observe until the claim expires, long after the lease.
        if not is_claim_void(standing.holder, log.lease):
            return None
        void = standing.token if standing.key == key else void
    holder = claim_holder(log.lease)
    return await jobs.claim(
        kind, seconds=seconds, thread_id=thread_id, key=key, holder=holder, void=void
    )


@asynccontextmanager
async def reserve_and_settle(log: RunLog, amount: Amount) -> AsyncGenerator[None]:
    """Reserve what a `with` may spend; its commit settles the reservation.

    After an error the whole reservation counts as spent, because the billed part is unknown.

    Raises:
        BudgetExceeded: it does not fit; nothing was reserved.
    """
    await reserve_for_memory(log, amount)
    try:
        yield
    except Exception:
        # Not for a cancellation: it comes with the run's end, which settles what is held.
        # The error may come from a listener after the commit, or the run's end has settled it.
        if log.held != Amount():
            with suppress(StoreError):
                await release_as_unsettled(log, amount)
        raise
