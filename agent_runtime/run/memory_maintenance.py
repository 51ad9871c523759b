"""Looking after a thread's memory outside of its runs: observing and condensing when one is asked.

It takes the thread's lease like a run does, as a run without steps, so that it never works beside
another one.  What it writes is ready for the next activation; it activates nothing itself.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import anyio

from agent_runtime.agent import Agent
from agent_runtime.concurrency import run_shielded, single_error
from agent_runtime.errors import ConfigError, RunCancelled
from agent_runtime.events import Event
from agent_runtime.log import leases
from agent_runtime.log.branch import load_view
from agent_runtime.log.run_log import RunLog, cancelled_finish, finish_event
from agent_runtime.log.run_spec import RunSpec
from agent_runtime.memory.observational.configure import MemorySetup
from agent_runtime.memory.observational.memory import OBSERVE, REFLECT, ObservationalMemory
from agent_runtime.memory.observational.observer.rules import RuleObserver
from agent_runtime.memory.observational.reflector.base import size_of
from agent_runtime.memory.observational.reflector.rules import RuleReflector
from agent_runtime.memory.observational.report import MemoryReport, memory_report
from agent_runtime.memory.observational.thresholds import MemoryThresholds, oldest
from agent_runtime.memory.observational.worker import MemoryWorker
from agent_runtime.models.base import Checkable, Model
from agent_runtime.models.cost import require_price
from agent_runtime.models.tokens import Calibration
from agent_runtime.prompt.observation import Observation
from agent_runtime.run.budget import in_money, limits_of
from agent_runtime.run.lifecycle import watch_lease
from agent_runtime.run.resolve import RunSetup, resolve_run
from agent_runtime.run.start import end_upkeep, run_start_event
from agent_runtime.run.takeover import finish_on_error
from agent_runtime_config import Settings
from agent_runtime_config.model_settings import Role
from agent_runtime_storage.contract.ids import new_id
from agent_runtime_storage.contract.records import Budget, Finish, NewRun, UsageTotal
from agent_runtime_storage.contract.store import Store, UserStore

AGENT = "memory"
"""The agent's name of a run that looks after memory."""


@dataclass(frozen=True, slots=True)
class MaintenanceResult:
    """What looking after a thread's memory did.

    Attributes:
        run_id: of the run by which it is kept; its usage is what it cost.
        written: the observations that were written, none if nothing was to be done.
    """

    run_id: str
    written: tuple[Observation, ...]
    usage: UsageTotal


@dataclass(frozen=True, slots=True)
class ThreadMemory:
    """The memory of threads, outside of their runs; `Runtime.memory` gives it.

    Attributes:
        model: for agents that name none.
        offline: makes the model that is used where none is set.
        budget: what looking after a thread's memory may cost.
    """

    settings: Settings
    store: Store
    model: Model | None
    offline: Callable[[], Model]
    budget: Budget

    async def report(self, agent: Agent, thread: str, *, user: str | None = None) -> MemoryReport:
        """Return the state of a thread's memory, as this agent's next run would find it.

        Raises:
            NotFound: this owner has no such thread.
        """
        store = self._of(user)
        await store.thread(thread)
        resolved = await self._resolve(agent, store, thread)
        settings, found = self.settings, resolved.remembering
        tokens = settings.observer_message_tokens, settings.reflector_observation_tokens
        bands = MemoryThresholds(*tokens, resolved.room.last_messages).within(resolved.room.limit)
        ratio = resolved.calibration.ratio
        return await memory_report(
            store, thread, found.bands if found else bands, ratio, on=found is not None
        )

    async def observe(
        self,
        agent: Agent,
        thread: str,
        *,
        user: str | None = None,
        on_event: Callable[[Event], None] = lambda event: None,
    ) -> MaintenanceResult:
        """Observe now what may leave the thread's prompt, whatever the thresholds say.

        What is written is ready for the next activation; the prompt stays as it is.

        Args:
            agent: whose model observes, unless the settings name another one.
            on_event: called with each event, in order, on the event loop.

        Raises:
            ConfigError: observational memory is off.
            ModelAuthError, RealModelForbidden: the Observer may not be called; nothing was written.
            NotFound: this owner has no such thread.
            ThreadBusy: a run of it is active.
            RunCancelled: somebody cancelled it; what was written stays.

        Cancellation: a job under way is given back; what was written stays.
        """
        return await self._keep(OBSERVE, agent, thread, user, on_event)

    async def reflect(
        self,
        agent: Agent,
        thread: str,
        *,
        user: str | None = None,
        on_event: Callable[[Event], None] = lambda event: None,
    ) -> MaintenanceResult:
        """Condense the thread's oldest observations now, below the threshold too.

        They stand in the prompt from the first activation on that finds more observations than
        the threshold allows.  Arguments, errors and cancellation are those of `observe`.
        """
        return await self._keep(REFLECT, agent, thread, user, on_event)

    async def _keep(
        self,
        kind: str,
        agent: Agent,
        thread: str,
        user: str | None,
        on_event: Callable[[Event], None],
    ) -> MaintenanceResult:
        store = self._of(user)
        await store.thread(thread)
        resolved = await self._resolve(agent, store, thread)
        found = resolved.remembering
        if found is None:
            raise ConfigError(
                "Observational memory is off.",
                cure="Set AGENT_RUNTIME_OBSERVATIONAL_MEMORY=true.",
            )
        role: Role = "observer" if kind == OBSERVE else "reflector"
        await _check(role, resolved.model, self.settings)
        limits = limits_of(self.settings)
        require_price(resolved.info, in_money(self.budget, limits), self.settings)
        run_id = new_id()
        with leases.at_work(run_id):
            async with _lease(store, thread, resolved, kind, run_id, self.budget, on_event) as log:
                log.limits = limits
                memory = memory_of(log, found, resolved.calibration, self.settings)
                await memory.load()
                keeper = OnDemandMemoryWorker(memory)
                await (keeper.observe_all() if kind == OBSERVE else keeper.reflect_all())
        usage = await store.usage_total(run_id=run_id)
        return MaintenanceResult(run_id, tuple(memory.written), usage)

    def _of(self, user: str | None) -> UserStore:
        return self.store.of(user or self.settings.user)

    async def _resolve(self, agent: Agent, store: UserStore, thread: str) -> RunSetup:
        return await resolve_run(
            agent, self.settings, self.model, self.offline, store, thread_id=thread, child=False
        )


