"""What a runtime has once for all of its runs."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager

import anyio

from agent_runtime.concurrency import DetachedTasks, cancel
from agent_runtime.events import Event
from agent_runtime.log import leases
from agent_runtime.log.lease_keeper import LeaseKeeper
from agent_runtime.models.rate_limits.sharer import Sharer
from agent_runtime.run.process.admission import Admission
from agent_runtime.run.process.health import Health
from agent_runtime.run.process.listener import EventListener, OnEvent, Watcher
from agent_runtime.run.process.reindexer import reindex_outdated
from agent_runtime.run.process.sweeper import AgentFor, ResumeRun, StartTask, Sweeper
from agent_runtime.run.results import RunResult
from agent_runtime.run.takeover import END_SECONDS
from agent_runtime.tools.mcp.pool import McpConnections
from agent_runtime.tools.workspace.shell_session import ShellSessions
from agent_runtime_config import Settings
from agent_runtime_storage import Store

LATE_SECONDS = 1.0
"""A loop that is later than this in one of a hundred polls is reported as a problem."""

_log = logging.getLogger(__name__)


class RunHost:
    """The admission, leases and background tasks of a runtime's runs.

    Args:
        connect: opens the store again, for the thread that renews leases.

    Attributes:
        watchers: called with the owner of each run that begins work here.
    """

    def __init__(
        self,
        settings: Settings,
        store: Store,
        connect: Callable[[], Awaitable[Store]] | None = None,
    ) -> None:
        self._settings = settings
        self._store = store
        self._sweeping: asyncio.Task[None] | None = None
        self._reindexing: asyncio.Task[None] | None = None
        self._sharing: asyncio.Task[None] | None = None
        self.keeper = LeaseKeeper(store, connect)
        self.admission = Admission(settings.max_runs)
        self.background = DetachedTasks()
        self.mcp = McpConnections(settings.mcp_schema_bytes)
        self.shells = ShellSessions()
        self.watchers: list[Callable[[str], Watcher]] = []
        self._attended = Counter[str]()

    def listener(self, on_event: OnEvent, user: str) -> EventListener:
        """Return the listener of a user's run, for its caller and for who watches all runs."""
        return EventListener(on_event, [watch(user) for watch in self.watchers])

    def sweep_every(
        self, seconds: float, resume: ResumeRun, start_task: StartTask, agent_for: AgentFor | None
    ) -> None:
        """Sweep now and from time to time, until the host is drained."""
        sweeper = Sweeper(
            self._store, resume, start_task, agent_for, self.background, self._attended
        )
        self._sweeping = asyncio.create_task(sweeper.work(seconds))

    @contextmanager
    def attended(self, run_id: str) -> Generator[None]:
        """Keep sweeps from continuing a run, because a caller is about to resume it."""
        self._attended[run_id] += 1
        try:
            yield
        finally:
            self._attended[run_id] -= 1
            if not self._attended[run_id]:
                del self._attended[run_id]

    def reindex(self) -> None:
        """Index texts of earlier versions again in the background, until the host is drained."""
        self._reindexing = asyncio.create_task(reindex_outdated(self._store))

    def share_limits(self) -> None:
        """Share providers' rate limits with other processes, until the host is closed."""
        self._sharing = asyncio.create_task(Sharer(self._store.rate_shares).work())

    async def admitted(
        self, listener: EventListener, work: Callable[[], Awaitable[RunResult]], run_id: str = ""
    ) -> RunResult:
        """Wait for a place, do the work, and wait until the listener has seen all of its events."""

        def queued(ahead: int) -> None:
            listener(Event("run-queue", "", run_id, data={"ahead": ahead}))

        async with self.admission.admitted(queued):
            try:
                return await work()
            finally:
                await listener.flush()
                listener.close()

    async def drain(self, drain: float | None = None, pause: float | None = None) -> None:
        """Admit no more runs, and leave none at work; see `Runtime.drain`."""
        settings = self._settings
        drain = settings.drain_timeout if drain is None else drain
        pause = settings.pause_timeout if pause is None else pause
        self.admission.close()
        # Before the runs: a sweep would continue what is about to be suspended.
        for task in (self._sweeping, self._reindexing):
            if task is not None:
                await cancel(task)
        with anyio.move_on_after(drain):
            await self.admission.idle()
            # Background runs too; they are not counted there.
            await self.keeper.idle()
        if self.admission.working or self.keeper.runs:
            self.keeper.suspend_all()
            await self._idle_within(pause)
        self.keeper.stop_all()
        # A tool may ignore its cancellation; then the run's lease expires.
        if not await self._idle_within(END_SECONDS):
            _log.warning("%d runs did not stop: a tool holds them up.", self.admission.working)
        await self.background.close()
        await self.shells.close()

    async def _idle_within(self, seconds: float) -> bool:
        with anyio.move_on_after(seconds):
            await self.admission.idle()
            await self.keeper.idle()
        return not self.admission.working

    async def close(self) -> None:
        """End the background tasks that began since the drain, MCP servers, then the keeper."""
        await self.background.close()
        await self.mcp.close()
        await self.shells.close()
        if self._sharing is not None:
            await cancel(self._sharing)
        # Last: until here a run that did not stop keeps its lease, so nobody works on it twice.
        await self.keeper.close()

    def health(self) -> Health:
        """Return how the runs of this process are doing."""
        keeper, admission = self.keeper, self.admission
        p50, p99 = keeper.lag(0.5), keeper.lag(0.99)
        problems: list[str] = []
        if p99 > LATE_SECONDS:
            problems.append(
                f"The event loop was {p99:.1f} s late: a tool or a callback blocks it. Make the "
                "tool a plain function, which runs in a thread."
            )
        if keeper.oldest > leases.LEASE_SECONDS:
            problems.append(
                f"A lease was not renewed for {keeper.oldest:.0f} s, so another machine may take "
                "its run over. Check that the database can be reached."
            )
        return Health(
            running=len(keeper.runs),
            waiting=admission.waiting,
            background=len(self.background),
            open_exchanges=keeper.open_exchanges,
            loop_lag_p50=p50,
            loop_lag_p99=p99,
            lease_age=keeper.oldest,
            leases_lost=keeper.lost,
            closing=admission.closed,
            problems=tuple(problems),
        )
