"""The composition root: opens the store and the models; starts, resumes and cancels runs."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import anyio
import orjson

from agent_runtime.agent import Agent, Runnable
from agent_runtime.concurrency import DetachedTasks
from agent_runtime.delegation.request import DelegationServices
from agent_runtime.errors import ConfigError
from agent_runtime.events import Event
from agent_runtime.files.attach import Attachable, ThreadFiles
from agent_runtime.human.approval_rules import check_rules
from agent_runtime.human.gate import waits_for
from agent_runtime.human.questions import OnQuestion
from agent_runtime.log import branches, leases
from agent_runtime.log.heartbeat import LeaseHeartbeat
from agent_runtime.log.run_log import RunLog
from agent_runtime.log.run_spec import RunSpec
from agent_runtime.memory.node.upkeep import prune_daily
from agent_runtime.memory.recall.configure import RecallService
from agent_runtime.messages import LoggedMessage, UserMessage, encodable
from agent_runtime.models.base import Model
from agent_runtime.models.cost import require_price
from agent_runtime.models.embedding import Embedder
from agent_runtime.offline import offline_model
from agent_runtime.plan.planner import Planner, ThreadPlans
from agent_runtime.prompt.attachments import ContentCache
from agent_runtime.prompt.view import Entry
from agent_runtime.run import node_memory as node_runs
from agent_runtime.run.budget import in_money, limits_of, require_room, tree_budget
from agent_runtime.run.compose import compose
from agent_runtime.run.control import RunControl, check_answered
from agent_runtime.run.lifecycle import RunDriver, execute_run
from agent_runtime.run.loop import AgentLoop
from agent_runtime.run.memory_maintenance import ThreadMemory
from agent_runtime.run.resolve import RunSetup, resolve_run
from agent_runtime.run.results import RunResult, RunStream, streaming
from agent_runtime.run.start import RunRequest, begin_new_run, check_free, take_over
from agent_runtime.run.state import RunState
from agent_runtime.run.tool_context import ResumeChild, ToolContexts, child_listener
from agent_runtime.workflow.definition import Workflow, check_kind, loop_of
from agent_runtime.workflow.steps import to_plain_json
from agent_runtime_config import Settings, load_settings
from agent_runtime_config.approvals import approval_rules
from agent_runtime_storage import Store, UserStore, open_store
from agent_runtime_storage.contract.ids import new_id
from agent_runtime_storage.contract.records import Budget, Run, UsageTotal
from agent_runtime_storage.contract.spending_records import NO_LIMITS

_log = logging.getLogger(__name__)


def _ignore(event: Event) -> None:
    del event


def _checked(child: Runnable) -> Agent | Workflow:
    """Return what a tool or a workflow wants to run. Raises `ConfigError` if it cannot run."""
    if isinstance(child, Agent | Workflow):
        return child
    raise ConfigError(
        f"A {type(child).__name__} cannot be run.", cure="Pass an `Agent` or a `Workflow`."
    )


class Runtime(RunControl):
    """An open store and what runs on it. Use `Runtime.open`.

    Every method that runs an agent raises typed errors of `agent_runtime.errors` when the run
    fails for good (the log keeps it, and `resume` goes on from there), and returns a `RunResult`
    when it ends by its limits. Cancelling the caller cancels the run: what was done is recorded,
    open calls are closed, and the run can be resumed.
    """

    def __init__(
        self,
        settings: Settings,
        store: Store,
        model: Model | None = None,
        recall: RecallService | None = None,
        program: str = "",
    ) -> None:
        self.settings = settings
        self.program = program
        self.store = store
        self.model = model
        self._recall = recall
        self._renewer: LeaseHeartbeat | None = None
        self._background = DetachedTasks()
        self._contents = ContentCache()

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        settings: Settings | None = None,
        *,
        model: Model | None = None,
        embedder: Embedder | None = None,
        program: str = "",
    ) -> AsyncGenerator[Runtime]:
        """Open the store that the settings name, and close it at the end.

        Args:
            settings: None reads the environment.
            model: for agents that name none; None takes the settings' model, or without one the
                offline model.
            embedder: for recall, instead of the one that the settings name.
            program: kept with the runs that begin here, for a program that resumes only its own.

        Raises:
            ConfigError: a setting is not usable.
            StoreError: the database cannot be opened.
        """
        settings = settings or load_settings()
        recall = RecallService.of(settings, embedder)
        token = settings.database_auth_token
        connect = partial(
            open_store,
            settings.database_url,
            synchronous=settings.synchronous,
            auth_token=token.get_secret_value() if token else None,
            objects=settings.object_store_url,
        )
        store = await connect()
        runtime = cls(settings, store, model, recall, program)
        runtime._renewer = renewer = LeaseHeartbeat(partial(connect, migrate=False))
        try:
            yield runtime
        finally:
            with anyio.CancelScope(shield=True):
                if recall is not None:
                    await recall.close()
                await runtime._background.close()
                await renewer.close()
                await store.close()

    # Running

    async def run(
        self,
        agent: Agent | Workflow,
        task: str | UserMessage | None,
        *,
        files: Sequence[Attachable] = (),
        thread: str | None = None,
        user: str | None = None,
        deps: Any = None,
        spec: Mapping[str, Any] | None = None,
        user_context: Mapping[str, Any] | None = None,
        on_event: Callable[[Event], None] = _ignore,
        on_question: OnQuestion | None = None,
    ) -> RunResult:
        """Run a task to its end, by an agent or a workflow; or until it waits for a person.

        Args:
            task: None answers the user's message at the thread's head (again).
            files: attached to the task: paths, URLs, `File`s, or references that `files.upload`
                returned.
            thread: the thread to go on with, created if it is not there; None for a new one, or
                for the one that this user and workflow have.
            user: the owner; None for the settings' user.
            deps: handed to tools as `ToolContext.deps`.
            spec: kept with the run, for whoever resumes it; no secrets.
            user_context: what tools and workflows may know of the user, as JSON; kept with the run,
                and inherited by the runs inside of it.
            on_event: called with each event, in order, on the event loop.
            on_question: asked what the run waits for; then the run is resumed.  Without it, or
                when it gives None, the result is `suspended` and has the `questions`.

        Raises:
            ThreadBusy: the thread has an active run already.
            InvalidFile: a file is empty, too large, or cannot be read.
        """
        kept = RunSpec(caller=spec or {}, program=self.program).with_context(
            to_plain_json(user_context) if user_context else None
        )
        result = await self._run(
            agent, task, thread, user, deps, kept, on_event, parent=None, files=files
        )
        again = partial(self.resume, agent=agent, user=user, deps=deps, on_event=on_event)
        return await self._asked(result, on_question, again, user)

    @asynccontextmanager
    async def stream(
        self,
        agent: Agent | Workflow,
        task: str | UserMessage | None,
        *,
        files: Sequence[Attachable] = (),
        thread: str | None = None,
        user: str | None = None,
        deps: Any = None,
        spec: Mapping[str, Any] | None = None,
        user_context: Mapping[str, Any] | None = None,
        on_question: OnQuestion | None = None,
    ) -> AsyncGenerator[RunStream]:
        """Run a task and give its events as they happen; leaving the context cancels it."""

        async def start(on_event: Callable[[Event], None]) -> RunResult:
            return await self.run(
                agent,
                task,
                files=files,
                thread=thread,
                user=user,
                deps=deps,
                spec=spec,
                user_context=user_context,
                on_event=on_event,
                on_question=on_question,
            )

        async with streaming(start) as stream:
            yield stream

    async def resume(
        self,
        run_id: str,
        agent: Agent | Workflow,
        *,
        user: str | None = None,
        deps: Any = None,
        on_event: Callable[[Event], None] = _ignore,
        on_question: OnQuestion | None = None,
    ) -> RunResult:
        """Go on with a run that a crash, a limit, an error or a cancel ended, or that waits.

        What is recorded as done stays; a call that was under way when its process died runs again
        only if its tool is idempotent, else the model is told that its effect is unverified.  A
        run that had used up its steps gets as many again.

        Raises:
            ThreadBusy: it is running somewhere, or another run is active on its thread.
            Conflict: it has succeeded, or its thread went on without it.
            NotFound: this owner has no such run.
            QuestionsOpen: it waits for answers that are not there yet.
            ConfigError: it is a workflow's and not the agent's, or the other way round.
        """
        store = self.store.of(user or self.settings.user)
        result = await self._resume(store, await store.run(run_id), agent, deps, on_event)
        again = partial(self.resume, agent=agent, user=user, deps=deps, on_event=on_event)
        return await self._asked(result, on_question, again, user)

    async def _resume(
        self,
        store: UserStore,
        run: Run,
        agent: Agent | Workflow,
        deps: Any,
        on_event: Callable[[Event], None],
    ) -> RunResult:
        """Go on with a run; `ThreadBusy` if somebody has taken it over since it was read."""
        check_kind(run, agent)
        child = run.parent_run_id is not None
        root = await store.run(run.root_run_id) if child else run
        resolved = await self._resolve(
            agent, store, deps, root.budget, thread_id=run.thread_id, child=child
        )
        check_free(run)
        await check_answered(store, run)
        with leases.at_work(run.id):
            taken = await take_over(store, run, resolved, agent.name, on_event)
            state = self._state(
                taken.log, resolved, task=taken.task, limit=taken.limit, spec=RunSpec.of(run)
            )
            state.settled = taken.uncertain
            retry = run.stop_reason in ("error", "budget")
            loop = self._driver(state, agent, retry=retry)
            driver = node_runs.with_node_memory(loop, node_runs.resume_node_run(run))
            return await self._finish(driver, resolved)

    @asynccontextmanager
    async def resume_stream(
        self,
        run_id: str,
        agent: Agent | Workflow,
        *,
        user: str | None = None,
        deps: Any = None,
        on_question: OnQuestion | None = None,
    ) -> AsyncGenerator[RunStream]:
        """Like `resume`, with the events as they happen; leaving the context cancels it."""

        async def start(on_event: Callable[[Event], None]) -> RunResult:
            return await self.resume(
                run_id, agent, user=user, deps=deps, on_event=on_event, on_question=on_question
            )

        async with streaming(start) as stream:
            yield stream

    async def regenerate(
        self,
        agent: Agent | Workflow,
        thread: str,
        *,
        user: str | None = None,
        deps: Any = None,
        on_event: Callable[[Event], None] = _ignore,
    ) -> RunResult:
        """Answer the thread's newest user message again; the answer so far stays as a sibling.

        Raises `NotFound` and `ThreadBusy` as `run` does.
        """
        await branches.regenerate(self.store.of(user or self.settings.user), thread)
        kept = RunSpec(program=self.program)
        return await self._run(agent, None, thread, user, deps, kept, on_event, parent=None)

    @property
    def memory(self) -> ThreadMemory:
        """The memory of threads: to look at it, and to observe or condense when one is asked."""
        return ThreadMemory(
            self.settings, self.store, self.model, offline_model, tree_budget(self.settings)
        )

    @property
    def files(self) -> ThreadFiles:
        """The files of threads: to keep some, to list them, and to read them."""
        settings = self.settings
        return ThreadFiles(self.store, user=settings.user, max_bytes=settings.max_file_bytes)

    @property
    def plans(self) -> ThreadPlans:
        """The plans of threads, to look at."""
        return ThreadPlans(self.store, user=self.settings.user)

    # Parts

    async def _resolve(
        self,
        agent: Agent | Workflow,
        store: UserStore,
        deps: Any,
        budget: Budget,
        *,
        thread_id: str,
        child: bool,
    ) -> RunSetup:
        resolved = await resolve_run(
            agent.resolved_as if isinstance(agent, Workflow) else agent,
            self.settings,
            self.model,
            offline_model,
            store,
            thread_id=thread_id,
            child=child,
        )
        if isinstance(agent, Agent) and not child:
            for warning in check_rules(approval_rules(self.settings.approve), resolved.tools):
                _log.warning("%s", warning)
        if isinstance(agent, Workflow):
            # No model reads its thread: the nodes' own runs remember.
            resolved.remembering = None
        remembering = resolved.remembering
        for warning in remembering.warnings if remembering else ():
            _log.warning("Observational memory: %s", warning)
        resolved.deps, resolved.limits = deps, limits_of(self.settings)
        resolved.limited = budget != Budget() or resolved.limits != NO_LIMITS
        require_price(resolved.info, in_money(budget, resolved.limits), self.settings)
        return resolved

    async def _run(
        self,
        agent: Agent | Workflow,
        task: str | UserMessage | None,
        thread_id: str | None,
        user: str | None,
        deps: Any,
        spec: RunSpec,
        on_event: Callable[[Event], None],
        parent: RunLog | None,
        before: Sequence[LoggedMessage] = (),
        files: Sequence[Attachable] = (),
    ) -> RunResult:
        message = UserMessage(task) if isinstance(task, str) else task
        store = self.store.of(user or self.settings.user)
        budget = tree_budget(self.settings)
        if parent is not None:
            budget = (await store.run(parent.lease.root_run_id)).budget
        if thread_id is None and parent is None and isinstance(agent, Workflow):
            thread_id = agent.thread
        run_id = new_id()
        node = await node_runs.open_node_run(agent, store, run_id, thread=thread_id, parent=parent)
        # With a node's memory each run has a thread of its own.
        thread_id = new_id() if node or not thread_id else thread_id
        resolved = await self._resolve(
            agent, store, deps, budget, thread_id=thread_id, child=parent is not None
        )
        if node is not None:
            assert isinstance(agent, Agent)
            node = await node_runs.load_node_run(node, agent, store, resolved.info.takes)
        if parent is None:
            await require_room(store, resolved.limits, thread_id)
        order = RunRequest(
            run_id=run_id,
            thread_id=thread_id,
            agent=encodable(agent.name),
            task=message,
            budget=Budget() if parent else budget,
            on_event=on_event,
            spec=replace(
                spec,
                workflow=isinstance(agent, Workflow),
                node_memory=node.spec if node else None,
            ),
            parent=parent,
            before=(*(node.before if node else ()), *before),
            left_out=node.left_out if node else 0,
            files=tuple(files),
            max_file_bytes=self.settings.max_file_bytes,
        )
        with leases.at_work(order.run_id):
            log, first = await begin_new_run(store, resolved, order)
            limit = resolved.max_steps
            state = self._state(log, resolved, task=first, limit=limit, spec=order.spec)
            driver = node_runs.with_node_memory(self._driver(state, agent), node)
            return await self._finish(driver, resolved)

    async def _run_child(
        self,
        agent: Runnable,
        task: str | UserMessage,
        *,
        parent: RunLog,
        deps: Any,
        spec: RunSpec,
        before: Sequence[LoggedMessage],
    ) -> RunResult:
        user = parent.store.user_id
        return await self._run(
            _checked(agent),
            task,
            None,
            user,
            deps,
            spec,
            parent.emit,
            parent=parent,
            before=before,
        )

    def _state(
        self,
        log: RunLog,
        resolved: RunSetup,
        *,
        task: Entry | None,
        limit: int,
        spec: RunSpec,
    ) -> RunState:
        recalling = self._recall.of_run(log) if self._recall else None
        resume = self._resuming(log, resolved.deps)
        context = ToolContexts(
            log=log,
            deps=resolved.deps,
            user_context=spec.user_context,
            recalling=recalling,
            settings=self.settings,
            run_child=self._run_child,
            planner=Planner(log),
            delegating=DelegationServices.of(self.settings, resume, self._background),
            resume_child=resume,
        )
        return compose(resolved, context, self.settings, self._contents, task=task, limit=limit)

    def _driver(
        self, state: RunState, agent: Agent | Workflow, *, retry: bool = False
    ) -> RunDriver:
        if not isinstance(agent, Workflow):
            return AgentLoop(state)
        return loop_of(agent, state, retry=retry)

    def _resuming(self, log: RunLog, deps: Any) -> ResumeChild:
        """Return what goes on with a child run that stopped, for the run of a log."""

        async def resume(
            run: Run,
            child: Runnable,
            /,
            *,
            on_event: Callable[[Event], None] | None = None,
        ) -> RunResult:
            return await self._resume(
                log.store, run, _checked(child), deps, child_listener(log, on_event)
            )

        return resume

    async def _finish(self, driver: RunDriver, resolved: RunSetup) -> RunResult:
        """Drive a run to its end and say how it ended."""
        store, lease = driver.log.store, driver.log.lease
        renewed = self._renewer.keeping(store.user_id, lease) if self._renewer else nullcontext()
        with renewed:
            finish = await execute_run(driver, settings=self.settings, background=self._background)
        if self._recall is not None:
            self._recall.end(driver.log)
        if isinstance(driver, node_runs.NodeMemoryDriver):
            await driver.node.keep(store, lease)
            if days := self.settings.node_memory_keep_days:
                self._background.start(prune_daily(store, days=days))
        whole = lease.run_id == lease.root_run_id
        ids = {"root_run_id" if whole else "run_id": lease.run_id}
        usage = await store.usage_by_purpose(**ids)
        output = orjson.loads(finish.output) if finish.output else None
        if output is not None and resolved.output is not None:
            output = resolved.output.validate(output)
        return RunResult(
            run_id=lease.run_id,
            thread_id=lease.thread_id,
            status=finish.status,
            stop_reason=finish.stop_reason,
            detail=finish.detail,
            output=output,
            questions=await waits_for(store, lease) if finish.status == "suspended" else (),
            steps=driver.log.steps,
            usage=UsageTotal.of(usage.values()),
            usage_by_purpose=usage,
        )
