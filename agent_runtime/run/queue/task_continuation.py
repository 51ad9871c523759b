"""Continue background tasks whose process is gone: with their root, after an answer, by a sweep."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import anyio

from agent_runtime.agent import Runnable
from agent_runtime.delegation.background import left_tasks, until_answered, until_left
from agent_runtime.errors import AgentRuntimeError, Conflict, NotFound
from agent_runtime.events import AnyEvent
from agent_runtime.human.interruptions import Decisions
from agent_runtime.human.waiting import asks_apart
from agent_runtime.log.run_log import RunLog
from agent_runtime.log.run_spec import delegation_record
from agent_runtime.run.process.host import RunHost
from agent_runtime.run.queue.background_tasks import agent_run_of, resuming_task
from agent_runtime.run.results import RunResult
from agent_runtime.run.takeover import end_if_dead, finish_on_error
from agent_runtime_config import Settings
from agent_runtime_storage.contract.records.log import Run
from agent_runtime_storage.contract.store import UserStore

_log = logging.getLogger(__name__)


class ResumeRun(Protocol):
    """Takes over a run, and drives it to its end."""

    async def __call__(
        self,
        store: UserStore,
        run: Run,
        agent: Runnable[Any],
        on_event: Any,
        *,
        deps: Any,
        decisions: Decisions,
    ) -> RunResult[Any]: ...


class TaskContinuation:
    """Continues background tasks in a runtime's own tasks, as those that began there.

    They take no place of `AGENT_RUNTIME_MAX_RUNS`: the run that delegated them may wait for them.
    """

    def __init__(self, host: RunHost, settings: Settings, resume: ResumeRun) -> None:
        self._host = host
        self._settings = settings
        self._resume = resume
        self._begun: dict[str, anyio.Event] = {}

    async def of_root(
        self, log: RunLog, tasks: Mapping[str, Run], agent: Runnable[Any], deps: Any
    ) -> None:
        """Continue the tasks of a run that was taken over, once each is at work, or waits.

        One that cannot be continued is ended, so that its agent learns of it.  If this fails or is
        cancelled, so is the run.

        Args:
            agent: the run's, which delegated them.
        """
        # A call that was in progress runs again, and continues the task that it began.
        calls = log.exchange.message.calls if log.exchange else ()
        done = log.exchange.results if log.exchange else {}
        again = {call.id for index, call in enumerate(calls) if index not in done}
        async with finish_on_error(log.store, log.lease):
            for run in tasks.values():
                record = delegation_record(run)
                if record is None or record.call not in again:
                    await self.start(log.store, run, agent, deps=deps).wait()

    def start(
        self, store: UserStore, run: Run, agent: Runnable[Any], *, deps: Any = None
    ) -> anyio.Event:
        """Continue a task once it waits for nobody, unless that is being done here.

        Returns an event that is set when it is at work, waits for a person, or cannot be continued.

        Args:
            agent: that delegated it.
        """
        if (begun := self._begun.get(run.id)) is None:
            begun = self._begun[run.id] = anyio.Event()
            self._host.background.start(self._work(store, run, agent, deps, begun))
        return begun

    async def swept(
        self, store: UserStore, run: Run, agent_for: Callable[[Run], Runnable[Any] | None]
    ) -> None:
        """Continue a task that a sweep found, if there is an agent for it."""
        if (agent := agent_for(await agent_run_of(store, run))) is not None:
            self.start(store, run, agent)

    async def _work(
        self, store: UserStore, run: Run, agent: Runnable[Any], deps: Any, begun: anyio.Event
    ) -> None:
        try:
            found: Run | None = run
            if asks_apart(run):
                begun.set()
                # Its process may live, and resume it first.
                found = await until_left(store, run.id)
            while found is not None:
                await self._resume_once(store, found, agent, deps, begun)
                found = await until_answered(store, run.id)
        except (Conflict, NotFound):
            # Another process was faster, or the runtime closes.
            return
        except AgentRuntimeError as error:
            # The run's row says how it failed; the text may quote a provider.
            _log.warning("Task %s was not continued: %s", run.id, type(error).__name__)
            await end_if_dead(store, await store.runs.get(run.id))
        except asyncio.CancelledError:
            raise
        except Exception:
            _log.exception("Task %s was not continued.", run.id)
        finally:
            begun.set()
            del self._begun[run.id]

    async def _resume_once(
        self, store: UserStore, run: Run, agent: Runnable[Any], deps: Any, begun: anyio.Event
    ) -> None:
        def seen(event: AnyEvent) -> None:
            if event.kind == "run-start":
                begun.set()

        listener = self._host.listener(seen, store.user_id)
        try:
            async with resuming_task(store, run, agent, self._host.mcp, self._settings) as its:
                await self._resume(store, run, its, listener, deps=deps, decisions=Decisions())
        finally:
            await listener.flush()
            listener.close()


async def tasks_left_by(store: UserStore, run: Run) -> dict[str, Run]:
    """Return the tasks that a root delegated and its dead process left, by their ids."""
    left = [] if run.parent_run_id is not None else await left_tasks(store, run.id)
    return {task.id: task for task in left}
