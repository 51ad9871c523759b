"""`Agent`: a model, tools and instructions, as a value without state."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Generic, Literal

from typing_extensions import TypeVar

if TYPE_CHECKING:
    import os

    from typing_extensions import TypeForm

    from agent_runtime.files.references import FilePolicy
    from agent_runtime.models.base import Model
    from agent_runtime.run.results import RunResult
    from agent_runtime.tools.base import Tool
    from agent_runtime.tools.context import StateFunction
    from agent_runtime.tools.context_sources.base import ContextSource
    from agent_runtime.tools.hooks import ToolHook
    from agent_runtime.tools.mcp.server import McpServer
    from agent_runtime.tools.skills.find import SkillFolder
    from agent_runtime.tools.skills.skill import Skill
    from agent_runtime_config.request_settings import ModelSettings

Output = TypeVar("Output", default=str, covariant=True)
"""The type of an agent's output; text unless its `output_type` says otherwise."""

MAX_TOKENS = 2000
"""The most tokens of history by default, in our count."""


MAX_MESSAGES = 500
"""The most messages of history by default."""


class MemoryMode(StrEnum):
    """Which messages a run begins with: its thread's, or those of its node.

    With `conversation` the thread is the memory.  With `node` each run has a new thread, which
    begins with the earlier turns of the same node in the conversation.
    """

    CONVERSATION = "conversation"
    NODE = "node"


@dataclass(frozen=True, slots=True)
class MemoryWindow:
    """A limit on the number of messages, which can be switched off.

    Attributes:
        size: the most messages; turns are not split.
    """

    enabled: bool = True
    size: int = MAX_MESSAGES

    def limit(self, otherwise: int) -> int:
        """Return the most messages; `otherwise` if the limit is off."""
        return self.size if self.enabled else otherwise


@dataclass(frozen=True, slots=True)
class RolePrefix:
    """The names before messages in a history as plain text."""

    user: str = "Human"
    assistant: str = "Assistant"


QUERY = "{{#sys.query#}}"
"""Stands for the task in a `query_prompt_template`."""


@dataclass(frozen=True, slots=True)
class MemoryConfig:
    """How an agent remembers.

    Attributes:
        app_id: together with the ids below, the key of a node's memory.
        conversation_id: None for the run's thread; for a child run, its root's thread.
        node_id: None for the agent's name.
        max_token_limit: the most tokens of history, in our count.
        window: the most messages of history.
        compressed: whether to store the node's document compressed.
        role_prefix: names before the messages of a node's history, which the model then gets as
            one text.  Only with the mode `node`.
        query_prompt_template: a text to put each task into, at `{{#sys.query#}}`.  A node's memory
            keeps the task without it.
    """

    mode: MemoryMode = MemoryMode.CONVERSATION
    app_id: str = "default"
    conversation_id: str | None = None
    node_id: str | None = None
    max_token_limit: int = MAX_TOKENS
    window: MemoryWindow = field(default_factory=MemoryWindow)
    compressed: bool = False
    role_prefix: RolePrefix | None = None
    query_prompt_template: str | None = None


@dataclass(frozen=True, slots=True)
class Delegation:
    """The tools and models that the tool `delegate` may give to sub-agents.

    Attributes:
        tools: names of the agent's tools, or patterns of them such as `files__*`; None for all but
            those of MCP servers, which have to be named.  The runtime's tools for planning and
            delegating are never given.  A sub-agent's call that needs an approval suspends the
            agent's run too; in the background it suspends the sub-agent's alone.
        models: names of further models, apart from the agent's own.
        asking: whether sub-agents may ask the user; None if the agent itself may.
        placement: where sub-agents run: in the `process` of the agent, or, if the agent's own run
            is one of the queue, on any worker that has the agent (`queue`).  An agent that waits
            for such sub-agents takes no worker's slot.
    """

    tools: Sequence[str] | None = None
    models: Sequence[str] = ()
    placement: Literal["process", "queue"] = "process"
    asking: bool | None = None


class Runnable(Generic[Output]):
    """What a run can execute: an `Agent` or a `Workflow`.

    Attributes:
        name: shown in events and run lists.
    """

    __slots__ = ()
    name: str


