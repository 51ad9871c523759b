"""A worker: pick runs of the queue for its free slots, and work on them."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import anyio

from agent_runtime.agent import Runnable
from agent_runtime.concurrency import finished
from agent_runtime.errors import (
    AgentRuntimeError,
    CorruptThread,
    LeaseLost,
    RuntimeClosed,
    StoreError,
    StoreUnavailable,
)
from agent_runtime.log import leases
from agent_runtime.log.run_log import CLOSED, cancelled_finish
from agent_runtime.log.run_spec import RunSpec
from agent_runtime.messages import UserMessage, decode_message, encodable
from agent_runtime.run.process.host import RunHost
from agent_runtime.run.process.listener import EventListener, OnEvent, ignore
from agent_runtime.run.queue.children import child_agent, deliver_end
from agent_runtime.run.queue.enqueue import Agents, limits_of
from agent_runtime.run.queue.schedules import start_due
from agent_runtime.run.results import RunResult
from agent_runtime.run.takeover import end_picked, give_up, is_queued
from agent_runtime_config import Settings
from agent_runtime_storage import Store, UserStore
from agent_runtime_storage.contract.leases import HeldLease
from agent_runtime_storage.contract.queue import Waiter
from agent_runtime_storage.contract.records.log import Finish, Run
from agent_runtime_storage.contract.records.queue import PickedRun

POLL_SECONDS = 1.0
"""The longest that a free slot waits for a run whose signal was lost."""
TOKEN_POLL_SECONDS = 5.0
"""The same while tokens arrive, so that many workers do not all search without need."""
LOOK_SECONDS = 2.0
"""How often a worker looks whether another process of its machine has died."""
MOST_BLAME = 2.0
"""A run with more blame ends, so that it brings down no more workers; see `PickedRun.blame`.

The loss of a third worker that had only this run is beyond it.  Each worker that was lost meanwhile
without having the run allows 1 more.
"""
MOST_TAKEOVERS = 10
"""A run that was taken over so often without a new step ends, whatever else was to blame."""
ELSEWHERE_SECONDS = 30.0
"""How long a run is put off that no agent of this worker may continue."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Starter:
    """Begins and resumes picked runs, as their runtime does.

    Args:
        begin: takes the store, the agent and the task of a run, and by name what else it needs.
        resume: takes the store, a run as it was read after its pick, and its agent; raises if the
            run has changed since.
    """

    host: RunHost
    begin: Callable[..., Awaitable[RunResult[Any]]]
    resume: Callable[..., Awaitable[RunResult[Any]]]
    on_event: OnEvent = ignore

    async def work_on(
        self, store: UserStore, picked: PickedRun, run: Run, agent: Runnable[Any]
    ) -> None:
        """Return when the run ends or is suspended."""
        if not is_queued(run):
            await self.resume(store, run, agent)
            return
        listener = EventListener(self.on_event)
        begin = partial(
            self.begin, store, agent, _task_of(picked), spec=RunSpec.of(run), on_event=listener,
            thread=run.thread_id, run_id=run.id, lease=picked.lease,
        )  # fmt: skip
        await self.host.admitted(listener, begin, run.id)


class Carrier(Protocol):
    """Brings the word that there may be work, from other processes."""

    async def carry(
        self, wake: Callable[[], Awaitable[None]], carrying: Callable[[bool], None]
    ) -> None:
        """Call `wake` when there may be work, until it is cancelled.

        Args:
            wake: returns when this worker has looked and has a free slot, so that words which it
                cannot use are left to others.
            carrying: called with whether words arrive, whenever that changes.
        """
        ...


