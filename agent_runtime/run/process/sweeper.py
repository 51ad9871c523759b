"""Sweep from time to time, and continue what can be continued."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Container, Generator
from contextlib import contextmanager
from typing import Any, TypeAlias

import anyio

from agent_runtime.agent import Runnable
from agent_runtime.concurrency import DetachedTasks
from agent_runtime.errors import AgentRuntimeError, Conflict, NotFound
from agent_runtime.run.results import RunResult
from agent_runtime.run.sweep import sweep
from agent_runtime_storage import Run, Store, UserStore

AgentFor: TypeAlias = Callable[[Run], Runnable[Any] | None]
"""Returns the agent or workflow that continues a run; None to leave the run to others."""
ResumeRun: TypeAlias = Callable[[Run, Runnable[Any], str], Awaitable[RunResult[Any]]]
StartTask: TypeAlias = Callable[[UserStore, Run, AgentFor], Awaitable[None]]

_log = logging.getLogger(__name__)


@contextmanager
def _logged(message: str) -> Generator[None]:
    """Log an error instead of raising it."""
    try:
        yield
    except AgentRuntimeError as error:
        _log.warning("%s: %s", message, type(error).__name__)
    except Exception:
        _log.exception("%s.", message)


class Sweeper:
    """Sweeps the runs of all owners of a database, and continues those that its agents can.

    Args:
        resume: continues a run of an owner.
        start_task: continues a background task by itself, unless that is being done.
        agent_for: None continues nothing: dead runs are only suspended.
        tasks: where the continued runs work.
        attended: runs that callers in this process resume themselves.
    """

    def __init__(
        self,
        store: Store,
        resume: ResumeRun,
        start_task: StartTask,
        agent_for: AgentFor | None,
        tasks: DetachedTasks,
        attended: Container[str] = (),
    ) -> None:
        self._store = store
        self._resume = resume
        self._start_task = start_task
        self._agent_for = agent_for
        self._tasks = tasks
        self._attended = attended
        self._resuming: set[str] = set()

    async def work(self, seconds: float) -> None:
        """Sweep now, then again and again with this pause, until cancelled."""
        while True:
            with _logged("The sweep failed and is repeated"):
                for owner in await self._store.leases.owners_at_work():
                    # One owner's thread may be damaged: the others are swept all the same.
                    with _logged("The sweep of an owner failed and is repeated"):
                        await self._sweep(owner)
            await anyio.sleep(seconds)

    async def _sweep(self, owner: str) -> None:
        store, agent_for = self._store.of(owner), self._agent_for
        found = await sweep(store)
        if agent_for is None:
            return
        for run in found.resumable:
            if run.id in self._resuming or run.id in self._attended:
                continue
            with _logged(f"No agent was found for run {run.id}"):
                if (agent := agent_for(run)) is not None:
                    self._resuming.add(run.id)
                    self._tasks.start(self._continue(run, agent, owner))

        for run in found.tasks:
            with _logged(f"No agent was found for task {run.id}"):
                # A root that is continued as well takes its tasks along.
                if run.parent_run_id not in self._resuming:
                    await self._start_task(store, run, agent_for)

    async def _continue(self, run: Run, agent: Runnable[Any], owner: str) -> None:
        try:
            result = await self._resume(run, agent, owner)
            _log.info("Run %s was continued and is %s now.", run.id, result.status)
        except (Conflict, NotFound):
            # Another process was faster, or the runtime closes.
            return
        except Exception as error:
            # The run's row says how it failed; the text may quote a provider.
            _log.warning("Run %s was continued and failed: %s", run.id, type(error).__name__)
        finally:
            self._resuming.discard(run.id)
