"""Workflows: `Workflow`, an async function over named nodes, and the context that it works with."""

from __future__ import annotations

import inspect
import math
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import KW_ONLY, asdict, dataclass, fields, replace
from types import MappingProxyType
from typing import Any, ParamSpec, TypeVar, overload

import orjson

from agent_runtime.agent import Agent
from agent_runtime.delegation.assignment import Assignment
from agent_runtime.delegation.delegate import delegate as delegate_task
from agent_runtime.delegation.outcome import Outcome
from agent_runtime.errors import ConfigError, ToolError
from agent_runtime.log.run_spec import RunSpec
from agent_runtime.messages import ToolResult, UserMessage
from agent_runtime.run.results import RunResult
from agent_runtime.run.state import RunState
from agent_runtime.tools import output as outputs
from agent_runtime.tools.base import FunctionTool, ToolContext, Toolset
from agent_runtime.workflow.conductor import WorkflowLoop
from agent_runtime.workflow.history import HistoryMessage
from agent_runtime.workflow.steps import (
    NAME,
    NodeIteration,
    describe_value,
    function_step,
    node_tool_result,
    return_type,
    to_plain_json,
    typed,
)
from agent_runtime_storage.contract.records import Run

P = ParamSpec("P")
T = TypeVar("T")

MAX_DEPTH = 10
"""How deep runs may be nested, the outermost not counted."""
NO_INPUT = "(no input)"
"""What a node's run is told that is given nothing: providers refuse an empty message."""


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


def loop_of(workflow: Workflow, state: RunState, *, retry: bool) -> WorkflowLoop:
    """Return the loop that drives a run of a workflow.

    Args:
        retry: whether nodes that failed last run again, because the run had ended by an error.
    """
    return WorkflowLoop(
        state,
        lambda loop: workflow.flow(WorkflowContext(loop)),
        name=workflow.name,
        history_messages=workflow.history_messages,
        history_tokens=workflow.history_tokens,
        retry=retry,
    )


