"""Workflows: `Workflow`, an async function over named nodes, and the context that it works with."""

from __future__ import annotations

import inspect
import math
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import KW_ONLY, asdict, dataclass, fields, replace
from types import MappingProxyType
from typing import Any, Generic, ParamSpec, overload

import orjson
from typing_extensions import TypeVar

from agent_runtime.agent import Agent, Runnable
from agent_runtime.delegation.assignment import Assignment
from agent_runtime.delegation.delegate import delegate as delegate_task
from agent_runtime.delegation.outcome import Outcome
from agent_runtime.errors import ConfigError, QuestionsOpen, ToolError
from agent_runtime.log.run_spec import RunSpec
from agent_runtime.messages import ToolResult, UserMessage
from agent_runtime.run.results import RunResult
from agent_runtime.run.state import RunState
from agent_runtime.tools import output as outputs
from agent_runtime.tools.context import ToolContext
from agent_runtime.tools.function import FunctionTool
from agent_runtime.tools.toolset import names_of
from agent_runtime.workflow.conductor import WorkflowLoop
from agent_runtime.workflow.history import HistoryLimits, HistoryMessage
from agent_runtime.workflow.steps import NAME, NodeIteration, function_step
from agent_runtime.workflow.values import describe_value, node_tool_result, to_plain_json
from agent_runtime_storage.contract.records.log import Run

P = ParamSpec("P")
T = TypeVar("T")
Deps = TypeVar("Deps", default=Any, covariant=True)

HISTORY_MESSAGES, HISTORY_TOKENS = 20, 16_000
"""The limits of a history for which observational memory does not stand."""
MAX_DEPTH = 10
"""How deep runs may be nested below the outermost."""
NO_INPUT = "(no input)"
"""The task of a node without input: providers refuse an empty message."""


@dataclass(frozen=True, slots=True)
class Workflow(Runnable[Any]):
    """A workflow, as a value: run it as an agent is run, `runtime.run(workflow, task)`.

        @Workflow
        async def report(w: WorkflowContext) -> str:
            facts = await w.agent("research", researcher)
            while await w.call("score", score, facts) < 0.8:
                facts = await w.agent("research", researcher, "Look further.")
            return await w.agent("write", writer)

    Each `await` on `w` is a node.  The value of a finished node is in the log of the run's thread:
    a resumed run calls the function again and gets the recorded value instead of running the node.
    So the function must be deterministic outside of its nodes: whatever depends on time, random
    values or the outside world belongs into a node (`w.call`).

    Args:
        flow: the function; its return value, as JSON, is the run's output.
        name: shown in events and run lists; by default the function's.
        one_thread: whether a user's runs that name no thread share one thread of this user and
            workflow, so that they see the earlier messages; otherwise each run has a new thread.
            Runs inside of other runs always have a new thread.
        history_messages, history_tokens: limits of the history that is loaded, by messages and by
            tokens in our count; older messages are left out; 0 for no history.  Without limits
            none is left out where observational memory is on: its notes come to stand for the
            older ones, as the history's first message.  Where it is off, the limits are 20
            messages and 16,000 tokens.
        max_steps: the most nodes of one run; None for the setting.
        asking: whether a person is asked what is to become of a node that was interrupted; the run
            is suspended until there is an answer.
    """

    flow: Callable[[WorkflowContext[Any]], Awaitable[Any]]
    _: KW_ONLY
    name: str = ""
    one_thread: bool = True
    history_messages: int | None = None
    history_tokens: int | None = None
    max_steps: int | None = None
    asking: bool = False

    def __post_init__(self) -> None:
        if not inspect.iscoroutinefunction(self.flow):
            raise ConfigError(
                f"The workflow {self.flow!r} is not an async function.",
                cure="Write it as `async def flow(w: WorkflowContext)`.",
            )
        try:
            inspect.signature(self.flow).bind(None)
        except TypeError as error:
            raise ConfigError(
                f"The workflow {self.flow!r} cannot be called with its context alone: {error}.",
                cure="Write it as `async def flow(w: WorkflowContext)`; `w.task` is its input.",
            ) from None
        name = self.name or getattr(self.flow, "__name__", "")
        if not NAME.fullmatch(name):
            raise ConfigError(
                f"{name!r} is not a valid name for a workflow.",
                cure="Give one: `Workflow(flow, name=...)`, of 1 to 64 letters (a-z), digits, `_` "
                "and `-`.",
            )
        # The way by which a frozen dataclass sets its own field.
        object.__setattr__(self, "name", name)
        if (self.history_messages or 0) < 0 or (self.history_tokens or 0) < 0:
            raise ConfigError(
                f"The history limits of the workflow {name} are negative.",
                cure="Give 0 for no history.",
            )

    @property
    def thread(self) -> str | None:
        """The id of each user's shared thread for this workflow; None without one."""
        return f"workflow:{self.name}" if self.one_thread else None

    @property
    def resolved_as(self) -> Agent:
        """An agent with this workflow's name and limits, by which settings are resolved."""
        return Agent(name=self.name, max_steps=self.max_steps)

    @property
    def history_limits(self) -> HistoryLimits:
        """The limits of its history where no observations stand for older messages."""
        messages, tokens = self.history_messages, self.history_tokens
        return HistoryLimits(
            HISTORY_MESSAGES if messages is None else messages,
            HISTORY_TOKENS if tokens is None else tokens,
        )

    @property
    def remembers(self) -> bool:
        """Whether observations stand for what its history no longer holds."""
        return self.history_messages is None and self.history_tokens is None