def memory_of(
    log: RunLog, found: MemorySetup, calibration: Calibration, settings: Settings
) -> ObservationalMemory:
    """Return the observational memory of a run, or of what looks after a thread's memory."""
    by_rules, folder = RuleObserver(), RuleReflector()
    return ObservationalMemory(
        log=log,
        bands=found.bands,
        observer=found.observer or by_rules,
        fallback=by_rules,
        reflector=found.reflector or folder,
        folder=folder,
        deadline=settings.observer_timeout,
        ratio=lambda: calibration.ratio,
    )


async def _check(role: Role, own: Model, settings: Settings) -> None:
    """Look whether the model that is to write can be called: one that is asked for is wanted.

    Raises:
        ModelAuthError, RealModelForbidden, ConfigError: it cannot.
    """
    from agent_runtime.models import model_from_name

    name = settings.place(role).name
    if name == "extractive":
        return
    model = own if name == "same" else model_from_name(name, settings, role=role)
    if isinstance(model, Checkable):
        await model.check()


class OnDemandMemoryWorker(MemoryWorker):
    """A worker that does at once what it may, whatever the thresholds say."""

    async def observe_all(self) -> None:
        """Observe all that has left or may leave, then what rules wrote while a model failed."""
        memory = self.memory
        while chunk := await memory.left_out(self.log.view):
            await self.observe(chunk)
        while chunk := oldest(memory.raw(self.log.view), memory.bands):
            await self.observe(chunk)
        while provisional := self.provisional(self.log.view):
            await self.again(provisional)

    async def reflect_all(self) -> None:
        """Condense the oldest observations, but for those that are spared as usual."""
        memory = self.memory
        present = memory.condensing(self.log.view)
        limit = min(memory.limit, sum(map(size_of, present)))
        if reflection := memory.reflection(self.log.view, present, limit):
            await self.reflect(reflection)


@asynccontextmanager
async def _lease(
    store: UserStore,
    thread_id: str,
    resolved: RunSetup,
    kind: str,
    run_id: str,
    budget: Budget,
    emit: Callable[[Event], None],
) -> AsyncGenerator[RunLog]:
    """Begin a run without steps for a `with`, and end it with that."""
    thread = await store.thread(thread_id)
    await end_upkeep(store, thread)
    view = await load_view(store, thread_id, thread.head)
    events = (run_start_event(AGENT, resolved, 0),)
    run = NewRun(
        id=run_id,
        thread_id=thread_id,
        agent=AGENT,
        max_steps=0,
        spec={},
        internal=RunSpec(upkeep=kind).internal(),
        owner=leases.this_process_owner(),
        lease_seconds=leases.LEASE_SECONDS,
        expect_head=thread.head,
        expect_seq=thread.last_seq,
        budget=budget,
        events=events,
    )
    (lease, last_event), interrupted = await run_shielded(store.begin_run(run))
    done = False
    async with finish_on_error(store, lease):
        if interrupted is not None:
            raise interrupted
        log = RunLog(
            store=store,
            lease=lease,
            view=view,
            head=thread.head,
            last_seq=thread.last_seq,
            last_activation=thread.last_activation,
            last_observation=await store.last_observation(thread_id),
            steps=0,
            emit=emit,
        )
        log.tell(events[0], last_event)
        async with single_error(), anyio.create_task_group() as group:
            group.start_soon(watch_lease, log, group.cancel_scope)
            yield log
            done = True
            group.cancel_scope.cancel()
        finish = Finish("succeeded", "completed") if done else cancelled_finish()
        await log.append([], finish=finish, events=[finish_event(finish)])
    if not done:
        raise RunCancelled(f"Run {run_id} was cancelled.", cure="Start it again.")