class WorkflowContext:
    """A run of a workflow, from the inside.

    Every method that is a node raises `NodeFailed` when the node failed, and `ConfigError` when it
    cannot be asked for.  A node is known by its name; asked for again, in a loop, it is its next
    iteration.  Nodes that are asked for beside each other without `gather` run in turn.
    """

    def __init__(self, loop: WorkflowLoop) -> None:
        self._loop = loop

    # What is known

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
        """What this run was started with."""
        return self._loop.task

    @property
    def input(self) -> str:
        """Its text; empty for a node that was given nothing."""
        text = self._loop.task.text
        return "" if text == NO_INPUT else text

    @property
    def user_context(self) -> Mapping[str, Any]:
        """What the outermost run was given of its user; runs inside of it inherit it."""
        return MappingProxyType(dict(RunSpec.of(self._loop.run).user_context))

    @property
    def deps(self) -> Any:
        """What the program handed to the run; it is not kept."""
        return self._loop.state.context("").deps

    @property
    def history(self) -> tuple[HistoryMessage, ...]:
        """What was said on the thread before, within the workflow's limits."""
        return self._loop.history

    @property
    def messages(self) -> tuple[HistoryMessage, ...]:
        """The shared state: the history, the task, one message for each agent that was a node."""
        return tuple(self._loop.messages)

    @property
    def node_outputs(self) -> Mapping[str, Any]:
        """The newest value of each node, as a JSON value."""
        return {name: values[-1] for name, values in self._loop.outputs.items()}

    def outputs(self, name: str) -> list[Any]:
        """Return the values of a node's iterations so far, as JSON values."""
        return list(self._loop.outputs.get(name, ()))

    # Nodes

    async def agent(
        self,
        name: str,
        agent: Agent,
        task: str | UserMessage | None = None,
        *,
        input_source: str = "last_message",
        source_node_id: str | None = None,
        history: bool = False,
    ) -> Any:
        """Run an agent as a node; return its output.

        It has a run and a thread of its own, in which all that it did stays.  The shared state
        gains one message: its answer.

        Args:
            task: what it is to do; None takes it from `input_source`.
            input_source: `last_message` of the shared state, or `node_output`, the newest value of
                the node `source_node_id`; anything else gives it nothing.
            history: whether it sees the messages of the shared state before its task; else it
                begins with its task alone.
        """
        kind = None if agent.output_type in (None, str) else agent.output_type
        step = self._child(name, agent, task, input_source, source_node_id, history=history)
        return typed(await self._loop.ask(step), kind)

    async def workflow(
        self,
        name: str,
        workflow: Workflow,
        task: str | UserMessage | None = None,
        *,
        input_source: str = "last_message",
        source_node_id: str | None = None,
    ) -> Any:
        """Run another workflow as a node; return its output, as a JSON value.

        Its input is chosen as that of an agent.  It has a run, a thread and a state of its own, of
        which the shared state gains one message: its output.
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
        """Call a function as a node, async or sync (in a thread); return what it returns.

        What it returns is kept as JSON and made a value of the function's return annotation
        again, now as after a crash.  One made by `tool` keeps its `timeout` and `idempotent`: a
        function that was started and not seen to end runs again only if it is idempotent.

        Args:
            args, kwargs: kept as JSON, to tell whether a resumed run asks for the same; what JSON
                cannot hold is known by its type alone.
        """
        step = function_step(name, function, args, kwargs)
        return typed(await self._loop.ask(step), return_type(function))

    async def delegate(self, name: str, assignment: Assignment) -> Outcome:
        """Have a sub-agent do a task, as a node; return how it ended, as it was observed.

        It is told what the assignment says, and the log of earlier attempts under the same
        `task_key`, and nothing else.  One that fails is an outcome like any other: asked for again
        it is another attempt.  After a crash a sub-agent that had finished is not run again, and
        one that died goes on where it was.  A call of it that needs a person is refused.
        """
        step = self._delegated(name, assignment)
        return typed(await self._loop.ask(step), Outcome)

    async def gather(self, *work: Coroutine[Any, Any, T]) -> list[T]:
        """Run branches beside each other; return their results in order.

            facts = await w.gather(*(w.agent("research", one, topic) for topic in topics))

        A branch is a node, or an async function with several.  The nodes that the branches ask
        for run at the same time, and all of them end before any branch goes on; so branches must
        not wait for each other.  One that is to go its own way throughout is a workflow as a node.

        Raises what a branch raises; nodes under way still end.
        """
        return await self._loop.gather(work)

    # Parts

    def _child(
        self,
        name: str,
        agent: Agent | Workflow,
        task: str | UserMessage | None,
        input_source: str,
        source_node_id: str | None,
        *,
        history: bool = False,
    ) -> NodeIteration:
        """Return a node that is a child run."""
        loop = self._loop
        if loop.depth >= MAX_DEPTH:
            raise ConfigError(
                f"The node {name!r} would be nested deeper than {MAX_DEPTH} runs.",
                cure="Look for a workflow that runs itself.",
            )
        before: list[HistoryMessage] = [*loop.messages] if history else []
        if task is None and input_source == "last_message" and before:
            before.pop()
        message = self._input(task, input_source, source_node_id)
        asked = {"task": message.text, **({"history": len(before)} if history else {})}
        step: NodeIteration

        async def run(context: ToolContext) -> ToolResult:
            try:
                return node_tool_result(await work(context))
            except Exception as error:
                step.cause = error
                raise

        async def work(context: ToolContext) -> Any:
            earlier = await loop.earlier(step) if step.again else None
            if earlier is not None and earlier.status == "succeeded":
                return _output(earlier.output, agent)
            if earlier is not None:
                with context.timer.paused():
                    result = await loop.resume(earlier, agent)
            else:
                spec = RunSpec(node=name, iteration=step.iteration)
                result = await context.run_agent(agent, message, spec=spec, before=tuple(before))
            return _value(step, result)

        tool = FunctionTool(run, name=name if NAME.fullmatch(name) else "node", timeout=math.inf)
        step = NodeIteration(name, asked, tool, repeatable=True, speaks=True)
        return step

    def _delegated(self, name: str, assignment: Assignment) -> NodeIteration:
        """Return a node that is a sub-agent at a task."""
        known = {field.name: getattr(assignment, field.name) for field in fields(assignment)}
        tools = [one.name for one in Toolset(assignment.tools)]
        step: NodeIteration

        async def run(context: ToolContext) -> ToolResult:
            # By its call a sub-agent is found again that was at work when the process died.
            context = replace(context, call_id=step.began or context.call_id)
            return node_tool_result(asdict(await delegate_task(context, assignment)))

        tool = FunctionTool(run, name=name if NAME.fullmatch(name) else "node", timeout=math.inf)
        step = NodeIteration(name, to_plain_json({**known, "tools": tools}), tool, repeatable=True)
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
                f"There is no output of a node {source_node_id!r}.",
                cure=f"The nodes with an output are: {', '.join(known) or 'none yet'}.",
            )
        return UserMessage(describe_value(known[source_node_id]))


def _value(step: NodeIteration, result: RunResult) -> Any:
    if result.ok:
        return result.output
    step.stop_reason = result.stop_reason
    raise ToolError(f"Its run {result.run_id} stopped ({result.stop_reason}). {result.detail}")


def _output(kept: bytes, agent: Agent | Workflow) -> Any:
    """Return the output of a run that had succeeded."""
    value = orjson.loads(kept) if kept else None
    if isinstance(agent, Workflow) or agent.output_type in (None, str) or value is None:
        return value
    return outputs.output_type(agent.output_type).validate(value)
