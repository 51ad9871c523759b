"""Execute runs: from the request to begin or resume one, to how it ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from agent_runtime.agent import Agent, Runnable
from agent_runtime.delegation.request import DelegationServices
from agent_runtime.events import Event
from agent_runtime.files.attach import Attachable
from agent_runtime.human.interruptions import Decisions
from agent_runtime.log import leases
from agent_runtime.log.run_log import RunLog
from agent_runtime.log.run_spec import RunSpec
from agent_runtime.memory.node.upkeep import prune_daily
from agent_runtime.memory.observational.models import MemoryModels
from agent_runtime.memory.recall.configure import RecallService
from agent_runtime.messages import LoggedMessage, UserMessage, encodable
from agent_runtime.models.base import Model
from agent_runtime.plan.planner import Planner
from agent_runtime.prompt.attachments import ContentCache
from agent_runtime.prompt.view import Entry
from agent_runtime.run import node_memory
from agent_runtime.run.budget import require_room, tree_budget
from agent_runtime.run.control import check_answered
from agent_runtime.run.lifecycle import RunDriver, execute_run
from agent_runtime.run.loop import AgentLoop
from agent_runtime.run.process.host import RunHost
from agent_runtime.run.process.tracing import traced, traced_again
from agent_runtime.run.queue.control import cancel_tree
from agent_runtime.run.queue.task_continuation import TaskContinuation, tasks_left_by
from agent_runtime.run.resolve import RunSetup, check_setup, resolve_run, with_servers
from agent_runtime.run.results import RunResult, result_of
from agent_runtime.run.start import RunRequest, begin_new_run, take_over
from agent_runtime.run.state import RunState
from agent_runtime.run.takeover import check_free
from agent_runtime.run.tool_context import ToolContexts, child_resumption
from agent_runtime.tools.workspace.reading.seen_files import SeenFiles
from agent_runtime.workflow.definition import Workflow, check_kind, checked_runnable, loop_of
from agent_runtime_config import Settings
from agent_runtime_storage import UserStore
from agent_runtime_storage.contract.ids import new_id
from agent_runtime_storage.contract.records.log import Budget, Lease, Run


class RunExecutor:
    """Executes the runs that a runtime admits, and their child runs.

    It resolves what a run works with, begins it or takes it over in its thread's log, and drives it
    to its end.

    Attributes:
        left_tasks: continues background tasks whose process is gone.
    """

    def __init__(
        self,
        settings: Settings,
        host: RunHost,
        model: Model | None,
        recall: RecallService | None,
        memory_models: MemoryModels | None,
    ) -> None:
        self._settings = settings
        self._host = host
        self._model = model
        self._recall = recall
        self._memory_models = memory_models
        self._contents = ContentCache()
        self.left_tasks = TaskContinuation(host, settings, self.resume)

    async def run(
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
        budget = tree_budget(self._settings)
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
            files=tuple(files), max_file_bytes=self._settings.max_file_bytes,
            max_message_chars=self._settings.max_message_chars,
        )  # fmt: skip
        # Marked before the lease exists: no process may take its owner for idle in between.
        with leases.at_work(run_id), traced(request, self._settings) as request:
            log, first = await begin_new_run(store, setup, request)
            state = self._state(
                log, setup, request.spec, Decisions(), task=first, limit=setup.max_steps
            )
            return await self._drive(state, agent, node)

    async def resume(
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
        with leases.at_work(run.id), traced_again(run, agent.name, self._settings):
            taking = partial(take_over, store, run, setup, agent.name, on_event)
            taken = await taking(decided=decided, kept={*decisions.bound, *tasks})
            await self.left_tasks.of_root(taken.log, tasks, agent, deps)
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
            await with_servers(resolved, self._host.mcp, store.user_id),
            self._settings, self._model, offline_model, store,
            thread_id=thread, child=child, budget=budget, deps=deps,
            # A workflow inside of another run has a thread without a history.
            remembers=isinstance(agent, Agent) or (agent.remembers and not child),
            memory_models=self._memory_models,
        )  # fmt: skip
        check_setup(setup, self._settings, budget, rules=not child, nodes=resolved is not agent)
        return setup

    def _state(
        self, log: RunLog, setup: RunSetup, spec: RunSpec, decisions: Decisions, *,
        task: Entry | None, limit: int, seen: SeenFiles | None = None,
    ) -> RunState:  # fmt: skip
        again = partial(self.resume, deps=setup.deps, decisions=decisions, inherited=True)
        resume, cancel = child_resumption(log, again), partial(cancel_tree, log.store)
        tools = ToolContexts(
            log=log, settings=self._settings, deps=setup.deps, user_context=spec.user_context,
            retriever=self._recall.of_run(log) if self._recall else None,
            run_child=self.run,
            planner=Planner(log),
            delegation=DelegationServices.of(self._settings, resume, self._host.background, cancel),
            resume_child=resume,
            shell=self._host.shells.of(log.store, log.lease.thread_id, log.lease.run_id),
            sources=setup.context.sources, hooks=setup.tools.hooks, seen=seen or SeenFiles.of(log),
        )  # fmt: skip
        return RunState.of(
            setup, tools, self._settings, self._contents, task=task, step_limit=limit
        )

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
        host, settings, log = self._host, self._settings, state.log
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


def offline_model() -> Model:
    """Return the model of agents where neither they nor the settings name one."""
    from agent_runtime.offline import OfflineModel  # Only needed where no model is set.

    return OfflineModel()
