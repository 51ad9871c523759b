"""What the tools of a run are given: their context, and child runs under the run that calls."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from agent_runtime.events import Event
from agent_runtime.log.run_log import RunLog
from agent_runtime.log.run_spec import RunSpec
from agent_runtime.messages import LoggedMessage, UserMessage
from agent_runtime.tools.base import ToolContext
from agent_runtime.tools.timer import ToolTimer
from agent_runtime_config import Settings

if TYPE_CHECKING:
    from agent_runtime.agent import Runnable
    from agent_runtime.delegation.request import DelegationServices
    from agent_runtime.memory.recall.retriever import Retriever
    from agent_runtime.plan.planner import Planner
    from agent_runtime.run.results import RunResult
    from agent_runtime_storage.contract.records import Run


class RunChild(Protocol):
    """Runs an agent or a workflow under the run of a log, which is told of its events."""

    def __call__(
        self,
        agent: Runnable,
        task: str | UserMessage,
        *,
        parent: RunLog,
        deps: Any,
        spec: RunSpec,
        before: Sequence[LoggedMessage],
    ) -> Awaitable[RunResult]: ...


class ResumeChild(Protocol):
    """Goes on with a child run that stopped, if it still is as it was read.

    `on_event` hears of it beside the run that calls.
    """

    def __call__(
        self,
        run: Run,
        child: Runnable,
        /,
        *,
        on_event: Callable[[Event], None] | None = None,
    ) -> Awaitable[RunResult]: ...


@dataclass(frozen=True, slots=True)
class ToolContexts:
    """Makes the context of each call of a run."""

    log: RunLog
    deps: Any
    user_context: Mapping[str, Any]
    recalling: Retriever | None
    settings: Settings
    run_child: RunChild
    planner: Planner
    delegating: DelegationServices
    resume_child: ResumeChild

    def __call__(self, call_id: str) -> ToolContext:
        """Return the context of a call."""
        timer = ToolTimer()

        async def run_agent(
            agent: Runnable,
            task: str | UserMessage,
            *,
            spec: Mapping[str, Any] | RunSpec | None = None,
            before: Sequence[LoggedMessage] = (),
            on_event: Callable[[Event], None] | None = None,
        ) -> RunResult:
            given = spec if isinstance(spec, RunSpec) else RunSpec(caller=spec or {})
            given = given.with_context(self.user_context)
            parent = self.log
            if on_event is not None:
                parent = replace(parent, emit=child_listener(parent, on_event))
            with timer.paused():
                return await self.run_child(
                    agent, task, parent=parent, deps=self.deps, spec=given, before=before
                )

        lease = self.log.lease
        return ToolContext(
            user_id=self.log.store.user_id,
            thread_id=lease.thread_id,
            run_id=lease.run_id,
            call_id=call_id,
            step=self.log.steps,
            store=self.log.store,
            deps=self.deps,
            run_agent=run_agent,
            timeout=self.settings.tool_timeout,
            max_file_bytes=self.settings.max_file_bytes,
            timer=timer,
            user_context=self.user_context,
            services={type(one): one for one in self._services()},
        )

    def _services(self) -> Iterator[object]:
        yield self.planner
        yield self.delegating
        if self.recalling is not None:
            yield self.recalling


def child_listener(
    log: RunLog, on_event: Callable[[Event], None] | None
) -> Callable[[Event], None]:
    """Return who hears of a child run: who hears of the run of this log, and `on_event` first.

    Of what goes on after the end of that run only `on_event` hears.
    """
    if on_event is None:
        return log.emit

    def tell(event: Event) -> None:
        on_event(event)
        if not log.ended:
            log.emit(event)

    return tell
