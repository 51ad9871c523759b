"""Jobs of memory: claimed by one worker at a time, given back when their work comes to nothing."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import anyio

from agent_runtime.concurrency import run_shielded
from agent_runtime.errors import StoreError
from agent_runtime.log.run_log import RunLog
from agent_runtime.memory import accounting as keeping
from agent_runtime_storage.contract.records import Amount, Job

GIVE_BACK_SECONDS = 5.0
"""How long giving a job back may take; then its claim has to expire."""


@asynccontextmanager
async def claim_memory_job(
    log: RunLog, kind: str, key: str, *, seconds: float, retry_after: float
) -> AsyncGenerator[Job | None]:
    """Claim a job of the run's thread for a `with` that commits its end; None if it cannot be had.

    It is done already then, or somebody else has it.  Where the `with` is left by an error, or by
    a cancellation, the job is given back: so the next run can take it up at once.

    Args:
        seconds: how long the claim lasts.
        retry_after: seconds before it may be claimed again after an error.
    """
    store, thread_id = log.store, log.lease.thread_id
    await store.enqueue(thread_id, kind, key, b"")
    # A claim that a cancellation overtook would stand, though nobody has it, until it expires.
    claim = store.claim(kind, seconds=seconds, thread_id=thread_id, key=key)
    job, interrupted = await run_shielded(claim)
    if job is None:
        if interrupted is not None:
            raise interrupted
        yield None
        return
    try:
        if interrupted is not None:
            raise interrupted
        yield job
    except BaseException as error:
        wait = retry_after if isinstance(error, Exception) else 0.0
        with anyio.move_on_after(GIVE_BACK_SECONDS, shield=True), suppress(StoreError):
            await store.fail_job(job, retry_after=wait, detail=type(error).__name__)
        raise


@asynccontextmanager
async def reserve_and_settle(log: RunLog, amount: Amount) -> AsyncGenerator[None]:
    """Hold what a `with` may spend, which settles it by what it commits.

    Where it is left by an error, what was held counts as spent: nobody knows what was billed.

    Raises:
        BudgetExceeded: it does not fit; nothing was held.
    """
    await keeping.reserve_for_memory(log, amount)
    try:
        yield
    except Exception:
        # A listener may fail after the commit that settled it, and the run's end settles all.
        if log.held != Amount():
            with suppress(StoreError):
                await keeping.release_as_unsettled(log, amount)
        raise
