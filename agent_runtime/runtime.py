"""The composition root: opens the store and the models; admits runs to be begun and resumed."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import anyio

from agent_runtime.agent import Output, Runnable
from agent_runtime.concurrency import finished
from agent_runtime.executor import RunExecutor, offline_model
from agent_runtime.files.attach import Attachable
from agent_runtime.human.interruptions import Decisions, resolutions_of
from agent_runtime.human.questions import OnQuestion
from agent_runtime.log import branches
from agent_runtime.log.run_spec import RunSpec
from agent_runtime.memory.observational import models as memory_roles
from agent_runtime.memory.recall.configure import RecallService
from agent_runtime.messages import UserMessage
from agent_runtime.models.base import Model
from agent_runtime.models.tokens import load_vocabulary
from agent_runtime.run.budget import tree_budget
from agent_runtime.run.control import RunControl
from agent_runtime.run.imported_threads import vouch_for
from agent_runtime.run.memory_maintenance import ThreadMemory
from agent_runtime.run.process.connect import store_connector
from agent_runtime.run.process.detached import starting
from agent_runtime.run.process.host import RunHost
from agent_runtime.run.process.listener import EventListener, OnEvent, ignore
from agent_runtime.run.process.sweeper import AgentFor
from agent_runtime.run.queue.background_tasks import resuming_task
from agent_runtime.run.queue.enqueue import Agents
from agent_runtime.run.queue.tokens import carrier_of
from agent_runtime.run.queue.worker import Starter, Worker
from agent_runtime.run.results import RunResult, streaming
from agent_runtime.workflow.definition import checked_runnable
from agent_runtime.workflow.values import to_plain_json
from agent_runtime_config import Settings
from agent_runtime_storage import Store
from agent_runtime_storage.contract.records.log import Run
from agent_runtime_storage.contract.store import UserStore

if TYPE_CHECKING:
    from agent_runtime.models.retrieval.embedding import Embedder


class Runtime(RunControl):
    """An open store and the runs on it. Use `Runtime.open`.

    Methods that run an agent return a `RunResult` when the run ends, also by its limits, and raise
    errors of `agent_runtime.errors` when it fails; the log keeps it, and `resume` continues it.
    Cancelling the caller cancels the run: finished work is recorded, open calls are closed, and the
    run can be resumed.
    """

    def __init__(
        self,
        settings: Settings,
        store: Store,
        model: Model | None = None,
        recall: RecallService | None = None,
        program: str = "",
        connect: Callable[[], Awaitable[Store]] | None = None,
        memory_models: memory_roles.MemoryModels | None = None,
    ) -> None:
        self.settings = settings
        self.program = program
        self.store = store
        self.model = model
        self._recall = recall
        self._memory_models = memory_models
        self.host = RunHost(settings, store, connect)
        self.executor = RunExecutor(settings, self.host, model, recall, memory_models)
        self._closing = anyio.Lock()

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        settings: Settings | None = None,
        *,
        model: Model | None = None,
        observer: memory_roles.ObserverChoice | None = None,
        reflector: memory_roles.ReflectorChoice | None = None,
        embedder: Embedder | None = None,
        program: str = "",
        agents: AgentFor | None = None,
    ) -> AsyncGenerator[Runtime]:
        """Open the store that the settings name; leaving the context calls `close`.

        Args:
            settings: None reads the environment.
            model: for agents that name none; None uses the settings' model, or the offline model
                if they name none.
            observer, reflector: instead of the settings'; a model's name, a model, or an `Observer`
                or `Reflector` of your own.
            embedder: for recall, instead of the settings' embedder.
            program: stored with the runs that begin here, so that a program can resume its own.
            agents: returns the agent or workflow that continues a run, or None; for the sweeps of
                `AGENT_RUNTIME_SWEEP`.

        Raises:
            ConfigError: a setting is not usable.
            StoreError: the database cannot be opened.
        """
        settings, own = memory_roles.choose_memory(settings, observer, reflector)
        recall, connect = RecallService.of(settings, embedder), store_connector(settings)
        if model is not None:
            # Before the store is open: loading takes more memory than all that follows.
            await load_vocabulary()
        store = await connect()
        # Another connection, because the store belongs to the event loop that may be blocked.
        runtime = cls(settings, store, model, recall, program, partial(connect, migrate=False), own)
        runtime.host.admission.check_loop()
        runtime.host.reindex()
        runtime.host.share_limits()
        if settings.sweep:
            runtime.host.sweep_every(
                settings.sweep, runtime._continue, runtime.executor.left_tasks.swept, agents
            )
        try:
            yield runtime
        finally:
            await runtime.close()

    async def close(self, drain: float | None = None, pause: float | None = None) -> None:
        """Drain the runtime (see `drain`), then close its store; safe to call twice.

        Cancellation: it is finished first.
        """
        await finished(self._close(drain, pause))

    async def _close(self, drain: float | None, pause: float | None) -> None:
        async with self._closing:
            # A second call finds nothing that works.
            await self.host.drain(drain, pause)
            if self._recall is not None:
                await self._recall.close()
            await self.host.close()
            await self.store.close()

    async def run(
        self,
        agent: Runnable[Output],
        task: str | UserMessage | None,
        *,
        files: Sequence[Attachable] = (),
        thread: str | None = None,
        user: str | None = None,
        deps: Any = None,
        spec: Mapping[str, Any] | None = None,
        user_context: Mapping[str, Any] | None = None,
        run_id: str | None = None,
        on_event: OnEvent = ignore,
        on_question: OnQuestion | None = None,
    ) -> RunResult[Output]:
        """Run a task by an agent or a workflow, until it ends or waits for a person.

        Args:
            task: None answers the user's message at the thread's head (again).
            files: attached to the task: paths, URLs, `File`s, or references that `files.upload`
                returned.
            thread: the thread to continue, created if it does not exist; None for a new one, or
                for the one of this user and workflow.
            user: the owner; None for the settings' user.
            deps: passed to tools as `ToolContext.deps`.
            spec: stored with the run, for whoever resumes it; must not hold secrets.
            user_context: what tools and workflows may know of the user, as JSON; stored with the
                run and inherited by its child runs.
            run_id: a new UUID for the run, of a caller that may have to ask twice for one run.
            on_event: called with each event, in order, on the event loop; awaited if it is async.
                Its errors are logged and change nothing.
            on_question: called with each question that the run waits for; then the run is resumed.
                Without it, or if it returns None, the result is `suspended` and has `questions`.

        Raises:
            ThreadBusy: the thread has an active run already.
            Conflict: a run has this `run_id` already.
            InvalidFile: a file is empty, too large, or cannot be read.
            RuntimeClosed: the runtime is closing.
        """
        run_spec = RunSpec(caller=spec or {}, program=self.program).with_context(
            to_plain_json(user_context) if user_context else None
        )
        listener = self.host.listener(on_event, self.store_of(user).user_id)
        work = partial(
            self.executor.run, self.store_of(user), agent, task, thread=thread, deps=deps,
            spec=run_spec, on_event=listener, files=files, run_id=run_id,
        )  # fmt: skip
        result = await self.host.admitted(listener, work)
        again = partial(self.resume, agent=agent, user=user, deps=deps, on_event=on_event)
        return await self._ask_and_resume(result, on_question, again, user)

    async def resume(
        self,
        run_id: str,
        agent: Runnable[Output],
        *,
        user: str | None = None,
        deps: Any = None,
        on_event: OnEvent = ignore,
        on_question: OnQuestion | None = None,
        rerun: Collection[str] = (),
        accept: Mapping[str, Any] = MappingProxyType({}),
        fail: Mapping[str, str] | Collection[str] = (),
        imported: bool = False,
    ) -> RunResult[Output]:
        """Continue a run that waits, or that a crash, a limit, an error or a cancellation ended.

        Recorded results stay.  A call that was in progress when its process died runs again only if
        its tool is idempotent, or a person says so.  Otherwise an agent with `asking=True` asks a
        person, another one's model reads that the effect is unverified, and a workflow's node
        raises `NodeFailed`.  A run that had used up its steps gets as many again.

        Args:
            agent: of the run; of a background task, the agent that delegated it.
            rerun, accept, fail: what is to become of such calls, also of sub-agents' (see
                `interrupted`), by tool, node or id: run it again; take a value as its result; let
                it fail, with a reason if it is a mapping.
            imported: also continue an imported run, whose file its model believes.  Calls that
                waited were refused; approvals, budget and steps are those of this owner.

        Raises:
            ThreadBusy: it is running already, or another run is active on its thread.
            Conflict: it has succeeded, or its thread has continued without it.
            NotFound: this owner has no such run.
            QuestionsOpen: it waits for answers that are not there yet.
            ConfigError: it is the run of a workflow and not of an agent, or the reverse; or no
                interrupted call has a name that was given.
        """
        store = self.store_of(user)
        listener = self.host.listener(on_event, store.user_id)
        decisions = Decisions(resolutions_of(rerun, accept, fail))

        async def resumed() -> RunResult[Output]:
            run = await store.runs.get(run_id)
            if imported:
                run = await vouch_for(store, run, tree_budget(self.settings))
            return await self._resume(store, run, agent, listener, deps, decisions)

        result = await self.host.admitted(listener, resumed, run_id)
        again = partial(self.resume, agent=agent, user=user, deps=deps, on_event=on_event)
        return await self._ask_and_resume(result, on_question, again, user)

    stream = streaming("stream", run)
    """Like `run`, in a context that gives the events; leaving it cancels the run."""
    resume_stream = streaming("resume_stream", resume)
    """Like `resume`, in a context that gives the events; leaving it cancels the run."""
    start = starting("start", run)
    """Like `run`, but return a `StartedRun` once the run is recorded; it goes on by itself."""
    start_resumed = starting("start_resumed", resume)
    """Like `resume`, but return a `StartedRun` once that is recorded; the run goes on by itself."""

    async def regenerate(
        self,
        agent: Runnable[Output],
        thread: str,
        *,
        user: str | None = None,
        deps: Any = None,
        on_event: OnEvent = ignore,
    ) -> RunResult[Output]:
        """Answer the thread's newest user message again; the present answer stays as a sibling.

        Raises `NotFound` and `ThreadBusy` as `run` does.
        """
        store = self.store_of(user)
        listener = self.host.listener(on_event, store.user_id)
        # If the process dies after this, `run` without a task answers the message.
        await branches.regenerate(store, thread)
        spec = RunSpec(program=self.program)
        run = partial(self.executor.run, store, agent, None, thread=thread, deps=deps, spec=spec)
        return await self.host.admitted(listener, partial(run, on_event=listener))

    @property
    def memory(self) -> ThreadMemory:
        """The memory of threads: report it, observe or condense it on request."""
        return ThreadMemory(
            self.settings, self.store, self.model, offline_model, tree_budget(self.settings),
            self.host.keeper, self._memory_models,
        )  # fmt: skip

    async def work(
        self, app: Agents, *, concurrency: int = 4, deps: Any = None, on_event: OnEvent = ignore
    ) -> None:
        """Work on an application's queued runs, until it is cancelled or the runtime closes.

        Cancellation: it picks no more; its runs go on until `close`, which hands them over.

        Args:
            concurrency: how many runs work at once here, at most `AGENT_RUNTIME_MAX_RUNS`.
            deps, on_event: of each run, as for `run`.
        """
        self.host.admission.check_loop()
        resume = partial(self._resume_picked, deps=deps, on_event=on_event)
        starter = Starter(self.host, partial(self.executor.run, deps=deps), resume, on_event)
        parts = self.store, self.host, self.settings, app, starter, concurrency
        await Worker(*parts, carrier_of(self.settings)).work()

    async def _resume_picked(
        self, store: UserStore, run: Run, agent: Runnable[Any], *, deps: Any, on_event: OnEvent
    ) -> RunResult[Any]:
        """Resume a run as it was read after a pick: a worker may be late, and it may have ended."""
        listener = self.host.listener(on_event, store.user_id)
        resumed = partial(self._resume, store, run, agent, listener, deps, Decisions())
        return await self.host.admitted(listener, resumed, run.id)

    async def _resume(
        self,
        store: UserStore,
        run: Run,
        agent: Runnable[Any],
        listener: EventListener,
        deps: Any,
        decisions: Decisions,
    ) -> RunResult[Any]:
        async with resuming_task(store, run, agent, self.host.mcp, self.settings) as its:
            return await self.executor.resume(
                store, run, its, listener, deps=deps, decisions=decisions
            )

    async def _continue(self, run: Run, agent: Runnable[Any], user: str) -> RunResult[Any]:
        return await self.resume(run.id, checked_runnable(agent), user=user)