def checked_runnable(agent: Runnable[Any]) -> Agent[Any] | Workflow:
    """Return what is to run. Raises `ConfigError` if it is neither an agent nor a workflow."""
    if isinstance(agent, Agent | Workflow):
        return agent
    raise ConfigError(
        f"A {type(agent).__name__} cannot be run.", cure="Pass an `Agent` or a `Workflow`."
    )


def check_kind(run: Run, agent: Agent[Any] | Workflow) -> None:
    """Raise `ConfigError` if a workflow would resume an agent's run, or the other way round."""
    driven = RunSpec.of(run).workflow
    if driven != isinstance(agent, Workflow):
        was, wanted = ("a workflow", "an agent") if driven else ("an agent", "a workflow")
        raise ConfigError(
            f"Run {run.id} is that of {was}, {run.agent!r}; {wanted} cannot resume it.",
            cure=f"Resume it with {was}.",
        )


def loop_of(workflow: Workflow, state: RunState, *, retry: bool) -> WorkflowLoop:
    """Return the loop that drives a run of a workflow.

    Args:
        retry: whether nodes that failed last run again, because the run had ended by an error.
    """
    return WorkflowLoop(
        state,
        lambda loop: workflow.flow(WorkflowContext[Any](loop)),
        name=workflow.name,
        limits=None if state.memory is not None else workflow.history_limits,
        retry=retry,
    )