class Worker:
    """Works on queued runs in this process.

    The runs are tasks of the host, which hands them over when the runtime closes.

    Args:
        slots: how many runs work at once.
        agents: what it can run.
        carrier: brings the word of other processes to one worker; without it, the store's own
            signals bring it to all.
    """

    def __init__(
        self,
        store: Store,
        host: RunHost,
        settings: Settings,
        agents: Agents,
        starter: Starter,
        slots: int,
        carrier: Carrier | None = None,
    ) -> None:
        self._store = store
        self._host = host
        self._agents = agents
        self._starter = starter
        # A run that was picked must not wait for a place here while it could begin elsewhere.
        self._slots = min(slots, settings.max_runs or slots)
        self._limits = limits_of(settings)
        self._settings = settings
        names, versions = agents.names, agents.versions
        self._known = [(agents.program, name, one) for name in names for one in versions]
        self._working: dict[HeldLease, PickedRun] = {}
        self._looked_at = self._renewed_at = self._started_at = float("-inf")
        self._carrier = carrier
        self._carried = False
        self._changed = anyio.Event()
        self._looks_begun = self._looks_ended = 0

    async def work(self) -> None:
        """Pick and start runs until it is cancelled, or the runtime closes."""
        with self._store.queue.listening() as waiter:
            async with anyio.create_task_group() as group:
                if self._carrier is not None:
                    group.start_soon(self._carrier.carry, partial(self.wake, waiter), self._carry)
                await self._look(waiter)
                group.cancel_scope.cancel()

    async def wake(self, waiter: Waiter) -> None:
        """Look for work now; return when that is done and a slot is free."""
        before = self._looks_begun
        waiter.wake()
        # A look that has begun may have read the rows too early.
        while self._looks_ended <= before or len(self._working) >= self._slots:
            await self._changed.wait()

    async def _look(self, waiter: Waiter) -> None:
        while not self._host.admission.closed:
            self._looks_begun += 1
            try:
                await self._tick(waiter)
            except StoreError as error:
                _log.warning("The queue could not be read: %s", type(error).__name__)
            except Exception:
                # Without this loop the worker would live on and do nothing.
                _log.exception("The queue could not be read.")
            self._looks_ended = self._looks_begun
            self._change()
            seconds = TOKEN_POLL_SECONDS if self._carried else POLL_SECONDS
            # Not all workers at the same instant.
            await waiter.wait(seconds * random.uniform(0.7, 1.0))

    def _carry(self, carried: bool) -> None:
        self._carried = carried

    def _change(self) -> None:
        # An anyio event cannot be cleared.
        self._changed.set()
        self._changed = anyio.Event()

    async def pick(self, waiter: Waiter) -> int:
        """Fill the free slots; return how many runs were picked."""
        count = 0
        while free := self._slots - len(self._working):
            picked = await self._store.queue.pick(
                free,
                self._known,
                leases.this_process_owner(),
                seconds=leases.LEASE_SECONDS,
                limits=self._limits,
            )
            for one in picked:
                key = HeldLease(one.user_id, one.lease.run_id, one.lease.epoch)
                self._working[key] = one
                # On the host, not in this task's group: the runs outlive the worker until `close`
                # hands them over.
                self._host.background.start(self._work(key, one, waiter))
            count += len(picked)
            # A limit, or two runs of one thread, may have left slots free.
            if not picked:
                break
        else:
            # There may be more than it could take.
            if count and self._carried:
                self._store.queue.wake()
        return count

    async def _tick(self, waiter: Waiter) -> None:
        await self._renew()
        await self._expel_dead()
        await self._start_due()
        await self.pick(waiter)

    async def _renew(self) -> None:
        """Renew the leases of runs that have not begun yet; the keeper renews the others."""
        held = [key for key in self._working if key not in self._host.keeper.runs]
        # As often as the keeper, so that two thirds of the lease are left for a slow database.
        if held and time.monotonic() - self._renewed_at >= leases.LEASE_SECONDS / 3:
            await self._store.leases.renew(held, seconds=leases.LEASE_SECONDS)
            self._renewed_at = time.monotonic()

    async def _expel_dead(self) -> None:
        """End the leases of processes of this machine that have died, instead of waiting."""
        if time.monotonic() - self._looked_at < LOOK_SECONDS:
            return
        self._looked_at = time.monotonic()
        held = await self._store.queue.owners(leases.this_process_owner())
        if dead := [key for key, owner in held if leases.is_gone(owner)]:
            await self._store.queue.expel(dead)

    async def _start_due(self) -> None:
        # Runs that end wake the worker more often than the minutes of a schedule need.
        if time.monotonic() - self._started_at < POLL_SECONDS / 2:
            return
        self._started_at = time.monotonic()
        try:
            await start_due(self._store)
        except Exception as error:
            # A schedule of one owner must not keep the worker from the runs of all.
            _log.warning("The schedules could not be read: %s", type(error).__name__)

    async def _work(self, key: HeldLease, picked: PickedRun, waiter: Waiter) -> None:
        store = self._store.of(picked.user_id)
        try:
            await self._drive(store, picked)
            # After the run's end: the message quotes its outcome from the log.
            if picked.lease.is_child:
                await deliver_end(store, picked.lease.run_id, self._settings.max_file_bytes)
        finally:
            del self._working[key]
            self._change()
            waiter.wake()

    async def _drive(self, store: UserStore, picked: PickedRun) -> None:
        leave = partial(give_up, store, picked.lease)
        # Each of these ends the run only if it has not begun, nor been taken over: `give_up` writes
        # under the lease that was picked, and only while the run is `running`.
        try:
            if not await self._is_left(picked):
                why = f"An earlier attempt on {leases.this_process_owner().host} does not end."
                await self._put_off(store, picked, why)
                return
            finish = await self._begin_or_resume(store, picked)
            if finish is not None:
                await leave(finish)
        except (LeaseLost, StoreUnavailable) as error:
            _log.info("Run %s was lost: %s", picked.lease.run_id, type(error).__name__)
        except RuntimeClosed:
            await leave(CLOSED)
        except anyio.get_cancelled_exc_class():
            await finished(leave(CLOSED))
            raise
        except AgentRuntimeError as error:
            # The text may quote a provider.
            _log.warning("Run %s failed: %s", picked.lease.run_id, type(error).__name__)
            await leave(Finish("failed", "error", encodable(str(error))))
        except Exception as error:
            _log.exception("Run %s failed.", picked.lease.run_id)
            await leave(Finish("failed", "error", f"Unexpected {type(error).__name__}"))

    async def _is_left(self, picked: PickedRun) -> bool:
        """Wait until this process has ended its earlier work on a run; return False if it does not.

        A process that stood still, or could not reach the database, may pick the run whose lease it
        has just lost.
        """
        with anyio.move_on_after(ELSEWHERE_SECONDS):
            while any(
                key.run_id == picked.lease.run_id and key.epoch < picked.lease.epoch
                for key in self._working
            ):
                await self._changed.wait()
            return True
        return False

    async def _put_off(self, store: UserStore, picked: PickedRun, why: str) -> None:
        """Leave a run to other workers for a while."""
        await give_up(store, picked.lease, Finish("suspended", "interrupted", why))
        await store.queue.postpone(picked.lease.run_id, ELSEWHERE_SECONDS, why)

    async def _begin_or_resume(self, store: UserStore, picked: PickedRun) -> Finish | None:
        """Work on the run; return how it ends without that, or None."""
        run = await store.runs.get(picked.lease.run_id)
        if run.epoch != picked.lease.epoch:
            # This process was late.  Another worker may have ended the run, or left it to a person.
            raise LeaseLost(
                f"Run {run.id} was picked again by another worker.", cure="Leave it to that one."
            )
        # Before anything of the run is built, since that may be what brings workers down.
        if _losses_beyond(picked) > 0:
            finish = _dead_letter(picked)
            # Whoever tried to end it with all that is open may have died of that, too.
            if is_queued(run) or _losses_beyond(picked) > 1:
                return finish
            return await _end_with_all(store, picked, finish)
        if run.cancel_requested and is_queued(run):
            return cancelled_finish()
        if run.parent_run_id is None:
            agent = self._agents.of_run(run)
        else:
            servers = self._host.mcp
            agent = await child_agent(store, run, self._agents, servers, self._settings)
        if agent is None:
            why = f"The worker on {leases.this_process_owner().host} may not continue it."
            await self._put_off(store, picked, why)
            return None
        await self._starter.work_on(store, picked, run, agent)
        return None


