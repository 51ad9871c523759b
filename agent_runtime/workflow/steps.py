"""One iteration of a workflow's node: its arguments, what runs it, and its value in the log."""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import anyio

from agent_runtime.errors import ConfigError, NodeFailed
from agent_runtime.human.waiting import AwaitingHuman
from agent_runtime.messages import ToolResult
from agent_runtime.tools.base import Tool
from agent_runtime.tools.context import ToolContext
from agent_runtime.tools.function import FunctionTool
from agent_runtime.tools.signature import is_async
from agent_runtime.workflow.functions import FunctionCall
from agent_runtime.workflow.values import decode_node_value, node_tool_result, to_plain_json

NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")

Key = tuple[str, int]
"""A node's name and the number of the iteration, from 1."""


_NODE = r"'[a-zA-Z0-9_-]{1,64}'(?: \(iteration \d+\))?"
_INNER = re.compile(rf"NodeFailed: The node (?P<path>{_NODE}(?: > {_NODE})*) failed: ")
"""The beginning of the error of a node that failed because of a node inside of it."""


@dataclass(slots=True, eq=False)
class NodeIteration:
    """One iteration of a node, from the workflow's request to its value.

    Attributes:
        asked: its arguments, as the log has them.
        work: the tool that runs it.
        repeatable: whether it may run again if its end was not recorded.
        speaks: whether its value becomes a message of the shared state.
        path: its position among parallel branches.
        kind: the type of its value; None for any.
        again: whether the log has this iteration without success.
        decided: the result that a person gave it, instead of running it.
        began: the call that began it, if its end was not recorded.
        cause: the error that it failed with in this process.
        stop_reason: why its own run stopped.
        waits: set while its own run waits for a person.
        function: the call that may need an approval; None for a node with a run of its own.
    """

    name: str
    asked: dict[str, Any]
    work: Tool
    repeatable: bool
    speaks: bool = False
    path: tuple[int, ...] = ()
    kind: Any = None
    iteration: int = 0
    again: bool = False
    decided: ToolResult | None = None
    began: str = ""
    result: ToolResult | None = None
    cause: Exception | None = None
    stop_reason: str = ""
    waits: AwaitingHuman | None = None
    done: anyio.Event = field(default_factory=anyio.Event)
    function: FunctionCall | None = None

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise ConfigError(
                f"{self.name!r} is not a valid name for a node.",
                cure="Use 1 to 64 letters (a-z), digits, `_` and `-`.",
            )

    @property
    def key(self) -> Key:
        """The key of its record."""
        return self.name, self.iteration

    def wait(self, run_id: str, stop_reason: str = "awaiting_user") -> AwaitingHuman:
        """Let the node wait with its own run; return what its call returns instead of a result."""
        self.waits = AwaitingHuman("", run_id=run_id, stop_reason=stop_reason)
        return self.waits

    def value(self) -> Any:
        """Return the node's value, as JSON.

        Raises:
            NodeFailed: it did not succeed.
        """
        assert self.result is not None
        if self.result.outcome == "ok":
            return decode_node_value(self.result.text)
        raise self._failed(self.result) from self.cause

    def _failed(self, result: ToolResult) -> NodeFailed:
        which = f"{self.name!r}" + (f" (iteration {self.iteration})" if self.iteration > 1 else "")
        if result.outcome == "interrupted":
            return NodeFailed(
                f"The node {which} was started, but its end was not recorded: its effect is "
                "unverified.",
                cure=f"Check what it did, and resume the run with rerun={{{self.name!r}}}, "
                f"accept={{{self.name!r}: value}} or fail={{{self.name!r}}}; or catch NodeFailed. "
                "A function made by `tool(idempotent=True)` runs again by itself.",
                node=self.name,
                iteration=self.iteration,
                outcome="interrupted",
            )
        inner = _INNER.match(result.text)
        if inner is not None:
            # One path instead of a sentence for each level of nested workflows.
            which, text = f"{which} > {inner['path']}", result.text[inner.end() :]
        else:
            text = result.text
        return NodeFailed(
            f"The node {which} failed: {text}",
            node=self.name,
            iteration=self.iteration,
            stop_reason=self.stop_reason,
        )


class WorkflowNodeTool(Tool):
    """A node as the exchange's tool, with those of its iterations that run at the same time."""

    def __init__(self, name: str, steps: Mapping[int, NodeIteration]) -> None:
        super().__init__(name=name)
        self._steps = steps

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """Run one iteration."""
        return await self._steps[arguments["iteration"]].work.call({}, context)


def function_step(
    name: str, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> NodeIteration:
    """Return a node that calls a function (or the function of a `tool`) with these arguments.

    Raises:
        ConfigError: the name or the function is not usable.
    """
    made = _tool(function)
    inner = made.function if made else function
    step: NodeIteration

    def failed(error: Exception) -> Exception:
        step.cause = error
        return error

    async def settled(value: Awaitable[Any]) -> ToolResult:
        try:
            return node_tool_result(await value)
        except Exception as error:
            raise failed(error) from None

    async def on_loop() -> ToolResult:
        return await settled(inner(*args, **kwargs))

    def in_thread() -> ToolResult | Awaitable[ToolResult]:
        try:
            # A sync function may still return a coroutine, as a lambda around an async one does.
            value = inner(*args, **kwargs)
            return settled(value) if inspect.isawaitable(value) else node_tool_result(value)
        except Exception as error:
            raise failed(error) from None

    work = FunctionTool(
        on_loop if is_async(inner) else in_thread,
        name=name if NAME.fullmatch(name) else "node",
        timeout=made.timeout if made else None,
    )
    asked: dict[str, Any] = {}
    if args:
        asked["args"] = to_plain_json(list(args))
    if kwargs:
        asked["kwargs"] = to_plain_json(dict(kwargs))
    step = NodeIteration(name, asked, work, repeatable=made is not None and made.idempotent)
    step.kind = return_type(function)
    step.function = FunctionCall.of(name, inner, made, args, kwargs)
    return step


def return_type(function: Callable[..., Any]) -> Any:
    """Return a function's return annotation; None if there is no usable one."""
    made = _tool(function)
    try:
        return typing.get_type_hints(made.function if made else function).get("return")
    except (TypeError, NameError, AttributeError):
        return None


def _tool(function: object) -> FunctionTool[..., Any] | None:
    if not isinstance(function, FunctionTool):
        return None
    return cast("FunctionTool[..., Any]", function)
