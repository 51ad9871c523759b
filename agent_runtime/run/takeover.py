"""Take over a run whose process is dead, and end a run without its driver."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import anyio
import anyio.to_thread

from agent_runtime.concurrency import run_shielded
from agent_runtime.delegation.placed import is_placed
from agent_runtime.errors import AgentRuntimeError, Conflict, NotFound, StoreError, ThreadBusy
from agent_runtime.events import Event
from agent_runtime.human.approval_rules import SHELL
from agent_runtime.human.gate import calls_that_asked
from agent_runtime.human.waiting import asks_apart, is_waiting
from agent_runtime.log import leases
from agent_runtime.log.branch import load_view
from agent_runtime.log.exchange import Exchange
from agent_runtime.log.run_log import RunLog, cancelled_finish, finish_event
from agent_runtime.log.run_spec import RunSpec, delegation_record
from agent_runtime.messages import ToolResult, encodable
from agent_runtime.models.tokens import count_text
from agent_runtime.prompt.truncate import share_result_budget
from agent_runtime.run.tool_calls import abandoned_results, reopen
from agent_runtime.tools.toolset import Toolset
from agent_runtime.tools.workspace import command_records as commands
from agent_runtime_storage.contract.records.log import (
    ACTIVE,
    Commit,
    Finish,
    Lease,
    LeaseOwner,
    Run,
)
from agent_runtime_storage.contract.store import UserStore

END_SECONDS = 10.0
"""How long recording the end of a cancelled or failed run may take."""
LEFT_SECONDS = 0.2
"""How often a run below one that was taken over is looked at until it can be resumed."""
DEAD_RESULT_TOKENS = 4000
"""The tokens that an exchange's results may show when its run ends without its model."""


async def take_lease(store: UserStore, run: Run) -> Lease:
    """Take over the lease of a run for this process, if the run has not changed since it was read.

    Commands that its former owner left running on this machine are ended.
    """
    lease = await store.runs.take_lease(
        run.id,
        leases.this_process_owner(),
        seconds=leases.LEASE_SECONDS,
        replaces=run.epoch,
        was=run.status,
    )
    # Not earlier: until the lease is taken, the former owner may be alive and need its commands.
    await anyio.to_thread.run_sync(commands.end_of_run, run.id)
    return lease


async def take_log(store: UserStore, run: Run, emit: Callable[[Event], None]) -> tuple[RunLog, Run]:
    """Take over a run that nobody works on; return its log, and the run as it is now.

    Raises:
        LeaseLost: the run has changed since it was read.
        ThreadBusy: another run is active on its thread.
        Conflict: it has succeeded.
    """
    lease, interrupted = await run_shielded(take_lease(store, run))
    async with finish_on_error(store, lease):
        # Inside: the lease is held now, so a cancellation has to end the run.
        if interrupted is not None:
            raise interrupted
        return await _load(store, lease, emit)


async def _load(
    store: UserStore, lease: Lease, emit: Callable[[Event], None]
) -> tuple[RunLog, Run]:
    # The former owner may have written until the lease was taken, so read the run again.
    run = await store.runs.get(lease.run_id)
    thread = await store.threads.get(run.thread_id)
    view = await load_view(store, thread.id, thread.head)
    newest = await store.log.last_observation_id(thread.id)
    log = RunLog.of(store, lease, thread, view, last_observation=newest, steps=run.steps, emit=emit)
    return log, run


@asynccontextmanager
async def finish_on_error(store: UserStore, lease: Lease) -> AsyncGenerator[None]:
    """End the run if the body fails, so that it is not left `running`."""
    try:
        yield
    except asyncio.CancelledError:
        # A cancelled run is over, so the calls of its open exchange get results.  After an error
        # the exchange stays open: the log may be what failed, and a resume can continue it.
        await _end_held(store, lease)
        raise
    except GeneratorExit:
        # The event loop has ended: nothing can be awaited any more.
        raise
    except BaseException as error:
        detail = str(error) if isinstance(error, AgentRuntimeError) else type(error).__name__
        await give_up(store, lease, Finish("failed", "error", encodable(detail)))
        raise


