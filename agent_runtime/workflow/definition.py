"""What a workflow is: an async function over named nodes; it holds no state."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any

from agent_runtime.agent import Agent
from agent_runtime.errors import ConfigError
from agent_runtime.log.run_spec import RunSpec
from agent_runtime.workflow.steps import NAME
from agent_runtime_storage.contract.records import Run

if TYPE_CHECKING:
    from agent_runtime.workflow.context import WorkflowContext

"""What the spec of a workflow's run has, and that of an agent's run has not."""


@dataclass(frozen=True, slots=True)
class Workflow:
    """A workflow, as a value: run it as an agent is run, `runtime.run(workflow, task)`.

        @Workflow
        async def report(w: WorkflowContext) -> str:
            facts = await w.agent("research", researcher)
            while await w.call("score", score, facts) < 0.8:
                facts = await w.agent("research", researcher, "Look further.")
            return await w.agent("write", writer)

    Each `await` on `w` is a node.  What a node that finished gave is in the log of the run's
    thread: a resumed run calls the function again, and hands out what is recorded instead of
    running the node.  So between its nodes the function has to be deterministic: what depends on
    time, chance or the world outside belongs into a node of its own (`w.call`).

    Args:
        flow: the function; what it returns, as a JSON value, is the run's output.
        name: shown in events and run lists; by default the function's.
        one_thread: whether the runs of a user that name no thread all go on with the one thread of
            this user and this workflow's name, so that they see what was said; else each has a
            thread of its own, as have runs inside of other runs in any case.
        history_messages, history_tokens: how much of what was said before is loaded: at most so
            many messages that have, by our count, at most so many tokens.
        max_steps: the most nodes of one run; None for the setting.
    """

    flow: Callable[[WorkflowContext], Awaitable[Any]]
    _: KW_ONLY
    name: str = ""
    one_thread: bool = True
    history_messages: int = 20
    history_tokens: int = 16_000
    max_steps: int | None = None

    def __post_init__(self) -> None:
        if not inspect.iscoroutinefunction(self.flow):
            raise ConfigError(
                f"The workflow {self.flow!r} is no async function.",
                cure="Write it as `async def flow(w: WorkflowContext)`.",
            )
        name = self.name or getattr(self.flow, "__name__", "")
        if not NAME.fullmatch(name):
            raise ConfigError(
                f"{name!r} is no name for a workflow.",
                cure="Give one: `Workflow(flow, name=...)`, of 1 to 64 letters (a-z), digits, `_` "
                "and `-`.",
            )
        object.__setattr__(self, "name", name)
        if self.history_messages < 0 or self.history_tokens < 0:
            raise ConfigError(
                f"The history limits of the workflow {name} are negative.",
                cure="Give 0 for no history.",
            )

    @property
    def thread(self) -> str | None:
        """The id of the thread that is every user's own for this workflow; None without one."""
        return f"workflow:{self.name}" if self.one_thread else None

    @property
    def resolved_as(self) -> Agent:
        """An agent with the limits of this workflow; it has no model call to make."""
        return Agent(name=self.name, max_steps=self.max_steps)


def check_kind(run: Run, agent: Agent | Workflow) -> None:
    """Refuse to go on with an agent's run as with a workflow's, and the other way round."""
    driven = RunSpec.of(run).workflow
    if driven != isinstance(agent, Workflow):
        was, wanted = ("a workflow", "an agent") if driven else ("an agent", "a workflow")
        raise ConfigError(
            f"Run {run.id} was begun by {was}, {run.agent!r}, and is to go on by {wanted}.",
            cure=f"Resume it with {was}.",
        )
