"""What an agent is: a model, tools and instructions; it holds no state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from agent_runtime.files.references import FilePolicy
    from agent_runtime.models.base import Model
    from agent_runtime.run.results import RunResult
    from agent_runtime.tools.base import StateFunction, Tool


MAX_TOKENS = 2000
"""How many tokens of history are given by default, in our count."""


MAX_MESSAGES = 500
"""How many messages of history are given by default."""


class MemoryMode(StrEnum):
    """What a run begins with: its thread's own messages, or those of its node.

    With `conversation` a thread is the memory, as always.  With `node` each run has a thread of
    its own, which begins with what the same node said and was told earlier in the conversation.
    """

    CONVERSATION = "conversation"
    NODE = "node"


@dataclass(frozen=True, slots=True)
class MemoryWindow:
    """A limit to the number of messages, which can be switched off.

    Attributes:
        size: the most messages; turns are kept whole.
    """

    enabled: bool = True
    size: int = MAX_MESSAGES

    def limit(self, otherwise: int) -> int:
        """Return the most messages that are given; `otherwise` while it is off."""
        return self.size if self.enabled else otherwise


@dataclass(frozen=True, slots=True)
class MemoryConfig:
    """How an agent remembers.

    Attributes:
        app_id: with the ids below the key of a node's memory.
        conversation_id: None for the thread that is given to the run, or for a child run the
            thread of the run at the root of its tree.
        node_id: None for the agent's name.
        max_token_limit: the most tokens of history, in our count.
        window: the most messages of history.
        compressed: whether the node's document is kept compressed.
    """

    mode: MemoryMode = MemoryMode.CONVERSATION
    app_id: str = "default"
    conversation_id: str | None = None
    node_id: str | None = None
    max_token_limit: int = MAX_TOKENS
    window: MemoryWindow = field(default_factory=MemoryWindow)
    compressed: bool = False


@dataclass(frozen=True, slots=True)
class Delegation:
    """What the sub-agents of an agent may have, that are made by the tool `delegate`.

    Attributes:
        tools: the names of the agent's own tools that they may be given; None for all.  Never
            those by which the runtime plans, delegates or asks the user.  A call of theirs that
            needs an approval waits for it, and the agent's run with it; in the background it is
            refused.
        models: the names of the models that they may run beside the agent's own.
    """

    tools: Sequence[str] | None = None
    models: Sequence[str] = ()


class Runnable(Protocol):
    """What a run can execute: an `Agent` or a `Workflow`."""

    @property
    def name(self) -> str:
        """Its name in events and run lists."""
        ...


@dataclass(frozen=True, slots=True)
class Agent:
    """An agent, as a value: it can be shared between threads, runs and tasks.

    Args:
        model: a litellm name such as `anthropic/claude-sonnet-4-5` (`provider:model` works too), a
            `Model`, or None for the one that the settings name.
        tools: functions (sync or async) or `Tool`s that the model may call.
        instructions: the system prompt.
        name: shown in events and run lists.
        output_type: a pydantic model, dataclass or any type pydantic can validate; the run's
            output is then a value of it instead of text.
        max_steps: the most model calls of one run; None for the setting.
        context_window: tokens, where the model's known window is not to be used.
        last_messages: how many recent messages stay in the prompt; None for the setting.
        repeat_system_prompt: for models that ignore the system role; None for the setting.
        temperature: passed to the model where set.
        state: functions (sync or async) of the run's `ToolContext` that say what is current beside
            the task: a plan, what is under way, open questions.  Whenever prompts begin anew, the
            state note restates what they return; one that fails, or takes longer than 5 seconds,
            is passed over.
        memory: `MemoryMode.CONVERSATION`: a run goes on with its thread.  `MemoryMode.NODE`: the
            thread given to a run names the conversation (for a child run it is that of its root);
            the run has a thread of its own, begins with what this agent's earlier runs in the
            conversation were asked and answered, and adds its turn when it succeeds.  A
            `MemoryConfig` says more.
        files: which files of a prompt the model is shown; None for all that it takes.  The rest is
            only named.  Another policy, like another model, costs the provider's cache once.
        planning: whether the model keeps a plan of its task, by the tool `plan`; names are the
            plan's phases, in their order, instead of those of the settings.
        delegation: whether the model may hand tasks over to sub-agents, by the tool `delegate`;
            a `Delegation` says what they may have.
        asking: whether the model may ask the user, by the tool `ask_user`; its run is suspended
            until there is an answer.  A sub-agent that asks is told that nobody can be asked.
    """

    model: str | Model | None = None
    _: KW_ONLY
    tools: Sequence[Tool | Callable[..., Any]] = ()
    instructions: str = ""
    name: str = "agent"
    output_type: Any = None
    max_steps: int | None = None
    context_window: int | None = None
    last_messages: int | None = None
    repeat_system_prompt: bool | None = None
    temperature: float | None = None
    state: Sequence[StateFunction] = ()
    memory: MemoryMode | MemoryConfig = MemoryMode.CONVERSATION
    files: FilePolicy | None = None
    planning: bool | Sequence[str] = False
    asking: bool = False
    delegation: bool | Delegation = False

    async def run(self, task: str, *, thread: str | None = None) -> RunResult:
        """Run a task to its end with the settings of the environment, in a store opened for it.

        Cancelling it cancels the run; what was done stays in the log, and the run can be resumed.
        For more than one run, open a `Runtime` once.
        """
        from agent_runtime.runtime import Runtime

        async with Runtime.open() as runtime:
            return await runtime.run(self, task, thread=thread)

    def run_sync(self, task: str, *, thread: str | None = None) -> RunResult:
        """Like `run`, for programs that are not async."""
        import anyio

        async def main() -> RunResult:
            return await self.run(task, thread=thread)

        return anyio.run(main)