@dataclass(frozen=True, slots=True)
class Agent(Runnable[Output]):
    """An agent, as a value: it can be shared between threads, runs and tasks.

    Args:
        model: a litellm name such as `anthropic/claude-sonnet-4-5` (`provider:model` works too), a
            `Model`, or None for the one that the settings name.
        tools: functions (sync or async) or `Tool`s that the model may call, and `McpServer`s whose
            tools it may call.
        instructions: the system prompt.
        name: shown in events and run lists.
        output_type: a pydantic model, dataclass or any type pydantic can validate; the run's
            output is then a value of it instead of text.  Type checkers know an agent with
            `output_type=City` as `Agent[City]`, and its results as `RunResult[City]`.
        max_steps: the most model calls of one run; None for the setting.
        context_window: tokens, instead of the model's known window.
        last_messages: how many recent messages stay in the prompt; None for the setting.
        repeat_system_prompt: for models that ignore the system role; None for the setting.
        model_settings: temperature, reasoning and what else is asked of the model in each call.
        temperature: short for that of `model_settings`, and wins over it.
        state: functions (sync or async) of the run's `ToolContext` that return what is current: a
            plan, tasks in progress, open questions.  Each activation puts their texts into the
            state note.  A function that fails, or takes longer than 5 seconds, is skipped.
        context: what prompts say of the place where the agent works, such as `Environment(folder)`
            and `ProjectInstructions(folder)`.  It is written into the log before the task, again
            when it changes, and stays in all prompts.
        skills: folders with a `SKILL.md`, or of such folders.  Prompts list their names and
            descriptions; the tool `open_skill` reads one.
        hooks: async functions around each call of its tools and of its sub-agents' tools, the
            outermost first; see `ToolHook`.
        memory: `MemoryMode.CONVERSATION`: a run continues its thread.  `MemoryMode.NODE`: the
            thread given to a run names the conversation (of a child run, its root's thread); the
            run has a new thread, begins with this agent's earlier turns in the conversation, and
            adds its own turn when it succeeds.  A `MemoryConfig` sets more.
        files: which files of a prompt the model sees; None for all that it takes.  Others are only
            named.  Another policy, like another model, voids the provider's cache once.
        planning: whether the model keeps a plan, with the tool `plan`; names are the plan's
            phases, in order, instead of those of the settings.
        delegation: whether the model may delegate tasks to sub-agents, with the tool `delegate`;
            a `Delegation` limits what they get.
        asking: whether the model may ask the user, with the tool `ask_user`; the run is suspended
            until there is an answer.  Sub-agents may ask too; see `Delegation`.
    """

    model: str | Model | None = None
    _: KW_ONLY
    tools: Sequence[Tool | Callable[..., Any] | McpServer] = ()
    instructions: str = ""
    name: str = "agent"
    output_type: TypeForm[Output] | None = None
    max_steps: int | None = None
    context_window: int | None = None
    last_messages: int | None = None
    repeat_system_prompt: bool | None = None
    model_settings: ModelSettings | None = None
    temperature: float | None = None
    state: Sequence[StateFunction] = ()
    context: Sequence[ContextSource] = ()
    skills: Sequence[str | os.PathLike[str] | SkillFolder | Skill] = ()
    hooks: Sequence[ToolHook] = ()
    memory: MemoryMode | MemoryConfig = MemoryMode.CONVERSATION
    files: FilePolicy | None = None
    planning: bool | Sequence[str] = False
    asking: bool = False
    delegation: bool | Delegation = False

    def request_settings(self, defaults: ModelSettings) -> ModelSettings:
        """Return what is asked of the model in each call."""
        own = defaults if self.model_settings is None else self.model_settings.over(defaults)
        return own if self.temperature is None else replace(own, temperature=self.temperature)

    async def run(self, task: str, *, thread: str | None = None) -> RunResult[Output]:
        """Run a task to its end with the settings of the environment.

        Opens the store for this one run; for more runs, open a `Runtime` once.  Cancelling the
        call cancels the run; its log stays, and the run can be resumed.
        """
        # Not at the top: the runtime imports this module.
        from agent_runtime.runtime import Runtime

        async with Runtime.open() as runtime:
            return await runtime.run(self, task, thread=thread)

    def run_sync(self, task: str, *, thread: str | None = None) -> RunResult[Output]:
        """Like `run`, for programs that are not async.

        Raises:
            WrongLoop: it is called where an event loop runs, such as in a notebook.
        """
        import anyio

        from agent_runtime.errors import WrongLoop

        async def main() -> RunResult[Output]:
            return await self.run(task, thread=thread)

        # `get_running_loop` raises one where no loop runs, which is the good case.
        with suppress(RuntimeError):
            asyncio.get_running_loop()
            raise WrongLoop(
                "`run_sync` was called where an event loop runs.",
                cure="In a coroutine or a notebook, write `await agent.run(…)`.",
            )
        return anyio.run(main)