class WorkflowContext(Generic[Deps]):
    """A run of a workflow, as its function sees it.

    Every method that is a node raises `NodeFailed` if the node failed, and `ConfigError` if it
    cannot run.  A node is identified by its name; each further use of the name is its next
    iteration.  Nodes awaited concurrently without `gather` run one after the other.
    """

    def __init__(self, loop: WorkflowLoop) -> None:
        self._loop = loop

    # The run

    @property
    def run_id(self) -> str:
        """The id of this run."""
        return self._loop.run.id

    @property
    def thread_id(self) -> str:
        """The id of its thread."""
        return self._loop.run.thread_id

    @property
    def task(self) -> UserMessage:
        """The message that this run was started with."""
        return self._loop.task

    @property
    def input(self) -> str:
        """The text of the task; empty for a node without input."""
        text = self._loop.task.text
        return "" if text == NO_INPUT else text

    @property
    def user_context(self) -> Mapping[str, Any]:
        """The outermost run's data about its user; inner runs inherit it."""
        return MappingProxyType(dict(RunSpec.of(self._loop.run).user_context))

    @property
    def deps(self) -> Deps:
        """The object that the program passed to the run; it is not stored."""
        return self._loop.state.context("").deps

    @property
    def history(self) -> tuple[HistoryMessage, ...]:
        """The earlier messages on the thread, within the workflow's limits."""
        return self._loop.history

    @property
    def messages(self) -> tuple[HistoryMessage, ...]:
        """The shared state: the history, the task, and one message for each agent node."""
        return tuple(self._loop.messages)

    @property
    def node_outputs(self) -> Mapping[str, Any]:
        """The newest value of each node, as JSON."""
        return {name: values[-1] for name, values in self._loop.outputs.items()}

    def outputs(self, name: str) -> list[Any]:
        """Return the values of a node's iterations so far, as JSON."""
        return list(self._loop.outputs.get(name, ()))

    # Nodes

    async def agent(
        self,
        name: str,
        agent: Agent[T],
        task: str | UserMessage | None = None,
        *,
        input_source: str = "last_message",
        source_node_id: str | None = None,
        history: bool = False,
    ) -> T:
        """Run an agent as a node; return its output.

        The agent has its own run and thread.  The shared state gains one message: its answer.

        Args:
            task: what it has to do; None takes it from `input_source`.
            input_source: `last_message` of the shared state, or `node_output`, the newest value of
                the node `source_node_id`; anything else means no input.
            history: whether the messages of the shared state precede its task.
        """
        step = self._child(name, agent, task, input_source, source_node_id, history=history)
        step.kind = None if agent.output_type in (None, str) else agent.output_type
        return await self._loop.ask(step)

    async def workflow(
        self,
        name: str,
        workflow: Workflow,
        task: str | UserMessage | None = None,
        *,
        input_source: str = "last_message",
        source_node_id: str | None = None,
    ) -> Any:
        """Run another workflow as a node; return its output, as JSON.

        Its input is chosen as for `agent`.  The workflow has its own run, thread and state.  The
        shared state gains one message: its output.
        """
        step = self._child(name, workflow, task, input_source, source_node_id)
        return await self._loop.ask(step)

    @overload
    async def call(
        self,
        name: str,
        function: Callable[P, Coroutine[Any, Any, T]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T: ...

    @overload
    async def call(
        self, name: str, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T: ...

    async def call(
        self, name: str, function: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Any:
        """Call a function as a node, async or sync (in a thread); return its value.

        The value is stored as JSON and converted to the function's return annotation, also on the
        first call, so that a resumed run gets the same.  A function made by `tool` keeps its
        `timeout` and `idempotent`; one that started without a recorded end runs again only if it
        is idempotent, or if a person says so when the run is resumed.

        Args:
            args, kwargs: stored as JSON, to check that a resumed run passes the same; values that
                JSON cannot hold are compared by type only.
        """
        step = function_step(name, function, args, kwargs)
        return await self._loop.ask(step)

    async def delegate(self, name: str, assignment: Assignment) -> Outcome:
        """Have a sub-agent do a task, as a node; return its outcome, as observed.

        The sub-agent sees the assignment and the log of earlier attempts under the same
        `task_key`, nothing else.  A failure is an outcome, not an error; a further iteration is
        another attempt.  After a crash, a sub-agent that had finished is not run again, and one
        that died is resumed.  A call of it that needs an approval suspends the workflow.
        """
        return await self._loop.ask(self._delegated(name, assignment))

    async def gather(self, *work: Coroutine[Any, Any, T]) -> list[T]:
        """Run branches in parallel; return their results in order.

            facts = await w.gather(*(w.agent("research", one, topic) for topic in topics))

        A branch is a node, or an async function with several.  The next nodes of all branches run
        at the same time, and all of them end before any branch continues; so branches must not
        wait for each other.  For a branch that is not held up by others, use a workflow as a node.

        Raises the error of a branch; nodes in progress still end.
        """
        return await self._loop.gather(work)

    # Making nodes

    def _child(
        self,
        name: str,
        agent: Agent[Any] | Workflow,
        task: str | UserMessage | None,
        input_source: str,
        source_node_id: str | None,
        *,
        history: bool = False,
    ) -> NodeIteration:
        """Return a node that runs an agent or a workflow as a child run."""
        loop = self._loop
        if loop.depth >= MAX_DEPTH:
            raise ConfigError(
                f"The node {name!r} would be nested deeper than {MAX_DEPTH} runs.",
                cure="Check whether a workflow runs itself.",
            )
        before: list[HistoryMessage] = [*loop.messages] if history else []
        if task is None and input_source == "last_message" and before:
            # The last message becomes the task, and must not stand in the history as well.
            before.pop()
        message = self._input(task, input_source, source_node_id)
        asked = {"task": message.text, **({"history": len(before)} if history else {})}
        step: NodeIteration

        async def run(context: ToolContext) -> ToolResult:
            try:
                return await work(context)
            except Exception as error:
                step.cause = error
                raise

        async def work(context: ToolContext) -> ToolResult:
            # Its run began if the node is tried again because a question was answered meanwhile.
            earlier = await loop.earlier(step) if step.again or step.waits else None
            if earlier is not None and earlier.status == "succeeded":
                return node_tool_result(_output(earlier.output, agent))
            if earlier is not None:
                try:
                    with context.timer.paused():
                        result = await loop.resume(earlier, agent)
                except QuestionsOpen:
                    return step.wait(earlier.id)
            else:
                spec = RunSpec(node=name, iteration=step.iteration)
                result = await context.run_agent(agent, message, spec=spec, before=tuple(before))
            if result.status == "suspended" and result.stop_reason == "awaiting_user":
                return step.wait(result.run_id)
            return node_tool_result(_value(step, result))

        tool = FunctionTool(run, name=name if NAME.fullmatch(name) else "node", timeout=math.inf)
        step = NodeIteration(name, asked, tool, repeatable=True, speaks=True)
        return step

    def _delegated(self, name: str, assignment: Assignment) -> NodeIteration:
        """Return a node that delegates a task."""
        known = {field.name: getattr(assignment, field.name) for field in fields(assignment)}
        tools = names_of(assignment.tools)
        if not assignment.asking:
            # As logs have it that were written when no sub-agent could ask.
            del known["asking"]
        step: NodeIteration

        async def run(context: ToolContext) -> ToolResult:
            # A sub-agent that worked when the process died is found by the call that began it.
            context = replace(context, call_id=step.began or context.call_id)
            outcome = await delegate_task(context, assignment, waits=True)
            if outcome.status == "waiting":
                return step.wait(outcome.run_id, outcome.stop_reason)
            return node_tool_result(asdict(outcome))

        tool = FunctionTool(run, name=name if NAME.fullmatch(name) else "node", timeout=math.inf)
        asked = to_plain_json({**known, "tools": tools})
        step = NodeIteration(name, asked, tool, repeatable=True, kind=Outcome)
        return step

    def _input(
        self, task: str | UserMessage | None, input_source: str, source_node_id: str | None
    ) -> UserMessage:
        if isinstance(task, UserMessage):
            return task
        if task is not None:
            return UserMessage(task or NO_INPUT)
        if input_source == "last_message":
            last = self._loop.messages[-1]
            return last if isinstance(last, UserMessage) else UserMessage(last.text)
        if input_source != "node_output":
            return UserMessage(NO_INPUT)
        known = self.node_outputs
        if source_node_id is None or source_node_id not in known:
            raise ConfigError(
                f"No node {source_node_id!r} has an output.",
                cure=f"The nodes with an output are: {', '.join(known) or 'none yet'}.",
            )
        return UserMessage(describe_value(known[source_node_id]))


def _value(step: NodeIteration, result: RunResult) -> Any:
    if result.ok:
        return result.output
    step.stop_reason = result.stop_reason
    raise ToolError(f"Its run {result.run_id} stopped ({result.stop_reason}). {result.detail}")


def _output(stored: bytes, agent: Agent[Any] | Workflow) -> Any:
    """Return the stored output of a run that succeeded."""
    value = orjson.loads(stored) if stored else None
    # Plain JSON already; other types are built again, as on the first run.
    if isinstance(agent, Workflow) or agent.output_type in (None, str) or value is None:
        return value
    return outputs.output_type(agent.output_type).validate(value)