def _task_of(picked: PickedRun) -> UserMessage | None:
    """Return the task of a run that begins. Raises `CorruptThread`."""
    if picked.task is None:
        return None
    message = decode_message(picked.task.encode())
    if not isinstance(message, UserMessage):
        raise CorruptThread(f"The task of run {picked.lease.run_id} is no user's message.")
    return message


def _losses_beyond(picked: PickedRun) -> float:
    """Return by how many losses a run is beyond what is allowed; 0 or less if it is not."""
    allowed = MOST_BLAME + picked.others_lost
    # Shares of a third add up to a whole only nearly.
    return max(picked.blame - allowed - 1e-6, picked.takeovers - MOST_TAKEOVERS + 1.0)


async def _end_with_all(store: UserStore, picked: PickedRun, finish: Finish) -> Finish | None:
    """End a run with what is open of it; return how it ends without that, or None."""
    try:
        await end_picked(store, picked.lease, finish)
    except (LeaseLost, StoreUnavailable):
        raise
    except Exception as error:
        # Its thread may be what brings the workers down.
        _log.warning("Run %s ends as it is: %s", picked.lease.run_id, type(error).__name__)
        return finish
    return None


def _dead_letter(picked: PickedRun) -> Finish:
    return Finish(
        "failed",
        "dead_letter",
        f"{picked.takeovers} workers in a row died or lost their lease without a new step of it.",
    )
