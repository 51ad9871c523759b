"""The context that a run gives to its tools, with which they can also run agents below it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from agent_runtime.agent import Runnable
from agent_runtime.delegation.request import DelegationServices
from agent_runtime.events import Event
from agent_runtime.log.run_log import RunLog
from agent_runtime.log.run_spec import RunSpec
from agent_runtime.messages import LoggedMessage, UserMessage
from agent_runtime.plan.planner import Planner
from agent_runtime.run.inbox import inbox_limits
from agent_runtime.run.queue.children import child_queue
from agent_runtime.run.results import RunResult
from agent_runtime.run.takeover import left_by_others
from agent_runtime.tools.context import ToolContext
from agent_runtime.tools.context_sources.base import ContextSource, ContextSources
from agent_runtime.tools.hooks import NO_HOOKS, ToolHooks
from agent_runtime.tools.timer import ToolTimer
from agent_runtime.tools.web.policy import WebPolicy
from agent_runtime.tools.workspace.protected_paths import from_settings
from agent_runtime.tools.workspace.reading.seen_files import SeenFiles
from agent_runtime.tools.workspace.sandbox.choose import CommandSettings
from agent_runtime.tools.workspace.shell_session import ShellSession
from agent_runtime_config import Settings
from agent_runtime_storage.contract.records.log import NewEvent, Run
from agent_runtime_storage.contract.store import UserStore

if TYPE_CHECKING:
    from agent_runtime.memory.recall.retriever import Retriever


class RunChild(Protocol):
    """Runs an agent or a workflow below the run of a log."""

    def __call__(
        self,
        store: UserStore,
        child: Runnable[Any],
        task: str | UserMessage,
        /,
        *,
        parent: RunLog,
        deps: Any,
        spec: RunSpec,
        on_event: Callable[[Event], None],
        before: Sequence[LoggedMessage],
    ) -> Awaitable[RunResult[Any]]: ...


class ResumeChild(Protocol):
    """Resumes a child run that stopped, if it has not changed since it was read.

    `on_event` gets its events before the listener of the calling run does.
    """

    def __call__(
        self,
        run: Run,
        child: Runnable[Any],
        /,
        *,
        on_event: Callable[[Event], None] | None = None,
    ) -> Awaitable[RunResult[Any]]: ...


@dataclass(frozen=True, slots=True)
class ToolContexts:
    """Makes the context of each call of a run."""

    log: RunLog
    deps: Any
    user_context: Mapping[str, Any]
    retriever: Retriever | None
    settings: Settings
    run_child: RunChild
    planner: Planner
    delegation: DelegationServices
    resume_child: ResumeChild
    shell: ShellSession
    seen: SeenFiles
    sources: tuple[ContextSource, ...] = ()
    hooks: ToolHooks = NO_HOOKS

    def __call__(self, call_id: str) -> ToolContext:
        """Return the context of a call."""
        log, timer = self.log, ToolTimer()

        async def run_agent(
            agent: Runnable[Any],
            task: str | UserMessage,
            *,
            spec: Mapping[str, Any] | RunSpec | None = None,
            before: Sequence[LoggedMessage] = (),
            on_event: Callable[[Event], None] | None = None,
        ) -> RunResult[Any]:
            run_spec = spec if isinstance(spec, RunSpec) else RunSpec(caller=spec or {})
            # The child run has limits of its own.
            with timer.paused():
                return await self.run_child(
                    log.store,
                    agent,
                    task,
                    parent=log,
                    deps=self.deps,
                    spec=run_spec.with_context(self.user_context),
                    on_event=child_listener(log, on_event),
                    before=before,
                )

        return ToolContext(
            user_id=log.store.user_id,
            thread_id=log.lease.thread_id,
            run_id=log.lease.run_id,
            call_id=call_id,
            step=log.steps,
            store=log.store,
            deps=self.deps,
            run_agent=run_agent,
            timeout=self.settings.tool_timeout,
            max_file_bytes=self.settings.max_file_bytes,
            timer=timer,
            user_context=self.user_context,
            timezone=self.settings.timezone,
            services={type(service): service for service in self._services()},
            report=partial(report_progress, log, call_id),
        )

    def _services(self) -> Iterator[object]:
        yield CommandSettings.of(self.settings)
        yield WebPolicy.of(self.settings)
        yield self.planner
        yield self.delegation
        yield self.shell
        yield ContextSources(self.sources)
        yield self.seen
        yield self.hooks
        yield inbox_limits(self.settings)
        if (queue := child_queue(self.log, self.settings, self.user_context)) is not None:
            yield queue
        yield from_settings(self.settings.protected_paths, self.settings.hidden_paths)
        if self.retriever is not None:
            yield self.retriever


def report_progress(log: RunLog, call_id: str, data: Mapping[str, Any]) -> None:
    """Tell the run's listeners how far a call is."""
    if not log.ended:
        log.tell(NewEvent("tool-progress", data={"call_id": call_id, **data}))


def child_listener(
    log: RunLog, on_event: Callable[[Event], None] | None
) -> Callable[[Event], None]:
    """Return the listener for a child run: `on_event`, then the listener of this log's run.

    A background run may outlive the run of the log; after that only `on_event` is called.
    """
    if on_event is None:
        return log.emit

    def listen(event: Event) -> None:
        on_event(event)
        if not log.ended:
            log.emit(event)

    return listen


def child_resumption(
    log: RunLog,
    resume: Callable[
        [UserStore, Run, Runnable[Any], Callable[[Event], None]], Awaitable[RunResult[Any]]
    ],
) -> ResumeChild:
    """Return the function that resumes the child runs of a log's run."""

    async def resumed(
        run: Run, child: Runnable[Any], /, *, on_event: Callable[[Event], None] | None = None
    ) -> RunResult[Any]:
        run = await left_by_others(log.store, run)
        return await resume(log.store, run, child, child_listener(log, on_event))

    return resumed
