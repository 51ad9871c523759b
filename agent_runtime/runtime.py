"""The composition root: opens the store and the models; starts, resumes and cancels runs."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import anyio

from agent_runtime.agent import Agent, Output, Runnable
from agent_runtime.concurrency import finished
from agent_runtime.delegation.request import DelegationServices
from agent_runtime.events import Event
from agent_runtime.files.attach import Attachable
from agent_runtime.human.interruptions import Decisions, resolutions_of
from agent_runtime.human.questions import OnQuestion
from agent_runtime.log import branches, leases
from agent_runtime.log.run_log import RunLog
from agent_runtime.log.run_spec import RunSpec
from agent_runtime.memory.node.upkeep import prune_daily
from agent_runtime.memory.observational import models as memory_roles
from agent_runtime.memory.recall.configure import RecallService
from agent_runtime.messages import LoggedMessage, UserMessage, encodable
from agent_runtime.models.base import Model
from agent_runtime.models.tokens import load_vocabulary
from agent_runtime.plan.planner import Planner
from agent_runtime.prompt.attachments import ContentCache
from agent_runtime.prompt.view import Entry
from agent_runtime.run import node_memory
from agent_runtime.run.budget import require_room, tree_budget
from agent_runtime.run.control import RunControl, check_answered
from agent_runtime.run.imported_threads import vouch_for
from agent_runtime.run.lifecycle import RunDriver, execute_run
from agent_runtime.run.loop import AgentLoop
from agent_runtime.run.memory_maintenance import ThreadMemory
from agent_runtime.run.process.connect import store_connector
from agent_runtime.run.process.detached import starting
from agent_runtime.run.process.host import RunHost
from agent_runtime.run.process.listener import OnEvent, ignore
from agent_runtime.run.process.sweeper import AgentFor
from agent_runtime.run.process.tracing import traced, traced_again
from agent_runtime.run.queue.background_tasks import resuming_task
from agent_runtime.run.queue.control import cancel_tree
from agent_runtime.run.queue.enqueue import Agents
from agent_runtime.run.queue.task_continuation import TaskContinuation, tasks_left_by
from agent_runtime.run.queue.tokens import carrier_of
from agent_runtime.run.queue.worker import Starter, Worker
from agent_runtime.run.resolve import RunSetup, check_setup, resolve_run, with_servers
from agent_runtime.run.results import RunResult, result_of, streaming
from agent_runtime.run.start import RunRequest, begin_new_run, take_over
from agent_runtime.run.state import RunState
from agent_runtime.run.takeover import check_free
from agent_runtime.run.tool_context import ToolContexts, child_resumption
from agent_runtime.tools.workspace.reading.seen_files import SeenFiles
from agent_runtime.workflow.definition import Workflow, check_kind, checked_runnable, loop_of
from agent_runtime.workflow.values import to_plain_json
from agent_runtime_config import Settings
from agent_runtime_storage import Store, UserStore
from agent_runtime_storage.contract.ids import new_id
from agent_runtime_storage.contract.records.log import Budget, Lease, Run

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
        self.left = TaskContinuation(self.host, settings, self._resume)
        self._contents = ContentCache()
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
            runtime.host.sweep_every(settings.sweep, runtime._continue, runtime.left.swept, agents)
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
            self._run, self.store_of(user), agent, task, thread=thread, deps=deps, spec=run_spec,
            on_event=listener, files=files, run_id=run_id,
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
            async with resuming_task(store, run, agent, self.host.mcp, self.settings) as its:
                return await self._resume(store, run, its, listener, deps=deps, decisions=decisions)

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
        run = partial(self._run, store, agent, None, thread=thread, deps=deps, spec=spec)
        return await self.host.admitted(listener, partial(run, on_event=listener))

    @property
    def memory(self) -> ThreadMemory:
        """The memory of threads: report it, observe or condense it on request."""
        return ThreadMemory(
            self.settings, self.store, self.model, _offline_model, tree_budget(self.settings),
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
        resume = partial(self.resume, deps=deps, on_event=on_event)
        starter = Starter(self.host, partial(self._run, deps=deps), resume, on_event)
        parts = self.store, self.host, self.settings, app, starter, concurrency
        await Worker(*parts, carrier_of(self.settings)).work()

    # From a request to its run

    async def _continue(self, run: Run, agent: Runnable[Any], user: str) -> RunResult[Any]:
        return await self.resume(run.id, checked_runnable(agent), user=user)

    async def _run(
        self,
        store: UserStore,
        agent: Runnable[Any],
        task: str | UserMessage | None,
        /,
        *,
        deps: Any,
        spec: RunSpec,
        on_event: Callable[[Event], None],
        thread: str | None = None,
        parent: RunLog | None = None,
        before: Sequence[LoggedMessage] = (),
        files: Sequence[Attachable] = (),
        run_id: str | None = None,
        lease: Lease | None = None,
    ) -> RunResult[Any]:
        """Begin a run and drive it to its end.

        Args:
            parent: the log of the run that begins this one as its child.
            before: messages before the task.
            lease: of a queued run, which a worker has picked.
        """
        agent = checked_runnable(agent)
        budget = tree_budget(self.settings)
        if (root := parent.lease if parent else lease) is not None:
            # The settings may have changed since the root began; its row is what is enforced.
            budget = (await store.runs.get(root.root_run_id)).budget
        elif thread is None and isinstance(agent, Workflow):
            thread = agent.thread
        run_id = run_id or new_id()
        node = await node_memory.open_run(agent, store, run_id, task, thread=thread, parent=parent)
        child = parent is not None or (lease is not None and lease.is_child)
        # With node memory each run has its own thread.
        thread = new_id() if node or not thread else thread
        setup = await self._resolve(agent, store, thread, budget, deps, child=child)
        if node is not None and isinstance(agent, Agent):
            node = await node_memory.load_node_run(node, agent, store, setup.info.takes)
        if not child:
            await require_room(store, setup.limits, thread)
        spec = replace(spec, workflow=isinstance(agent, Workflow), node_memory=node and node.spec)
        request = RunRequest(
            run_id=run_id, thread_id=thread, agent=encodable(agent.name),
            task=node_memory.task_message(agent, task),
            # A tree has one budget, on its root.
            budget=budget if parent is None else Budget(),
            on_event=on_event, spec=spec, parent=parent, lease=lease,
            before=(*(node.before if node else ()), *before),
            left_out=node.left_out if node else 0,
            files=tuple(files), max_file_bytes=self.settings.max_file_bytes,
            max_message_chars=self.settings.max_message_chars,
        )  # fmt: skip
        # Marked before the lease exists: no process may take its owner for idle in between.
        with leases.at_work(run_id), traced(request, self.settings) as request:
            log, first = await begin_new_run(store, setup, request)
            state = self._state(
                log, setup, request.spec, Decisions(), task=first, limit=setup.max_steps
            )
            return await self._drive(state, agent, node)

    async def _resume(
        self,
        store: UserStore,
        run: Run,
        agent: Runnable[Any],
        on_event: Callable[[Event], None],
        *,
        deps: Any,
        decisions: Decisions,
        inherited: bool = False,
    ) -> RunResult[Any]:
        """Take over a run and drive it to its end; `ThreadBusy` if it changed since it was read.

        Args:
            inherited: whether this process holds the run above.
        """
        agent = checked_runnable(agent)
        check_kind(run, agent)
        child = run.parent_run_id is not None
        budget = (await store.runs.get(run.root_run_id)).budget if child else run.budget
        setup = await self._resolve(agent, store, run.thread_id, budget, deps, child=child)
        check_free(run, inherited=inherited)
        await check_answered(store, run)
        decided = await decisions.of(store, run)
        tasks = await tasks_left_by(store, run)
        with leases.at_work(run.id), traced_again(run, agent.name, self.settings):
            taking = partial(take_over, store, run, setup, agent.name, on_event)
            taken = await taking(decided=decided, kept={*decisions.bound, *tasks})
            await self.left.of_root(taken.log, tasks, agent, deps)
            state = self._state(
                taken.log, setup, RunSpec.of(run), decisions,
                task=taken.task, limit=taken.step_limit, seen=taken.seen,
            )  # fmt: skip
            state.settled, state.decided, state.sent = taken.unverified, decided, not taken.paused
            state.guard.resumed = taken.resumed
            if isinstance(agent, Workflow):
                state.gate = replace(state.gate, asks=agent.asking)
            # Then the nodes of a workflow that failed last run again.
            retry = run.stop_reason in ("error", "budget")
            return await self._drive(state, agent, node_memory.resume_node_run(run), retry=retry)

    async def _resolve(
        self,
        agent: Agent[Any] | Workflow,
        store: UserStore,
        thread: str,
        budget: Budget,
        deps: Any,
        *,
        child: bool,
    ) -> RunSetup:
        resolved = agent.resolved_as if isinstance(agent, Workflow) else agent
        setup = await resolve_run(
            await with_servers(resolved, self.host.mcp, store.user_id),
            self.settings, self.model, _offline_model, store,
            thread_id=thread, child=child, budget=budget, deps=deps,
            # A workflow inside of another run has a thread without a history.
            remembers=isinstance(agent, Agent) or (agent.remembers and not child),
            memory_models=self._memory_models,
        )  # fmt: skip
        check_setup(setup, self.settings, budget, rules=not child, nodes=resolved is not agent)
        return setup

    def _state(
        self, log: RunLog, setup: RunSetup, spec: RunSpec, decisions: Decisions, *,
        task: Entry | None, limit: int, seen: SeenFiles | None = None,
    ) -> RunState:  # fmt: skip
        again = partial(self._resume, deps=setup.deps, decisions=decisions, inherited=True)
        resume, cancel = child_resumption(log, again), partial(cancel_tree, log.store)
        tools = ToolContexts(
            log=log, settings=self.settings, deps=setup.deps, user_context=spec.user_context,
            retriever=self._recall.of_run(log) if self._recall else None,
            run_child=self._run,
            planner=Planner(log),
            delegation=DelegationServices.of(self.settings, resume, self.host.background, cancel),
            resume_child=resume,
            shell=self.host.shells.of(log.store, log.lease.thread_id, log.lease.run_id),
            sources=setup.context.sources, hooks=setup.tools.hooks, seen=seen or SeenFiles.of(log),
        )  # fmt: skip
        return RunState.of(setup, tools, self.settings, self._contents, task=task, step_limit=limit)

    async def _drive(
        self,
        state: RunState,
        agent: Agent[Any] | Workflow,
        node: node_memory.NodeRun | None,
        *,
        retry: bool = False,
    ) -> RunResult[Any]:
        """Drive a run to its end and return how it ended."""
        driver: RunDriver = AgentLoop(state)
        if isinstance(agent, Workflow):
            driver = loop_of(agent, state, retry=retry)
        host, settings, log = self.host, self.settings, state.log
        finish = await execute_run(
            driver, settings=settings, keeper=host.keeper, background=host.background, node=node
        )
        if self._recall is not None:
            self._recall.end(log)
        if node is not None:
            await node.keep(log.store, log.lease)
            if days := settings.node_memory_keep_days:
                host.background.start(prune_daily(log.store, days=days))
        return await result_of(log.store, log.lease, finish, log.steps, state.setup.output)


def _offline_model() -> Model:
    from agent_runtime.offline import OfflineModel  # Only needed where no model is set.

    return OfflineModel()
