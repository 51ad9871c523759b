"""`ToolContext`: the run that calls a tool, as the tool sees it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias

from typing_extensions import TypeVar

from agent_runtime.files.attach import MAX_BYTES, File, store_file
from agent_runtime.messages import FileRef, encodable
from agent_runtime.tools.questions import ToolAnswer
from agent_runtime.tools.timer import ToolTimer
from agent_runtime_storage.contract.store import UserStore

T = TypeVar("T")
Deps = TypeVar("Deps", default=Any, covariant=True)

MAX_MESSAGE = 200
"""How many characters of a message about progress listeners get."""


def _ignored(data: Mapping[str, Any]) -> None:
    del data


@dataclass(frozen=True, slots=True)
class ToolContext(Generic[Deps]):
    """The run that calls a tool; passed to a parameter annotated `ToolContext`.

    `ToolContext[Database]` tells type checkers what `deps` is; nothing checks it when it runs.

    Attributes:
        call_id: the call's id; also the handle by which `recall` opens its result.
        step: how many model calls the run has made.
        store: the store, as the run's owner sees it.
        deps: the object that the program passed to the run.
        run_agent: `await run_agent(agent, task)` runs an agent or a workflow as a child run and
            returns its `RunResult`.  `before` gives messages that precede the task; `on_event` gets
            its events too, and is the only listener once the calling run is over.  Calls that need
            an approval are refused there; those of sub-agents of `delegate` can wait.
        timeout: seconds that a tool without its own timeout may take; None for no limit.
        timer: of this call; it stops while `run_agent` works.
        user_context: the outermost run's data about its user.
        max_file_bytes: the largest file that can be stored.
        timezone: IANA name of the zone in which the agent reads times.
        report: gets what `progress` tells.
        answers: to questions that this call has asked, oldest first; see `AwaitingAnswers`.
        services: parts of the run that the runtime's own tools use, by type; see `service`.
    """

    user_id: str
    thread_id: str
    run_id: str
    call_id: str
    step: int
    store: UserStore
    deps: Deps
    run_agent: Callable[..., Awaitable[Any]]
    timeout: float | None = None
    timer: ToolTimer = field(default_factory=ToolTimer)
    user_context: Mapping[str, Any] = field(default_factory=dict[str, Any])
    max_file_bytes: int = MAX_BYTES
    services: Mapping[type[Any], Any] = field(default_factory=dict[type[Any], Any])
    timezone: str = "UTC"
    report: Callable[[Mapping[str, Any]], None] = _ignored
    answers: tuple[ToolAnswer, ...] = ()

    def progress(self, done: float, total: float | None = None, message: str = "") -> None:
        """Tell listeners how far the call is; nothing of it is recorded.

        Args:
            done: in any unit; it should rise.
            total: in the same unit; None if it is not known.
        """
        about = {"done": done, "total": total, "message": encodable(message[:MAX_MESSAGE])}
        self.report({key: value for key, value in about.items() if value not in (None, "")})

    def service(self, kind: type[T]) -> T | None:
        """Return the run's service of a type, such as its `Planner`; None if it has none."""
        return self.services.get(kind)

    async def keep(self, file: File) -> FileRef:
        """Store a file with the thread; return the reference to put into a `ToolResult`.

        Raises:
            InvalidFile: it is empty, too large, or cannot be read.
        """
        return await store_file(
            self.store, self.thread_id, file, self.max_file_bytes, origin="tool"
        )


StateFunction: TypeAlias = Callable[[ToolContext], str | Awaitable[str | None] | None]
"""Returns text about the run's present state; None or an empty text if there is none."""
