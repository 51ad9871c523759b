"""Taking a run over whose process is gone, and ending one without what drives it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress

import anyio
import anyio.to_thread

from agent_runtime.concurrency import run_shielded
from agent_runtime.errors import AgentRuntimeError, Conflict, NotFound, StoreError
from agent_runtime.events import Event
from agent_runtime.log import leases
from agent_runtime.log.branch import load_view
from agent_runtime.log.run_log import RunLog, cancelled_finish, finish_event
from agent_runtime.messages import encodable
from agent_runtime.models.tokens import count_text
from agent_runtime.prompt.truncate import share_result_budget
from agent_runtime.run.tool_calls import abandoned_results, reopen
from agent_runtime.tools.base import Toolset
from agent_runtime.tools.workspace import command_records as commands
from agent_runtime_storage.contract.records import ACTIVE, Commit, Finish, Lease, Run
from agent_runtime_storage.contract.store import UserStore

END_SECONDS = 10.0
"""How long the end of a cancelled or failed run may take to be written."""
DEAD_RESULT_TOKENS = 4000
"""What the results of an exchange may show whose run is ended without its model at hand."""


async def take_lease(store: UserStore, run: Run) -> Lease:
    """Take over the lease of a run, for this process, if it still is as it was read.

    The commands that its former owner left at work on this machine are ended.
    """
    lease = await store.take_lease(
        run.id,
        leases.this_process_owner(),
        seconds=leases.LEASE_SECONDS,
        replaces=run.epoch,
        was=run.status,
    )
    await anyio.to_thread.run_sync(commands.end_of_run, run.id)
    return lease


async def take_log(store: UserStore, run: Run, emit: Callable[[Event], None]) -> tuple[RunLog, Run]:
    """Take over the lease of a run that nobody works on; return its log, and the run as it is now.

    Raises `LeaseLost` if it is not as it was read any more, `ThreadBusy`, and `Conflict` if it
    succeeded.
    """
    lease, interrupted = await run_shielded(take_lease(store, run))
    async with finish_on_error(store, lease):
        if interrupted is not None:
            raise interrupted
        return await _load(store, lease, emit)


async def _load(
    store: UserStore, lease: Lease, emit: Callable[[Event], None]
) -> tuple[RunLog, Run]:
    # Its owner may have written until the lease was taken.
    run = await store.run(lease.run_id)
    thread = await store.thread(run.thread_id)
    log = RunLog(
        store=store,
        lease=lease,
        view=await load_view(store, thread.id, thread.head),
        head=thread.head,
        last_seq=thread.last_seq,
        last_activation=thread.last_activation,
        last_observation=await store.last_observation(thread.id),
        steps=run.steps,
        emit=emit,
    )
    return log, run


@asynccontextmanager
async def finish_on_error(store: UserStore, lease: Lease) -> AsyncGenerator[None]:
    """End the run if what is done under its lease fails, so that it is not left running."""
    try:
        yield
    except asyncio.CancelledError:
        await _end_held(store, lease)
        raise
    except GeneratorExit:
        raise
    except BaseException as error:
        detail = str(error) if isinstance(error, AgentRuntimeError) else type(error).__name__
        await give_up(store, lease, Finish("failed", "error", encodable(detail)))
        raise


async def _end_held(store: UserStore, lease: Lease) -> None:
    with anyio.move_on_after(END_SECONDS, shield=True):
        try:
            await _end(*await _load(store, lease, lambda event: None))
        except AgentRuntimeError:
            # What the store holds does not agree with itself; the lease alone still ends the run.
            await give_up(store, lease, cancelled_finish())


async def give_up(store: UserStore, lease: Lease, finish: Finish) -> None:
    """End a run by its lease alone; an open exchange stays open, for a resume to go on with.

    Where the store cannot do it any more, the lease has to expire.
    """
    commit = Commit(finish=finish, events=(finish_event(finish),))
    with anyio.move_on_after(END_SECONDS, shield=True), suppress(StoreError):
        await store.commit(lease, commit)


async def end_if_dead(store: UserStore, run: Run) -> bool:
    """End a run that is not over and that nobody works on; return whether it was ended here.

    Somebody else may be quicker: take it over, end it, or delete it with its thread.
    """
    if run.status not in ACTIVE or not leases.is_dead(run):
        return False
    with leases.at_work(run.id), suppress(Conflict, NotFound):
        await end_dead(store, run)
        return True
    return False


async def end_dead(store: UserStore, run: Run) -> None:
    """End a run whose process is dead as cancelled, its open exchange closed as far as known."""
    log, run = await take_log(store, run, lambda event: None)
    async with finish_on_error(store, log.lease):
        await _end(log, run)


async def _end(log: RunLog, run: Run) -> None:
    finish = cancelled_finish()
    node = run.open_node and await log.store.node(run.thread_id, run.open_node)
    if not node or node.parent_id != log.head:
        # An exchange belongs to its branch; the head of a run that was over may be on another.
        await log.append([], finish=finish, events=[finish_event(finish)])
        return
    log.exchange, _ = reopen(node, Toolset(()))
    done = abandoned_results(log.exchange)
    results = log.exchange.results | done
    texts = [results[index].text for index in range(len(results))]
    shown = share_result_budget(texts, DEAD_RESULT_TOKENS, count_text)
    await log.close(done, shown, finish=finish, events=[finish_event(finish)])
