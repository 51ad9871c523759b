"""Observe and condense a thread's memory on request, outside of its runs.

A maintenance run holds the thread's lease like any run, so it never works in parallel to another;
it makes no steps.  What it writes is ready for the next activation; it activates nothing itself.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, cast

import anyio

from agent_runtime.agent import Agent
from agent_runtime.concurrency import single_error
from agent_runtime.errors import ConfigError, RunCancelled
from agent_runtime.events import AnyEvent, Event
from agent_runtime.log import leases
from agent_runtime.log.branch import load_view
from agent_runtime.log.lease_keeper import LeaseKeeper
from agent_runtime.log.run_log import RunLog, cancelled_finish
from agent_runtime.log.run_spec import RunSpec
from agent_runtime.memory.observational.explain import NodeExplanation, explain_node
from agent_runtime.memory.observational.memory import OBSERVE, REFLECT
from agent_runtime.memory.observational.models import MemoryModels
from agent_runtime.memory.observational.reflector.base import size_of
from agent_runtime.memory.observational.report import MemoryReport, memory_report
from agent_runtime.memory.observational.thresholds import MemoryThresholds, oldest
from agent_runtime.memory.observational.worker import MemoryWorker
from agent_runtime.models import model_from_name
from agent_runtime.models.base import Checkable, Model
from agent_runtime.models.cost import require_price
from agent_runtime.prompt.observation import Observation
from agent_runtime.run.budget import in_money
from agent_runtime.run.lifecycle import watch_run
from agent_runtime.run.resolve import RunSetup, resolve_run
from agent_runtime.run.start import begin_log, end_upkeep, run_start_event
from agent_runtime.run.state import memory_of
from agent_runtime.run.takeover import finish_on_error
from agent_runtime_config import Settings
from agent_runtime_config.groups.model_settings import Role
from agent_runtime_storage.contract.ids import new_id
from agent_runtime_storage.contract.records.log import Budget, Finish, NewRun
from agent_runtime_storage.contract.records.usage import UsageTotal
from agent_runtime_storage.contract.store import Store, UserStore

AGENT = "memory"
"""The agent's name of a maintenance run."""


@dataclass(frozen=True, slots=True)
class MaintenanceResult:
    """What a maintenance run did.

    Attributes:
        written: the new observations; none if there was nothing to do.
        usage: what it cost.
    """

    run_id: str
    written: tuple[Observation, ...]
    usage: UsageTotal


@dataclass(frozen=True, slots=True)
class ThreadMemory:
    """The memory of threads, outside of their runs; see `Runtime.memory`.

    Attributes:
        model: for agents that name none.
        offline: makes the model that is used where none is set.
        budget: what one maintenance run may spend.
        keeper: renews the leases of maintenance runs.
        models: an Observer and a Reflector of the program's own.
    """

    settings: Settings
    store: Store
    model: Model | None
    offline: Callable[[], Model]
    budget: Budget
    keeper: LeaseKeeper
    models: MemoryModels | None = None

    async def report(
        self, agent: Agent[Any], thread: str, *, user: str | None = None
    ) -> MemoryReport:
        """Return the state of a thread's memory as this agent's next run would see it.

        Raises:
            NotFound: this owner has no such thread.
        """
        store = self._store_of(user)
        await store.threads.get(thread)
        setup = await self._resolve(agent, store, thread)
        settings, memory = self.settings, setup.memory
        tokens = settings.observer_message_tokens, settings.reflector_observation_tokens
        default = MemoryThresholds(*tokens, setup.room.last_messages).within(setup.room.limit)
        return await memory_report(
            store,
            thread,
            memory.thresholds if memory else default,
            setup.calibration.ratio,
            on=memory is not None,
        )

    async def explain(self, thread: str, node: int, *, user: str | None = None) -> NodeExplanation:
        """Return where a message of a thread is now: raw, shortened, in an observation, archived.

        Raises:
            NotFound: this owner has no such thread or node.
        """
        return await explain_node(self._store_of(user), thread, node)

    async def observe(
        self,
        agent: Agent[Any],
        thread: str,
        *,
        user: str | None = None,
        on_event: Callable[[AnyEvent], None] = lambda event: None,
    ) -> MaintenanceResult:
        """Observe now all messages that may leave the thread's prompt, whatever the thresholds say.

        The observations are ready for the next activation; the prompt stays as it is.

        Args:
            agent: its model observes, unless the settings name another one.
            on_event: called with each event, in order, on the event loop.

        Raises:
            ConfigError: observational memory is off.
            ModelAuthError, RealModelForbidden: the Observer may not be called; nothing was written.
            NotFound: this owner has no such thread.
            ThreadBusy: a run of it is active.
            RunCancelled: it was cancelled; what was written stays.

        Cancellation: a job in progress is released; what was written stays.
        """
        store = self._store_of(user)
        async with self._worker(OBSERVE, agent, store, thread, on_event) as worker:
            await worker.observe_all()
        return await _result(store, worker)

    async def reflect(
        self,
        agent: Agent[Any],
        thread: str,
        *,
        user: str | None = None,
        on_event: Callable[[AnyEvent], None] = lambda event: None,
    ) -> MaintenanceResult:
        """Condense the thread's oldest observations now, below the threshold too.

        Prompts contain the result from the first activation that finds more observations than the
        threshold allows.  Arguments, errors and cancellation are those of `observe`.
        """
        store = self._store_of(user)
        async with self._worker(REFLECT, agent, store, thread, on_event) as worker:
            await worker.reflect_all()
        return await _result(store, worker)

    @asynccontextmanager
    async def _worker(
        self,
        kind: str,
        agent: Agent[Any],
        store: UserStore,
        thread: str,
        on_event: Callable[[AnyEvent], None],
    ) -> AsyncGenerator[OnDemandMemoryWorker]:
        """Begin a maintenance run, give its worker, and end the run with the context."""
        await store.threads.get(thread)
        setup = await self._resolve(agent, store, thread)
        if setup.memory is None:
            raise ConfigError(
                "Observational memory is off.",
                cure="Set AGENT_RUNTIME_OBSERVATIONAL_MEMORY=true.",
            )
        await self._check("observer" if kind == OBSERVE else "reflector", setup.model)
        for info in setup.choice.infos:
            require_price(info, in_money(self.budget, setup.limits), self.settings)
        run_id = new_id()
        # Marked before the lease exists, so that no sweep takes its owner for idle in between.
        with leases.at_work(run_id):
            emit = cast("Callable[[Event], None]", on_event)
            held = _lease(store, thread, setup, kind, run_id, self.budget, emit, self.keeper)
            async with held as log:
                memory = memory_of(
                    log, setup.memory, lambda: setup.calibration.ratio, self.settings
                )
                await memory.load()
                yield OnDemandMemoryWorker(memory)

    def _store_of(self, user: str | None) -> UserStore:
        return self.store.of(user or self.settings.user)

    async def _resolve(self, agent: Agent[Any], store: UserStore, thread: str) -> RunSetup:
        return await resolve_run(
            agent,
            self.settings,
            self.model,
            self.offline,
            store,
            thread_id=thread,
            child=False,
            memory_models=self.models,
        )

    async def _check(self, role: Role, own: Model) -> None:
        """Check that the model of a role can be called; on request, rules do not replace it.

        Raises:
            ModelAuthError, RealModelForbidden, ConfigError: it cannot.
        """
        name = self.settings.model_name(role)
        model = self.models and (
            self.models.observer if role == "observer" else self.models.reflector
        )
        if model is None:
            if name == "extractive":
                return
            model = own if name == "same" else model_from_name(name, self.settings, role=role)
        if isinstance(model, Checkable):
            await model.check()


