"""Keep the leases of a process's runs: one poll and one renewal for all of them."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

import anyio
import anyio.to_thread

from agent_runtime.log import leases
from agent_runtime_storage import Store
from agent_runtime_storage.contract.errors import LeaseLost, StoreError
from agent_runtime_storage.contract.leases import HeldLease
from agent_runtime_storage.contract.records.log import Lease

POLL_SECONDS = 0.4
"""How often the runs' rows are read for requested cancellations, which `Runtime.cancel` promises to
reach within half a second."""
# At 0.4 s a poll, somewhat less than seven minutes.
_LAGS = 1000

_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class HeldRun:
    """A run whose lease this process holds.

    Attributes:
        root: the run at the root of its tree.
        alone: whether no other run waits for it; others stop with the run that waits.
        suspends: whether it stops at a step by itself when the runtime closes: it is alone, or the
            call that waits for it can be suspended too.
        at_tools: returns whether its tools are at work.
        renewed_at: when the lease was renewed last, by the monotonic clock.
        cancel: whether its cancellation was requested.
        lost: whether the last poll did not find the lease.
        closing: whether the runtime is closing, so that the run has to stop at its next step.
        stopped: whether the runtime stops it, because it did not stop by itself in time.
        ends: whether its own end is being written or is written, which gives up the lease.
        changed: set when one of these changed.
        leave_below: lets the runs that stop with this one stay as they are.
    """

    key: HeldLease
    root: str
    alone: bool
    at_tools: Callable[[], bool]
    suspends: bool
    renewed_at: float = field(default_factory=time.monotonic)
    cancel: bool = False
    lost: bool = False
    closing: bool = False
    stopped: bool = False
    ends: bool = False
    changed: anyio.Event = field(default_factory=anyio.Event)
    leave_below: Callable[[], None] = lambda: None

    @property
    def has_to_stop(self) -> bool:
        """Whether the run has to stop now by itself."""
        return self.cancel or (self.stopped and self.alone)


@contextmanager
def writing_for(held: HeldRun | None, *, ends: bool) -> Generator[None]:
    """Let the runs below a run stay as they are if a write in the context finds its lease lost.

    Args:
        ends: whether the write ends the run.
    """
    if held is None:
        yield
        return
    # Before the write: a poll may find the lease gone before the write's answer is here.
    held.ends = ends
    try:
        yield
    except LeaseLost:
        # A write may notice it before the next poll, and these are cancelled at once.
        held.leave_below()
        raise
    except BaseException:
        held.ends = False
        raise


class LeaseKeeper:
    """Polls and renews the leases of a process's runs.

    A task on the event loop does both for all runs at once.  While the loop is blocked, or its
    connection hangs, a thread renews them over a connection of its own.

    Args:
        connect: opens the store again, for the thread; None starts no thread.

    Attributes:
        runs: the runs at work.
        lost: how many leases other processes have taken over.
    """

    def __init__(self, store: Store, connect: Callable[[], Awaitable[Store]] | None = None) -> None:
        self._store = store
        self._connect = connect
        self.runs: dict[HeldLease, HeldRun] = {}
        self.lost = 0
        self._suspending = self._stopping = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._lags: deque[float] = deque(maxlen=_LAGS)
        self._task: asyncio.Task[None] | None = None
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    @contextmanager
    def holding(
        self, user_id: str, lease: Lease, at_tools: Callable[[], bool] = lambda: False
    ) -> Generator[HeldRun]:
        """Keep a lease until the context ends; call it from the event loop."""
        key = HeldLease(user_id, lease.run_id, lease.epoch)
        held = HeldRun(key, lease.root_run_id, not lease.is_child, at_tools, not lease.is_child)
        # Also a run that was about to begin when the others had to stop.
        held.closing, held.stopped = self._suspending and held.suspends, self._stopping
        held.leave_below = partial(self._leave_below, held)
        self.runs[held.key] = held
        self._idle.clear()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._keep())
        if self._thread is None and self._connect is not None:
            loop = asyncio.get_running_loop()
            # A daemon, because a program may exit without closing its runtime.
            self._thread = threading.Thread(
                target=self._stand_in, args=(loop,), name="agent-runtime-leases", daemon=True
            )
            self._thread.start()
        try:
            yield held
        finally:
            del self.runs[held.key]
            if not self.runs:
                self._idle.set()

    def may_suspend(self, held: HeldRun, *, alone: bool) -> None:
        """Let a child run stop at a step by itself when the runtime closes.

        Args:
            alone: whether no run waits for it.
        """
        held.alone, held.suspends, held.closing = alone, True, self._suspending

    async def idle(self) -> None:
        """Wait until no run is at work, child runs included."""
        await self._idle.wait()

    def suspend_all(self) -> None:
        """Let every run that can be suspended stop at its next step, now and from now on."""
        self._suspending = True
        for run in self.runs.values():
            run.closing = run.suspends

    def stop_all(self) -> None:
        """Stop every run, now and from now on, so that it can be resumed."""
        self._stopping = True
        for run in self.runs.values():
            run.stopped = True
            # The others are cancelled by the run that waits for them, which then stays as it was.
            if run.alone:
                run.changed.set()

    async def close(self) -> None:
        """End the task and the thread, and wait until they have ended."""
        self._closing.set()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        if self._thread is not None:
            await anyio.to_thread.run_sync(self._thread.join)

    @property
    def oldest(self) -> float:
        """Seconds since the lease was renewed that was renewed longest ago; 0 without runs."""
        now = time.monotonic()
        # A copy: the thread calls this while the event loop adds and removes runs.
        return max((now - held.renewed_at for held in list(self.runs.values())), default=0.0)

    def lag(self, share: float) -> float:
        """Return the seconds by which the loop was late, at most, in this share of the polls."""
        lags = sorted(self._lags)
        return lags[min(int(len(lags) * share), len(lags) - 1)] if lags else 0.0

    @property
    def open_exchanges(self) -> int:
        """How many runs have their tools at work."""
        return sum(held.at_tools() for held in self.runs.values())

    async def _keep(self) -> None:
        while self.runs:
            began = time.monotonic()
            await anyio.sleep(POLL_SECONDS)
            self._lags.append(max(0.0, time.monotonic() - began - POLL_SECONDS))
            held = list(self.runs.values())
            try:
                # After a third of a lease's time, so that two thirds are left for a database that
                # does not answer.
                if self.oldest >= leases.LEASE_SECONDS / 3:
                    await _renew(self._store, held)
                await self._poll(held)
            except StoreError as error:
                # A run's next write decides whether it can continue.
                _log.info("The runs were not polled: %s", type(error).__name__)
            except Exception:
                # Without this task no run could be cancelled, and all would be taken over.
                _log.exception("The runs were not polled.")

    async def _poll(self, held: Sequence[HeldRun]) -> None:
        found = await self._store.leases.poll([run.key for run in held])
        for run in held:
            if self.runs.get(run.key) is not run:
                # It ended meanwhile.
                continue
            if run.key not in found:
                run.lost = True
                if not run.ends:
                    self._leave_below(run)
                run.changed.set()
            elif found[run.key] and not run.cancel:
                run.cancel = True
                run.changed.set()

    def _leave_below(self, lost: HeldRun) -> None:
        """Let the runs that stop with a lost one stay as they are: whoever has that goes on."""
        for run in self.runs.values():
            if run.root == lost.root and not run.alone:
                run.stopped = True

    # In the thread

    def _stand_in(self, loop: asyncio.AbstractEventLoop) -> None:
        # The task renews after a third of a lease's time.  Half of it has passed only if the task
        # cannot, and half of it is left.  A closed loop has left its runtime open: its runs are
        # over.
        while not self._closing.wait(leases.LEASE_SECONDS / 6) and not loop.is_closed():
            if self.oldest >= leases.LEASE_SECONDS / 2:
                anyio.run(self._renew_apart)

    async def _renew_apart(self) -> None:
        assert self._connect is not None
        try:
            # A database that does not answer must not keep `close` waiting for the thread.
            with anyio.move_on_after(leases.LEASE_SECONDS / 3):
                store = await self._connect()
                try:
                    await _renew(store, list(self.runs.values()))
                finally:
                    with anyio.CancelScope(shield=True):
                        await store.close()
        except Exception as error:
            # The next round retries.  The error's text may contain a secret of the URL.
            _log.warning("The leases could not be renewed: %s", type(error).__name__)


async def _renew(store: Store, held: Sequence[HeldRun]) -> None:
    began = time.monotonic()
    renewed = await store.leases.renew([run.key for run in held], seconds=leases.LEASE_SECONDS)
    for run in held:
        if run.key in renewed:
            # From before the request: the database counts the lease from when it got it, so never
            # earlier.
            run.renewed_at = began