async def end_picked(store: UserStore, lease: Lease, finish: Finish) -> None:
    """End a run that nobody may continue, and the runs below it that died with its worker.

    Its open exchange gets what is known, so that a retry goes on after it.

    Raises:
        AgentRuntimeError: its thread cannot be read; nothing was written.
    """
    log, run = await _load(store, lease, lambda event: None)
    with anyio.move_on_after(leases.LEASE_SECONDS):
        await _end_below(store, run)
    await _end(log, run, finish)


async def _end_held(store: UserStore, lease: Lease) -> None:
    with anyio.move_on_after(END_SECONDS, shield=True):
        try:
            await _end(*await _load(store, lease, lambda event: None))
        except AgentRuntimeError:
            # The thread is corrupt; the lease alone still ends the run.
            await give_up(store, lease, cancelled_finish())


async def give_up(store: UserStore, lease: Lease, finish: Finish) -> None:
    """End a run by its lease alone; an open exchange stays open for a resume.

    If the store cannot be reached, the lease expires later.
    """
    commit = Commit(finish=finish, events=(finish_event(finish),))
    with anyio.move_on_after(END_SECONDS, shield=True), suppress(StoreError):
        await store.runs.commit(lease, commit)


async def end_if_dead(store: UserStore, run: Run) -> bool:
    """End an active run that nobody works on; return whether it was ended here.

    False also if another process took it over, ended it or deleted its thread first.
    """
    if run.status not in ACTIVE or not leases.is_dead(run):
        return False
    with leases.at_work(run.id), suppress(Conflict, NotFound):
        await end_dead(store, run)
        return True
    return False


async def end_dead(store: UserStore, run: Run) -> None:
    """End a run whose process is dead as cancelled; its open exchange gets what is known."""
    log, run = await take_log(store, run, lambda event: None)
    async with finish_on_error(store, log.lease):
        await _end(log, run)


async def _end(log: RunLog, run: Run, finish: Finish | None = None) -> None:
    finish = finish or cancelled_finish()
    node = run.open_node and await log.store.log.node(run.thread_id, run.open_node)
    if not node or node.parent_id != log.head:
        # The head of a run that had ended may be on another branch than its open exchange.
        await log.append([], finish=finish)
        return
    # The agent is not known here, and so not which of its tools are idempotent; none of the calls
    # runs again, so it does not matter.
    log.exchange, _ = reopen(node, Toolset(()))
    log.exchange.asked = await calls_that_asked(log.store, run.id, node.seq)
    done = abandoned_results(log.exchange)
    results = log.exchange.results | done
    texts = [results[index].text for index in range(len(results))]
    shown = share_result_budget(texts, DEAD_RESULT_TOKENS, count_text)
    await log.close(done, shown, finish=finish)


def check_resumable(run: Run) -> None:
    """Refuse a run that was imported, or has no task. Raises `Conflict`."""
    check_own(run)
    if is_queued(run):
        raise Conflict(
            f"Run {run.id} has not begun: it waits in the queue.",
            cure="Start a worker (`agent-runtime worker`), or cancel it.",
        )
    if RunSpec.of(run).upkeep:
        raise Conflict(
            f"Run {run.id} maintained the memory of its thread; it has no task to resume.",
            cure="Start a new run on the thread.",
        )


def is_queued(run: Run) -> bool:
    """Return whether a run of the queue has not begun, so that its task is not in the log yet."""
    return run.task_id is None and run.max_steps == 0 and not RunSpec.of(run).upkeep


def check_own(run: Run) -> None:
    """Refuse to resume an imported run: imported data starts nothing. Raises `Conflict`."""
    if run.stop_reason == "imported":
        raise Conflict(
            f"Run {run.id} was imported, so it cannot be resumed.",
            cure=f"Start a new run on its thread, {run.thread_id}, or vouch for the import by "
            "`imported=True` (`resume --imported`).",
        )


async def left_by_others(store: UserStore, run: Run) -> Run:
    """Return a run below one that this process has taken over, once it can be resumed.

    Its former process has lost it with the run above, and stops it as soon as it notices.  If that
    process stands still, or is one of another machine that has died, the lease expires: only a
    little later than that of the run above, which was renewed with it.
    """
    while run.status in ACTIVE and run.lease_live and not leases.is_dead(run):
        if leases.is_own(run):
            break
        await anyio.sleep(LEFT_SECONDS)
        run = await store.runs.get(run.id)
    return run