async def _result(store: UserStore, worker: OnDemandMemoryWorker) -> MaintenanceResult:
    run_id = worker.log.lease.run_id
    usage = await store.spending.usage_total(run_id=run_id)
    return MaintenanceResult(run_id, tuple(worker.memory.written), usage)


class OnDemandMemoryWorker(MemoryWorker):
    """A worker that does at once all work that there is, whatever the thresholds say."""

    async def observe_all(self) -> None:
        """Observe what has left or may leave the prompt, then rewrite provisional observations."""
        memory = self.memory
        # Oldest first: an observation is written with the notes before it in view.
        while chunk := await memory.next_of_past(self.log.view):
            await self.observe(chunk)
        while chunk := oldest(memory.raw(self.log.view), memory.thresholds):
            await self.observe(chunk)
        while provisional := self.provisional(self.log.view):
            await self.rewrite(provisional)

    async def reflect_all(self) -> None:
        """Condense the oldest observations, except those that are spared as usual."""
        memory = self.memory
        present = memory.condensing(self.log.view)
        limit = min(memory.limit, sum(map(size_of, present)))
        if reflection := memory.reflection(self.log.view, present, limit):
            await self.reflect(reflection)


@asynccontextmanager
async def _lease(
    store: UserStore,
    thread_id: str,
    setup: RunSetup,
    kind: str,
    run_id: str,
    budget: Budget,
    emit: Callable[[Event], None],
    keeper: LeaseKeeper,
) -> AsyncGenerator[RunLog]:
    """Begin a run without steps, and end it with the context."""
    thread = await store.threads.get(thread_id)
    await end_upkeep(store, thread)
    # After `end_upkeep`, whose observations the view contains.
    view = await load_view(store, thread_id, thread.head)
    run = NewRun(
        id=run_id,
        thread_id=thread_id,
        agent=AGENT,
        # A run without steps: it calls no agent's model and never becomes the thread's task.
        max_steps=0,
        spec={},
        internal=RunSpec(upkeep=kind).internal(),
        owner=leases.this_process_owner(),
        lease_seconds=leases.LEASE_SECONDS,
        # Nothing begins if anyone wrote to the thread since it was read.
        expect_head=thread.head,
        expect_seq=thread.last_seq,
        budget=budget,
        events=(run_start_event(AGENT, setup, 0),),
    )
    log = await begin_log(store, thread, view, run, emit=emit, limits=setup.limits)
    # If another process cancels the run, `watch_run` cancels the group, which ends without an
    # error and without getting here.
    done = False
    async with finish_on_error(store, log.lease):
        log.announce()
        with keeper.holding(store.user_id, log.lease) as held:
            async with single_error(), anyio.create_task_group() as group:
                group.start_soon(watch_run, log, held, group.cancel_scope)
                yield log
                done = True
                group.cancel_scope.cancel()
        finish = Finish("succeeded", "completed") if done else cancelled_finish()
        await log.append([], finish=finish)
    if not done:
        raise RunCancelled(f"Run {run_id} was cancelled.", cure="Start it again.")