def check_free(run: Run, *, inherited: bool = False) -> None:
    """Refuse to take over a run that a live process works on. Raises `ThreadBusy`.

    Args:
        inherited: whether this process holds the run above.  Then an expired lease is enough, also
            of a process of this machine that stands still.
    """
    if inherited and not run.lease_live and not leases.is_own(run):
        return
    if run.status in ACTIVE and not leases.is_dead(run):
        raise ThreadBusy(
            f"Run {run.id} is already running.",
            run_id=run.id,
            cure="Wait for it, or cancel it.",
        )


async def name_left_commands(
    run: Run, owner: LeaseOwner | None, exchange: Exchange, unverified: dict[int, ToolResult]
) -> None:
    """Add to the results of interrupted commands which of their processes may still run."""
    if not unverified:
        return
    left = await anyio.to_thread.run_sync(commands.end_of_run, run.id)
    for index, result in unverified.items():
        call = exchange.message.calls[index]
        if names := left.get(call.id):
            text = f"Some of its processes could not be ended: {', '.join(names)}."
        elif call.name == SHELL and owner is not None and leases.may_run_elsewhere(owner):
            text = f"It ran on {owner.host}: its processes may still run there."
        else:
            continue
        unverified[index] = replace(result, text=f"{result.text} {text}")


async def end_unresumed(log: RunLog, exchange: Exchange, finish: Finish | None) -> None:
    """End the dead sub-agents of calls that ran again and did not resume them.

    A call is refused whose arguments the agent's tools no longer take; nobody else continues what
    it began before.

    Args:
        exchange: the exchange that was open when the run was taken over.
        finish: how running its calls ended the run, if it did.
    """
    if finish is not None and finish.status == "suspended":
        # They run again when the run is resumed.
        return
    run = await log.store.runs.get(log.lease.run_id)
    await end_children(log.store, run, (), (), of={call.id for call in exchange.message.calls})


async def end_children(
    store: UserStore,
    run: Run,
    again: Collection[str],
    kept: Collection[str],
    of: Collection[str] | None = None,
) -> None:
    """End the descendants that died with the process that the run is taken over from.

    Args:
        again: the ids of the calls that run again; they resume the sub-agents that they began.
        kept: runs that are resumed in any case.
        of: the ids of the calls whose sub-agents it ends, and not those in the background, which
            other processes may be about to continue; all if None.
    """
    flow = RunSpec.of(run).workflow

    def goes_on(child: Run) -> bool:
        record = delegation_record(child)
        if child.id in kept or (record is not None and record.background and is_placed(child)):
            return True
        if child.parent_run_id != run.id:
            return False
        call = None if record is None else record.call
        if of is not None and (record is None or record.background or call not in of):
            return True
        # A workflow asks for its nodes again; the node's run continues with the answer.
        return call in again or (flow and is_waiting(child))

    await _end_descendants(store, run, goes_on)


async def _end_below(store: UserStore, run: Run) -> None:
    """End the descendants that nobody works on, once their leases have expired, too.

    Those of the queue go on: if the run is tried again, its calls read what they found.
    """
    await _end_descendants(store, run, is_placed, patient=True)


async def _end_descendants(
    store: UserStore, run: Run, goes_on: Callable[[Run], bool], *, patient: bool = False
) -> None:
    """End the active runs below one, and leave what goes on or asks a person by itself.

    Args:
        goes_on: whether a run below is left as it is, with all that is below it.
        patient: wait until former processes have lost their runs.  A run that ends for good has
            nobody who would end them later; one that is resumed must not be held up, and leaves
            what may be alive.
    """
    tree = await store.runs.list(root_run_id=run.root_run_id, status=ACTIVE, limit=10_000)
    ended = {run.id}
    # Parents begin before their children, so one pass in this order reaches whole subtrees.
    for child in sorted(tree, key=lambda child: child.created_at):
        if child.parent_run_id not in ended or asks_apart(child) or goes_on(child):
            continue
        if patient:
            child = await left_by_others(store, child)
        elif not leases.is_dead(child):
            continue
        ended.add(child.id)
        await end_if_dead(store, child)
